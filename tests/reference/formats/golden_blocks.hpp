// Fenced blocks of reference/spec/golden_vectors.md and minikv_released.md: lines of words.
#pragma once

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "reference/formats/page_codec.hpp"

namespace kvproof::tests {

using reference::half_bits;

using line_words = std::vector<std::string>;
using fenced_block = std::vector<line_words>;  // the lines of one fenced block

inline std::vector<fenced_block> read_blocks(const std::string& path, const std::string& kind) {
  std::ifstream file(path);
  BOOST_REQUIRE_MESSAGE(file, path << " cannot be read; run the test in the source directory");
  std::vector<fenced_block> blocks;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "```" + kind) {
      blocks.emplace_back();
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      std::istringstream words(line);
      blocks.back().emplace_back(std::istream_iterator<std::string>(words),
                                 std::istream_iterator<std::string>());
    }
  }
  return blocks;
}

inline std::uint32_t hex(const std::string& word) {
  return static_cast<std::uint32_t>(std::stoul(word, nullptr, 16));
}

// Words after the key of the only line that starts with it; empty if there is none.
inline line_words values_of(const fenced_block& block, const std::string& key) {
  for (const line_words& line : block) {
    if (line.front() == key) return {line.begin() + 1, line.end()};
  }
  return {};
}

inline std::vector<half_bits> halves_of(const fenced_block& block, const std::string& key) {
  std::vector<half_bits> halves;
  for (const std::string& word : values_of(block, key)) {
    halves.push_back(static_cast<half_bits>(hex(word)));
  }
  return halves;
}

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

}  // namespace kvproof::tests

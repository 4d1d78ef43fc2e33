// Container of golden outputs, little-endian:
//   0 char[8] "kvpgold1"   8 u32 bytes per word (4 or 8)   12 u32 sections   16 u64 words per
//   section 24 u64 seed of the inputs   32 u64 checksum of the payload   40 payload
//   [sections][words]
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "reference/spec/error.hpp"

namespace kvproof::golden {

static_assert(std::endian::native == std::endian::little, "golden files hold native words");

template <class Word>
struct golden_file {
  static_assert(sizeof(Word) == 4 || sizeof(Word) == 8);
  std::uint64_t seed = 0;
  std::uint32_t sections = 0;
  std::uint64_t words_per_section = 0;
  std::vector<Word> words;  // [sections][words_per_section]

  [[nodiscard]] const Word& at(std::uint64_t section, std::uint64_t word) const {
    return words.at(section * words_per_section + word);
  }
};

namespace detail {

struct file_header {
  char magic[8];
  std::uint32_t word_bytes;
  std::uint32_t sections;
  std::uint64_t words_per_section;
  std::uint64_t seed;
  std::uint64_t checksum;
};
static_assert(sizeof(file_header) == 40, "the header has no padding");
inline constexpr char file_magic[8] = {'k', 'v', 'p', 'g', 'o', 'l', 'd', '1'};

template <class Word>
std::uint64_t checksum(const std::vector<Word>& words) {  // FNV-1a over the bytes
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const Word w : words) {
    for (std::size_t i = 0; i < sizeof(Word); ++i) {
      hash = (hash ^ (w >> (8 * i) & 0xffu)) * 0x100000001b3u;
    }
  }
  return hash;
}

}  // namespace detail

// Throws input_error when the file is missing, damaged or of another word size.
template <class Word>
[[nodiscard]] golden_file<Word> read_golden_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw spec::input_error(path + ": cannot be opened; run from the source directory, or record" +
                            " it as tests/golden/README.md says");
  }
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto damaged = [&](const char* what) {
    throw spec::input_error(path + ": " + what + "; restore the committed file");
  };
  detail::file_header header{};
  if (bytes.size() < sizeof header) damaged("shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, detail::file_magic, 8) != 0) damaged("not a golden file");
  if (header.word_bytes != sizeof(Word)) damaged("holds words of another size");
  const std::uint64_t payload = bytes.size() - sizeof header;
  if (header.sections == 0 || payload % (header.sections * sizeof(Word)) != 0 ||
      payload / (header.sections * sizeof(Word)) != header.words_per_section) {
    damaged("its length is not that of its header");
  }
  golden_file<Word> file{header.seed, header.sections, header.words_per_section, {}};
  file.words.resize(payload / sizeof(Word));
  std::memcpy(file.words.data(), bytes.data() + sizeof header, payload);
  if (detail::checksum(file.words) != header.checksum) damaged("checksum does not match");
  return file;
}

template <class Word>
void write_golden_file(const std::string& path, const golden_file<Word>& file) {
  detail::file_header header{};
  std::memcpy(header.magic, detail::file_magic, 8);
  header.word_bytes = sizeof(Word);
  header.sections = file.sections;
  header.words_per_section = file.words_per_section;
  header.seed = file.seed;
  header.checksum = detail::checksum(file.words);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  out.write(reinterpret_cast<const char*>(file.words.data()),
            static_cast<std::streamsize>(file.words.size() * sizeof(Word)));
  if (!out.flush()) throw spec::input_error(path + ": cannot be written; check the directory");
}

}  // namespace kvproof::golden

// Small traces, scratch folders and the comparison of traces, for the tests of traces/.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "traces/attention_trace.hpp"

namespace kvproof::traces::test {

class scratch_folder {
 public:
  scratch_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvproof_XXXXXX").string();
    BOOST_REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  ~scratch_folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::filesystem::path operator/(const char* name) const { return path_ / name; }
  [[nodiscard]] int num_entries() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

inline std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct trace_shape {
  std::int64_t num_tokens = 5;
  int query_heads = 6;
  int kv_heads = 2;
  int head_dim = 4;
};

// Bits of every kind of finite half: both zeros, subnormals, normals, the largest.
inline attention_trace small_trace(const trace_shape& shape) {
  attention_trace trace;
  trace.model = {.name = "tiny-\u00e9",
                 .num_layers = 12,
                 .query_heads = shape.query_heads,
                 .kv_heads = shape.kv_heads,
                 .head_dim = shape.head_dim,
                 .rope_theta = 12345.678,
                 .softmax_scale = 0.1};
  trace.num_tokens = shape.num_tokens;
  trace.prompt_length = shape.num_tokens / 2;
  std::uint32_t state = 12345;
  const auto next = [&state] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (std::int64_t t = 0; t < shape.num_tokens; ++t) {
    trace.token_ids.push_back(static_cast<std::int32_t>(next()));
  }
  const auto tensor = [&](int heads) {
    constexpr std::uint16_t corners[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x3c00};
    std::vector<half_bits> values(
        static_cast<std::size_t>(shape.num_tokens * heads * shape.head_dim));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto bits = static_cast<half_bits>(next());
      values[i] = i % 3 == 0 ? corners[i / 3 % std::size(corners)]
                             : static_cast<half_bits>(bits & 0xbbff);  // exponent below 15
    }
    return values;
  };
  for (const int layer : {2, 10}) {
    layer_trace data = {.layer = layer, .q = {}, .k = {}, .v = {}};
    data.q = tensor(shape.query_heads);
    data.k = tensor(shape.kv_heads);
    data.v = tensor(shape.kv_heads);
    trace.layers.push_back(data);
  }
  trace.provenance = "made by a test\nin two lines";
  trace.license = "Apache-2.0";
  return trace;
}

inline bool same_data(const attention_trace& a, const attention_trace& b) {
  return a.token_ids == b.token_ids && a.layers.size() == b.layers.size() &&
         std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(),
                    [](const layer_trace& x, const layer_trace& y) {
                      return x.layer == y.layer && x.q == y.q && x.k == y.k && x.v == y.v;
                    });
}

inline bool same_trace(const attention_trace& a, const attention_trace& b) {
  return same_data(a, b) && a.model.name == b.model.name &&
         a.model.num_layers == b.model.num_layers && a.model.query_heads == b.model.query_heads &&
         a.model.kv_heads == b.model.kv_heads && a.model.head_dim == b.model.head_dim &&
         a.model.rope_theta == b.model.rope_theta &&
         a.model.softmax_scale == b.model.softmax_scale && a.num_tokens == b.num_tokens &&
         a.prompt_length == b.prompt_length && a.provenance == b.provenance &&
         a.license == b.license;
}

// `act` throws exactly Error, on one line that holds all of `words`.
template <class Error, class Act>
void check_throws(const Act& act, std::initializer_list<std::string_view> words) {
  try {
    act();
  } catch (const spec::error& e) {
    const std::string what = e.what();
    BOOST_TEST((typeid(e) == typeid(Error)), "wrong type for: " << what);
    BOOST_TEST(what.find('\n') == std::string::npos, "more than one line: " << what);
    for (const std::string_view word : words) {
      BOOST_TEST(what.find(word) != std::string::npos, "no '" << word << "' in: " << what);
    }
    return;
  }
  BOOST_ERROR("nothing was thrown");
}

// Reading fails with Error; the message names the file.
template <class Error>
void check_refused(const std::filesystem::path& file,
                   std::initializer_list<std::string_view> words) {
  check_throws<Error>([&] { (void)read_attention_trace(file); }, words);
  check_throws<Error>([&] { (void)read_attention_trace(file); }, {file.string() + ": "});
}

}  // namespace kvproof::traces::test

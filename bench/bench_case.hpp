// What is timed: operation x format x model x batch x tokens, its name, and what it costs. No
// device is needed for any of this.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/kv_format.hpp"

namespace kvproof::bench {

struct model_shape {
  std::string_view name;
  int q_heads, kv_heads, head_dim;
  [[nodiscard]] constexpr int gqa_ratio() const { return q_heads / kv_heads; }
};

inline constexpr std::array<model_shape, 4> models = {{
    {"llama3-8b", 32, 8, 128},
    {"llama2-7b", 32, 32, 128},
    {"qwen2.5-7b", 28, 4, 128},
    {"smollm2-135m", 9, 3, 64},
}};
inline constexpr spec::format_id low_tier = spec::format_id::k4v2;  // of a cache with tiers
inline constexpr model_shape tiny_model = {"tiny", 4, 2, 64};       // for the emulator

enum class operation : std::uint8_t {
  decode,
  quantize_pack,
  gather_quantize,
  demote,
  score_update
};

enum class length_mix : std::uint8_t {
  uniform,  // every sequence has `tokens`
  ragged,   // log-uniform between `shortest` and `longest`, one sequence of `outlier` tokens
  equal,    // the total of `ragged`, in equal lengths
};

struct length_range {
  std::int64_t shortest, longest, outlier;
};
inline constexpr length_range served_lengths = {100, 32768, 131072};
inline constexpr length_range tiny_lengths = {20, 300, 704};

struct bench_case {
  operation op;
  spec::format_id format;  // tiers, demote (of the source): k8v4; score_update: k8v4 stands for any
  model_shape model = models[0];
  int batch = 1;
  length_mix mix = length_mix::uniform;
  std::int64_t tokens =
      0;  // a sequence, when uniform; gather_quantize and demote take every second
  length_range range = served_lengths;  // when not uniform
  bool scores = false;                  // decode also writes all scores
  bool significance = false;            // decode, then score update
  bool tiers = false;                   // decode over a K8V4, a K4V2 and a recent part

  // "decode/k4v2/llama3-8b/batch:64/tokens:16384", "decode/k4v2/llama3-8b/ragged/batch:64/scores"
  [[nodiscard]] std::string name() const;
};

// The matrix for a GPU: names are unique, heavy cases are not left out (see case_costs).
[[nodiscard]] std::vector<bench_case> gpu_cases();
// Small cases of every operation and format, for the emulator, where times mean nothing.
[[nodiscard]] std::vector<bench_case> emulator_cases();

// Tokens of each sequence, multiples of 16; a pure function of the case.
[[nodiscard]] std::vector<std::int64_t> lengths_of(const bench_case& c);

// How the tokens of a sequence lie in its cache; all of them in one quantized part, or with tiers
// the last 64 as fp16, a quarter of the others in the high tier, the rest in the low one.
struct cache_parts {
  std::int64_t quantized, low, recent;
};
[[nodiscard]] cache_parts parts_of(const bench_case& c, std::int64_t tokens);
[[nodiscard]] std::int64_t pages_of(const bench_case& c, const cache_parts& parts);

struct case_costs {
  std::int64_t moved_bytes;   // that one launch must read and write, each byte once
  std::int64_t tokens;        // of all sequences: attended (decode) or written, all KV heads alike
  std::int64_t copies;        // independent sets of the data, taken in turn
  std::int64_t device_bytes;  // memory of the case, copies included
};

// Copies are as many as it takes to move four times the cache.
[[nodiscard]] case_costs costs_of(const bench_case& c, std::int64_t l2_bytes);

}  // namespace kvproof::bench

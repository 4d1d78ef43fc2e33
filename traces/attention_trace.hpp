// Attention traces: post-RoPE queries, keys and values of some layers of one sequence, recorded
// from a model or synthesized, in HDF5. Schema v1: traces/README.md. 16-bit data are byte-stored,
// never converted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/error.hpp"

namespace kvproof::traces {

using half_bits = std::uint16_t;  // IEEE binary16

struct model_facts {
  std::string name;    // "SmolLM2-135M-Instruct"
  int num_layers = 0;  // of the model, not of the trace
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  double rope_theta = 0;
  double softmax_scale = 0;  // 1 / sqrt(head_dim) as a rule
};

struct layer_trace {
  int layer = 0;             // index in the model
  std::vector<half_bits> q;  // [tokens][query_heads][head_dim]
  std::vector<half_bits> k;  // [tokens][kv_heads][head_dim]
  std::vector<half_bits> v;  // [tokens][kv_heads][head_dim]
};

struct attention_trace {
  model_facts model;
  std::int64_t num_tokens = 0;          // prompt and generated
  std::int64_t prompt_length = 0;       // tokens [0, prompt_length) are the prompt
  std::vector<std::int32_t> token_ids;  // [num_tokens]
  std::vector<layer_trace> layers;      // ascending
  std::string provenance;               // how and from what it was made
  std::string license;                  // SPDX expression
};

// What a trace file can be guilty of; each has its own type so that a caller can tell them apart.
class trace_error : public spec::input_error {
  using spec::input_error::input_error;
};
class not_hdf5_error : public trace_error {
  using trace_error::trace_error;
};
class truncated_error : public trace_error {
  using trace_error::trace_error;
};
class schema_error : public trace_error {  // missing or wrong dataset, rank, shape, attribute
  using trace_error::trace_error;
};
class element_type_error : public trace_error {  // not declared fp16: refuse to guess
  using trace_error::trace_error;
};
class non_finite_error : public trace_error {  // names layer, head, token
  using trace_error::trace_error;
};

// Reads and validates everything. Every error names file, dataset and remedy on one line.
[[nodiscard]] attention_trace read_attention_trace(const std::filesystem::path& file);

// Writes via a temporary file and a rename: a failure leaves nothing behind. Byte-reproducible.
void write_attention_trace(const std::filesystem::path& file, const attention_trace& trace);

}  // namespace kvproof::traces

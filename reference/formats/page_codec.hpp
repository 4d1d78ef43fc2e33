// Quantize, pack, unpack and dequantize one KV head's cache: kv_formats.md in code, the obvious
// way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/spec/kv_format.hpp"

namespace kvproof::reference {

using half_bits = std::uint16_t;  // IEEE binary16

// The quantizers of kv_formats.md section 2 and of the papers' released code.
enum class quantizer : std::uint8_t {
  contract,              // zero = min, scale = RN16((max-min)/R), codes against the stored values
  contract_group16_key,  // the same with the scale at 6 significant bits: K of int2_g16
  minikv_released,       // MiniKV / KIVI new_pack.py: every step rounded to fp16 (spec of MiniKV
                         // section 2.1)
};

struct quantized_group {
  half_bits scale;
  half_bits zero;
  std::vector<std::uint8_t> codes;  // one per element, 0 .. 2^bits - 1
};

// bits in {2, 4, 8}; x holds one group (any size >= 1).
[[nodiscard]] quantized_group quantize_group(std::span<const half_bits> x, int bits,
                                             quantizer rule = quantizer::contract);

// Appends rows of k and v (each [n][head_dim], row-major) as tokens first .. first+n-1 of the cache
// made of `pages` (each page_size_bytes long, in token order; what lies behind page_content_bytes
// is left alone). Throws contract_error on misaligned first or n, or when the pages do not reach.
void append_tokens(const spec::kv_format& format, int head_dim, std::span<const half_bits> k,
                   std::span<const half_bits> v, std::int64_t first,
                   std::span<const std::span<std::byte>> pages);

// The logical content of the first n tokens: codes [n][head_dim]; scales and zeros as fp16 bits,
// per_token: [n] each; group16: key [n/16][head_dim], value [n][head_dim/16].
struct unpacked_tokens {
  std::vector<std::uint8_t> key_codes, value_codes;
  std::vector<half_bits> key_scales, key_zeros, value_scales, value_zeros;
};
[[nodiscard]] unpacked_tokens unpack_tokens(const spec::kv_format& format, int head_dim,
                                            std::int64_t n,
                                            std::span<const std::span<const std::byte>> pages);

// Decoded values code * scale + zero in double (exact), [n][head_dim].
struct dequantized_tokens {
  std::vector<double> k, v;
};
[[nodiscard]] dequantized_tokens dequantize_tokens(
    const spec::kv_format& format, int head_dim, std::int64_t n,
    std::span<const std::span<const std::byte>> pages);

}  // namespace kvproof::reference

// quantize_group: kv_formats.md section 2 (contract) and minikv_released.md (released code).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/formats/page_codec.hpp"
#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::reference {
namespace {

constexpr half_bits canonical_nan = 0x7fff;

std::vector<float> to_floats(std::span<const half_bits> x) {
  std::vector<float> values(x.size());
  std::transform(x.begin(), x.end(), values.begin(), half_to_float);
  return values;
}

// The limit comes before the conversion to an integer: the quotient can reach 2^41.
std::uint8_t round_to_code(float quotient, float max_code) {
  return static_cast<std::uint8_t>(std::nearbyint(std::min(quotient, max_code)));
}

// 6 significant bits, ties to even, of a positive finite number; a carry moves into the exponent.
half_bits round_to_6_bits(half_bits u) {
  return static_cast<half_bits>((u + 15u + (u >> 5 & 1u)) & ~31u);
}

quantized_group quantize_contract(std::span<const half_bits> x, float max_code, quantizer rule) {
  const std::vector<float> values = to_floats(x);
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
    return {canonical_nan, canonical_nan, std::vector<std::uint8_t>(x.size(), 0)};
  }
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  const float zero = add(*min, 0.0f);  // -0 becomes +0
  const float top = add(*max, 0.0f);   // so that a group of -0 has the scale +0
  const half_bits step = float_to_half(div(sub(top, zero), max_code));
  const half_bits scale_bits =
      rule == quantizer::contract_group16_key ? round_to_6_bits(step) : step;
  const float scale = half_to_float(scale_bits);

  quantized_group group = {scale_bits, float_to_half(zero), {}};
  for (const float v : values) {
    group.codes.push_back(scale == 0.0f ? std::uint8_t{0}
                                        : round_to_code(div(sub(v, zero), scale), max_code));
  }
  return group;
}

float round_to_half(float x) { return half_to_float(float_to_half(x)); }

// new_pack.py: every tensor operation computes in fp32 and rounds to fp16.
quantized_group quantize_minikv_released(std::span<const half_bits> x, int bits, float max_code) {
  const std::vector<float> values = to_floats(x);
  const bool any_nan =
      std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); });
  float min = half_to_float(canonical_nan);
  float max = min;
  const bool nan_propagates = bits != 2;  // torch.min / torch.max; the 2-bit path skips NaN
  if (!(any_nan && nan_propagates)) {
    for (const float v : values) {
      min = std::isnan(min) || v < min || (v == min && std::signbit(v)) ? v : min;
      max = std::isnan(max) || v > max ? v : max;
    }
  }
  const float range = round_to_half(sub(max, min));
  const half_bits scale_bits = float_to_half(mul(range, div(1.0f, max_code)));
  const float scale = half_to_float(scale_bits);

  quantized_group group = {scale_bits, float_to_half(min), {}};
  for (const float v : values) {
    const float quotient = round_to_half(div(round_to_half(sub(v, min)), scale));
    group.codes.push_back(std::isnan(quotient) ? std::uint8_t{0}
                                               : round_to_code(quotient, max_code));
  }
  return group;
}

}  // namespace

quantized_group quantize_group(std::span<const half_bits> x, int bits, quantizer rule) {
  if (bits != 2 && bits != 4 && bits != 8) {
    throw spec::contract_error(
        fmt::format("quantize_group: {} bits are not supported; use 2, 4 or 8", bits));
  }
  if (x.empty()) {
    throw spec::contract_error("quantize_group: the group is empty; pass at least one element");
  }
  const float max_code = static_cast<float>((1 << bits) - 1);
  if (rule == quantizer::minikv_released) return quantize_minikv_released(x, bits, max_code);
  return quantize_contract(x, max_code, rule);
}

}  // namespace kvproof::reference

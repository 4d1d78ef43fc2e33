#include "reference/formats/code_operands.hpp"

#include <fmt/format.h>

#include <array>

#include "reference/spec/error.hpp"

namespace kvproof::reference {

int operand_shift(const spec::kv_format& format, int head_dim, kv_side side, int group) {
  const bool is_key = side == kv_side::key;
  const int bits = is_key ? format.key_bits : format.value_bits;
  if (is_key && bits != 2) {
    throw spec::contract_error(fmt::format(
        "operand_shift: keys of {} are integers, not fp16 operands; read the codes themselves",
        format.name));
  }
  if (bits == 4) {
    constexpr std::array value_shifts = {2, 6, 2, 6};
    return value_shifts[group % 4];
  }
  constexpr std::array shifts_128 = {4, 6, 4, 6, 8, 4, 6, 8};
  constexpr std::array shifts_64 = {4, 6, 4, 6};
  return head_dim == 128 ? shifts_128[group] : shifts_64[group];
}

int operand_exponent(const spec::kv_format& format, int head_dim, kv_side side, int group) {
  return 24 - operand_shift(format, head_dim, side, group);
}

}  // namespace kvproof::reference

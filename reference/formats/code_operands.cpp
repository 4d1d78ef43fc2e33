#include "reference/formats/code_operands.hpp"

#include <array>

namespace kvproof::reference {

int operand_shift(const spec::kv_format& format, int head_dim, kv_side side, int group) {
  const bool is_key = side == kv_side::key;
  const int bits = is_key ? format.key_bits : format.value_bits;
  if (bits == 8) return 0;
  if (bits == 4) {
    constexpr std::array key_shifts = {0, 4, 0, 4};
    constexpr std::array value_shifts = {2, 6, 2, 6};
    return is_key ? key_shifts[group % 4] : value_shifts[group % 4];
  }
  constexpr std::array shifts_128 = {4, 6, 4, 6, 8, 4, 6, 8};
  constexpr std::array shifts_64 = {4, 6, 4, 6};
  return head_dim == 128 ? shifts_128[group] : shifts_64[group];
}

int operand_exponent(const spec::kv_format& format, int head_dim, kv_side side, int group) {
  return 24 - operand_shift(format, head_dim, side, group);
}

int key_exponent(const spec::kv_format& format) { return format.key_bits == 2 ? 20 : 24; }

}  // namespace kvproof::reference

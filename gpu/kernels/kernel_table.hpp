// Every kernel that kvproof ships: one row an entry point, made from one list (kernel_table.cpp),
// with the module (PTX and cubin) it lives in. Nothing else names kernels.
#pragma once

#include <span>
#include <string_view>

#include "gpu/device/device.hpp"
#include "reference/spec/kv_format.hpp"

namespace kvproof::gpu {

enum class kernel_role : std::uint8_t {
  quantize,
  decode,
  decode_tiers,  // K8V4 and K4V2 pages of one cache
  gather_quantize,
  demote,
  score_update
};

struct kernel_entry {
  kernel_role role;
  spec::format_id format;  // decode_tiers, demote: k8v4; score_update: k8v4 stands for any
  int head_dim;            // 64, 128; score_update: 0 (any)
  int gqa_ratio;  // decode, decode_tiers, score_update: query heads per KV head, 1..8; others: 0
  std::string_view entry;  // extern "C" name in the PTX
  std::size_t module;      // index into kernel_modules()
};

// Empty when the build has no kernels (KVPROOF_KERNELS=OFF).
[[nodiscard]] std::span<const kernel_entry> kernel_entries();
[[nodiscard]] std::span<const kernel_module> kernel_modules();

// Throws contract_error for a head_dim or ratio that no kernel covers, device_error without
// kernels.
[[nodiscard]] const kernel_entry& find_kernel(kernel_role role, spec::format_id format,
                                              int head_dim, int gqa_ratio);

}  // namespace kvproof::gpu

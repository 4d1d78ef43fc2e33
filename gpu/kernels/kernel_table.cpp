// The list of kernels, see kernel_table.hpp. Modules are embedded by embedded_modules.S; an entry's
// name follows from its role, format, head_dim and ratio.
#include "gpu/kernels/kernel_table.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "reference/spec/error.hpp"

namespace kvproof::gpu {
namespace {

#if KVPROOF_HAS_KERNELS

// KVPROOF_MODULES(M) calls M(name) for every .cu file, in the order of the list in CMakeLists.txt.
#include "kernel_modules.inc"

extern "C" {
#define KVPROOF_DECLARE(name)                                           \
  extern const char kvproof_##name##_ptx[], kvproof_##name##_ptx_end[]; \
  extern const char kvproof_##name##_cubin[], kvproof_##name##_cubin_end[];
KVPROOF_MODULES(KVPROOF_DECLARE)
#undef KVPROOF_DECLARE
}

std::vector<kernel_module> make_modules() {
  std::vector<kernel_module> modules;
#define KVPROOF_ADD(name)                                                                          \
  modules.push_back({#name,                                                                        \
                     {kvproof_##name##_ptx,                                                        \
                      static_cast<std::size_t>(kvproof_##name##_ptx_end - kvproof_##name##_ptx)},  \
                     std::as_bytes(std::span(kvproof_##name##_cubin, kvproof_##name##_cubin_end)), \
                     true});
  KVPROOF_MODULES(KVPROOF_ADD)
#undef KVPROOF_ADD
  return modules;
}

#else

std::vector<kernel_module> make_modules() { return {}; }

#endif

struct table {
  std::vector<kernel_module> modules = make_modules();
  std::vector<std::string> names;  // what the entries' string_views point to
  std::vector<kernel_entry> entries;

  table() {
    if (modules.empty()) return;
    names.reserve(512);
    for (const spec::kv_format& format : spec::kv_formats) {
      for (const int head_dim : {64, 128}) {
        if (format.id == spec::format_id::k8v4) {
          add(kernel_role::demote, format, head_dim, 0, "demote_k8v4",
              fmt::format("demote_k8v4_d{}_kernel", head_dim));
        }
        add(kernel_role::quantize, format, head_dim, 0, fmt::format("quantize_{}", format.name),
            fmt::format("quantize_{}_d{}_kernel", format.name, head_dim));
        add(kernel_role::gather_quantize, format, head_dim, 0,
            fmt::format("quantize_{}", format.name),
            fmt::format("gather_quantize_{}_d{}_kernel", format.name, head_dim));
        for (int ratio = 1; ratio <= spec::max_gqa_ratio; ++ratio) {
          if (format.id == spec::format_id::k8v4) {
            add(kernel_role::decode_tiers, format, head_dim, ratio,
                fmt::format("decode_tiers_d{}", head_dim),
                fmt::format("decode_tiers_d{}_g{}_kernel", head_dim, ratio));
          }
          add(kernel_role::decode, format, head_dim, ratio,
              fmt::format("decode_{}_d{}", format.name, head_dim),
              fmt::format("decode_{}_d{}_g{}_kernel", format.name, head_dim, ratio));
        }
      }
    }
    for (int ratio = 1; ratio <= spec::max_gqa_ratio; ++ratio) {
      add(kernel_role::score_update, spec::format_of(spec::format_id::k8v4), 0, ratio,
          "score_update", fmt::format("score_update_g{}_kernel", ratio));
    }
  }

  void add(kernel_role role, const spec::kv_format& format, int head_dim, int ratio,
           const std::string& module, std::string entry) {
    for (std::size_t i = 0; i < modules.size(); ++i) {
      if (modules[i].name != module) continue;
      names.push_back(std::move(entry));
      entries.push_back({role, format.id, head_dim, ratio, names.back(), i});
      return;
    }
  }
};

std::string_view name_of(kernel_role role) {
  switch (role) {
    case kernel_role::quantize:
      return "quantize";
    case kernel_role::decode:
      return "decode";
    case kernel_role::decode_tiers:
      return "decode of two tiers,";
    case kernel_role::gather_quantize:
      return "gather_quantize";
    case kernel_role::demote:
      return "demote";
    case kernel_role::score_update:
      return "score_update";
  }
  return "unknown role";
}

const table& the_table() {
  static const table t;
  return t;
}

}  // namespace

std::span<const kernel_entry> kernel_entries() { return the_table().entries; }
std::span<const kernel_module> kernel_modules() { return the_table().modules; }

const kernel_entry& find_kernel(kernel_role role, spec::format_id format, int head_dim,
                                int gqa_ratio) {
  if (the_table().entries.empty()) {
    throw spec::device_error(
        "this build has no kernels; configure with -DKVPROOF_KERNELS=ON (needs nvcc 13.0)");
  }
  for (const kernel_entry& e : the_table().entries) {
    if (e.role == role && e.format == format && e.head_dim == head_dim && e.gqa_ratio == gqa_ratio)
      return e;
  }
  throw spec::contract_error(fmt::format(
      "no kernel for {} {}, head_dim {}, gqa ratio {}: head_dim 64 and 128, ratios "
      "1..{} are supported",
      name_of(role), spec::format_of(format).name, head_dim, gqa_ratio, spec::max_gqa_ratio));
}

}  // namespace kvproof::gpu

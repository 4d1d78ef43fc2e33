// The table of variants, see variants.hpp.
#include "verify/variants.hpp"

#include <fmt/format.h>

#include <array>

#include "reference/spec/error.hpp"

namespace kvproof::verify {
namespace {

constexpr int minikv_residual_length = 128;  // n_r of MiniKV and KIVI

constexpr std::array<variant, 4> table = {{
    {"minikv-2bit",
     "MiniKV",
     spec::format_id::int2_g16,
     {false, minikv_residual_length},
     false,
     "2-bit K per channel and V per token in groups of 16; fp16 residual of up to 127 tokens; "
     "append, flush, attend"},
    {"diffkv-k8v4",
     "DiffKV",
     spec::format_id::k8v4,
     {true, 0},
     false,
     "8-bit K and 4-bit V with per-token scales: DiffKV's high tier; every token is quantized "
     "before it is attended"},
    {"diffkv-k4v2",
     "DiffKV",
     spec::format_id::k4v2,
     {true, 0},
     false,
     "4-bit K and 2-bit V with per-token scales: DiffKV's low tier; every token is quantized "
     "before it is attended"},
    {"diffkv-tiers",
     "DiffKV",
     spec::format_id::k8v4,
     {true, 0},
     true,
     "both tiers in one pool and table, attended in one launch; the first quarter of the prompt "
     "and "
     "every new token are K8V4, the rest K4V2"},
}};

}  // namespace

std::span<const variant> variants() { return table; }

const variant& find_variant(std::string_view id) {
  std::string known;
  for (const variant& v : table) {
    if (v.id == id) return v;
    known += fmt::format(" {}", v.id);
  }
  throw spec::usage_error(
      fmt::format("unknown variant '{}'; known:{} (kvproof list variants)", id, known));
}

}  // namespace kvproof::verify

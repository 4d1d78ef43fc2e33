// See launch_checks.hpp.
#include "gpu/launch/launch_checks.hpp"

#include <fmt/format.h>

#include "reference/spec/error.hpp"
#include "reference/spec/kv_format.hpp"

namespace kvproof::gpu {

void launch_checks::head_dim(int value) const {
  if (!spec::is_supported_head_dim(value)) {
    throw spec::contract_error(
        fmt::format("{}: head_dim {} is not supported: 64 or 128", launcher_, value));
  }
}

void launch_checks::ratio(int value) const {
  if (value < 1 || value > spec::max_gqa_ratio) {
    throw spec::contract_error(fmt::format("{}: gqa ratio {} is not supported: 1..{}", launcher_,
                                           value, spec::max_gqa_ratio));
  }
}

void launch_checks::at_least(std::string_view field, std::int64_t value, std::int64_t least) const {
  if (value < least)
    throw spec::contract_error(
        fmt::format("{}: {} is {}, must be at least {}", launcher_, field, value, least));
}

void launch_checks::at_most(std::string_view field, std::int64_t value, std::int64_t most) const {
  if (value > most)
    throw spec::contract_error(fmt::format("{}: {} is {}, must be at most {}; split the launch",
                                           launcher_, field, value, most));
}

void launch_checks::multiple(std::string_view field, std::int64_t value, std::int64_t of) const {
  if (value % of != 0)
    throw spec::contract_error(
        fmt::format("{}: {} is {}, must be a multiple of {}", launcher_, field, value, of));
}

void launch_checks::pointer(std::string_view field, device_ptr p,
                            std::int64_t alignment_bytes) const {
  const auto address = static_cast<std::uint64_t>(p);
  if (address == 0) throw spec::contract_error(fmt::format("{}: {} is null", launcher_, field));
  if (address % static_cast<std::uint64_t>(alignment_bytes) != 0) {
    throw spec::contract_error(fmt::format("{}: {} is 0x{:x}, must be aligned to {} bytes",
                                           launcher_, field, address, alignment_bytes));
  }
}

}  // namespace kvproof::gpu

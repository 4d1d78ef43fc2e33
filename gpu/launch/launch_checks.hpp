// Checks that launchers share: each throws contract_error naming launcher, field and value.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpu/device/device.hpp"

namespace kvproof::gpu {

class launch_checks {
 public:
  explicit launch_checks(std::string_view launcher) : launcher_(launcher) {}

  void head_dim(int value) const;
  void ratio(int value) const;
  void at_least(std::string_view field, std::int64_t value, std::int64_t least) const;
  void at_most(std::string_view field, std::int64_t value, std::int64_t most) const;
  void multiple(std::string_view field, std::int64_t value, std::int64_t of) const;
  void pointer(std::string_view field, device_ptr p,
               std::int64_t alignment_bytes) const;  // not null

 private:
  std::string_view launcher_;
};

}  // namespace kvproof::gpu

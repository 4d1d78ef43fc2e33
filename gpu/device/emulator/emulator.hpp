// The PTX emulator with its knobs and counters; open_emulator() of device.hpp is this with
// defaults. Kernels run to completion inside launch(), CTA by CTA, on OpenMP threads. Results do
// not depend on the number of threads unless the kernel itself depends on the order of CTAs or
// warps.
#pragma once

#include <cstdint>
#include <memory>

#include "gpu/device/device.hpp"

namespace kvproof::gpu::emulator {

// Which warp of a CTA runs next. All are legal orders of a GPU; a kernel with a race shows
// different results under them.
enum class warp_order : std::uint8_t { round_robin, random, latest_first };

struct options {
  int num_threads = 0;  // 0: as OpenMP decides
  warp_order order = warp_order::round_robin;
  std::uint64_t seed = 0;  // of warp_order::random
  // A CTA that executes more warp instructions than this waits for something that cannot happen.
  std::int64_t max_warp_instructions_per_cta = std::int64_t{1} << 32;
};

struct statistics {
  std::int64_t launches = 0;
  std::int64_t warp_instructions = 0;
  std::int64_t mmas = 0;  // per warp
};

class emulator_device : public device {
 public:
  [[nodiscard]] virtual statistics totals() const = 0;
};

[[nodiscard]] std::unique_ptr<emulator_device> open(const options& o);

}  // namespace kvproof::gpu::emulator

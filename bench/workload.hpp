// One benchmark's data on a device: what is launched, and whether what it wrote is right.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/bench_case.hpp"
#include "gpu/device/device.hpp"

namespace kvproof::bench {

class workload {
 public:
  virtual ~workload() = default;
  // Asynchronous; `copy` in [0, copies).
  virtual void launch(std::int64_t copy) = 0;
  // Compares what launch(copy) wrote for some heads with the reference, as bits. Empty when equal.
  [[nodiscard]] virtual std::string mismatch(std::int64_t copy) = 0;
};

// Throws device_error, also when memory is short. `dev` must outlive the result.
[[nodiscard]] std::unique_ptr<workload> make_decode_workload(gpu::device& dev, const bench_case& c,
                                                             std::int64_t copies);
// score_update: of drawn logits.
[[nodiscard]] std::unique_ptr<workload> make_score_workload(gpu::device& dev, const bench_case& c,
                                                            std::int64_t copies);
// quantize_pack, gather_quantize and demote.
[[nodiscard]] std::unique_ptr<workload> make_page_workload(gpu::device& dev, const bench_case& c,
                                                           std::int64_t copies);

}  // namespace kvproof::bench

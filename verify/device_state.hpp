// The device's side of a case: every buffer that a kernel reads or writes, between canaries, and
// the launches of an event. The reference's side is cache_state.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device/device.hpp"
#include "gpu/kernels/kernel_table.hpp"
#include "gpu/launch/launch.hpp"
#include "verify/cache_state.hpp"
#include "verify/fenced_buffer.hpp"

namespace kvproof::verify {

struct device_state {
  // Allocates everything and uploads the empty cache. Throws device_error.
  device_state(gpu::device& dev, const workload& w, const cache_state& cache);

  void upload_lengths(const cache_state& cache);
  void upload_recent(const cache_state& cache);

  // Launches, without synchronizing. `cache` is the state before the launch.
  void quantize(const event& e, const cache_state& cache);  // or gather_quantize
  void demote(const event& e, const cache_state& cache);
  void attend(const event& e);  // poisons the outputs first

  // Every buffer, in a fixed order.
  [[nodiscard]] std::array<fenced_buffer*, 18> buffers();

  gpu::device& device;
  const workload& work;
  int max_pages;
  std::int64_t score_capacity;
  // first_token, num_new: of the tokens that a launch writes; lists: their source rows or tokens.
  fenced_buffer pages, page_table, num_quantized, num_recent, first_token, num_new, lists,
      low_pages, low_table, k, v, recent_k, recent_v, q, out, state, scores, workspace;

 private:
  [[nodiscard]] gpu::decode_args decode_arguments(gpu::device_ptr workspace_ptr) const;
};

}  // namespace kvproof::verify

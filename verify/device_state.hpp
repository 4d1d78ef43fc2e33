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
  void quantize_low(const event& e, const cache_state& cache);
  void demote(const event& e, const cache_state& cache);
  void attend(const event& e);  // poisons the outputs first

  // Every buffer, in a fixed order.
  [[nodiscard]] std::array<fenced_buffer*, 19> buffers();

  gpu::device& device;
  const workload& work;
  int max_pages, max_low_pages;  // of the tables
  int max_quantized, max_low;    // tokens
  std::int64_t score_capacity;
  // first_token, num_new: of the tokens that a launch writes; lists: their source rows or tokens.
  // With tiers, `pages` is the pool of both, page_table lists both, low_table the low one forwards.
  fenced_buffer pages, page_table, num_quantized, num_low, num_recent, first_token, num_new, lists,
      low_pages, low_table, k, v, recent_k, recent_v, q, out, state, scores, workspace;

 private:
  // Source rows first_row .. of k and v, in every head.
  void set_source_rows(gpu::quantize_args& args, std::int64_t first_row) const;
  [[nodiscard]] gpu::device_ptr low_pool() const;
  [[nodiscard]] gpu::decode_args decode_arguments(gpu::device_ptr workspace_ptr) const;
};

}  // namespace kvproof::verify

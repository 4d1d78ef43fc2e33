// See device_data.hpp.
#include "bench/device_data.hpp"

#include <bit>
#include <numeric>
#include <utility>

#include "bench/memory_kernels.hpp"
#include "bench/splitmix64.hpp"
#include "reference/numerics/half.hpp"

namespace kvproof::bench {

std::vector<reference::half_bits> random_halves(std::int64_t count, std::uint64_t seed) {
  splitmix64 random(seed);
  std::vector<reference::half_bits> x(static_cast<std::size_t>(count));
  for (reference::half_bits& h : x)
    h = reference::float_to_half(static_cast<float>(random.next() >> 40) * 0x1p-22f - 2.0f);
  return x;
}

sample_pages::sample_pages(const spec::kv_format& format, int head_dim)
    : page_bytes_(static_cast<std::size_t>(spec::page_size_bytes(format, head_dim))),
      bytes_(static_cast<std::size_t>(count) * page_bytes_) {
  const std::int64_t elements = count * format.tokens_per_page * head_dim;
  std::vector<std::span<std::byte>> views;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    views.push_back(std::span(bytes_).subspan(i * page_bytes_, page_bytes_));
  reference::append_tokens(format, head_dim, random_halves(elements, 1), random_halves(elements, 2),
                           0, views);
}

constexpr std::int64_t distinct_rows = 8191;

repeating_rows::repeating_rows(int head_dim, std::uint64_t seed)
    : head_dim_(head_dim), values_(random_halves(distinct_rows * head_dim, seed)) {}

gpu::device_buffer repeating_rows::on_device(gpu::device& dev, std::int64_t count) const {
  return repeated(dev, std::as_bytes(std::span(values_)), count * head_dim_ * 2);
}

void repeating_rows::append_row(std::int64_t row, std::vector<reference::half_bits>& to) const {
  const auto at = values_.begin() + row % distinct_rows * head_dim_;
  to.insert(to.end(), at, at + head_dim_);
}

void shuffled_ids(std::span<std::int32_t> ids, std::int64_t first, std::uint64_t seed) {
  std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(first));
  splitmix64 random(seed);
  for (std::size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.next() % i]);
}

gpu::device_buffer repeated(gpu::device& dev, std::span<const std::byte> pattern,
                            std::int64_t size_bytes) {
  gpu::device_buffer buffer(dev, size_bytes), source(dev, std::ssize(pattern));
  dev.copy_to_device(source.get(), pattern);
  launch_repeat(dev,
                {static_cast<std::uint64_t>(source.get()), static_cast<std::uint64_t>(buffer.get()),
                 std::ssize(pattern) / 16, size_bytes / 16});
  dev.synchronize();
  return buffer;
}

std::string float_difference(gpu::device& dev, std::int64_t kv_head, const std::string& what,
                             const std::vector<verify::axis>& axes,
                             const std::vector<float>& expected, gpu::device_ptr at) {
  std::vector<std::uint32_t> bits;
  for (const float x : expected) bits.push_back(std::bit_cast<std::uint32_t>(x));
  const verify::comparison result =
      verify::compare_floats("kv_head " + std::to_string(kv_head) + " of the batch, " + what, axes,
                             bits, downloaded<std::uint32_t>(dev, at, std::ssize(bits)));
  return result.mismatch ? result.mismatch->first : "";
}

std::vector<float> running_after(int updates, const reference::score_update_input& head) {
  std::vector<float> running(head.scores.size() / static_cast<std::size_t>(head.gqa_ratio), 0.0f);
  for (int k = 0; k < updates; ++k) reference::update_scores(head, running);
  return running;
}

}  // namespace kvproof::bench

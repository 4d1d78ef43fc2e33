// The two sides of a case and their comparison, see case_runner.hpp.
#include "verify/case_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <variant>

#include "gpu/kernels/kernel_table.hpp"
#include "verify/cache_state.hpp"
#include "verify/case_checks.hpp"
#include "verify/compare.hpp"
#include "verify/page_report.hpp"
#include "verify/score_update_runner.hpp"

namespace kvproof::verify {
namespace {

class case_run : case_checks {
 public:
  case_run(case_result& result, gpu::device& dev, const workload& w, const fault_injection& inject)
      : case_checks(result), work_(w), inject_(inject), cache_(w), device_(dev, w, cache_) {}

  void play() {
    for (const event& e : work_.events) {
      if (!play(e)) return;
    }
  }

 private:
  // Returns false when the case ends here.
  bool play(const event& e) {
    cache_.append(e);
    device_.upload_lengths(cache_);
    device_.upload_recent(cache_);
    const auto some = [](std::int32_t n) { return n > 0; };
    if (std::ranges::any_of(e.quantize, some) && !quantize(e)) return false;
    if (std::ranges::any_of(e.quantize_low, some) && !quantize_low(e.name + "/quantize_low", e))
      return false;
    if (std::ranges::any_of(e.demote.num_tokens, some) && !demote(e.name + "/demote", e))
      return false;
    return !e.attend || attend(e.name + "/decode", e);
  }

  bool quantize(const event& e) {
    const bool gathers = !e.gather.empty();
    const std::string stage = e.name + (gathers ? "/gather_quantize" : "/quantize");
    note_entry(gathers ? gpu::kernel_role::gather_quantize : gpu::kernel_role::quantize, 0);
    device_.quantize(e, cache_);
    const std::vector<std::int32_t> first_token = cache_.quantized.num_tokens;
    cache_.quantize(e);
    device_.upload_lengths(cache_);
    device_.device.synchronize();
    if (inject_) inject_(stage, device_);
    const std::int64_t pages =
        pages_touched(spec::format_of(work_.format), first_token, e.quantize);
    return check_pages(stage, pages, 0) && check_unchanged(stage) &&
           check_written_range(stage, first_token, e.quantize, e.gather);
  }

  bool quantize_low(const std::string& stage, const event& e) {
    const spec::kv_format& format = spec::format_of(cache_.low.format);
    case_checks::note_entry(
        gpu::find_kernel(gpu::kernel_role::quantize, format.id, work_.head_dim, 0).entry);
    device_.quantize_low(e, cache_);
    const std::vector<std::int32_t> first_token = cache_.low.num_tokens;
    cache_.quantize_low(e);
    device_.upload_lengths(cache_);
    device_.device.synchronize();
    if (inject_) inject_(stage, device_);
    return check_pages(stage, 0, pages_touched(format, first_token, e.quantize_low)) &&
           check_unchanged(stage) && check_written_range(stage, first_token, e.quantize_low, {});
  }

  bool demote(const std::string& stage, const event& e) {
    note_entry(gpu::kernel_role::demote, 0);
    device_.demote(e, cache_);
    const std::vector<std::int32_t> first_token = cache_.demoted_first(e.demote);
    cache_.demote(e);
    device_.upload_lengths(cache_);
    device_.device.synchronize();
    if (inject_) inject_(stage, device_);
    const std::int64_t pages =
        pages_touched(spec::format_of(cache_.low.format), first_token, e.demote.num_tokens);
    return check_pages(stage, 0, pages) && check_unchanged(stage) &&
           check_written_range(stage, first_token, e.demote.num_tokens, e.demote.tokens);
  }

  // What tells a kernel which tokens to write, and from where.
  bool check_written_range(const std::string& stage, const std::vector<std::int32_t>& first_token,
                           const std::vector<std::int32_t>& count,
                           const std::vector<std::int32_t>& lists) {
    const std::array<axis, 3> list_axes = {
        axis{"sequence", work_.batch}, {"kv_head", work_.kv_heads}, {"entry", work_.list_capacity}};
    return unchanged(stage, device_.first_token, head_axes(), first_token) &&
           unchanged(stage, device_.num_new, head_axes(), count) &&
           (lists.empty() || unchanged(stage, device_.lists, list_axes, lists));
  }

  bool attend(const std::string& stage, const event& e) {
    note_entry(work_.tiers ? gpu::kernel_role::decode_tiers : gpu::kernel_role::decode,
               work_.gqa_ratio);
    device_.attend(e);
    device_.device.synchronize();
    if (inject_) inject_(stage, device_);
    const std::vector<std::int32_t> no_tickets(static_cast<std::size_t>(work_.heads()), 0);
    return check_attention(stage, e) && check_pages(stage, 0, 0) && check_unchanged(stage) &&
           unchanged(stage, device_.q, query_axes(), e.q) &&
           note(stage, compare_exact<std::int32_t>(
                           "workspace tickets", head_axes(), no_tickets,
                           device_.workspace.read<std::int32_t>(std::ssize(no_tickets))));
  }

  bool check_attention(const std::string& stage, const event& e) {
    const expected_attention expected = cache_.attend(e);
    const std::array<axis, 3> state_axes = {
        axis{"sequence", work_.batch}, {"q_head", cache_.q_heads()}, {"m_l", 2}};
    const std::array<axis, 4> score_axes = {axis{"sequence", work_.batch},
                                            {"kv_head", work_.kv_heads},
                                            {"token", cache_.score_capacity()},
                                            {"query", work_.gqa_ratio}};
    const auto same = [&](const fenced_buffer& buffer, std::span<const axis> axes,
                          const std::vector<std::uint32_t>& want, std::int64_t outputs) {
      return note(stage, compare_floats(buffer.name(), axes, want, buffer.read<std::uint32_t>()),
                  outputs);
    };
    return same(device_.out, query_axes(), expected.out, std::ssize(expected.out)) &&
           same(device_.state, state_axes, expected.state, std::ssize(expected.state)) &&
           same(device_.scores, score_axes, expected.scores, cache_.score_elements());
  }

  // Both pools, every byte; those of the pages that the kernel wrote are outputs. Tiers have one.
  bool check_pages(const std::string& stage, std::int64_t pages_written,
                   std::int64_t low_pages_written) {
    if (work_.tiers)
      return check_pool(stage, device_.pages, cache_.quantized, pages_written + low_pages_written);
    return check_pool(stage, device_.pages, cache_.quantized, pages_written) &&
           check_pool(stage, device_.low_pages, cache_.low, low_pages_written);
  }

  bool check_pool(const std::string& stage, const fenced_buffer& buffer,
                  const paged_cache& expected, std::int64_t pages_written) {
    const std::vector<std::byte> pool = buffer.read<std::byte>();
    comparison pages;
    pages.compared = std::ssize(pool);
    if (pool != *expected.pool) {
      pages.mismatch =
          explain_pages(buffer.name(), owner_of_difference(expected, pool), work_.kv_heads, pool);
    }
    return note(stage, pages, pages_written * expected.page_bytes);
  }

  // Of the tiers of a pool the one that has the first page that differs; the other lists it, too.
  [[nodiscard]] const paged_cache& owner_of_difference(const paged_cache& expected,
                                                       const std::vector<std::byte>& pool) const {
    if (!work_.tiers) return expected;
    const auto byte = std::ranges::mismatch(*expected.pool, pool).in1 - expected.pool->begin();
    const auto id = static_cast<std::int32_t>(byte / expected.page_bytes);
    return std::ranges::count(cache_.low.table, id) > 0 ? cache_.low : expected;
  }

  // Pages with one of count[head] tokens from first_token[head] on, of all heads.
  static std::int64_t pages_touched(const spec::kv_format& format,
                                    const std::vector<std::int32_t>& first_token,
                                    const std::vector<std::int32_t>& count) {
    std::int64_t pages = 0;
    for (std::size_t h = 0; h < count.size(); ++h) {
      if (count[h] == 0) continue;
      pages += spec::pages_for_tokens(format, first_token[h] + count[h]) -
               first_token[h] / format.tokens_per_page;
    }
    return pages;
  }

  // What kernels only read, and the canaries.
  bool check_unchanged(const std::string& stage) {
    const std::array<axis, 3> table_axes = {axis{"sequence", work_.batch},
                                            {"kv_head", work_.kv_heads},
                                            {"page", cache_.quantized.max_pages}};
    const std::array<axis, 3> low_axes = {
        axis{"sequence", work_.batch}, {"kv_head", work_.kv_heads}, {"page", cache_.low.max_pages}};
    const std::array<axis, 4> recent_axes = {axis{"sequence", work_.batch},
                                             {"kv_head", work_.kv_heads},
                                             {"slot", work_.recent_capacity},
                                             {"channel", work_.head_dim}};
    const std::array<axis, 4> source_axes = {axis{"sequence", work_.batch},
                                             {"token", work_.source_tokens},
                                             {"kv_head", work_.kv_heads},
                                             {"channel", work_.head_dim}};
    if (!unchanged(stage, device_.page_table, table_axes, cache_.quantized.table) ||
        !unchanged(stage, device_.low_table, low_axes, cache_.low.table) ||
        !unchanged(stage, device_.num_quantized, head_axes(), cache_.quantized.num_tokens) ||
        !unchanged(stage, device_.num_low, head_axes(), cache_.low.num_tokens) ||
        !unchanged(stage, device_.num_recent, head_axes(), cache_.num_recent) ||
        !unchanged(stage, device_.recent_k, recent_axes, cache_.recent_k) ||
        !unchanged(stage, device_.recent_v, recent_axes, cache_.recent_v) ||
        !unchanged(stage, device_.k, source_axes, work_.k) ||
        !unchanged(stage, device_.v, source_axes, work_.v)) {
      return false;
    }
    return canaries_live(stage, device_.buffers());
  }

  [[nodiscard]] std::array<axis, 2> head_axes() const {
    return {axis{"sequence", work_.batch}, axis{"kv_head", work_.kv_heads}};
  }

  [[nodiscard]] std::array<axis, 3> query_axes() const {  // of q and out
    return {
        axis{"sequence", work_.batch}, {"q_head", cache_.q_heads()}, {"channel", work_.head_dim}};
  }

  void note_entry(gpu::kernel_role role, int ratio) {
    case_checks::note_entry(gpu::find_kernel(role, work_.format, work_.head_dim, ratio).entry);
  }

  const workload& work_;
  const fault_injection& inject_;
  cache_state cache_;
  device_state device_;
};

}  // namespace

case_result run_case(const std::string& id, gpu::device& dev, const workload& w,
                     const fault_injection& inject) {
  return judge_case(id, [&](case_result& result) { case_run(result, dev, w, inject).play(); });
}

case_result run_case(const std::string& id, gpu::device& dev, const case_data& data) {
  return std::visit([&](const auto& d) { return run_case(id, dev, d); }, data);
}

}  // namespace kvproof::verify

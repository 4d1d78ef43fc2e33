// The two sides of a score update case, see score_update_runner.hpp.
#include "verify/score_update_runner.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/kernels/kernel_table.hpp"
#include "gpu/launch/score_update.hpp"
#include "reference/attention/score_update.hpp"
#include "verify/case_checks.hpp"

namespace kvproof::verify {
namespace {

std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits(x.size());
  std::ranges::transform(x, bits.begin(), [](float f) { return std::bit_cast<std::uint32_t>(f); });
  return bits;
}

class score_update_run : case_checks {
 public:
  score_update_run(case_result& result, gpu::device& dev, const score_update_workload& w,
                   const score_update_injection& inject)
      : case_checks(result),
        work_(w),
        inject_(inject),
        device_(dev),
        on_device_(dev, w),
        running_(w.running) {
    on_device_.running.write(w.running);
  }

  void play() {
    for (const score_update_workload::step& s : work_.steps) {
      if (!play(s.name + "/score_update", s)) return;
    }
  }

 private:
  // Returns false when the case ends here.
  bool play(const std::string& stage, const score_update_workload::step& s) {
    note_entry(
        gpu::find_kernel(gpu::kernel_role::score_update, spec::format_id::k8v4, 0, work_.gqa_ratio)
            .entry);
    on_device_.num_tokens.write(s.num_tokens);
    on_device_.scores.write(s.scores);
    on_device_.state.write(s.state);
    gpu::score_update(device_, arguments());
    const std::int64_t tokens = update_reference(s);
    device_.synchronize();
    if (inject_) inject_(stage, on_device_);

    const axis sequence{"sequence", work_.batch}, kv_head{"kv_head", work_.kv_heads};
    const std::array<axis, 2> head_axes = {sequence, kv_head};
    const std::array<axis, 3> running_axes = {sequence, kv_head,
                                              axis{"token", work_.running_capacity}};
    const std::array<axis, 4> score_axes = {sequence, kv_head, axis{"token", work_.score_capacity},
                                            axis{"query", work_.gqa_ratio}};
    const std::array<axis, 3> state_axes = {
        sequence, axis{"q_head", std::int64_t{work_.kv_heads} * work_.gqa_ratio}, axis{"m_l", 2}};
    return note(stage,
                compare_floats(on_device_.running.name(), running_axes, bits_of(running_),
                               on_device_.running.read<std::uint32_t>()),
                tokens) &&
           unchanged(stage, on_device_.num_tokens, head_axes, s.num_tokens) &&
           unchanged(stage, on_device_.scores, score_axes, bits_of(s.scores)) &&
           unchanged(stage, on_device_.state, state_axes, bits_of(s.state)) &&
           canaries_live(stage, on_device_.all());
  }

  // Returns the number of tokens updated.
  std::int64_t update_reference(const score_update_workload::step& s) {
    const auto ratio = static_cast<std::size_t>(work_.gqa_ratio);
    const auto score_row = static_cast<std::size_t>(work_.score_capacity) * ratio;
    const auto running_row = static_cast<std::size_t>(work_.running_capacity);
    std::int64_t tokens = 0;
    for (std::size_t h = 0; h < work_.heads(); ++h) {
      const auto n = static_cast<std::size_t>(s.num_tokens[h]);
      reference::update_scores(
          {work_.gqa_ratio, std::span(s.scores).subspan(h * score_row, n * ratio),
           std::span(s.state).subspan(h * ratio * 2, ratio * 2)},
          std::span(running_).subspan(h * running_row, n));
      tokens += s.num_tokens[h];
    }
    return tokens;
  }

  [[nodiscard]] gpu::score_update_args arguments() const {
    gpu::score_update_args a{};
    a.batch = work_.batch;
    a.kv_heads = work_.kv_heads;
    a.gqa_ratio = work_.gqa_ratio;
    a.max_tokens = work_.max_tokens;
    a.scores = on_device_.scores.get();
    a.score_capacity = work_.score_capacity;
    a.state = on_device_.state.get();
    a.num_tokens = on_device_.num_tokens.get();
    a.running = on_device_.running.get();
    a.running_capacity = work_.running_capacity;
    return a;
  }

  const score_update_workload& work_;
  const score_update_injection& inject_;
  gpu::device& device_;
  score_update_buffers on_device_;
  std::vector<float> running_;  // the reference's
};

}  // namespace

score_update_buffers::score_update_buffers(gpu::device& dev, const score_update_workload& w)
    : num_tokens(dev, "num_tokens", static_cast<std::int64_t>(w.heads()) * 4),
      scores(dev, "scores",
             static_cast<std::int64_t>(w.heads()) * w.score_capacity * w.gqa_ratio * 4),
      state(dev, "state", static_cast<std::int64_t>(w.heads()) * w.gqa_ratio * 2 * 4),
      running(dev, "running", static_cast<std::int64_t>(w.heads()) * w.running_capacity * 4) {}

case_result run_case(const std::string& id, gpu::device& dev, const score_update_workload& w,
                     const score_update_injection& inject) {
  return judge_case(id,
                    [&](case_result& result) { score_update_run(result, dev, w, inject).play(); });
}

}  // namespace kvproof::verify

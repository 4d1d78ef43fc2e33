// The score update on logits that repeat, out of step with tokens and heads; running sums from 0.
// Checked: the running sums of some KV heads.
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/device_data.hpp"
#include "bench/workload.hpp"
#include "gpu/launch/score_update.hpp"

namespace kvproof::bench {
namespace {

constexpr std::int64_t distinct_logits = 4 * 32749;  // four times a prime: whole vectors

class score_workload final : public workload {
 public:
  score_workload(gpu::device& dev, const bench_case& c, std::int64_t copies)
      : dev_(dev),
        case_(c),
        heads_(std::int64_t{c.batch} * c.model.kv_heads),
        head_logits_(c.tokens * c.model.gqa_ratio()) {
    for (std::int64_t i = 0; i < distinct_logits; ++i)
      logits_.push_back(static_cast<float>(i * 7919 % 4093) / -256);
    for (std::int64_t row = 0; row < heads_ * c.model.gqa_ratio(); ++row) {
      state_.push_back(0.0f);                                  // m
      state_.push_back(1 + static_cast<float>(row % 61) / 3);  // l
    }
    scores_ = repeated(dev, std::as_bytes(std::span(logits_)), copies * copy_logits() * 4);
    state_buffer_ = uploaded(dev, state_);
    lengths_buffer_ = uploaded(dev, std::vector<std::int32_t>(static_cast<std::size_t>(heads_),
                                                              static_cast<std::int32_t>(c.tokens)));
    running_ = gpu::device_buffer(dev, copies * heads_ * c.tokens * 4);
    dev.fill(running_.get(), std::byte{0}, running_.size_bytes());
    updates_.assign(static_cast<std::size_t>(copies), 0);
    args_.batch = c.batch;
    args_.kv_heads = c.model.kv_heads;
    args_.gqa_ratio = c.model.gqa_ratio();
    args_.max_tokens = c.tokens;
    args_.score_capacity = c.tokens;
    args_.state = state_buffer_.get();
    args_.num_tokens = lengths_buffer_.get();
    args_.running_capacity = c.tokens;
  }

  void launch(std::int64_t copy) override {
    args_.scores = scores_.get() + copy * copy_logits() * 4;
    args_.running = running_of(copy, 0);
    gpu::score_update(dev_, args_);
    ++updates_[static_cast<std::size_t>(copy)];
  }

  [[nodiscard]] std::string mismatch(std::int64_t copy) override {
    const auto ratio = static_cast<std::size_t>(case_.model.gqa_ratio());
    for (const std::int64_t head : std::set<std::int64_t>{0, heads_ / 2, heads_ - 1}) {
      std::vector<float> scores;
      for (std::int64_t i = 0; i < head_logits_; ++i) {
        const std::int64_t at = copy * copy_logits() + head * head_logits_ + i;
        scores.push_back(logits_[static_cast<std::size_t>(at % distinct_logits)]);
      }
      const reference::score_update_input of_head = {
          case_.model.gqa_ratio(), scores,
          std::span(state_).subspan(static_cast<std::size_t>(head) * ratio * 2, ratio * 2)};
      const std::string found = float_difference(
          dev_, head, "running", {{"token", case_.tokens}},
          running_after(updates_[static_cast<std::size_t>(copy)], of_head), running_of(copy, head));
      if (!found.empty()) return found;
    }
    return "";
  }

 private:
  [[nodiscard]] std::int64_t copy_logits() const { return heads_ * head_logits_; }
  [[nodiscard]] gpu::device_ptr running_of(std::int64_t copy, std::int64_t head) const {
    return running_.get() + (copy * heads_ + head) * case_.tokens * 4;
  }

  gpu::device& dev_;
  bench_case case_;
  std::int64_t heads_, head_logits_;
  std::vector<float> logits_, state_;
  gpu::device_buffer scores_, state_buffer_, lengths_buffer_, running_;
  gpu::score_update_args args_{};
  std::vector<int> updates_;  // launches of each copy
};

}  // namespace

std::unique_ptr<workload> make_score_workload(gpu::device& dev, const bench_case& c,
                                              std::int64_t copies) {
  return std::make_unique<score_workload>(dev, c, copies);
}

}  // namespace kvproof::bench

// Decode attention on pages made by the reference once and repeated; page ids shuffled. Checked:
// out, state, scores or running significance of all query heads of some KV heads.
#include <algorithm>
#include <cmath>
#include <set>

#include "bench/device_data.hpp"
#include "bench/workload.hpp"
#include "gpu/launch/launch.hpp"
#include "gpu/launch/significance.hpp"
#include "reference/attention/decode_attention.hpp"

namespace kvproof::bench {
namespace {

class decode_workload final : public workload {
 public:
  decode_workload(gpu::device& dev, const bench_case& c, std::int64_t copies)
      : dev_(dev),
        case_(c),
        pages_(spec::format_of(c.format), c.model.head_dim),
        lengths_(lengths_of(c)),
        longest_(*std::max_element(lengths_.begin(), lengths_.end())),
        max_pages_(spec::pages_for_tokens(longest_)),
        q_(random_halves(std::int64_t{c.batch} * c.model.q_heads * c.model.head_dim, 3)) {
    const std::int64_t heads = num_heads(), rows = std::int64_t{c.batch} * c.model.q_heads;
    for (std::int64_t copy = 0; copy < copies; ++copy) add_table();
    pool_ =
        repeated(dev, pages_.bytes(),
                 num_pages_ * spec::page_size_bytes(spec::format_of(c.format), c.model.head_dim));
    table_buffer_ = uploaded(dev, table_);
    q_buffer_ = uploaded(dev, q_);
    std::vector<std::int32_t> of_heads;
    for (const std::int64_t n : lengths_)
      of_heads.insert(of_heads.end(), static_cast<std::size_t>(c.model.kv_heads),
                      static_cast<std::int32_t>(n));
    lengths_buffer_ = uploaded(dev, of_heads);
    recent_buffer_ = uploaded(dev, std::vector<std::int32_t>(of_heads.size(), 0));
    out_ = gpu::device_buffer(dev, rows * c.model.head_dim * 4);
    state_ = gpu::device_buffer(dev, rows * 2 * 4);
    score_floats_ = c.scores ? heads * longest_ * c.model.gqa_ratio() : 0;
    scores_ = gpu::device_buffer(dev, copies * score_floats_ * 4);

    args_.format = c.format;
    args_.head_dim = c.model.head_dim;
    args_.batch = c.batch;
    args_.kv_heads = c.model.kv_heads;
    args_.gqa_ratio = c.model.gqa_ratio();
    args_.softmax_scale = 1 / std::sqrt(static_cast<float>(c.model.head_dim));
    args_.max_quantized = static_cast<int>(longest_);
    args_.equal_lengths =
        std::ranges::all_of(lengths_, [&](std::int64_t n) { return n == longest_; });
    args_.q = q_buffer_.get();
    args_.max_pages = static_cast<int>(max_pages_);
    args_.pages = pool_.get();
    args_.num_quantized = lengths_buffer_.get();
    args_.num_recent = recent_buffer_.get();
    args_.out = out_.get();
    args_.state = state_.get();
    args_.score_capacity = longest_;
    if (c.significance) add_significance(copies);
    workspace_ = gpu::device_buffer(dev, gpu::decode_workspace_bytes(args_));
    dev.fill(workspace_.get(), std::byte{0}, workspace_.size_bytes());
    args_.workspace = workspace_.get();
  }

  void launch(std::int64_t copy) override {
    args_.page_table = table_buffer_.get() + copy * num_heads() * max_pages_ * 4;
    if (case_.significance) {
      significance_.decode = args_;
      significance_.running = running_of(copy);
      gpu::decode_with_significance(dev_, significance_);
      ++updates_[static_cast<std::size_t>(copy)];
      return;
    }
    if (case_.scores) args_.scores = scores_of(copy);
    gpu::decode(dev_, args_);
  }

  [[nodiscard]] std::string mismatch(std::int64_t copy) override {
    const std::vector<std::int64_t> heads = checked_heads();
    std::vector<std::vector<std::span<const std::byte>>> views;
    std::vector<reference::decode_input> inputs;
    for (const std::int64_t head : heads) views.push_back(pages_of(copy, head));
    const std::int64_t q_floats = std::int64_t{case_.model.gqa_ratio()} * case_.model.head_dim;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      inputs.push_back({case_.format,
                        case_.model.head_dim,
                        case_.model.gqa_ratio(),
                        args_.softmax_scale,
                        std::span(q_).subspan(static_cast<std::size_t>(heads[i] * q_floats),
                                              static_cast<std::size_t>(q_floats)),
                        length_of(heads[i]),
                        views[i],
                        0,
                        {},
                        {}});
    }
    const std::vector<reference::decode_output> expected = reference::decode_attention(inputs);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      std::string found = difference(copy, heads[i], expected[i]);
      if (found.empty() && case_.significance) {
        found = float_difference(
            dev_, heads[i], "running", {{"token", length_of(heads[i])}},
            running_after(updates_[static_cast<std::size_t>(copy)],
                          {case_.model.gqa_ratio(), expected[i].scores, expected[i].state}),
            running_of(copy) + heads[i] * longest_ * 4);
      }
      if (!found.empty()) return found;
    }
    return "";
  }

 private:
  [[nodiscard]] std::int64_t num_heads() const {
    return std::int64_t{case_.batch} * case_.model.kv_heads;
  }
  [[nodiscard]] std::int64_t length_of(std::int64_t head) const {
    return lengths_[static_cast<std::size_t>(head / case_.model.kv_heads)];
  }
  [[nodiscard]] gpu::device_ptr scores_of(std::int64_t copy) const {
    return scores_.get() + copy * score_floats_ * 4;
  }

  [[nodiscard]] gpu::device_ptr running_of(std::int64_t copy) const {
    return running_.get() + copy * num_heads() * longest_ * 4;
  }

  // Scores shared by all copies; running sums of every copy from 0.
  void add_significance(std::int64_t copies) {
    significance_.slice = case_.batch;
    scores_ =
        gpu::device_buffer(dev_, std::int64_t{case_.batch} * case_.model.q_heads * longest_ * 4);
    args_.scores = scores_.get();
    running_ = gpu::device_buffer(dev_, copies * num_heads() * longest_ * 4);
    dev_.fill(running_.get(), std::byte{0}, running_.size_bytes());
    significance_.num_tokens = lengths_buffer_.get();
    significance_.max_tokens = longest_;
    significance_.running_capacity = longest_;
    updates_.assign(static_cast<std::size_t>(copies), 0);
  }

  // One copy's page ids, [head][page]; entries behind a head's end are -1.
  void add_table() {
    std::int64_t pages = 0;
    for (std::int64_t head = 0; head < num_heads(); ++head)
      pages += spec::pages_for_tokens(length_of(head));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(pages));
    shuffled_ids(ids, num_pages_, static_cast<std::uint64_t>(num_pages_));
    auto next = ids.begin();
    for (std::int64_t head = 0; head < num_heads(); ++head) {
      const std::int64_t of_head = spec::pages_for_tokens(length_of(head));
      table_.insert(table_.end(), next, next + of_head);
      next += of_head;
      table_.resize(table_.size() + static_cast<std::size_t>(max_pages_ - of_head), -1);
    }
    num_pages_ += pages;
  }

  [[nodiscard]] std::vector<std::span<const std::byte>> pages_of(std::int64_t copy,
                                                                 std::int64_t head) const {
    std::vector<std::span<const std::byte>> pages;
    const std::int64_t at = (copy * num_heads() + head) * max_pages_;
    for (std::int64_t page = 0; page < spec::pages_for_tokens(length_of(head)); ++page)
      pages.push_back(pages_.page(table_[static_cast<std::size_t>(at + page)]));
    return pages;
  }

  // The first, one of the middle, the last, and heads of the longest and the shortest sequence.
  [[nodiscard]] std::vector<std::int64_t> checked_heads() const {
    const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
    const std::int64_t kv_heads = case_.model.kv_heads;
    const std::set<std::int64_t> heads = {0, num_heads() / 2, num_heads() - 1,
                                          (longest - lengths_.begin()) * kv_heads,
                                          (shortest - lengths_.begin()) * kv_heads};
    return {heads.begin(), heads.end()};
  }

  [[nodiscard]] std::string difference(std::int64_t copy, std::int64_t head,
                                       const reference::decode_output& expected) const {
    const std::int64_t ratio = case_.model.gqa_ratio(), head_dim = case_.model.head_dim;
    const verify::axis q_head{"q_head", ratio};
    std::string found = float_difference(dev_, head, "out", {q_head, {"channel", head_dim}},
                                         expected.out, out_.get() + head * ratio * head_dim * 4);
    if (found.empty()) {
      found = float_difference(dev_, head, "state", {q_head, {"m_or_l", 2}}, expected.state,
                               state_.get() + head * ratio * 2 * 4);
    }
    if (found.empty() && case_.scores) {
      found = float_difference(dev_, head, "scores", {{"token", length_of(head)}, q_head},
                               expected.scores, scores_of(copy) + head * longest_ * ratio * 4);
    }
    return found;
  }

  gpu::device& dev_;
  bench_case case_;
  sample_pages pages_;
  std::vector<std::int64_t> lengths_;
  std::int64_t longest_, max_pages_;
  std::vector<reference::half_bits> q_;
  std::vector<std::int32_t> table_;  // [copy][head][page]
  std::int64_t num_pages_ = 0, score_floats_ = 0;
  gpu::device_buffer pool_, table_buffer_, q_buffer_, lengths_buffer_, recent_buffer_, out_, state_,
      scores_, running_, workspace_;
  gpu::decode_args args_{};
  gpu::significance_args significance_{};
  std::vector<int> updates_;  // launches of each copy
};

}  // namespace

std::unique_ptr<workload> make_decode_workload(gpu::device& dev, const bench_case& c,
                                               std::int64_t copies) {
  return std::make_unique<decode_workload>(dev, c, copies);
}

}  // namespace kvproof::bench

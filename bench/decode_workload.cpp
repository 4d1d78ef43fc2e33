// Decode attention on pages made by the reference once and repeated; page ids shuffled. Checked:
// out, state, scores or running significance of all query heads of some KV heads.
#include <algorithm>
#include <array>
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
        lengths_(lengths_of(c)),
        longest_(*std::max_element(lengths_.begin(), lengths_.end())),
        max_pages_(pages_of(c, parts_of(c, longest_))),
        q_(random_halves(std::int64_t{c.batch} * c.model.q_heads * c.model.head_dim, 3)),
        k_rows_(c.model.head_dim, 6),
        v_rows_(c.model.head_dim, 7) {
    const std::int64_t heads = num_heads(), rows = std::int64_t{c.batch} * c.model.q_heads;
    samples_.emplace_back(spec::format_of(c.format), c.model.head_dim);
    if (c.tiers) samples_.emplace_back(spec::format_of(low_tier), c.model.head_dim);
    for (std::int64_t copy = 0; copy < copies; ++copy) add_table();
    add_pool();
    table_buffer_ = uploaded(dev, table_);
    q_buffer_ = uploaded(dev, q_);
    std::vector<std::int32_t> quantized, low, recent, all;
    for (const std::int64_t n : lengths_) {
      const cache_parts parts = parts_of(c, n);
      const auto of_heads = [&](std::vector<std::int32_t>& to, std::int64_t tokens) {
        to.insert(to.end(), static_cast<std::size_t>(c.model.kv_heads),
                  static_cast<std::int32_t>(tokens));
      };
      of_heads(quantized, parts.quantized);
      of_heads(low, parts.low);
      of_heads(recent, parts.recent);
      of_heads(all, n);
    }
    quantized_buffer_ = uploaded(dev, quantized);
    low_buffer_ = uploaded(dev, low);
    recent_buffer_ = uploaded(dev, recent);
    lengths_buffer_ = uploaded(dev, all);
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
    args_.max_quantized = static_cast<int>(parts_of(c, longest_).quantized);
    args_.equal_lengths =
        std::ranges::all_of(lengths_, [&](std::int64_t n) { return n == longest_; });
    args_.q = q_buffer_.get();
    args_.max_pages = static_cast<int>(max_pages_);
    args_.pages = pool_.get();
    args_.num_quantized = quantized_buffer_.get();
    args_.num_recent = recent_buffer_.get();
    if (c.tiers) add_tiers(copies);
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
    if (case_.tiers) {
      args_.recent_k = recent_k_.get() + copy * recent_rows_ * row_bytes();
      args_.recent_v = recent_v_.get() + copy * recent_rows_ * row_bytes();
    }
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
    std::vector<head_pages> views;
    std::vector<std::vector<reference::half_bits>> recent_k, recent_v;
    std::vector<reference::decode_input> inputs;
    for (const std::int64_t head : heads) {
      views.push_back(pages_of_head(copy, head));
      recent_k.push_back(recent_of(k_rows_, copy, head));
      recent_v.push_back(recent_of(v_rows_, copy, head));
    }
    const std::int64_t q_floats = std::int64_t{case_.model.gqa_ratio()} * case_.model.head_dim;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const cache_parts parts = parts_of(case_, length_of(heads[i]));
      inputs.push_back({case_.format, case_.model.head_dim, case_.model.gqa_ratio(),
                        args_.softmax_scale,
                        std::span(q_).subspan(static_cast<std::size_t>(heads[i] * q_floats),
                                              static_cast<std::size_t>(q_floats)),
                        parts.quantized, views[i].tiers[0], parts.recent, recent_k[i], recent_v[i],
                        parts.low, views[i].tiers[1]});
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

  // fp16 recent parts: rows that repeat, out of step with heads.
  void add_tiers(std::int64_t copies) {
    recent_rows_ = num_heads() * parts_of(case_, longest_).recent;
    recent_k_ = k_rows_.on_device(dev_, copies * recent_rows_);
    recent_v_ = v_rows_.on_device(dev_, copies * recent_rows_);
    args_.num_low = low_buffer_.get();
    args_.max_low = static_cast<int>(parts_of(case_, longest_).low);
    args_.recent_capacity = static_cast<int>(parts_of(case_, longest_).recent);
  }
  [[nodiscard]] std::int64_t row_bytes() const { return std::int64_t{case_.model.head_dim} * 2; }

  // Recent rows of a head.
  [[nodiscard]] std::vector<reference::half_bits> recent_of(const repeating_rows& rows,
                                                            std::int64_t copy,
                                                            std::int64_t head) const {
    std::vector<reference::half_bits> recent;
    const std::int64_t first = copy * recent_rows_ + head * args_.recent_capacity;
    for (std::int64_t i = 0; i < parts_of(case_, length_of(head)).recent; ++i)
      rows.append_row(first + i, recent);
    return recent;
  }

  // One copy's page ids, [head][entry]: the quantized part from the front, the low tier from the
  // end of the row; -1 between.
  void add_table() {
    std::array<std::int64_t, 2> pages = {};
    for (std::int64_t head = 0; head < num_heads(); ++head) {
      for (std::size_t tier = 0; tier < samples_.size(); ++tier)
        pages[tier] += pages_of_tier(head, tier);
    }
    std::array<std::vector<std::int32_t>, 2> ids;
    for (std::size_t tier = 0; tier < samples_.size(); ++tier) {
      ids[tier].resize(static_cast<std::size_t>(pages[tier]));
      shuffled_ids(ids[tier], num_pages_[tier], static_cast<std::uint64_t>(num_pages_[tier]));
      num_pages_[tier] += pages[tier];
    }
    const std::size_t copy_begin = table_.size();
    table_.resize(copy_begin + static_cast<std::size_t>(num_heads() * max_pages_), -1);
    std::array<std::size_t, 2> used = {};
    for (std::int64_t head = 0; head < num_heads(); ++head) {
      for (std::size_t tier = 0; tier < samples_.size(); ++tier) {
        for (std::int64_t i = 0; i < pages_of_tier(head, tier); ++i) {
          table_[copy_begin + entry(head, tier, i)] = page_id(tier, ids[tier][used[tier]++]);
        }
      }
    }
  }
  [[nodiscard]] std::int64_t pages_of_tier(std::int64_t head, std::size_t tier) const {
    const cache_parts parts = parts_of(case_, length_of(head));
    return tier == 0 ? spec::pages_for_tokens(spec::format_of(case_.format), parts.quantized)
                     : spec::pages_for_tokens(spec::format_of(low_tier), parts.low);
  }
  // Of page i, in one copy's table.
  [[nodiscard]] std::size_t entry(std::int64_t head, std::size_t tier, std::int64_t i) const {
    return static_cast<std::size_t>(head * max_pages_ + (tier == 0 ? i : max_pages_ - 1 - i));
  }
  // The pool holds the samples of the tiers in turn; id of page `number` of a tier.
  [[nodiscard]] std::int32_t page_id(std::size_t tier, std::int32_t number) const {
    const auto count = static_cast<std::int32_t>(sample_pages::count),
               tiers = static_cast<std::int32_t>(samples_.size());
    return (number / count * tiers + static_cast<std::int32_t>(tier)) * count + number % count;
  }
  void add_pool() {
    std::vector<std::byte> pattern;
    for (const sample_pages& s : samples_)
      pattern.insert(pattern.end(), s.bytes().begin(), s.bytes().end());
    const std::int64_t ids = 1 + *std::max_element(table_.begin(), table_.end());
    pool_ =
        repeated(dev_, pattern,
                 ids * spec::page_size_bytes(spec::format_of(case_.format), case_.model.head_dim));
  }

  struct head_pages {
    std::vector<std::span<const std::byte>> tiers[2];
  };
  [[nodiscard]] head_pages pages_of_head(std::int64_t copy, std::int64_t head) const {
    head_pages pages;
    const auto copy_begin = static_cast<std::size_t>(copy * num_heads() * max_pages_);
    for (std::size_t tier = 0; tier < samples_.size(); ++tier) {
      for (std::int64_t i = 0; i < pages_of_tier(head, tier); ++i)
        pages.tiers[tier].push_back(samples_[tier].page(table_[copy_begin + entry(head, tier, i)]));
    }
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
  std::vector<sample_pages> samples_;  // of the quantized part, then of the low tier
  std::vector<std::int64_t> lengths_;
  std::int64_t longest_, max_pages_;
  std::vector<reference::half_bits> q_;
  std::vector<std::int32_t> table_;                  // [copy][head][page]
  std::array<std::int64_t, 2> num_pages_ = {};       // of each tier
  std::int64_t score_floats_ = 0, recent_rows_ = 0;  // of one copy
  repeating_rows k_rows_, v_rows_;                   // of recent parts
  gpu::device_buffer pool_, table_buffer_, q_buffer_, quantized_buffer_, low_buffer_,
      recent_buffer_, lengths_buffer_, recent_k_, recent_v_, out_, state_, scores_, running_,
      workspace_;
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

// The kernels that write pages: quantize, gather_quantize (one token of each pair of the source),
// demote (one token of each pair of a K8V4 cache, appended to a K4V2 cache). Checked: some pages of
// some heads; a page's bytes depend on its own rows only.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/device_data.hpp"
#include "bench/workload.hpp"
#include "gpu/launch/demote.hpp"
#include "gpu/launch/gather_quantize.hpp"
#include "reference/formats/demotion.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::bench {
namespace {

// 0 or 1, as if drawn.
std::int64_t either(std::int64_t i) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u >> 63);
}

const spec::kv_format& written_format(const bench_case& c) {
  return spec::format_of(c.op == operation::demote ? spec::format_id::k4v2 : c.format);
}

class page_workload : public workload {
 public:
  page_workload(gpu::device& dev, const bench_case& c, std::int64_t copies)
      : dev_(dev),
        case_(c),
        heads_(std::int64_t{c.batch} * c.model.kv_heads),
        written_tokens_(c.op == operation::quantize_pack ? c.tokens : c.tokens / 2),
        pages_per_head_(written_tokens_ / written_format(c).tokens_per_page),
        page_bytes_(spec::page_size_bytes(written_format(c), c.model.head_dim)),
        pool_(dev, copies * heads_ * pages_per_head_ * page_bytes_),
        table_(static_cast<std::size_t>(heads_ * pages_per_head_)) {
    if (written_tokens_ % written_format(c).tokens_per_page != 0)
      throw spec::contract_error(c.name() + " writes no whole pages");
    shuffled_ids(table_, 0, 4);
    table_buffer_ = uploaded(dev, table_);
    first_ = uploaded(dev, std::vector<std::int32_t>(static_cast<std::size_t>(heads_), 0));
    count_ = uploaded(dev, std::vector<std::int32_t>(static_cast<std::size_t>(heads_),
                                                     static_cast<std::int32_t>(written_tokens_)));
    if (c.op == operation::quantize_pack) return;
    for (std::int64_t i = 0; i < heads_ * written_tokens_; ++i)
      selected_.push_back(static_cast<std::int32_t>(2 * (i % written_tokens_) + either(i)));
    selected_buffer_ = uploaded(dev, selected_);
  }

  [[nodiscard]] std::string mismatch(std::int64_t copy) override {
    const std::int64_t last = pages_per_head_ - 1;
    for (const std::int64_t head : std::set<std::int64_t>{0, heads_ / 2, heads_ - 1}) {
      for (const std::int64_t page : std::set<std::int64_t>{0, 1, last / 3, last / 2, last}) {
        if (page > last) continue;
        const std::int32_t id = table_[static_cast<std::size_t>(head * pages_per_head_ + page)];
        const std::vector<std::byte> actual = downloaded<std::byte>(
            dev_, pool_of(copy) + id * page_bytes_,
            spec::page_content_bytes(written_format(case_), case_.model.head_dim));
        std::vector<std::byte> expected(static_cast<std::size_t>(page_bytes_));
        make_page(copy, head, page, expected);
        const auto [a, b] = std::mismatch(actual.begin(), actual.end(), expected.begin());
        if (a == actual.end()) continue;
        return fmt::format(
            "kv_head {} of the batch, page {}, byte {}: expected 0x{:02x}, got "
            "0x{:02x}",
            head, page, a - actual.begin(), std::to_integer<int>(*b), std::to_integer<int>(*a));
      }
    }
    return "";
  }

 protected:
  [[nodiscard]] gpu::device_ptr pool_of(std::int64_t copy) const {
    return pool_.get() + copy * heads_ * pages_per_head_ * page_bytes_;
  }
  // Source tokens of the written tokens of one page.
  [[nodiscard]] std::vector<std::int32_t> sources(std::int64_t head, std::int64_t page) const {
    std::vector<std::int32_t> tokens;
    const std::int64_t of_page = written_format(case_).tokens_per_page;
    for (std::int64_t i = page * of_page; i < (page + 1) * of_page; ++i)
      tokens.push_back(selected_.empty()
                           ? static_cast<std::int32_t>(i)
                           : selected_[static_cast<std::size_t>(head * written_tokens_ + i)]);
    return tokens;
  }
  virtual void make_page(std::int64_t copy, std::int64_t head, std::int64_t page,
                         std::span<std::byte> to) const = 0;

  gpu::device& dev_;
  bench_case case_;
  std::int64_t heads_, written_tokens_, pages_per_head_, page_bytes_;
  gpu::device_buffer pool_;
  std::vector<std::int32_t> table_, selected_;  // [head][page], [head][written token] or empty
  gpu::device_buffer table_buffer_, first_, count_, selected_buffer_;
};

class quantize_workload final : public page_workload {
 public:
  quantize_workload(gpu::device& dev, const bench_case& c, std::int64_t copies)
      : page_workload(dev, c, copies),
        k_rows_(c.model.head_dim, 6),
        v_rows_(c.model.head_dim, 7),
        rows_(heads_ * c.tokens),
        k_(k_rows_.on_device(dev, copies * rows_)),
        v_(v_rows_.on_device(dev, copies * rows_)) {
    gpu::quantize_args& a = args_.append;
    a.format = c.format;
    a.head_dim = c.model.head_dim;
    a.batch = c.batch;
    a.kv_heads = c.model.kv_heads;
    a.max_new_tokens = static_cast<int>(written_tokens_);
    a.stride_head = c.model.head_dim;
    a.stride_token = std::int64_t{c.model.kv_heads} * c.model.head_dim;
    a.stride_batch = c.tokens * a.stride_token;
    a.first_token = first_.get();
    a.num_new = count_.get();
    a.page_table = table_buffer_.get();
    a.max_pages = static_cast<int>(pages_per_head_);
    args_.selected = selected_buffer_.get();
    args_.max_selected = static_cast<int>(written_tokens_);
  }

  void launch(std::int64_t copy) override {
    args_.append.k = k_.get() + copy * row_bytes() * rows_;
    args_.append.v = v_.get() + copy * row_bytes() * rows_;
    args_.append.pages = pool_of(copy);
    if (case_.op == operation::quantize_pack) {
      gpu::quantize(dev_, args_.append);
    } else {
      gpu::gather_quantize(dev_, args_);
    }
  }

 private:
  [[nodiscard]] std::int64_t row_bytes() const { return std::int64_t{case_.model.head_dim} * 2; }

  void make_page(std::int64_t copy, std::int64_t head, std::int64_t page,
                 std::span<std::byte> to) const override {
    std::vector<reference::half_bits> k, v;
    const std::int64_t kv_heads = case_.model.kv_heads;
    for (const std::int32_t token : sources(head, page)) {
      const std::int64_t row =
          copy * rows_ + (head / kv_heads * case_.tokens + token) * kv_heads + head % kv_heads;
      k_rows_.append_row(row, k);
      v_rows_.append_row(row, v);
    }
    const std::vector<std::span<std::byte>> pages = {to};
    reference::append_tokens(spec::format_of(case_.format), case_.model.head_dim, k, v, 0, pages);
  }

  repeating_rows k_rows_, v_rows_;
  std::int64_t rows_;         // of k in one copy
  gpu::device_buffer k_, v_;  // [copy][batch][token][head][head_dim]
  gpu::gather_quantize_args args_{};
};

class demote_workload final : public page_workload {
 public:
  demote_workload(gpu::device& dev, const bench_case& c, std::int64_t copies)
      : page_workload(dev, c, copies),
        from_(spec::format_of(c.format), c.model.head_dim),
        from_pages_per_head_(c.tokens / spec::format_of(c.format).tokens_per_page),
        from_pages_(heads_ * from_pages_per_head_),
        from_pool_(repeated(dev, from_.bytes(), copies * from_pages_ * from_page_bytes())) {
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      const std::size_t at = from_table_.size();
      from_table_.resize(at + static_cast<std::size_t>(from_pages_));
      shuffled_ids(std::span(from_table_).subspan(at), copy * from_pages_,
                   static_cast<std::uint64_t>(copy + 8));
    }
    from_table_buffer_ = uploaded(dev, from_table_);
    args_.head_dim = c.model.head_dim;
    args_.batch = c.batch;
    args_.kv_heads = c.model.kv_heads;
    args_.max_tokens = static_cast<int>(written_tokens_);
    args_.tokens = selected_buffer_.get();
    args_.num_tokens = count_.get();
    args_.max_from_pages = static_cast<int>(from_pages_per_head_);
    args_.from_pages = from_pool_.get();
    args_.first_token = first_.get();
    args_.to_table = table_buffer_.get();
    args_.max_to_pages = static_cast<int>(pages_per_head_);
    args_.mode = gpu::demote_mode::append;
  }

  void launch(std::int64_t copy) override {
    args_.from_table = from_table_buffer_.get() + copy * from_pages_ * 4;
    args_.to_pages = pool_of(copy);
    gpu::demote(dev_, args_);
  }

 private:
  [[nodiscard]] std::int64_t from_page_bytes() const {
    return spec::page_size_bytes(spec::format_of(case_.format), case_.model.head_dim);
  }

  void make_page(std::int64_t copy, std::int64_t head, std::int64_t page,
                 std::span<std::byte> to) const override {
    std::vector<std::span<const std::byte>> source;
    const std::int64_t at = copy * from_pages_ + head * from_pages_per_head_;
    for (std::int64_t i = 0; i < from_pages_per_head_; ++i)
      source.push_back(from_.page(from_table_[static_cast<std::size_t>(at + i)]));
    const std::vector<std::span<std::byte>> pages = {to};
    reference::demote_tokens(case_.model.head_dim, source, sources(head, page), 0, pages,
                             reference::demote_mode::append);
  }

  sample_pages from_;
  std::int64_t from_pages_per_head_, from_pages_;  // from_pages_: of one copy
  gpu::device_buffer from_pool_;
  std::vector<std::int32_t> from_table_;  // [copy][head][page]
  gpu::device_buffer from_table_buffer_;
  gpu::demote_args args_{};
};

}  // namespace

std::unique_ptr<workload> make_page_workload(gpu::device& dev, const bench_case& c,
                                             std::int64_t copies) {
  if (c.op == operation::demote) return std::make_unique<demote_workload>(dev, c, copies);
  return std::make_unique<quantize_workload>(dev, c, copies);
}

}  // namespace kvproof::bench

// The two sides of a case and their comparison, see case_runner.hpp.
#include "verify/case_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "gpu/kernels/kernel_table.hpp"
#include "reference/attention/decode_attention.hpp"
#include "reference/formats/page_codec.hpp"
#include "reference/spec/error.hpp"
#include "verify/hash.hpp"

namespace kvproof::verify {
namespace {

constexpr std::int64_t canary_bytes = 256;
constexpr auto canary_byte = std::byte{0x5a};
constexpr auto poison_byte = std::byte{0xcd};
constexpr auto unwritten_page_byte = std::byte{0xa5};
constexpr int spare_pages = 3;  // of the pool, owned by nobody: must not change

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

// A device buffer between two canaries.
class fenced_buffer {
 public:
  fenced_buffer(gpu::device& dev, std::string name, std::int64_t size_bytes)
      : device_(&dev),
        name_(std::move(name)),
        size_bytes_(size_bytes),
        buffer_(dev, size_bytes + 2 * canary_bytes) {
    dev.fill(buffer_.get(), canary_byte, canary_bytes);
    dev.fill(get() + size_bytes, canary_byte, canary_bytes);
    poison();
  }
  [[nodiscard]] gpu::device_ptr get() const { return buffer_.get() + canary_bytes; }
  [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }
  void poison() {
    if (size_bytes_ > 0) device_->fill(get(), poison_byte, size_bytes_);
  }
  template <typename T>
  void write(const std::vector<T>& v) {
    if (!v.empty()) device_->copy_to_device(get(), bytes_of(v));
  }
  template <typename T>
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> v(static_cast<std::size_t>(size_bytes_) / sizeof(T));
    if (!v.empty()) device_->copy_to_host(std::as_writable_bytes(std::span(v)), get());
    return v;
  }
  // Empty, or which canary byte is gone.
  [[nodiscard]] std::string broken_canary() const {
    std::vector<std::byte> guard(canary_bytes);
    for (const std::int64_t at : {-canary_bytes, size_bytes_}) {
      device_->copy_to_host(guard, get() + at);
      const auto bad =
          std::find_if(guard.begin(), guard.end(), [](std::byte b) { return b != canary_byte; });
      if (bad != guard.end()) {
        return fmt::format("{}: canary overwritten at byte {} of a buffer of {} bytes", name_,
                           at + (bad - guard.begin()), size_bytes_);
      }
    }
    return "";
  }

 private:
  gpu::device* device_;
  std::string name_;
  std::int64_t size_bytes_;
  gpu::device_buffer buffer_;
};

// Everything of a cache that both sides hold, on the host.
struct cache_state {
  std::int64_t page_bytes = 0;
  int max_pages = 0;
  std::vector<std::byte> pool;                // [num_pages][page_bytes]
  std::vector<std::int32_t> page_table;       // [batch][kv_heads][max_pages]
  std::vector<std::int32_t> num_quantized;    // [batch][kv_heads]
  std::vector<std::int32_t> num_recent;       // [batch][kv_heads]
  std::vector<half_bits> recent_k, recent_v;  // [batch][kv_heads][recent_capacity][head_dim]

  [[nodiscard]] std::span<std::byte> page(std::int64_t head, std::int64_t index) {
    const std::int64_t id = page_table[static_cast<std::size_t>(head * max_pages + index)];
    return std::span(pool).subspan(static_cast<std::size_t>(id * page_bytes),
                                   static_cast<std::size_t>(page_bytes));
  }
  [[nodiscard]] std::vector<std::span<std::byte>> pages(std::int64_t head) {
    std::vector<std::span<std::byte>> result;
    for (int i = 0; i < max_pages; ++i) result.push_back(page(head, i));
    return result;
  }
};

std::int64_t most_quantized_tokens(const workload& w) {
  std::vector<std::int64_t> total(static_cast<std::size_t>(w.heads()));
  for (const event& e : w.events) {
    for (std::size_t h = 0; h < e.quantize.size(); ++h) total[h] += e.quantize[h];
  }
  return total.empty() ? 0 : *std::max_element(total.begin(), total.end());
}

cache_state empty_cache(const workload& w) {
  cache_state c;
  c.page_bytes = spec::page_size_bytes(spec::format_of(w.format), w.head_dim);
  c.max_pages =
      static_cast<int>(std::max<std::int64_t>(1, spec::pages_for_tokens(most_quantized_tokens(w))));
  const std::int64_t owned = w.heads() * c.max_pages;
  c.pool.assign(static_cast<std::size_t>((owned + spare_pages) * c.page_bytes),
                unwritten_page_byte);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(owned + spare_pages));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::size_t i = ids.size(); i > 1; --i) {  // Fisher-Yates from the seed
    std::swap(ids[i - 1], ids[hash_index(w.seed, "page_ids", i) % i]);
  }
  c.page_table.assign(ids.begin(), ids.begin() + owned);
  c.num_quantized.assign(static_cast<std::size_t>(w.heads()), 0);
  c.num_recent.assign(static_cast<std::size_t>(w.heads()), 0);
  const auto recent = static_cast<std::size_t>(w.heads() * w.recent_capacity * w.head_dim);
  c.recent_k.assign(recent, 0xcdcd);
  c.recent_v.assign(recent, 0xcdcd);
  return c;
}

class case_run {
 public:
  case_run(std::string id, gpu::device& dev, const workload& w, const fault_injection& inject)
      : device_(dev),
        work_(w),
        inject_(inject),
        format_(spec::format_of(w.format)),
        q_heads_(std::int64_t{w.kv_heads} * w.gqa_ratio),
        cache_(empty_cache(w)),
        source_rows_(static_cast<std::size_t>(w.heads()), 0),
        score_capacity_(cache_.max_pages * std::int64_t{spec::tokens_per_page} + w.recent_capacity),
        pages_(dev, "pages", static_cast<std::int64_t>(cache_.pool.size())),
        page_table_(dev, "page_table", std::ssize(cache_.page_table) * 4),
        num_quantized_(dev, "num_quantized", w.heads() * 4),
        num_recent_(dev, "num_recent", w.heads() * 4),
        first_token_(dev, "first_token", w.heads() * 4),
        num_new_(dev, "num_new", w.heads() * 4),
        k_(dev, "k", std::ssize(w.k) * 2),
        v_(dev, "v", std::ssize(w.v) * 2),
        recent_k_(dev, "recent_k", std::ssize(cache_.recent_k) * 2),
        recent_v_(dev, "recent_v", std::ssize(cache_.recent_v) * 2),
        q_(dev, "q", w.batch * q_heads_ * w.head_dim * 2),
        out_(dev, "out", w.batch * q_heads_ * w.head_dim * 4),
        state_(dev, "state", w.batch * q_heads_ * 2 * 4),
        scores_(dev, "scores", w.with_scores ? w.heads() * score_capacity_ * w.gqa_ratio * 4 : 0),
        workspace_(dev, "workspace", gpu::decode_workspace_bytes(decode_arguments({}))) {
    result_.id = std::move(id);
    pages_.write(cache_.pool);
    page_table_.write(cache_.page_table);
    k_.write(w.k);
    v_.write(w.v);
    if (workspace_.size_bytes() > 0)
      dev.fill(workspace_.get(), std::byte{0}, workspace_.size_bytes());
    write_lengths_and_recent();
  }

  case_result run() {
    try {
      for (const event& e : work_.events) {
        if (!play(e)) break;
      }
    } catch (const spec::device_error& error) {
      result_.result = verdict::fault;
      result_.detail = error.what();
    }
    if (result_.result == verdict::passed && result_.compared == 0) {
      result_.result = verdict::vacuous;
      result_.detail = "nothing was compared: no event of the case touches a token";
    }
    return std::move(result_);
  }

 private:
  // Returns false when the case ends here.
  bool play(const event& e) {
    append(e);
    if (std::any_of(e.quantize.begin(), e.quantize.end(), [](int n) { return n > 0; })) {
      quantize_on_device(e);
      quantize_in_reference(e);
      if (e.from_recent) std::fill(cache_.num_recent.begin(), cache_.num_recent.end(), 0);
      write_lengths();
      device_.synchronize();
      if (inject_) inject_(e, view());
      if (!check_cache(e.name + "/quantize")) return false;
    }
    if (!e.attend) return true;
    q_.write(e.q);
    out_.poison();
    state_.poison();
    scores_.poison();
    gpu::decode(device_, decode_arguments(workspace_.get()));
    note_entry(gpu::kernel_role::decode, work_.gqa_ratio);
    device_.synchronize();
    if (inject_) inject_(e, view());
    return check_attention(e) && check_cache(e.name + "/decode");
  }

  void append(const event& e) {
    quantize_first_.clear();
    for (std::int64_t h = 0; h < work_.heads(); ++h) {
      const auto head = static_cast<std::size_t>(h);
      // Source rows are quantized first (a prompt), then the rest joins the recent part.
      if (!e.from_recent) quantize_first_.push_back(source_rows_[head]);
      if (!e.from_recent) source_rows_[head] += e.quantize[head];
      for (int i = 0; i < e.append[head]; ++i, ++source_rows_[head]) {
        const std::int64_t to =
            (h * work_.recent_capacity + cache_.num_recent[head]++) * work_.head_dim;
        std::copy_n(work_.k.begin() + source_offset(h, source_rows_[head]), work_.head_dim,
                    cache_.recent_k.begin() + to);
        std::copy_n(work_.v.begin() + source_offset(h, source_rows_[head]), work_.head_dim,
                    cache_.recent_v.begin() + to);
      }
    }
    write_lengths_and_recent();
  }

  [[nodiscard]] std::int64_t source_offset(std::int64_t head, std::int64_t row) const {
    const std::int64_t sequence = head / work_.kv_heads;
    return ((sequence * work_.source_tokens + row) * work_.kv_heads + head % work_.kv_heads) *
           work_.head_dim;
  }

  void quantize_on_device(const event& e) {
    gpu::quantize_args args{};
    args.format = work_.format;
    args.head_dim = work_.head_dim;
    args.batch = work_.batch;
    args.kv_heads = work_.kv_heads;
    args.max_new_tokens = *std::max_element(e.quantize.begin(), e.quantize.end());
    if (e.from_recent) {
      args.k = recent_k_.get();
      args.v = recent_v_.get();
      args.stride_token = work_.head_dim;
      args.stride_head = std::int64_t{work_.recent_capacity} * work_.head_dim;
      args.stride_batch = args.stride_head * work_.kv_heads;
    } else {
      args.stride_head = work_.head_dim;
      args.stride_token = std::int64_t{work_.kv_heads} * work_.head_dim;
      args.stride_batch = work_.source_tokens * args.stride_token;
      // All heads of an event start at the same source row.
      const std::int64_t skip = quantize_first_.front() * args.stride_token * 2;
      args.k = k_.get() + skip;
      args.v = v_.get() + skip;
    }
    first_token_.write(cache_.num_quantized);
    num_new_.write(e.quantize);
    args.first_token = first_token_.get();
    args.num_new = num_new_.get();
    args.page_table = page_table_.get();
    args.max_pages = cache_.max_pages;
    args.pages = pages_.get();
    gpu::quantize(device_, args);
    note_entry(gpu::kernel_role::quantize, 0);
  }

  void quantize_in_reference(const event& e) {
    const std::int64_t d = work_.head_dim;
    for (std::int64_t h = 0; h < work_.heads(); ++h) {
      const auto head = static_cast<std::size_t>(h);
      const std::int64_t n = e.quantize[head];
      if (n == 0) continue;
      std::vector<half_bits> k(static_cast<std::size_t>(n * d)), v(k.size());
      for (std::int64_t i = 0; i < n; ++i) {
        const std::vector<half_bits>& from_k = e.from_recent ? cache_.recent_k : work_.k;
        const std::vector<half_bits>& from_v = e.from_recent ? cache_.recent_v : work_.v;
        const std::int64_t at = e.from_recent ? (h * work_.recent_capacity + i) * d
                                              : source_offset(h, quantize_first_[head] + i);
        std::copy_n(from_k.begin() + at, d, k.begin() + i * d);
        std::copy_n(from_v.begin() + at, d, v.begin() + i * d);
      }
      reference::append_tokens(format_, work_.head_dim, k, v, cache_.num_quantized[head],
                               cache_.pages(h));
      cache_.num_quantized[head] += static_cast<std::int32_t>(n);
    }
  }

  [[nodiscard]] gpu::decode_args decode_arguments(gpu::device_ptr workspace) const {
    gpu::decode_args args{};
    args.format = work_.format;
    args.head_dim = work_.head_dim;
    args.batch = work_.batch;
    args.kv_heads = work_.kv_heads;
    args.gqa_ratio = work_.gqa_ratio;
    args.softmax_scale = work_.softmax_scale;
    args.max_quantized = cache_.max_pages * spec::tokens_per_page;
    args.q = q_.get();
    args.page_table = page_table_.get();
    args.max_pages = cache_.max_pages;
    args.pages = pages_.get();
    args.num_quantized = num_quantized_.get();
    args.num_recent = num_recent_.get();
    args.recent_k = work_.recent_capacity > 0 ? recent_k_.get() : gpu::device_ptr{};
    args.recent_v = work_.recent_capacity > 0 ? recent_v_.get() : gpu::device_ptr{};
    args.recent_capacity = work_.recent_capacity;
    args.out = out_.get();
    args.state = state_.get();
    args.scores = work_.with_scores ? scores_.get() : gpu::device_ptr{};
    args.score_capacity = score_capacity_;
    args.workspace = workspace;
    return args;
  }
  [[nodiscard]] std::vector<reference::decode_output> attend_in_reference(const event& e) {
    std::vector<std::vector<std::span<const std::byte>>> pages(
        static_cast<std::size_t>(work_.heads()));
    std::vector<reference::decode_input> inputs;
    for (std::int64_t h = 0; h < work_.heads(); ++h) {
      const auto head = static_cast<std::size_t>(h);
      const std::int64_t nq = cache_.num_quantized[head], nr = cache_.num_recent[head];
      for (std::int64_t p = 0; p < spec::pages_for_tokens(nq); ++p)
        pages[head].push_back(cache_.page(h, p));
      reference::decode_input input{};
      input.format = work_.format;
      input.head_dim = work_.head_dim;
      input.gqa_ratio = work_.gqa_ratio;
      input.softmax_scale = work_.softmax_scale;
      const std::int64_t group = std::int64_t{work_.gqa_ratio} * work_.head_dim;
      input.q = std::span(e.q).subspan(static_cast<std::size_t>(h * group),
                                       static_cast<std::size_t>(group));
      input.num_quantized = nq;
      input.pages = pages[head];
      input.num_recent = nr;
      const auto at = static_cast<std::size_t>(h * work_.recent_capacity * work_.head_dim);
      const auto size = static_cast<std::size_t>(nr * work_.head_dim);
      input.recent_k = std::span(cache_.recent_k).subspan(at, size);
      input.recent_v = std::span(cache_.recent_v).subspan(at, size);
      inputs.push_back(input);
    }
    return reference::decode_attention(inputs);
  }

  bool check_attention(const event& e) {
    const std::string stage = e.name + "/decode";
    std::vector<float> out, state;
    std::vector<std::uint32_t> scores(static_cast<std::size_t>(scores_.size_bytes() / 4),
                                      0xcdcdcdcdu);
    const std::vector<reference::decode_output> expected = attend_in_reference(e);
    for (std::size_t h = 0; h < expected.size(); ++h) {
      out.insert(out.end(), expected[h].out.begin(), expected[h].out.end());
      state.insert(state.end(), expected[h].state.begin(), expected[h].state.end());
      if (work_.with_scores && !expected[h].scores.empty()) {
        std::memcpy(scores.data() + h * static_cast<std::size_t>(score_capacity_ * work_.gqa_ratio),
                    expected[h].scores.data(), expected[h].scores.size() * 4);
      }
    }
    const auto bits = [](const std::vector<float>& x) {
      std::vector<std::uint32_t> b(x.size());
      if (!x.empty()) std::memcpy(b.data(), x.data(), x.size() * 4);
      return b;
    };
    const std::array<axis, 3> out_axes = {
        axis{"sequence", work_.batch}, {"q_head", q_heads_}, {"channel", work_.head_dim}};
    const std::array<axis, 3> state_axes = {
        axis{"sequence", work_.batch}, {"q_head", q_heads_}, {"m_l", 2}};
    const std::array<axis, 4> score_axes = {axis{"sequence", work_.batch},
                                            {"kv_head", work_.kv_heads},
                                            {"token", score_capacity_},
                                            {"query", work_.gqa_ratio}};
    return note(stage, compare_floats("out", out_axes, bits(out), out_.read<std::uint32_t>())) &&
           note(stage,
                compare_floats("state", state_axes, bits(state), state_.read<std::uint32_t>())) &&
           note(stage, compare_floats("scores", score_axes, scores, scores_.read<std::uint32_t>()));
  }

  // Pages, tables, lengths, recent part, inputs and canaries.
  bool check_cache(const std::string& stage) {
    const std::vector<std::byte> pool = pages_.read<std::byte>();
    comparison pages;
    pages.compared = std::ssize(pool);
    if (pool != cache_.pool) pages.mismatch = explain_pages(pool);
    if (!note(stage, pages)) return false;
    const auto same = [&](const std::string& name, const auto& expected,
                          const fenced_buffer& buffer) {
      using element = typename std::decay_t<decltype(expected)>::value_type;
      const std::vector<element> actual = buffer.read<element>();
      comparison c;
      c.compared = std::ssize(expected);
      const auto [e, a] = std::mismatch(expected.begin(), expected.end(), actual.begin());
      if (e != expected.end()) {
        c.mismatch =
            mismatch_report{1,
                            fmt::format("{}[{}]: expected {:#x}, got {:#x}: a kernel changed it",
                                        name, e - expected.begin(), *e, *a),
                            ""};
      }
      return note(stage, c);
    };
    if (!same("page_table", cache_.page_table, page_table_) ||
        !same("num_quantized", cache_.num_quantized, num_quantized_) ||
        !same("num_recent", cache_.num_recent, num_recent_) ||
        !same("recent_k", cache_.recent_k, recent_k_) ||
        !same("recent_v", cache_.recent_v, recent_v_) || !same("k", work_.k, k_) ||
        !same("v", work_.v, v_)) {
      return false;
    }
    for (const fenced_buffer* b :
         {&pages_, &page_table_, &num_quantized_, &num_recent_, &first_token_, &num_new_, &k_, &v_,
          &recent_k_, &recent_v_, &q_, &out_, &state_, &scores_, &workspace_}) {
      const std::string broken = b->broken_canary();
      if (!broken.empty()) return note(stage, {1, mismatch_report{1, broken, ""}});
    }
    return true;
  }

  // Finds the page and, through the reference's unpacking, the code or scale that differs.
  [[nodiscard]] mismatch_report explain_pages(const std::vector<std::byte>& actual) {
    mismatch_report report;
    std::int64_t first = -1;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (actual[i] == cache_.pool[i]) continue;
      if (first < 0) first = static_cast<std::int64_t>(i);
      ++report.count;
    }
    const std::int64_t id = first / cache_.page_bytes, byte = first % cache_.page_bytes;
    const auto owner = std::find(cache_.page_table.begin(), cache_.page_table.end(),
                                 static_cast<std::int32_t>(id));
    report.first = fmt::format("pages[page={}, byte={}]: expected 0x{:02x}, got 0x{:02x}", id, byte,
                               std::to_integer<int>(cache_.pool[static_cast<std::size_t>(first)]),
                               std::to_integer<int>(actual[static_cast<std::size_t>(first)]));
    if (owner == cache_.page_table.end()) {
      report.first += ", a page that no head owns";
      return report;
    }
    const std::int64_t slot = owner - cache_.page_table.begin();
    const std::int64_t head = slot / cache_.max_pages, index = slot % cache_.max_pages;
    report.first += fmt::format(" (sequence={}, kv_head={}, page {} of the head)",
                                head / work_.kv_heads, head % work_.kv_heads, index);
    const std::int64_t tokens = std::min<std::int64_t>(
        spec::tokens_per_page,
        cache_.num_quantized[static_cast<std::size_t>(head)] - index * spec::tokens_per_page);
    if (tokens <= 0) {
      report.first += ", a page that holds no token yet";
      return report;
    }
    const auto at = static_cast<std::size_t>(id * cache_.page_bytes);
    const auto size = static_cast<std::size_t>(cache_.page_bytes);
    const std::span<const std::byte> expected_page = std::span(cache_.pool).subspan(at, size);
    const std::span<const std::byte> actual_page = std::span(actual).subspan(at, size);
    const auto e =
        reference::unpack_tokens(format_, work_.head_dim, tokens, std::span(&expected_page, 1));
    const auto a =
        reference::unpack_tokens(format_, work_.head_dim, tokens, std::span(&actual_page, 1));
    explain_tensor(report, "key code", e.key_codes, a.key_codes, index);
    explain_tensor(report, "value code", e.value_codes, a.value_codes, index);
    explain_scales(report, "key scale", e.key_scales, a.key_scales);
    explain_scales(report, "key zero", e.key_zeros, a.key_zeros);
    explain_scales(report, "value scale", e.value_scales, a.value_scales);
    explain_scales(report, "value zero", e.value_zeros, a.value_zeros);
    if (e.key_codes == a.key_codes && e.value_codes == a.value_codes &&
        e.key_scales == a.key_scales && e.key_zeros == a.key_zeros &&
        e.value_scales == a.value_scales && e.value_zeros == a.value_zeros) {
      report.pattern = "only slots behind the last token: padding";
    }
    return report;
  }
  void explain_tensor(mismatch_report& report, std::string_view what,
                      const std::vector<std::uint8_t>& e, const std::vector<std::uint8_t>& a,
                      std::int64_t page) const {
    const std::array<axis, 2> axes = {axis{"token", std::ssize(e) / work_.head_dim},
                                      {"channel", work_.head_dim}};
    std::vector<std::int64_t> coordinates;
    bool off_by_one = true;
    for (std::size_t i = 0; i < e.size(); ++i) {
      if (e[i] == a[i]) continue;
      const auto token = static_cast<std::int64_t>(i) / work_.head_dim,
                 channel = static_cast<std::int64_t>(i) % work_.head_dim;
      if (coordinates.empty()) {
        report.first += fmt::format("; {}[token={}, channel={}]: expected {}, got {}", what,
                                    page * spec::tokens_per_page + token, channel, e[i], a[i]);
      }
      off_by_one = off_by_one && std::abs(int{e[i]} - int{a[i]}) == 1;
      coordinates.insert(coordinates.end(), {token, channel});
    }
    if (coordinates.empty()) return;
    if (!report.pattern.empty()) report.pattern += ", ";
    report.pattern += off_by_one ? fmt::format("{}s off by one: rounding or ties", what)
                                 : guess_pattern(axes, coordinates);
  }
  static void explain_scales(mismatch_report& report, std::string_view what,
                             const std::vector<half_bits>& e, const std::vector<half_bits>& a) {
    const auto [x, y] = std::mismatch(e.begin(), e.end(), a.begin());
    if (x == e.end()) return;
    report.first +=
        fmt::format("; {} [{}]: expected 0x{:04x}, got 0x{:04x}", what, x - e.begin(), *x, *y);
  }

  bool note(const std::string& stage, const comparison& c) {
    if (result_.stages.empty() || result_.stages.back().name != stage)
      result_.stages.push_back({stage});
    result_.stages.back().compared += c.compared;
    result_.compared += c.compared;
    if (!c.mismatch) return true;
    result_.stages.back().mismatches += c.mismatch->count;
    result_.mismatches += c.mismatch->count;
    result_.result = verdict::failed;
    result_.detail = fmt::format("{}: {}", stage, c.mismatch->first);
    if (!c.mismatch->pattern.empty())
      result_.detail += fmt::format("; pattern: {}", c.mismatch->pattern);
    return false;
  }
  void note_entry(gpu::kernel_role role, int ratio) {
    const std::string entry(gpu::find_kernel(role, work_.format, work_.head_dim, ratio).entry);
    if (std::find(result_.entries.begin(), result_.entries.end(), entry) == result_.entries.end()) {
      result_.entries.push_back(entry);
    }
  }
  void write_lengths() {
    num_quantized_.write(cache_.num_quantized);
    num_recent_.write(cache_.num_recent);
  }
  void write_lengths_and_recent() {
    write_lengths();
    recent_k_.write(cache_.recent_k);
    recent_v_.write(cache_.recent_v);
  }
  [[nodiscard]] device_state_view view() {
    return {&device_,
            pages_.get(),
            page_table_.get(),
            num_quantized_.get(),
            num_recent_.get(),
            recent_k_.get(),
            recent_v_.get(),
            out_.get(),
            state_.get(),
            scores_.get(),
            q_.get(),
            pages_.size_bytes(),
            out_.size_bytes(),
            state_.size_bytes(),
            scores_.size_bytes()};
  }

  gpu::device& device_;
  const workload& work_;
  const fault_injection& inject_;
  const spec::kv_format& format_;
  std::int64_t q_heads_;
  cache_state cache_;                      // the reference's state; the device holds its own copy
  std::vector<std::int64_t> source_rows_;  // rows of k and v already used, per head
  std::vector<std::int64_t>
      quantize_first_;  // source row where this event's quantized tokens start
  std::int64_t score_capacity_;
  case_result result_;
  fenced_buffer pages_, page_table_, num_quantized_, num_recent_, first_token_, num_new_, k_, v_,
      recent_k_, recent_v_, q_, out_, state_, scores_, workspace_;
};

}  // namespace

std::string_view name_of(verdict v) {
  constexpr std::array<std::string_view, 5> names = {"PASSED", "FAILED", "SKIPPED", "VACUOUS",
                                                     "FAULT"};
  return names[static_cast<std::size_t>(v)];
}

case_result run_case(const std::string& id, gpu::device& dev, const workload& w,
                     const fault_injection& inject) {
  try {
    return case_run(id, dev, w, inject).run();
  } catch (const spec::device_error& error) {
    case_result result;
    result.id = id;
    result.result = verdict::fault;
    result.detail = error.what();
    return result;
  }
}

}  // namespace kvproof::verify

// The lists as formulas, see listed_cases.hpp.
#include "verify/listed_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "verify/drawn_workload.hpp"
#include "verify/hash.hpp"

namespace kvproof::verify {
namespace {

constexpr std::array<int, 2> head_dims = {64, 128};
constexpr std::size_t heads = 4;  // two sequences of two KV heads
using counts = std::array<std::int32_t, heads>;

constexpr int slack = 3;  // entries of a list that no head uses

enum class list_order : std::uint8_t { ascending, strided, reversed, repeated, random };
constexpr std::array<std::string_view, 5> order_names = {"ascending", "strided", "reversed",
                                                         "repeated", "random"};
std::string_view name_of(list_order o) { return order_names[static_cast<std::size_t>(o)]; }

// Entry i of a head's list of numbers below `total`.
std::int64_t listed(list_order order, std::int64_t i, std::int64_t head, std::int64_t total,
                    std::uint64_t bits) {
  switch (order) {
    case list_order::ascending:
      return (head + i) % total;
    case list_order::strided:
      return (head % 2 + 2 * i) % total;
    case list_order::reversed:
      return total - 1 - i % total;
    case list_order::repeated:
      return (head + i / 3) % total;
    case list_order::random:
      return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(total));
  }
  return 0;
}

// [batch][kv_heads][w.list_capacity] with count[h] numbers below total[h].
std::vector<std::int32_t> drawn_lists(const workload& w, list_order order, const counts& count,
                                      const counts& total) {
  std::vector<std::int32_t> lists(heads * static_cast<std::size_t>(w.list_capacity), -1);
  const std::string name = fmt::format("list {}", w.events.size());
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::int32_t i = 0; i < count[h]; ++i) {
      const std::size_t at =
          h * static_cast<std::size_t>(w.list_capacity) + static_cast<std::size_t>(i);
      lists[at] = static_cast<std::int32_t>(
          listed(order, i, static_cast<std::int64_t>(h), total[h], hash_index(w.seed, name, at)));
    }
  }
  return lists;
}

event idle_event(std::string name) {
  event e;
  e.name = std::move(name);
  e.append.assign(heads, 0);
  e.quantize.assign(heads, 0);
  return e;
}

struct listed_shape {
  spec::format_id format;
  int head_dim;
  list_order order;
  value_regime regime;
};

workload listed_workload(const listed_shape& s, std::int64_t source_tokens, std::uint64_t seed) {
  return drawn_workload(
      {s.format, s.head_dim, 1, heads / synthetic_kv_heads, source_tokens, s.regime}, seed);
}

workload build_gather(const listed_shape& s, std::uint64_t seed) {
  constexpr std::int32_t rows = 160;
  // Rounded up to whole tiles where the format has to. The second range begins at slot 0, in the
  // middle of a page, and at slot 0 of a head's second page.
  std::array<counts, 2> ranges = {{{0, 15, 64, 72}, {63, 0, 1, 58}}};
  const int unit = spec::format_of(s.format).token_granularity;
  workload w = listed_workload(s, rows, seed);
  for (counts& range : ranges) {
    for (std::int32_t& n : range) {
      n = (n + unit - 1) / unit * unit;
      w.list_capacity = std::max(w.list_capacity, n + slack);
    }
  }
  for (const counts& range : ranges) {
    event e = idle_event(fmt::format("append {}", w.events.size()));
    e.quantize.assign(range.begin(), range.end());
    e.gather = drawn_lists(w, s.order, range, {rows, rows, rows, rows});
    w.events.push_back(std::move(e));
  }
  return w;
}

workload build_demote(const listed_shape& s, std::uint64_t seed) {
  constexpr counts from = {150, 64, 17, 97};
  struct step {
    std::string_view name;
    counts count;
    std::vector<std::int32_t> replace_from;
  };
  const std::array<step, 4> steps = {{
      {"new pages", {63, 64, 0, 1}, {}},
      // Across the end of a page, to the beginning of the second and the first page, inside a page.
      {"more", {3, 1, 15, 40}, {}},
      // Slots 0 and 63 among them, and tokens that stay on both sides.
      {"replace", {5, 64, 1, 0}, {60, 0, 14, 7}},
      {"to the page's end", {1, 0, 49, 23}, {}},
  }};
  workload w = listed_workload(s, *std::ranges::max_element(from), seed);
  w.list_capacity = spec::format_of(spec::format_id::k4v2).tokens_per_page + slack;
  event prompt = idle_event("prompt");
  prompt.quantize.assign(from.begin(), from.end());
  w.events.push_back(std::move(prompt));
  for (const step& now : steps) {
    event e = idle_event(std::string(now.name));
    e.demote.tokens = drawn_lists(w, s.order, now.count, from);
    e.demote.num_tokens.assign(now.count.begin(), now.count.end());
    e.demote.replace_from = now.replace_from;
    w.events.push_back(std::move(e));
  }
  return w;
}

test_case listed_case(std::string_view kernel, const listed_shape& s,
                      workload (*build)(const listed_shape&, std::uint64_t)) {
  std::string id = fmt::format("{}/{}/d{}_{}", kernel, spec::format_of(s.format).name, s.head_dim,
                               name_of(s.order));
  if (s.regime != value_regime::normal)
    id += fmt::format("_{}", value_regime_names()[static_cast<std::size_t>(s.regime)]);
  return {std::move(id), s.format, [s, build](std::uint64_t seed) { return build(s, seed); }, ""};
}

test_case gather_case(const listed_shape& s) {
  return listed_case("gather_quantize", s, build_gather);
}
test_case demote_case(const listed_shape& s) { return listed_case("demote", s, build_demote); }

}  // namespace

std::vector<test_case> listed_cases() {
  using enum list_order;
  std::vector<test_case> cases;
  for (const int d : head_dims) {
    for (const spec::kv_format& format : spec::kv_formats) {
      for (const list_order order : {strided, reversed, repeated, random})
        cases.push_back(gather_case({format.id, d, order, value_regime::normal}));
    }
    for (const list_order order : {ascending, repeated, random})
      cases.push_back(demote_case({spec::format_id::k8v4, d, order, value_regime::normal}));
  }
  return cases;
}

std::vector<test_case> listed_regime_cases() {
  std::vector<test_case> cases;
  for (const int d : head_dims) {
    for (const spec::kv_format& format : spec::kv_formats)
      cases.push_back(gather_case({format.id, d, list_order::random, value_regime::nonfinite}));
    for (std::size_t r = 1; r < value_regime_names().size(); ++r) {
      cases.push_back(demote_case(
          {spec::format_id::k8v4, d, list_order::random, static_cast<value_regime>(r)}));
    }
  }
  return cases;
}

}  // namespace kvproof::verify

// Selection of cases: globs, suites by name and by file, one case without its trace, and that the
// streams reach what they are for.
#include "verify/suites.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "reference/spec/error.hpp"
#include "verify/listed_cases.hpp"
#include "verify/score_update_cases.hpp"
#include "verify/synthetic_cases.hpp"

namespace kvproof::verify {
namespace {

std::filesystem::path no_trace() { throw spec::input_error("a trace was opened"); }
std::filesystem::path shipped() { return "traces/data/smollm2-135m-instruct.h5"; }

std::set<std::string> ids_of(const case_request& r) {
  std::set<std::string> ids;
  for (const test_case& c : select_cases(r, shipped).cases) {
    BOOST_TEST(ids.insert(c.id).second, c.id << " appears twice");
  }
  return ids;
}

case_request suite(const std::string& name) {
  case_request r;
  r.suite = name;
  return r;
}

// The cases of a suite file with this text.
std::set<std::string> ids_of_file(const std::string& text) {
  struct temporary_file {
    std::filesystem::path path = std::filesystem::temp_directory_path() /
                                 ("kvproof_suite_" + std::to_string(getpid()) + ".txt");
    ~temporary_file() { std::filesystem::remove(path); }
  } file;
  std::ofstream(file.path) << text;
  return ids_of(suite(file.path.string()));
}

}  // namespace

BOOST_AUTO_TEST_CASE(globs_match_the_whole_text) {
  BOOST_TEST(matches_glob("", ""));
  BOOST_TEST(matches_glob("", "*"));
  BOOST_TEST(!matches_glob("a", ""));
  BOOST_TEST(!matches_glob("", "?"));
  BOOST_TEST(matches_glob("abc", "abc"));
  BOOST_TEST(!matches_glob("abcd", "abc"));
  BOOST_TEST(!matches_glob("abc", "abcd"));
  BOOST_TEST(matches_glob("abc", "a?c"));
  BOOST_TEST(!matches_glob("ac", "a?c"));
  BOOST_TEST(matches_glob("decode/k8v4/d64_g3_sharp", "decode/*/d64_*"));
  BOOST_TEST(matches_glob("a/b/c", "*"));  // '*' crosses '/'
  BOOST_TEST(matches_glob("abab", "*ab"));
  BOOST_TEST(matches_glob("aXbXc", "a*b*c"));
  BOOST_TEST(!matches_glob("aXbX", "a*b*c"));
  BOOST_TEST(matches_glob("abc", "**a**c**"));
  BOOST_TEST(!matches_glob("abc", "*d*"));
}

BOOST_AUTO_TEST_CASE(words_for_the_shell_are_quoted_where_they_must_be) {
  BOOST_TEST(shell_word("a/b-c_1.h5") == "a/b-c_1.h5");
  BOOST_TEST(shell_word("") == "''");
  BOOST_TEST(shell_word("a b") == "'a b'");
  BOOST_TEST(shell_word("it's") == R"('it'\''s')");
}

BOOST_AUTO_TEST_CASE(suites_contain_one_another) {
  const std::set<std::string> none = ids_of({}), smoke = ids_of(suite("smoke")),
                              ci = ids_of(suite("ci")), nightly = ids_of(suite("nightly"));
  BOOST_TEST(none.contains("stream/int2_g16/d64_g3_flush16"));
  BOOST_TEST(none.contains("gather_quantize/k4v2/d128_random"));
  BOOST_TEST(none.contains("demote/k8v4/d64_repeated"));
  for (int g = 1; g <= spec::max_gqa_ratio; ++g)
    BOOST_TEST(none.contains("score_update/g" + std::to_string(g) + "_mixed"));
  BOOST_TEST(none.contains("minikv-2bit/smollm2-135m-instruct/layer00"));
  BOOST_TEST(none.contains("diffkv-tiers/smollm2-135m-instruct/layer29"));
  BOOST_TEST(none.contains("decode/tiers/d128_g4_boundaries"));
  BOOST_TEST(!none.contains("decode/tiers/d128_g5_boundaries"));
  BOOST_TEST(smoke.contains("decode/tiers/d64_g3_nonfinite"));
  BOOST_TEST(none.size() < ci.size());
  BOOST_TEST(std::ranges::includes(ci, smoke));
  BOOST_TEST(std::ranges::includes(ci, none));
  BOOST_TEST(std::ranges::includes(nightly, ci));
  BOOST_TEST(smoke.size() < ci.size());
  BOOST_TEST(ci.size() < nightly.size());
  BOOST_TEST(nightly.contains("long/k8v4/d128_g8"));
  BOOST_TEST(nightly.contains("long/tiers/d64_g1_splits34"));
  BOOST_TEST(nightly.contains("gather_quantize/int2_g16/d64_random_nonfinite"));
  BOOST_TEST(nightly.contains("demote/k8v4/d128_random_nonfinite"));
  BOOST_TEST(nightly.contains("score_update/g7_nan_state"));
}

BOOST_AUTO_TEST_CASE(a_file_of_globs_is_a_suite) {
  const std::set<std::string> ids =
      ids_of_file("# two of them\n\ndecode/k4v2/d64_g1_boundaries  # one\n  */layer09\r\n");
  const std::set<std::string> expected = {
      "decode/k4v2/d64_g1_boundaries", "minikv-2bit/smollm2-135m-instruct/layer09",
      "diffkv-k8v4/smollm2-135m-instruct/layer09", "diffkv-k4v2/smollm2-135m-instruct/layer09",
      "diffkv-tiers/smollm2-135m-instruct/layer09"};
  BOOST_TEST(ids == expected, boost::test_tools::per_element());
  const auto names_line_2 = [](const spec::usage_error& e) {
    return std::string(e.what()).find(":2: no case matches 'nosuch/*'") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(ids_of_file("decode/*\nnosuch/*\n"), spec::usage_error, names_line_2);
  BOOST_CHECK_THROW(ids_of_file("# nothing\n"), spec::usage_error);
  BOOST_CHECK_THROW(ids_of(suite("nosuch")), spec::usage_error);
}

BOOST_AUTO_TEST_CASE(a_synthetic_case_opens_no_trace) {
  for (const char* id :
       {"decode/k8v4/d64_g3_sharp", "stream/k8v4/d128_g4_flush1", "long/int2_g16/d64_g1",
        "decode/tiers/d64_g2_folded", "demote/k8v4/d64_random_tiny", "score_update/g8_full"}) {
    case_request r;
    r.case_id = id;
    const selected_cases s = select_cases(r, no_trace);
    BOOST_TEST_REQUIRE(s.cases.size() == 1u);
    BOOST_TEST(s.cases[0].id == id);
    BOOST_TEST(s.cases[0].rerun_options == "");
  }
  case_request r;
  r.case_id = "decode/nosuch";
  BOOST_CHECK_THROW(select_cases(r, no_trace), spec::usage_error);
  r.case_id = "minikv-2bit/smollm2-135m-instruct/layer00";
  BOOST_CHECK_THROW(select_cases(r, no_trace), spec::input_error);
}

BOOST_AUTO_TEST_CASE(trace_cases_say_what_repro_needs) {
  case_request r;
  r.trace = shipped();
  r.steps = "all";
  const selected_cases s = select_cases(r, no_trace);
  BOOST_TEST(s.cases.size() == 16u);  // 4 variants, 4 layers, and no streams
  BOOST_TEST(s.cases[0].rerun_options ==
             " --trace traces/data/smollm2-135m-instruct.h5 --steps all");
  BOOST_TEST(std::get<workload>(s.cases[0].build(1)).events.size() == 1u + 128u);
  r.trace.clear();
  r.steps.clear();
  r.suite = "nightly";
  BOOST_TEST(select_cases(r, shipped).cases.back().rerun_options == " --steps all");
  for (const char* bad : {"x", "-1", "1x", "129"}) {
    r.steps = bad;
    BOOST_CHECK_THROW(select_cases(r, shipped), spec::error);
  }
}

BOOST_AUTO_TEST_CASE(variant_and_filter_narrow) {
  case_request r = suite("ci");
  r.variant = "minikv-2bit";
  for (const std::string& id : ids_of(r)) {
    BOOST_TEST((id.starts_with("minikv-2bit/") || id.find("/int2_g16/") != std::string::npos), id);
  }
  r.variant = "diffkv-tiers";
  for (const std::string& id : ids_of(r)) {
    BOOST_TEST((id.starts_with("diffkv-tiers/") || id.starts_with("decode/tiers/")), id);
  }
  r.variant = "diffkv-k8v4";
  for (const std::string& id : ids_of(r)) {
    BOOST_TEST((id.starts_with("diffkv-k8v4/") || id.find("/k8v4/") != std::string::npos), id);
  }
  r.filter = "nosuch";
  BOOST_CHECK_THROW(ids_of(r), spec::usage_error);
  r.variant = "nosuch";
  BOOST_CHECK_THROW(ids_of(r), spec::usage_error);
}

BOOST_AUTO_TEST_CASE(streams_flush_often_into_begun_and_new_pages) {
  std::set<std::pair<spec::format_id, int>> covered;
  for (const test_case& c : stream_cases()) {
    const auto w = std::get<workload>(c.build(1));
    covered.emplace(w.format, w.head_dim);
    const auto heads = static_cast<std::size_t>(w.heads());
    const std::int64_t page = spec::format_of(w.format).tokens_per_page;
    std::vector<int> flushes(heads), new_pages(heads), begun_pages(heads);
    std::vector<std::int64_t> tokens(heads);
    std::set<std::string> steps_of_flush;
    for (const event& e : w.events) {
      for (std::size_t h = 0; h < heads; ++h) {
        const std::int64_t first = tokens[h];
        tokens[h] += e.quantize[h];
        if (!e.from_recent || e.quantize[h] == 0) continue;
        ++flushes[h];
        steps_of_flush.insert(e.name);
        if (first % page != 0) ++begun_pages[h];
        if (first % page == 0 || first / page != (tokens[h] - 1) / page) ++new_pages[h];
      }
      BOOST_TEST(e.attend == (e.name != "prompt"));
    }
    for (std::size_t h = 0; h < heads; ++h) {
      BOOST_TEST(flushes[h] >= 2, c.id);
      BOOST_TEST(new_pages[h] >= 1, c.id);
    }
    BOOST_TEST(std::ranges::count(begun_pages, 0) < static_cast<int>(heads), c.id);
    BOOST_TEST(static_cast<int>(steps_of_flush.size()) > std::ranges::max(flushes) - 1, c.id);
  }
  BOOST_TEST(covered.size() == spec::kv_formats.size() * 2);
}

// Where the ranges of tokens that a case writes begin and end.
struct written_ranges {
  std::int64_t page;  // its tokens
  bool new_page = false, begun_page = false, across_pages = false, partly_new_page = false,
       nothing = false;
  void add(std::int64_t first, std::int64_t n) {
    nothing = nothing || n == 0;
    if (n == 0) return;
    new_page = new_page || first % page == 0;
    begun_page = begun_page || first % page != 0;
    across_pages = across_pages || first / page != (first + n - 1) / page;
    partly_new_page =
        partly_new_page ||
        ((first + n) % page != 0 && (first % page == 0 || first / page != (first + n - 1) / page));
  }
  [[nodiscard]] bool all() const {
    return new_page && begun_page && across_pages && partly_new_page && nothing;
  }
};

BOOST_AUTO_TEST_CASE(gathered_lists_reach_what_they_are_for) {
  std::set<std::pair<spec::format_id, int>> covered;
  for (const test_case& c : listed_cases()) {
    if (!c.id.starts_with("gather_quantize/")) continue;
    const auto w = std::get<workload>(c.build(1));
    covered.emplace(w.format, w.head_dim);
    const auto heads = static_cast<std::size_t>(w.heads());
    written_ranges ranges{spec::format_of(w.format).tokens_per_page};
    std::vector<std::int64_t> tokens(heads);
    bool from_another_row = false, repeats = false;
    for (const event& e : w.events) {
      BOOST_TEST_REQUIRE(e.gather.size() == heads * static_cast<std::size_t>(w.list_capacity));
      for (std::size_t h = 0; h < heads; ++h) {
        ranges.add(tokens[h], e.quantize[h]);
        tokens[h] += e.quantize[h];
        std::set<std::int32_t> rows;
        for (int i = 0; i < w.list_capacity; ++i) {
          const std::int32_t row =
              e.gather[h * static_cast<std::size_t>(w.list_capacity) + static_cast<std::size_t>(i)];
          BOOST_TEST((i < e.quantize[h] ? row >= 0 && row < w.source_tokens : row == -1), c.id);
          from_another_row = from_another_row || (row >= 0 && row != i);
          if (row >= 0 && !rows.insert(row).second) repeats = true;
        }
      }
    }
    BOOST_TEST(ranges.all(), c.id);
    BOOST_TEST(from_another_row, c.id);
    BOOST_TEST((repeats || c.id.find("repeated") == std::string::npos), c.id);
  }
  BOOST_TEST(covered.size() == spec::kv_formats.size() * 2);
}

BOOST_AUTO_TEST_CASE(demoted_lists_reach_what_they_are_for) {
  int cases = 0;
  for (const test_case& c : listed_cases()) {
    if (!c.id.starts_with("demote/")) continue;
    ++cases;
    const auto w = std::get<workload>(c.build(1));
    const auto heads = static_cast<std::size_t>(w.heads());
    const std::int32_t page = spec::format_of(spec::format_id::k4v2).tokens_per_page;
    written_ranges ranges{page};
    std::vector<std::int32_t> tokens(heads);
    bool slot_0_replaced = false, replaced_inside = false;
    for (const event& e : w.events) {
      for (std::size_t h = 0; h < e.demote.num_tokens.size(); ++h) {
        const std::int32_t n = e.demote.num_tokens[h];
        if (e.demote.replace_from.empty()) {
          ranges.add(tokens[h], n);
          tokens[h] += n;
          continue;
        }
        const std::int32_t first = e.demote.replace_from[h];
        BOOST_TEST(first + n <= tokens[h], c.id);
        // Then another token of the page shows whether the page was cleared.
        const std::int32_t last_page = (first + n - 1) / page;
        slot_0_replaced = slot_0_replaced || (first / page != last_page && first + n < tokens[h]);
        replaced_inside = replaced_inside || (n > 0 && first % page != 0);
      }
    }
    BOOST_TEST(ranges.all(), c.id);
    BOOST_TEST(slot_0_replaced, c.id);
    BOOST_TEST(replaced_inside, c.id);
  }
  BOOST_TEST(cases == 6);
}

BOOST_AUTO_TEST_CASE(tiers_reach_what_they_are_for) {
  std::vector<test_case> cases = tier_cases();
  const std::size_t by_default = cases.size();
  for (test_case& c : more_tier_cases()) cases.push_back(std::move(c));
  std::set<std::string> shapes;  // "decode/tiers/d64_g3"
  for (const test_case& c : cases) {
    shapes.insert(c.id.substr(0, c.id.find('_', c.id.find("_g") + 1)));
    // Others have lengths that cases of one format or of head_dim 64 have, and take seconds to
    // draw.
    const bool many_splits =
        c.id.ends_with("folded") || c.id.ends_with("whole_heads") || c.id.ends_with("balanced");
    if (many_splits || c.id.find("/d128_") != std::string::npos) continue;
    const auto w = std::get<workload>(c.build(1));
    BOOST_TEST_REQUIRE(w.events.size() == 1u);
    BOOST_TEST((c.tiers && w.tiers && w.events[0].attend), c.id);
    const event& e = w.events[0];
    bool only_high = false, only_low = false, both = false, with_recent = false, demoted = false,
         quantized_low = false, part_of_a_block = false;
    std::set<std::int64_t> high_lengths, low_lengths;
    for (std::size_t h = 0; h < e.quantize.size(); ++h) {
      const std::int64_t high = e.quantize[h], low = e.quantize_low[h] + e.demote.num_tokens[h];
      high_lengths.insert(high);
      low_lengths.insert(low);
      only_high = only_high || (high > 0 && low == 0);
      only_low = only_low || (high == 0 && low > 0);
      both = both || (high > 0 && low > 0);
      with_recent = with_recent || (e.append[h] > 0 && high > 0 && low > 0);
      demoted = demoted || e.demote.num_tokens[h] > 0;
      quantized_low = quantized_low || e.quantize_low[h] > 0;
      part_of_a_block = part_of_a_block || (high % 64 > 0 && high % 64 <= 32);
      BOOST_TEST(e.low_first_row + e.quantize_low[h] <= w.source_tokens, c.id);
      for (std::int32_t n = 0; n < w.list_capacity; ++n) {
        const std::int32_t token = e.demote.tokens[h * static_cast<std::size_t>(w.list_capacity) +
                                                   static_cast<std::size_t>(n)];
        BOOST_TEST((n < e.demote.num_tokens[h] ? token >= 0 && token < high : token == -1), c.id);
      }
    }
    BOOST_TEST((both && demoted && quantized_low && part_of_a_block), c.id);
    BOOST_TEST((with_recent || c.id.ends_with("nonfinite")), c.id);
    if (c.id.find("boundaries") == std::string::npos) continue;
    BOOST_TEST((only_high && only_low), c.id);
    for (const std::int64_t n : {0, 1, 31, 32, 33, 63, 64, 65, 1025})
      BOOST_TEST((high_lengths.contains(n) && low_lengths.contains(n)), c.id << ": " << n);
  }
  BOOST_TEST(by_default >= 4u);
  BOOST_TEST(shapes.size() == 2u * spec::max_gqa_ratio);
}

// What the tokens, states and rows of a score update case are.
struct update_traits {
  bool empty = false, one = false, odd = false, whole_vectors = false, thousands = false;
  bool minus_infinity = false, only_minus_infinity = false, not_a_number = false,
       only_not_a_number = false, minus_zero = false;
  bool nan_state = false, small_l = false, large_l = false;
  bool minus_zero_running = false, number_behind_the_end = false;
  std::vector<bool> decides;  // query heads that give some token its largest probability

  explicit update_traits(const score_update_workload& w)
      : decides(static_cast<std::size_t>(w.gqa_ratio)) {
    for (const score_update_workload::step& s : w.steps) {
      for (std::size_t h = 0; h < w.heads(); ++h) look_at(w, s, h);
    }
  }

 private:
  void look_at(const score_update_workload& w, const score_update_workload::step& s,
               std::size_t head) {
    const auto n = static_cast<std::size_t>(s.num_tokens[head]), ratio = decides.size();
    empty = empty || n == 0;
    one = one || n == 1;
    odd = odd || (n > 1 && n % 2 == 1);
    whole_vectors = whole_vectors || (n > 0 && n % 4 == 0);
    thousands = thousands || n > 2000;
    for (std::size_t g = 0; g < ratio && n > 0; ++g) {
      const float m = s.state[2 * (head * ratio + g)], l = s.state[2 * (head * ratio + g) + 1];
      BOOST_TEST(std::isfinite(m));
      BOOST_TEST((std::isnan(l) || (l > 0 && std::isfinite(l))), l);
      nan_state = nan_state || std::isnan(l);
      small_l = small_l || l < 0x1p-126f;
      large_l = large_l || l > 0x1p126f;
    }
    const auto capacity = static_cast<std::size_t>(w.running_capacity);
    for (std::size_t t = 0; t < capacity; ++t) {
      const float running = w.running[head * capacity + t];
      if (t == n) number_behind_the_end = number_behind_the_end || std::isfinite(running);
      if (t < n) minus_zero_running = minus_zero_running || is_minus_zero(running);
    }
    for (std::size_t t = 0; t < n; ++t) look_at_token(w, s, head, t);
  }

  void look_at_token(const score_update_workload& w, const score_update_workload::step& s,
                     std::size_t head, std::size_t token) {
    const std::size_t ratio = decides.size();
    bool all_infinite = true, all_nan = true;
    double largest = -1;
    std::size_t from = 0;
    for (std::size_t g = 0; g < ratio; ++g) {
      const float x =
          s.scores[(head * static_cast<std::size_t>(w.score_capacity) + token) * ratio + g];
      all_infinite = all_infinite && x == -std::numeric_limits<float>::infinity();
      all_nan = all_nan && std::isnan(x);
      minus_infinity = minus_infinity || x == -std::numeric_limits<float>::infinity();
      not_a_number = not_a_number || std::isnan(x);
      minus_zero = minus_zero || is_minus_zero(x);
      const std::size_t at = 2 * (head * ratio + g);
      const double p = std::exp2(double{x} - double{s.state[at]}) / double{s.state[at + 1]};
      if (p <= largest || std::isnan(p)) continue;
      largest = p;
      from = g;
    }
    only_minus_infinity = only_minus_infinity || all_infinite;
    only_not_a_number = only_not_a_number || all_nan;
    if (largest >= 0) decides[from] = true;
  }

  static bool is_minus_zero(float x) { return x == 0 && std::signbit(x); }
};

BOOST_AUTO_TEST_CASE(score_updates_reach_what_they_are_for) {
  std::set<int> ratios;
  for (const test_case& c : score_update_cases()) {
    const auto w = std::get<score_update_workload>(c.build(1));
    ratios.insert(w.gqa_ratio);
    BOOST_TEST(w.steps.size() == 2u);
    BOOST_TEST(w.score_capacity != w.running_capacity, c.id);
    const update_traits t(w);
    BOOST_TEST((t.empty && t.one && t.odd && t.whole_vectors && t.thousands), c.id);
    BOOST_TEST((t.minus_infinity && t.only_minus_infinity), c.id);
    BOOST_TEST((t.not_a_number && t.only_not_a_number), c.id);
    BOOST_TEST((t.nan_state && t.small_l && t.large_l), c.id);
    BOOST_TEST((t.minus_zero && t.minus_zero_running && t.number_behind_the_end), c.id);
    BOOST_TEST(std::ranges::count(t.decides, false) == 0, c.id);
  }
  BOOST_TEST(ratios.size() == static_cast<std::size_t>(spec::max_gqa_ratio));
}

BOOST_AUTO_TEST_CASE(score_updates_of_one_kind_are_of_it) {
  std::set<int> ratios;
  for (const test_case& c : score_update_kind_cases()) {
    const auto is = [&](const char* kind) { return c.id.ends_with(kind); };
    const auto w = std::get<score_update_workload>(c.build(1));
    ratios.insert(w.gqa_ratio);
    const update_traits t(w);
    BOOST_TEST(t.thousands, c.id);
    BOOST_TEST(t.only_minus_infinity == is("infinities"), c.id);
    BOOST_TEST(t.only_not_a_number == (is("nans") || is("nan_state")), c.id);
    BOOST_TEST(t.nan_state == is("nan_state"), c.id);
    BOOST_TEST(t.small_l == is("small_sums"), c.id);
    BOOST_TEST(t.large_l == is("large_sums"), c.id);
    BOOST_TEST(t.minus_zero == is("zero_signs"), c.id);
    const std::int64_t longest = std::ranges::max(w.steps.back().num_tokens);
    BOOST_TEST((longest == w.score_capacity && longest == w.running_capacity) == is("full"), c.id);
  }
  BOOST_TEST(ratios.size() == static_cast<std::size_t>(spec::max_gqa_ratio));
}

}  // namespace kvproof::verify

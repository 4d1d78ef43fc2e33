// Selection of cases: globs, suites by name and by file, one case without its trace, and that the
// streams reach what they are for.
#include "verify/suites.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "reference/spec/error.hpp"
#include "verify/listed_cases.hpp"
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
  BOOST_TEST(none.contains("minikv-2bit/smollm2-135m-instruct/layer00"));
  BOOST_TEST(none.size() < ci.size());
  BOOST_TEST(std::ranges::includes(ci, smoke));
  BOOST_TEST(std::ranges::includes(ci, none));
  BOOST_TEST(std::ranges::includes(nightly, ci));
  BOOST_TEST(smoke.size() < ci.size());
  BOOST_TEST(ci.size() < nightly.size());
  BOOST_TEST(nightly.contains("long/k8v4/d128_g8"));
  BOOST_TEST(nightly.contains("gather_quantize/int2_g16/d64_random_nonfinite"));
  BOOST_TEST(nightly.contains("demote/k8v4/d128_random_nonfinite"));
}

BOOST_AUTO_TEST_CASE(a_file_of_globs_is_a_suite) {
  const std::set<std::string> ids =
      ids_of_file("# two of them\n\ndecode/k4v2/d64_g1_boundaries  # one\n  */layer09\r\n");
  const std::set<std::string> expected = {
      "decode/k4v2/d64_g1_boundaries", "minikv-2bit/smollm2-135m-instruct/layer09",
      "diffkv-k8v4/smollm2-135m-instruct/layer09", "diffkv-k4v2/smollm2-135m-instruct/layer09"};
  BOOST_TEST(ids == expected, boost::test_tools::per_element());
  const auto names_line_2 = [](const spec::usage_error& e) {
    return std::string(e.what()).find(":2: no case matches 'nosuch/*'") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(ids_of_file("decode/*\nnosuch/*\n"), spec::usage_error, names_line_2);
  BOOST_CHECK_THROW(ids_of_file("# nothing\n"), spec::usage_error);
  BOOST_CHECK_THROW(ids_of(suite("nosuch")), spec::usage_error);
}

BOOST_AUTO_TEST_CASE(a_synthetic_case_opens_no_trace) {
  for (const char* id : {"decode/k8v4/d64_g3_sharp", "stream/k8v4/d128_g4_flush1",
                         "long/int2_g16/d64_g1", "demote/k8v4/d64_random_tiny"}) {
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
  BOOST_TEST(s.cases.size() == 12u);  // 3 variants, 4 layers, and no streams
  BOOST_TEST(s.cases[0].rerun_options ==
             " --trace traces/data/smollm2-135m-instruct.h5 --steps all");
  BOOST_TEST(s.cases[0].build(1).events.size() == 1u + 128u);
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
  r.filter = "nosuch";
  BOOST_CHECK_THROW(ids_of(r), spec::usage_error);
  r.variant = "nosuch";
  BOOST_CHECK_THROW(ids_of(r), spec::usage_error);
}

BOOST_AUTO_TEST_CASE(streams_flush_often_into_begun_and_new_pages) {
  std::set<std::pair<spec::format_id, int>> covered;
  for (const test_case& c : stream_cases()) {
    const workload w = c.build(1);
    covered.emplace(w.format, w.head_dim);
    const auto heads = static_cast<std::size_t>(w.heads());
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
        if (first % 64 != 0) ++begun_pages[h];
        if (first % 64 == 0 || first / 64 != (tokens[h] - 1) / 64) ++new_pages[h];
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
  bool new_page = false, begun_page = false, across_pages = false, partly_new_page = false,
       nothing = false;
  void add(std::int64_t first, std::int64_t n) {
    const std::int64_t page = spec::tokens_per_page;
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
    const workload w = c.build(1);
    covered.emplace(w.format, w.head_dim);
    const auto heads = static_cast<std::size_t>(w.heads());
    written_ranges ranges;
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
    const workload w = c.build(1);
    const auto heads = static_cast<std::size_t>(w.heads());
    written_ranges ranges;
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
        const std::int32_t last_page = (first + n - 1) / spec::tokens_per_page;
        slot_0_replaced = slot_0_replaced ||
                          (first / spec::tokens_per_page != last_page && first + n < tokens[h]);
        replaced_inside = replaced_inside || (n > 0 && first % spec::tokens_per_page != 0);
      }
    }
    BOOST_TEST(ranges.all(), c.id);
    BOOST_TEST(slot_0_replaced, c.id);
    BOOST_TEST(replaced_inside, c.id);
  }
  BOOST_TEST(cases == 6);
}

}  // namespace kvproof::verify

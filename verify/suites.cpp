// Selection of cases, see suites.hpp.
#include "verify/suites.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "reference/spec/error.hpp"
#include "traces/attention_trace.hpp"
#include "verify/listed_cases.hpp"
#include "verify/score_update_cases.hpp"
#include "verify/synthetic_cases.hpp"
#include "verify/text_file.hpp"
#include "verify/trace_cases.hpp"
#include "verify/variants.hpp"

namespace kvproof::verify {
namespace {

constexpr std::int64_t default_steps = 64;

void add(std::vector<test_case>& to, std::vector<test_case> more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

std::vector<test_case> synthetic_cases(bool with_long) {
  std::vector<test_case> cases = short_cases();
  add(cases, tier_cases());
  add(cases, more_tier_cases());
  add(cases, stream_cases());
  add(cases, listed_cases());
  add(cases, score_update_cases());
  if (!with_long) return cases;
  add(cases, long_cases());
  add(cases, listed_regime_cases());
  add(cases, score_update_kind_cases());
  return cases;
}

std::int64_t steps_of(const std::string& text, const traces::attention_trace& trace) {
  if (text.empty()) return default_steps;
  if (text == "all") return trace.num_tokens - trace.prompt_length;
  std::int64_t steps = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc{} || end != text.data() + text.size() || steps < 0) {
    throw spec::usage_error(
        fmt::format("--steps '{}': write a number of decode steps, or all", text));
  }
  return steps;
}

void add_trace(selected_cases& s, const case_request& r,
               const std::function<std::filesystem::path()>& shipped_trace) {
  const std::filesystem::path file = r.trace.empty() ? shipped_trace() : r.trace;
  const std::string steps_text = r.steps.empty() && r.suite == "nightly" ? "all" : r.steps;
  const auto trace =
      std::make_shared<const traces::attention_trace>(traces::read_attention_trace(file));
  const std::int64_t steps = steps_of(steps_text, *trace);
  std::string rerun;
  if (!r.trace.empty()) rerun += " --trace " + shell_word(r.trace.string());
  if (!steps_text.empty()) rerun += " --steps " + steps_text;
  add(s.cases, trace_cases(trace, file.stem().string(), steps, rerun));
  s.source += fmt::format(
      "{}trace {}: {}, {} prompt tokens, {} decode steps, {} layers, {} query and {} KV heads",
      s.source.empty() ? "" : "; ", file.filename().string(), trace->model.name,
      trace->prompt_length, steps, trace->layers.size(), trace->model.query_heads,
      trace->model.kv_heads);
}

// Keeps the cases that a glob of the file matches, in the order of the suites.
void keep_listed(std::vector<test_case>& cases, const std::filesystem::path& file) {
  std::vector<bool> listed(cases.size(), false);
  std::istringstream in(read_text(file));
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line.erase(std::min(line.find('#'), line.size()));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    const std::string glob = line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
    bool found = false;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (!matches_glob(cases[i].id, glob)) continue;
      listed[i] = found = true;
    }
    if (!found) {
      throw spec::usage_error(fmt::format("{}:{}: no case matches '{}'; see kvproof list cases",
                                          file.string(), number, glob));
    }
  }
  std::vector<test_case> kept;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (listed[i]) kept.push_back(std::move(cases[i]));
  }
  cases = std::move(kept);
}

// The variant that the id of a trace case begins with; null for synthetic cases.
const variant* variant_of(std::string_view case_id) {
  const std::string_view first = case_id.substr(0, case_id.find('/'));
  const auto found =
      std::ranges::find_if(variants(), [&](const variant& v) { return v.id == first; });
  return found == variants().end() ? nullptr : &*found;
}

selected_cases select_one(const case_request& r,
                          const std::function<std::filesystem::path()>& shipped_trace) {
  selected_cases s{synthetic_cases(true), ""};
  const auto other = [&](const test_case& c) { return c.id != r.case_id; };
  std::erase_if(s.cases, other);
  s.source = "synthetic case";
  if (!s.cases.empty()) return s;
  if (variant_of(r.case_id) != nullptr) {
    s.source.clear();
    add_trace(s, r, shipped_trace);
    std::erase_if(s.cases, other);
  }
  if (s.cases.empty())
    throw spec::usage_error(fmt::format("no case '{}'; see kvproof list cases", r.case_id));
  return s;
}

}  // namespace

selected_cases select_cases(const case_request& r,
                            const std::function<std::filesystem::path()>& shipped_trace) {
  if (!r.case_id.empty()) return select_one(r, shipped_trace);
  const variant* const only = r.variant == "all" ? nullptr : &find_variant(r.variant);

  selected_cases s;
  const bool named = r.suite == "smoke" || r.suite == "ci" || r.suite == "nightly";
  const bool from_file = !named && !r.suite.empty();
  if (from_file && !std::filesystem::exists(r.suite)) {
    throw spec::usage_error(fmt::format(
        "unknown suite '{}': neither smoke, ci or nightly nor a file of case globs", r.suite));
  }
  if (!r.suite.empty()) {
    s.cases = synthetic_cases(from_file || r.suite == "nightly");
    s.source = fmt::format("suite {}", r.suite);
  } else if (r.trace.empty()) {
    s.cases = stream_cases();
    add(s.cases, tier_cases());
    add(s.cases, listed_cases());
    add(s.cases, score_update_cases());
    s.source = "streams, tiers, listed tokens, score updates";
  }
  if (r.suite != "smoke") add_trace(s, r, shipped_trace);
  if (from_file) keep_listed(s.cases, r.suite);

  const auto of_other_variant = [&](const test_case& c) {
    if (only == nullptr) return false;
    const variant* const of_trace = variant_of(c.id);
    return of_trace != nullptr ? of_trace != only
                               : c.format != only->format || c.tiers != only->tiers;
  };
  std::erase_if(s.cases, [&](const test_case& c) {
    return of_other_variant(c) || !matches_glob(c.id, r.filter);
  });
  if (s.cases.empty()) {
    throw spec::usage_error(
        fmt::format("nothing selected: no case matches '{}'{}; see kvproof list cases", r.filter,
                    only == nullptr ? "" : fmt::format(" for variant {}", only->id)));
  }
  return s;
}

bool matches_glob(std::string_view text, std::string_view glob) {
  std::size_t t = 0, g = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++t;
      ++g;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

std::string shell_word(const std::string& text) {
  if (!text.empty() && text.find_first_of(" \t\n*?'\"$&|;<>()[]{}`\\#~!") == std::string::npos)
    return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace kvproof::verify

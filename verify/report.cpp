// Text, JSON and XML forms of results, see report.hpp.
#include "verify/report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "verify/suites.hpp"
#include "verify/text_file.hpp"

namespace kvproof::verify {
namespace {

using nlohmann::json;

std::string xml_escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace

std::string rerun_command(const std::string& case_id, std::uint64_t seed,
                          const std::string& options) {
  return fmt::format("kvproof repro {} --seed {}{}", shell_word(case_id), seed, options);
}

std::string case_line(const case_result& r) {
  std::string line = fmt::format("{:<7} {}  {} elements, {} mismatches", name_of(r.result), r.id,
                                 r.compared, r.mismatches);
  if (!r.detail.empty()) line += fmt::format("\n        {}\n       ", r.detail);
  return line + fmt::format("  | {}", r.rerun);
}

std::string stage_lines(const case_result& r) {
  std::string text;
  for (const stage_result& stage : r.stages) {
    text += fmt::format("  {:<24} {:>12} elements, {} mismatches\n", stage.name, stage.compared,
                        stage.mismatches);
  }
  return text;
}

std::string summary(std::span<const case_result> results, const run_facts& facts) {
  const run_totals t = total_of(results);
  std::string text =
      fmt::format("device      {}{}\n", facts.device.name,
                  facts.device.driver.empty() ? "" : ", driver " + facts.device.driver);
  text += fmt::format("source      {}\n", facts.source);
  text += fmt::format("cases       {}: {} passed, {} failed, {} vacuous, {} faults, {} skipped\n",
                      t.cases, t.passed, t.failed, t.vacuous, t.faults, t.skipped);
  text += fmt::format("compared    {} elements\n", t.compared);
  text += fmt::format("mismatches  {}", t.mismatches);
  return text;
}

void write_jsonl(const std::filesystem::path& file, std::span<const case_result> results,
                 const run_facts& facts) {
  std::string text = json{{"schema", "kvproof-verdicts"}, {"version", 1},
                          {"device", facts.device.name},  {"driver", facts.device.driver},
                          {"source", facts.source},       {"commit", facts.commit},
                          {"date", facts.date},           {"seed", facts.seed}}
                         .dump() +
                     "\n";
  for (const case_result& r : results) {
    json stages = json::array();
    for (const stage_result& s : r.stages) {
      stages.push_back({{"stage", s.name},
                        {"compared", s.compared},
                        {"outputs", s.outputs},
                        {"mismatches", s.mismatches}});
    }
    text += json{{"case", r.id},
                 {"verdict", name_of(r.result)},
                 {"compared", r.compared},
                 {"outputs", r.outputs},
                 {"mismatches", r.mismatches},
                 {"detail", r.detail},
                 {"kernels", r.entries},
                 {"stages", stages},
                 {"rerun", r.rerun}}
                .dump() +
            "\n";
  }
  const run_totals t = total_of(results);
  text += json{{"total",
                {{"cases", t.cases},
                 {"passed", t.passed},
                 {"failed", t.failed},
                 {"skipped", t.skipped},
                 {"vacuous", t.vacuous},
                 {"faults", t.faults},
                 {"compared", t.compared},
                 {"outputs", t.outputs},
                 {"mismatches", t.mismatches}}}}
              .dump() +
          "\n";
  replace_file(file, text);
}

void write_junit(const std::filesystem::path& file, std::span<const case_result> results,
                 const run_facts& facts) {
  const run_totals t = total_of(results);
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  text += fmt::format(
      "<testsuite name=\"kvproof verify on {}\" timestamp=\"{}\" tests=\"{}\" failures=\"{}\" "
      "errors=\"{}\" "
      "skipped=\"{}\">\n",
      xml_escape(facts.device.name), facts.date, t.cases, t.failed + t.vacuous, t.faults,
      t.skipped);
  for (const case_result& r : results) {
    text += fmt::format("  <testcase classname=\"kvproof\" name=\"{}\">", xml_escape(r.id));
    const std::string detail = xml_escape(r.detail + " | " + r.rerun);
    switch (r.result) {
      case verdict::passed:
        break;
      case verdict::skipped:
        text += fmt::format("<skipped message=\"{}\"/>", detail);
        break;
      case verdict::fault:
        text += fmt::format("<error message=\"{}\"/>", detail);
        break;
      case verdict::failed:
      case verdict::vacuous:
        text += fmt::format("<failure message=\"{}: {}\"/>", name_of(r.result), detail);
        break;
    }
    text += "</testcase>\n";
  }
  replace_file(file, text + "</testsuite>\n");
}

}  // namespace kvproof::verify

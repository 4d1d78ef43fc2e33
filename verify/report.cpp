// Text, JSON and XML forms of results, see report.hpp.
#include "verify/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "gpu/kernels/kernel_table.hpp"
#include "reference/spec/error.hpp"
#include "verify/sha256.hpp"

namespace kvproof::verify {
namespace {

using nlohmann::json;

void write_file(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::path temporary = file;
  temporary += ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary);
    out << text;
    out.close();
    if (!out) {
      std::error_code ignored;
      std::filesystem::remove(temporary, ignored);
      throw spec::usage_error(
          fmt::format("cannot write {}; check that its folder exists and has room", file.string()));
    }
  }
  std::filesystem::rename(temporary, file);
}

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

std::string rerun_command(const case_result& r, const run_facts& facts) {
  return fmt::format("kvproof repro {} {}", r.id, facts.rerun_options);
}

}  // namespace

run_totals total_of(std::span<const case_result> results) {
  run_totals t;
  for (const case_result& r : results) {
    ++t.cases;
    switch (r.result) {
      case verdict::passed:
        ++t.passed;
        break;
      case verdict::failed:
        ++t.failed;
        break;
      case verdict::skipped:
        ++t.skipped;
        break;
      case verdict::vacuous:
        ++t.vacuous;
        break;
      case verdict::fault:
        ++t.faults;
        break;
    }
    t.compared += r.compared;
    t.mismatches += r.mismatches;
  }
  return t;
}

std::string case_line(const case_result& r, const run_facts& facts) {
  std::string line = fmt::format("{:<7} {}  {} elements, {} mismatches", name_of(r.result), r.id,
                                 r.compared, r.mismatches);
  if (!r.detail.empty()) line += fmt::format("\n        {}\n       ", r.detail);
  return line + fmt::format("  | {}", rerun_command(r, facts));
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
      stages.push_back({{"stage", s.name}, {"compared", s.compared}, {"mismatches", s.mismatches}});
    }
    text += json{{"case", r.id},           {"verdict", name_of(r.result)},
                 {"compared", r.compared}, {"mismatches", r.mismatches},
                 {"detail", r.detail},     {"kernels", r.entries},
                 {"stages", stages},       {"rerun", rerun_command(r, facts)}}
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
                 {"mismatches", t.mismatches}}}}
              .dump() +
          "\n";
  write_file(file, text);
}

void write_junit(const std::filesystem::path& file, std::span<const case_result> results,
                 const run_facts& facts) {
  const run_totals t = total_of(results);
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  text += fmt::format(
      "<testsuite name=\"kvproof verify\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
      "skipped=\"{}\">\n",
      t.cases, t.failed + t.vacuous, t.faults, t.skipped);
  for (const case_result& r : results) {
    text += fmt::format("  <testcase classname=\"kvproof\" name=\"{}\">", xml_escape(r.id));
    const std::string detail = xml_escape(r.detail + " | " + rerun_command(r, facts));
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
  write_file(file, text + "</testsuite>\n");
}

void write_evidence(const std::filesystem::path& file, std::span<const case_result> results,
                    const run_facts& facts) {
  struct tally {
    std::int64_t cases = 0, compared = 0, mismatches = 0;
    bool all_passed = true;
  };
  std::map<std::string, tally> by_entry;
  for (const case_result& r : results) {
    for (const std::string& entry : r.entries) {
      tally& t = by_entry[entry];
      ++t.cases;
      t.compared += r.compared;
      t.mismatches += r.mismatches;
      t.all_passed = t.all_passed && r.result == verdict::passed;
    }
  }
  std::string text;
  for (const gpu::kernel_entry& k : gpu::kernel_entries()) {
    const auto found = by_entry.find(std::string(k.entry));
    if (found == by_entry.end()) continue;
    const tally& t = found->second;
    text += json{{"kernel", k.entry},
                 {"ptx_sha256", sha256_hex(gpu::kernel_modules()[k.module].ptx)},
                 {"verdict", t.all_passed ? "PASSED" : "FAILED"},
                 {"cases", t.cases},
                 {"compared", t.compared},
                 {"mismatches", t.mismatches},
                 {"device", facts.device.name},
                 {"driver", facts.device.driver},
                 {"source", facts.source},
                 {"commit", facts.commit},
                 {"date", facts.date}}
                .dump() +
            "\n";
  }
  write_file(file, text);
}

int exit_code_of(std::span<const case_result> results) {
  const run_totals t = total_of(results);
  if (t.faults > 0) return 4;
  if (t.failed + t.vacuous > 0) return 1;
  return t.passed == 0 ? 77 : 0;
}

}  // namespace kvproof::verify

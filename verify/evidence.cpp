// Reading, merging, writing and judging evidence, see evidence.hpp.
#include "verify/evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "gpu/kernels/kernel_table.hpp"
#include "reference/spec/error.hpp"
#include "verify/sha256.hpp"
#include "verify/text_file.hpp"

namespace kvproof::verify {
namespace {

using nlohmann::json;

constexpr std::string_view schema = "kvproof-evidence";
constexpr int version = 1;

kernel_evidence line_of(const json& j) {
  kernel_evidence e;
  j.at("kernel").get_to(e.kernel);
  j.at("ptx_sha256").get_to(e.ptx_sha256);
  j.at("verdict").get_to(e.verdict);
  j.at("cases").get_to(e.cases);
  j.at("compared").get_to(e.compared);
  j.at("mismatches").get_to(e.mismatches);
  j.at("device").get_to(e.device);
  j.at("driver").get_to(e.driver);
  j.at("source").get_to(e.source);
  j.at("commit").get_to(e.commit);
  j.at("date").get_to(e.date);
  if (e.kernel.empty()) throw spec::input_error("the kernel has no name");
  if (e.verdict != "PASSED" && e.verdict != "FAILED")
    throw spec::input_error(fmt::format("verdict '{}' is neither PASSED nor FAILED", e.verdict));
  if (e.ptx_sha256.size() != 64 ||
      e.ptx_sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw spec::input_error(fmt::format("'{}' is not a sha256", e.ptx_sha256));
  }
  return e;
}

void check_header(const json& j) {
  if (!j.is_object() || j.value("schema", "") != schema)
    throw spec::input_error(fmt::format("no header of schema {}", schema));
  if (j.value("version", 0) != version)
    throw spec::input_error(fmt::format("version is not {}", version));
}

}  // namespace

std::vector<kernel_evidence> parse_evidence(std::string_view text, const std::string& file) {
  std::vector<kernel_evidence> lines;
  std::set<std::pair<std::string, std::string>> seen;
  std::istringstream in{std::string(text)};
  std::string line;
  int number = 0;
  const auto refuse = [&](const std::string& why) {
    throw spec::input_error(fmt::format(
        "{}:{}: malformed evidence: {}; restore the file or delete it and run the cases again",
        file, number, why));
  };
  while (std::getline(in, line)) {
    ++number;
    try {
      const json j = json::parse(line);
      if (number == 1) {
        check_header(j);
        continue;
      }
      lines.push_back(line_of(j));
      if (!seen.emplace(lines.back().kernel, lines.back().device).second)
        throw spec::input_error(fmt::format("{} appears twice", lines.back().kernel));
    } catch (const json::exception& e) {
      refuse(e.what());
    } catch (const spec::input_error& e) {
      refuse(e.what());
    }
  }
  if (number == 0) refuse("the file is empty");
  return lines;
}

std::vector<kernel_evidence> read_evidence(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return {};
  return parse_evidence(read_text(file), file.string());
}

std::vector<kernel_evidence> evidence_of(std::span<const case_result> results,
                                         const run_facts& facts) {
  std::map<std::string_view, kernel_evidence> by_entry;
  for (const case_result& r : results) {
    for (const std::string& entry : r.entries) {
      kernel_evidence& e = by_entry[entry];
      ++e.cases;
      e.compared += r.compared;
      e.mismatches += r.mismatches;
      if (r.result != verdict::passed) e.verdict = "FAILED";
    }
  }
  std::vector<kernel_evidence> lines;
  for (const built_kernel& k : built_kernels()) {
    const auto found = by_entry.find(k.entry);
    if (found == by_entry.end()) continue;
    kernel_evidence e = found->second;
    e.kernel = k.entry;
    e.ptx_sha256 = k.ptx_sha256;
    if (e.verdict.empty()) e.verdict = "PASSED";
    e.device = facts.device.name;
    e.driver = facts.device.driver;
    e.source = facts.source;
    e.commit = facts.commit;
    e.date = facts.date;
    lines.push_back(std::move(e));
  }
  return lines;
}

std::vector<kernel_evidence> merge_evidence(std::vector<kernel_evidence> before,
                                            std::span<const kernel_evidence> now) {
  for (const kernel_evidence& e : now) {
    const auto old = std::find_if(before.begin(), before.end(), [&](const kernel_evidence& b) {
      return b.kernel == e.kernel && b.device == e.device;
    });
    if (old != before.end())
      *old = e;
    else
      before.push_back(e);
  }
  return before;
}

void write_evidence(const std::filesystem::path& file, std::span<const kernel_evidence> lines) {
  std::string text =
      json{{"schema", schema},
           {"version", version},
           {"lines",
            "one a kernel and device: its latest run; a run replaces the lines of the kernels that "
            "it ran and keeps all others"}}
          .dump() +
      "\n";
  for (const kernel_evidence& e : lines) {
    text += json{{"kernel", e.kernel},     {"ptx_sha256", e.ptx_sha256},
                 {"verdict", e.verdict},   {"cases", e.cases},
                 {"compared", e.compared}, {"mismatches", e.mismatches},
                 {"device", e.device},     {"driver", e.driver},
                 {"source", e.source},     {"commit", e.commit},
                 {"date", e.date}}
                .dump() +
            "\n";
  }
  replace_file(file, text);
}

std::vector<built_kernel> built_kernels() {
  std::vector<std::string> hash_of_module;
  for (const gpu::kernel_module& m : gpu::kernel_modules())
    hash_of_module.push_back(sha256_hex(m.ptx));
  std::vector<built_kernel> built;
  for (const gpu::kernel_entry& k : gpu::kernel_entries())
    built.push_back({std::string(k.entry), hash_of_module[k.module]});
  return built;
}

std::vector<std::string> unconfirmed_kernels(std::span<const built_kernel> built,
                                             std::span<const kernel_evidence> lines) {
  std::vector<std::string> reasons;
  for (const built_kernel& k : built) {
    std::string reason = "no evidence";
    for (const kernel_evidence& e : lines) {
      if (e.kernel != k.entry) continue;
      if (e.driver.empty()) {
        reason = "only the emulator ran it";
      } else if (e.ptx_sha256 != k.ptx_sha256) {
        reason = fmt::format("changed since {} ran it on {} (PTX {}, now {})", e.device, e.date,
                             e.ptx_sha256.substr(0, 12), k.ptx_sha256.substr(0, 12));
      } else if (e.verdict != "PASSED" || e.mismatches != 0) {
        reason = fmt::format("{} on {}, {} mismatches", e.verdict, e.device, e.mismatches);
      } else if (e.cases <= 0 || e.compared <= 0) {
        reason = "nothing was compared";
      } else {
        reason.clear();
        break;
      }
    }
    if (!reason.empty()) reasons.push_back(fmt::format("{}: {}", k.entry, reason));
  }
  return reasons;
}

}  // namespace kvproof::verify

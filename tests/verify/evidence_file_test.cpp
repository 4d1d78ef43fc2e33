// Evidence files: what is refused, what a run replaces and keeps, and which kernels count as
// confirmed.
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "reference/spec/error.hpp"
#include "verify/evidence.hpp"
#include "verify/text_file.hpp"

namespace kvproof::verify {
namespace {

const std::string hash_a(64, 'a'), hash_b(64, 'b');

kernel_evidence line(const std::string& kernel, const std::string& hash) {
  return {kernel,        hash,        "PASSED",   3,        1000, 0,
          "NVIDIA H200", "CUDA 13.0", "suite ci", "c0ffee", "d"};
}

struct temporary_file {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("kvproof_evidence_" + std::to_string(getpid()) + ".jsonl");
  ~temporary_file() { std::filesystem::remove(path); }
};

void check_refused(const std::string& text, const std::string& why) {
  const auto says = [&](const spec::input_error& e) {
    const std::string what = e.what();
    BOOST_TEST_MESSAGE(what);
    return what.starts_with("f.jsonl:") && what.find(why) != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(static_cast<void>(parse_evidence(text, "f.jsonl")), spec::input_error,
                        says);
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_written_is_read_again) {
  const temporary_file file;
  const std::vector<kernel_evidence> lines = {line("k1", hash_a), line("k2", hash_b)};
  write_evidence(file.path, lines);
  BOOST_TEST(!std::filesystem::exists(file.path.string() + ".tmp"));
  const std::vector<kernel_evidence> back = read_evidence(file.path);
  BOOST_TEST_REQUIRE(back.size() == 2u);
  BOOST_TEST(back[1].kernel == "k2");
  BOOST_TEST(back[1].ptx_sha256 == hash_b);
  BOOST_TEST(back[1].compared == 1000);
  BOOST_TEST(back[1].driver == "CUDA 13.0");
  const std::string text = read_text(file.path);
  write_evidence(file.path, back);
  BOOST_TEST(read_text(file.path) == text);
  BOOST_TEST(text.substr(0, text.find('\n')).find("kvproof-evidence") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(malformed_files_are_refused) {
  const temporary_file file;
  write_evidence(file.path, std::vector{line("k1", hash_a)});
  const std::string text = read_text(file.path);
  const std::string header = text.substr(0, text.find('\n') + 1), body = text.substr(header.size());
  BOOST_TEST(parse_evidence(text, "f.jsonl").size() == 1u);
  check_refused("", "empty");
  check_refused(body, "no header");
  check_refused("[]\n", "no header");
  check_refused(header + "{\n", "parse error");
  check_refused(header + body.substr(0, body.size() / 2) + "\n", "parse error");
  check_refused(header + body + body, "k1 appears twice");
  check_refused(header + "{}\n", "kernel");
  check_refused(header + "7\n", "malformed");
  const auto with = [&](std::string from, const std::string& to) {
    std::string changed = body;
    const std::size_t at = changed.find(from);
    BOOST_TEST_REQUIRE(at != std::string::npos);
    return header + changed.replace(at, from.size(), to);
  };
  check_refused(with(hash_a, "aa"), "not a sha256");
  check_refused(with("PASSED", "passed"), "verdict");
  check_refused(with("1000", "\"1000\""), "number");
  std::string other_version = text;
  check_refused(other_version.replace(text.find("\"version\":1"), 11, "\"version\":2"), "version");
}

BOOST_AUTO_TEST_CASE(no_file_is_no_evidence) {
  BOOST_TEST(read_evidence("/nonexistent/evidence.jsonl").empty());
}

BOOST_AUTO_TEST_CASE(a_run_replaces_its_own_lines_and_keeps_the_others) {
  kernel_evidence elsewhere = line("k1", hash_a);
  elsewhere.device = "another GPU";
  const std::vector<kernel_evidence> before = {elsewhere, line("k1", hash_a), line("k2", hash_a)};
  kernel_evidence now = line("k1", hash_b);
  now.verdict = "FAILED";
  const std::vector<kernel_evidence> merged =
      merge_evidence(before, std::vector{now, line("k3", hash_b)});
  BOOST_TEST_REQUIRE(merged.size() == 4u);
  BOOST_TEST(merged[0].device == "another GPU");
  BOOST_TEST(merged[0].ptx_sha256 == hash_a);
  BOOST_TEST(merged[0].verdict == "PASSED");
  BOOST_TEST(merged[1].ptx_sha256 == hash_b);
  BOOST_TEST(merged[1].verdict == "FAILED");
  BOOST_TEST(merged[2].kernel == "k2");
  BOOST_TEST(merged[2].ptx_sha256 == hash_a);
  BOOST_TEST(merged[3].kernel == "k3");
}

BOOST_AUTO_TEST_CASE(confirmed_is_only_what_hardware_passed_as_built) {
  const std::vector<built_kernel> built = {{"k1", hash_a}};
  const auto reason = [&](const std::vector<kernel_evidence>& lines) {
    const std::vector<std::string> reasons = unconfirmed_kernels(built, lines);
    return reasons.empty() ? std::string("confirmed") : reasons[0];
  };
  kernel_evidence e = line("k1", hash_a);
  BOOST_TEST(reason({e}) == "confirmed");
  BOOST_TEST(reason({}) == "k1: no evidence");
  BOOST_TEST(reason({line("k2", hash_a)}) == "k1: no evidence");
  BOOST_TEST(reason({line("k1", hash_b)}).starts_with("k1: changed since NVIDIA H200"));
  BOOST_TEST(reason({line("k1", hash_b), e}) == "confirmed");
  e.verdict = "FAILED";
  e.mismatches = 4;
  BOOST_TEST(reason({e}) == "k1: FAILED on NVIDIA H200, 4 mismatches");
  e = line("k1", hash_a);
  e.mismatches = 1;
  BOOST_TEST(reason({e}) != "confirmed");
  e = line("k1", hash_a);
  e.compared = 0;
  BOOST_TEST(reason({e}) == "k1: nothing was compared");
  e = line("k1", hash_a);
  e.driver.clear();
  BOOST_TEST(reason({e}) == "k1: only the emulator ran it");
}

BOOST_AUTO_TEST_CASE(a_kernel_of_a_case_that_did_not_pass_is_not_confirmed) {
  const std::vector<built_kernel> built = built_kernels();
  if (built.empty()) return;  // a build without kernels
  case_result good, bad;
  good.compared = 10;
  good.entries = {built[0].entry, built[1].entry};
  bad = good;
  bad.result = verdict::fault;
  bad.entries = {built[1].entry};
  run_facts facts{};
  facts.device.name = "GPU";
  facts.device.driver = "1";
  const std::vector<kernel_evidence> lines = evidence_of(std::vector{good, bad}, facts);
  BOOST_TEST_REQUIRE(lines.size() == 2u);
  BOOST_TEST(lines[0].verdict == "PASSED");
  BOOST_TEST(lines[0].cases == 1);
  BOOST_TEST(lines[0].ptx_sha256 == built[0].ptx_sha256);
  BOOST_TEST(lines[1].verdict == "FAILED");
  BOOST_TEST(lines[1].cases == 2);
  BOOST_TEST(lines[1].compared == 20);
}

BOOST_AUTO_TEST_CASE(whatever_kernel_ran_is_recorded) {
  case_result all;
  all.compared = 10;
  for (const built_kernel& k : built_kernels()) all.entries.push_back(k.entry);
  const std::vector<kernel_evidence> lines = evidence_of(std::span(&all, 1), run_facts{});
  BOOST_TEST(lines.size() == all.entries.size());
}

}  // namespace kvproof::verify

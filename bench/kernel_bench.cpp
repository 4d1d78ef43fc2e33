// bench_kernels: times every kernel on a CUDA device with Google Benchmark. What each name and
// counter means: README.md beside this file. Each case's output is compared with the reference
// before it is timed; a difference fails the case and the run.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "bench/bench_case.hpp"
#include "bench/memory_kernels.hpp"
#include "bench/stopwatch.hpp"
#include "bench/workload.hpp"
#include "gpu/kernels/kernel_table.hpp"
#include "reference/spec/error.hpp"
#include "verify/device_choice.hpp"
#include "verify/exit_codes.hpp"
#include "verify/foreign_kernels.hpp"
#include "verify/sha256.hpp"
#include "verify/text_file.hpp"

namespace kvproof::bench {
namespace {

struct options {
  std::string device = "cuda";
  std::string kernel;
  std::string commit = KVPROOF_COMMIT;
  // Google Benchmark keeps the values of its own flags; these are read beside it.
  bool list = false, tabular = false, to_file = false;
  std::string format = "console", file_format = "json";
};

// ---- the run ----

class bench_run {
 public:
  bench_run(gpu::device& dev, const stopwatch& watch, double peak)
      : dev_(dev), watch_(watch), peak_(peak), real_(dev.info().kind == gpu::device_kind::cuda) {}

  // One repetition of one case. A failure is reported by `state` and kept for exit_code().
  void run(benchmark::State& state, const bench_case& c) {
    try {
      prepare(c);
      if (!mismatch_.empty()) {
        exit_code_ = std::max(exit_code_, verify::exit_mismatch);
        state.SkipWithError(mismatch_.c_str());
        return;
      }
      measure(state, c);
    } catch (const spec::error& e) {
      current_.reset();
      prepared_.clear();
      exit_code_ = std::max(exit_code_, verify::exit_code_of(e));
      state.SkipWithError(e.what());
    }
  }

  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  // Data of the case, and its output compared; once for all repetitions of a case.
  void prepare(const bench_case& c) {
    if (prepared_ == c.name()) return;
    current_.reset();  // first, so that two cases never need memory at once
    costs_ = costs_of(c, real_ ? dev_.info().l2_bytes : 0);
    if (!real_) costs_.copies = 2;
    current_ = c.op == operation::decode         ? make_decode_workload(dev_, c, costs_.copies)
               : c.op == operation::score_update ? make_score_workload(dev_, c, costs_.copies)
                                                 : make_page_workload(dev_, c, costs_.copies);
    mismatch_.clear();
    for (const std::int64_t copy : {std::int64_t{0}, costs_.copies - 1}) {
      if (!mismatch_.empty()) break;
      current_->launch(copy);
      dev_.synchronize();
      mismatch_ = current_->mismatch(copy);
    }
    prepared_ = c.name();
  }

  void measure(benchmark::State& state, const bench_case& c) {
    constexpr double wanted_bytes = 2e9;  // of one measurement, within 2 to 64 launches
    const int launches =
        real_ ? static_cast<int>(
                    std::clamp(wanted_bytes / static_cast<double>(costs_.moved_bytes), 2.0, 64.0))
              : 1;
    timing t{};
    for (auto _ : state) {
      t = watch_.time(launches, [&](std::int64_t i) { current_->launch(i % costs_.copies); });
      state.SetIterationTime(t.median_us * 1e-6);
    }
    state.SetBytesProcessed(state.iterations() * costs_.moved_bytes);
    state.counters["tokens_per_second"] = benchmark::Counter(
        static_cast<double>(state.iterations() * costs_.tokens), benchmark::Counter::kIsRate);
    state.counters["fastest_us"] = t.fastest_us;
    state.counters["slowest_us"] = t.slowest_us;
    if (peak_ > 0) {
      state.counters["share_of_read_peak"] =
          static_cast<double>(costs_.moved_bytes) / t.median_us / peak_;
    }
    std::string label = costs_.copies > 1 ? fmt::format("copies:{}", costs_.copies) : "";
    if (c.mix != length_mix::uniform) {
      const std::vector<std::int64_t> lengths = lengths_of(c);
      label += fmt::format("{}longest:{}", label.empty() ? "" : " ",
                           *std::max_element(lengths.begin(), lengths.end()));
    }
    state.SetLabel(real_ ? label : "emulator: verified, the time means nothing");
  }

  gpu::device& dev_;
  const stopwatch& watch_;
  double peak_;
  bool real_;
  std::unique_ptr<workload> current_;
  case_costs costs_{};
  std::string prepared_, mismatch_;
  int exit_code_ = verify::exit_pass;
};

// ---- names ----

// Google Benchmark appends how a benchmark was run to its name; reports and filters use the name
// alone.
template <typename Reporter>
class plain_names : public Reporter {
 public:
  using Reporter::Reporter;
  void ReportRuns(const std::vector<benchmark::BenchmarkReporter::Run>& runs) override {
    std::vector<benchmark::BenchmarkReporter::Run> plain = runs;
    for (benchmark::BenchmarkReporter::Run& run : plain) {
      run.run_name.iterations.clear();
      run.run_name.repetitions.clear();
      run.run_name.time_type.clear();
    }
    Reporter::ReportRuns(plain);
  }
};

// Cases whose name the filter finds; a leading '-' inverts, as in Google Benchmark.
std::vector<bench_case> filtered(std::vector<bench_case> cases, std::string filter) {
  if (filter.empty() || filter == "all") return cases;
  const bool inverted = filter.front() == '-';
  if (inverted) filter.erase(0, 1);
  try {
    const std::regex pattern(filter, std::regex::extended);
    std::erase_if(cases, [&](const bench_case& c) {
      return std::regex_search(c.name(), pattern) == inverted;
    });
  } catch (const std::regex_error& e) {
    throw spec::usage_error(fmt::format("--benchmark_filter '{}': {}", filter, e.what()));
  }
  if (cases.empty()) {
    throw spec::usage_error(fmt::format(
        "--benchmark_filter '{}' finds no benchmark; --benchmark_list_tests names them", filter));
  }
  return cases;
}

// ---- context ----

// The version of the kernel driver, where the system tells it.
std::string driver_release() {
  std::ifstream in("/proc/driver/nvidia/version");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::smatch found;
  return std::regex_search(text, found, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+")) ? found.str() : "";
}

void add_context(const options& o, const gpu::device_info& info, double peak) {
  benchmark::AddCustomContext("device", info.name);
  if (info.kind == gpu::device_kind::cuda) {
    const std::string release = driver_release();
    benchmark::AddCustomContext("driver",
                                info.driver + (release.empty() ? "" : ", driver " + release));
    benchmark::AddCustomContext("read_peak_bytes_per_second", fmt::format("{:.0f}", peak * 1e6));
  } else {
    benchmark::AddCustomContext("times", "mean nothing: emulator");
  }
  benchmark::AddCustomContext("commit", o.commit);
  if (!o.kernel.empty()) {
    benchmark::AddCustomContext(
        "kernel",
        fmt::format("{}, sha256 {}", o.kernel, verify::sha256_hex(verify::read_text(o.kernel))));
  }
  for (const gpu::kernel_module& m : gpu::kernel_modules()) {
    benchmark::AddCustomContext(fmt::format("ptx_sha256/{}", m.name), verify::sha256_hex(m.ptx));
  }
  const gpu::kernel_module& own = memory_kernels();
  benchmark::AddCustomContext(fmt::format("ptx_sha256/{}", own.name), verify::sha256_hex(own.ptx));
}

// ---- command line ----

constexpr const char* own_help =
    "bench_kernels: verifies, then times every kernel; see bench/README.md\n\n"
    "  [--device=cuda|emulator]   emulator: small cases, verified; times mean nothing\n"
    "  [--kernel=FILE.ptx]        entries of FILE.ptx replace the shipped ones of the same name\n"
    "  [--commit=TEXT]            commit named in the report\n\n"
    "Exit codes: 0 all verified and timed, 1 an output differs from the reference, 2 usage, 3 bad\n"
    "input, 4 device fault, 70 internal error, 77 no GPU or no kernels.\n\n"
    "Of Google Benchmark's flags (console or json):\n"
    "  [--benchmark_list_tests] [--benchmark_filter=REGEX] [--benchmark_out=FILE]\n"
    "  [--benchmark_format=console|json] [--benchmark_repetitions=N]\n"
    "  [--benchmark_report_aggregates_only] [--benchmark_counters_tabular]\n";

void print_help() { fmt::print("{}", own_help); }

bool is_on(std::string_view argument, std::string_view flag) {
  if (!argument.starts_with(flag)) return false;
  argument.remove_prefix(flag.size());
  return argument.empty() || argument == "=true" || argument == "=1" || argument == "=yes";
}

options parse(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value_of = [&](std::string_view flag, std::string& value) {
      if (argument.starts_with(flag)) value = argument.substr(flag.size());
    };
    o.list |= is_on(argument, "--benchmark_list_tests");
    o.tabular |= is_on(argument, "--benchmark_counters_tabular");
    o.to_file |= argument.starts_with("--benchmark_out=");
    value_of("--benchmark_format=", o.format);
    value_of("--benchmark_out_format=", o.file_format);
  }
  if ((o.format != "console" && o.format != "json") || o.file_format != "json") {
    throw spec::usage_error(
        "--benchmark_format is console or json, --benchmark_out_format is json");
  }
  benchmark::Initialize(&argc, argv, print_help);
  CLI::App app{"bench_kernels"};
  app.set_help_flag();
  app.add_option("--device", o.device);
  app.add_option("--kernel", o.kernel);
  app.add_option("--commit", o.commit);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    throw spec::usage_error(fmt::format("{}; --help lists the options", e.what()));
  }
  if (o.device != "cuda" && o.device != "emulator") {
    throw spec::usage_error(fmt::format("unknown device '{}'; use cuda or emulator", o.device));
  }
  return o;
}

// Registers what fits into memory; says what does not.
std::size_t register_cases(const std::vector<bench_case>& cases, const gpu::device_info& info,
                           std::int64_t gate_bytes, bench_run& run) {
  const std::int64_t reserve = std::int64_t{2} << 30;  // context, modules, fragments
  std::size_t registered = 0;
  for (const bench_case& c : cases) {
    const bool real = info.kind == gpu::device_kind::cuda;
    const std::int64_t needed = costs_of(c, real ? info.l2_bytes : 0).device_bytes;
    if (real && needed + gate_bytes + reserve > info.memory_bytes) {
      fmt::print(stderr, "bench_kernels: left out, needs {:.0f} GB: {}\n",
                 static_cast<double>(needed) * 1e-9, c.name());
      continue;
    }
    benchmark::RegisterBenchmark(c.name().c_str(),
                                 [&run, c](benchmark::State& state) { run.run(state, c); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
    ++registered;
  }
  return registered;
}

std::unique_ptr<benchmark::BenchmarkReporter> make_reporter(const options& o) {
  if (o.format == "json") return std::make_unique<plain_names<benchmark::JSONReporter>>();
  int style = isatty(STDOUT_FILENO) != 0 ? benchmark::ConsoleReporter::OO_Color
                                         : benchmark::ConsoleReporter::OO_None;
  if (o.tabular) style |= benchmark::ConsoleReporter::OO_Tabular;
  return std::make_unique<plain_names<benchmark::ConsoleReporter>>(
      static_cast<benchmark::ConsoleReporter::OutputOptions>(style));
}

int run_all(int argc, char** argv) {
  const options o = parse(argc, argv);
  const std::vector<bench_case> cases = filtered(
      o.device == "emulator" ? emulator_cases() : gpu_cases(), benchmark::GetBenchmarkFilter());
  if (o.list) {
    for (const bench_case& c : cases) fmt::print("{}\n", c.name());
    return verify::exit_pass;
  }
  const std::unique_ptr<gpu::device> base = verify::choose_device(o.device);
  const std::unique_ptr<gpu::device> foreign =
      o.kernel.empty() ? nullptr
                       : verify::with_foreign_kernels(*base, verify::read_text(o.kernel), o.kernel);
  gpu::device& dev = foreign != nullptr ? *foreign : *base;
  const stopwatch watch(*base);
  const double peak = dev.info().kind == gpu::device_kind::cuda ? watch.read_peak() : 0;
  bench_run run(dev, watch, peak);
  add_context(o, dev.info(), peak);
  if (register_cases(cases, dev.info(), watch.gate_bytes(), run) == 0) {
    throw verify::nothing_to_run_error("no selected benchmark fits into the device's memory");
  }
  const std::unique_ptr<benchmark::BenchmarkReporter> display = make_reporter(o);
  plain_names<benchmark::JSONReporter> file;
  benchmark::RunSpecifiedBenchmarks(display.get(), o.to_file ? &file : nullptr, "all");
  return run.exit_code();
}

}  // namespace
}  // namespace kvproof::bench

int main(int argc, char** argv) {
  return kvproof::verify::run_guarded([&] { return kvproof::bench::run_all(argc, argv); });
}

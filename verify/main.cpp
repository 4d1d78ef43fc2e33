// The kvproof command: parses the command line and calls the library.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gpu/kernels/kernel_table.hpp"
#include "reference/spec/error.hpp"
#include "traces/synthetic_trace.hpp"
#include "traces/trace_info.hpp"
#include "verify/case_runner.hpp"
#include "verify/device_choice.hpp"
#include "verify/evidence.hpp"
#include "verify/exit_codes.hpp"
#include "verify/foreign_kernels.hpp"
#include "verify/report.hpp"
#include "verify/sha256.hpp"
#include "verify/suites.hpp"
#include "verify/text_file.hpp"

namespace kvproof::verify {
namespace {

struct options {
  case_request cases;
  std::string device = "auto";
  std::string kernel;
  std::string jsonl, junit, evidence;
  std::string commit = KVPROOF_COMMIT;
  std::uint64_t seed = 1;
  bool quiet = false, verbose = false;
};

struct synth_options {
  std::string model = "llama3-8b";
  std::string tokens = "512+128";
  int layers = 2;
  std::uint64_t seed = 1;
  std::string out;
};

// The shipped trace: beside the sources that built this binary, or in the installed share folder.
std::filesystem::path shipped_trace() {
  const std::filesystem::path name = "smollm2-135m-instruct.h5";
  const std::filesystem::path binary =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (std::filesystem::path at = binary; at != at.root_path(); at = at.parent_path()) {
    if (std::filesystem::exists(at / "traces/data" / name)) return at / "traces/data" / name;
    if (std::filesystem::exists(at / "share/kvproof" / name)) return at / "share/kvproof" / name;
  }
  throw spec::input_error(
      fmt::format("the shipped trace {} is not near {}; name one with --trace FILE", name.string(),
                  binary.string()));
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm fields{};
  gmtime_r(&now, &fields);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

void print_progress(std::size_t number, std::size_t of, const std::string& id) {
  fmt::print(stderr, "\r[{}/{}] {:<60.60}", number, of, id);
}
void clear_progress() { fmt::print(stderr, "\r{:<80}\r", ""); }

int run_cases(const options& o) {
  if (gpu::kernel_entries().empty()) {
    throw nothing_to_run_error(
        "this build has no kernels; configure with -DKVPROOF_KERNELS=ON (needs nvcc 13.0)");
  }
  if (!o.evidence.empty() && !o.kernel.empty()) {
    throw spec::usage_error(
        "--evidence speaks of the shipped kernels, --kernel replaces them; leave one out");
  }
  const selected_cases selected = select_cases(o.cases, shipped_trace);
  const std::unique_ptr<gpu::device> base = choose_device(o.device);
  const std::unique_ptr<gpu::device> foreign =
      o.kernel.empty() ? nullptr : with_foreign_kernels(*base, read_text(o.kernel), o.kernel);
  gpu::device& device = foreign != nullptr ? *foreign : *base;
  // Read first: a malformed file must not cost a run.
  std::vector<kernel_evidence> evidence;
  if (!o.evidence.empty()) evidence = read_evidence(o.evidence);

  const run_facts facts{device.info(), selected.source, o.commit, utc_now(), o.seed};
  std::string rerun_options;
  if (o.device != "auto") rerun_options += " --device " + o.device;
  if (!o.kernel.empty()) rerun_options += " --kernel " + shell_word(o.kernel);

  const bool progress = isatty(STDERR_FILENO) != 0 && !o.quiet;
  std::vector<case_result> results;
  for (const test_case& c : selected.cases) {
    if (progress) print_progress(results.size() + 1, selected.cases.size(), c.id);
    results.push_back(run_case(c.id, device, c.build(o.seed)));
    if (progress) clear_progress();
    case_result& r = results.back();
    r.rerun = rerun_command(c.id, o.seed, c.rerun_options + rerun_options);
    if (!o.quiet || r.result != verdict::passed) fmt::print("{}\n", case_line(r));
    if (o.verbose) fmt::print("{}", stage_lines(r));
    std::fflush(stdout);
  }
  fmt::print("{}\n", summary(results, facts));
  if (!o.jsonl.empty()) write_jsonl(o.jsonl, results, facts);
  if (!o.junit.empty()) write_junit(o.junit, results, facts);
  if (!o.evidence.empty())
    write_evidence(o.evidence, merge_evidence(std::move(evidence), evidence_of(results, facts)));
  return exit_code_of(results);
}

int list(const std::string& what) {
  if (what == "variants") {
    for (const variant& v : variants())
      fmt::print("{:<14} {:<7} {:<9} {}\n", v.id, v.scheme,
                 v.tiers ? "k8v4+k4v2" : spec::format_of(v.format).name, v.description);
  } else if (what == "cases") {
    case_request all;
    all.suite = "nightly";
    for (const test_case& c : select_cases(all, shipped_trace).cases) fmt::print("{}\n", c.id);
  } else if (what == "kernels") {
    for (const gpu::kernel_entry& k : gpu::kernel_entries()) {
      const gpu::kernel_module& m = gpu::kernel_modules()[k.module];
      fmt::print("{:<34} {:<20} PTX {} ({} bytes), cubin {} bytes\n", k.entry, m.name,
                 sha256_hex(m.ptx).substr(0, 16), m.ptx.size(), m.cubin.size());
    }
    if (gpu::kernel_entries().empty()) fmt::print("none: built with KVPROOF_KERNELS=OFF\n");
  } else if (what == "devices") {
    std::string why_not;
    const int count = gpu::count_cuda_devices(&why_not);
    for (int i = 0; i < count; ++i) {
      const std::unique_ptr<gpu::device> d = gpu::open_cuda_device(i, &why_not);
      if (d != nullptr)
        fmt::print("cuda:{}    {}, {} SMs, {} GB, driver {}\n", i, d->info().name,
                   d->info().num_multiprocessors, d->info().memory_bytes / 1000000000,
                   d->info().driver);
    }
    if (count == 0) fmt::print("cuda      none: {}\n", why_not);
    fmt::print("emulator  {}\n", gpu::open_emulator()->info().name);
  } else if (what == "models") {
    for (const std::string_view name : traces::model_preset_names()) {
      const traces::model_facts m = traces::model_preset(name);
      fmt::print("{:<14} {} layers, {} query heads, {} KV heads, head_dim {}, RoPE theta {}\n",
                 name, m.num_layers, m.query_heads, m.kv_heads, m.head_dim, m.rope_theta);
    }
  } else {
    throw spec::usage_error(
        fmt::format("cannot list '{}'; use variants, cases, kernels, devices or models", what));
  }
  return 0;
}

int print_trace_info(const std::string& file, bool as_json) {
  const traces::attention_trace trace = traces::read_attention_trace(file);
  const traces::trace_info info = traces::compute_trace_info(
      trace, static_cast<std::int64_t>(std::filesystem::file_size(file)));
  fmt::print("{}\n",
             as_json ? traces::trace_info_json(info).dump(2) : traces::format_trace_info(info));
  return 0;
}

int synthesize(const synth_options& s) {
  traces::synthetic_options o;
  o.model = traces::model_preset(s.model);
  o.layers = s.layers;
  o.seed = s.seed;
  long long prompt = 0, generated = 0;
  char rest = 0;
  if (std::sscanf(s.tokens.c_str(), "%lld+%lld%c", &prompt, &generated, &rest) != 2 || prompt < 0 ||
      generated < 0) {
    throw spec::usage_error(
        fmt::format("--tokens '{}': write PROMPT+GENERATED, such as 512+128", s.tokens));
  }
  o.prompt_length = prompt;
  o.generated = generated;
  traces::write_attention_trace(s.out, traces::synthesize_trace(o));
  fmt::print("{}: {}, {} + {} tokens, {} layers, seed {}\n", s.out, s.model, prompt, generated,
             s.layers, s.seed);
  return 0;
}

void add_run_options(CLI::App& app, options& o) {
  app.add_option("--trace", o.cases.trace, "Attention trace (HDF5); default: the shipped one")
      ->type_name("FILE");
  app.add_option("--device", o.device, "auto, cuda or emulator")->capture_default_str();
  app.add_option("--seed", o.seed, "Seed of synthetic values and of page order")
      ->capture_default_str();
  app.add_option("--steps", o.cases.steps,
                 "Decode steps of trace cases; default: 64, in suite nightly all")
      ->type_name("N|all");
  app.add_option("--kernel", o.kernel,
                 "PTX whose entries replace the shipped ones of the same name")
      ->type_name("FILE.ptx");
}

int run(int argc, char** argv) {
  CLI::App app{"kvproof: proves that CUDA kernels for compressed KV caches are right, bit for bit"};
  app.set_version_flag("--version", KVPROOF_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 pass, 1 mismatch or vacuous case, 2 usage, 3 bad input, 4 device fault, 70 "
      "internal error (a bug of kvproof), 77 nothing could run.\n"
      "Examples:\n"
      "  kvproof list variants\n"
      "  kvproof trace synth --model smollm2-135m --tokens 96+32 --out small.h5\n"
      "  kvproof verify --trace small.h5 --steps all");

  options o;
  CLI::App* verify = app.add_subcommand(
      "verify",
      "Check the kernels against the reference; no options: streams, tiers, listed tokens, score "
      "updates, and every variant on the shipped trace");
  verify->add_option("--variant", o.cases.variant, "A variant's id, or all")->capture_default_str();
  verify
      ->add_option(
          "--suite", o.cases.suite,
          "smoke (synthetic), ci (smoke and trace), nightly (ci, long lengths, all steps), "
          "or a file of case globs, one a line, # comments")
      ->type_name("NAME|FILE");
  verify->add_option("--filter", o.cases.filter, "Only cases whose id matches")->type_name("GLOB");
  add_run_options(*verify, o);
  verify->add_option("--jsonl", o.jsonl, "Write verdicts as JSON lines")->type_name("FILE");
  verify->add_option("--junit", o.junit, "Write verdicts as JUnit XML")->type_name("FILE");
  verify
      ->add_option(
          "--evidence", o.evidence,
          "Write one JSON line a kernel that ran (hash of its PTX, verdict, device); other "
          "lines of the file stay")
      ->type_name("FILE");
  verify->add_option("--commit", o.commit, "Commit named in reports")->capture_default_str();
  CLI::Option* quiet = verify->add_flag("--quiet", o.quiet, "Only failures and the summary");
  verify->add_flag("--verbose", o.verbose, "Also every stage of every case")->excludes(quiet);
  verify->footer(
      "Examples:\n"
      "  kvproof verify --variant minikv-2bit --filter '*/layer00' --steps 16 --verbose\n"
      "  kvproof verify --suite smoke --filter 'quantize/k8v4/d64_*' --jsonl verdicts.jsonl");

  CLI::App* repro = app.add_subcommand("repro", "Run exactly one case and list its stages");
  repro->add_option("case", o.cases.case_id, "Id of the case")->required();
  add_run_options(*repro, o);
  repro->footer("Example:\n  kvproof repro decode/k8v4/d64_g3_sharp --seed 7");

  std::string what;
  CLI::App* list_command =
      app.add_subcommand("list", "List variants, cases, kernels, devices or models");
  list_command->add_option("what", what, "variants, cases, kernels, devices or models")->required();

  CLI::App* trace = app.add_subcommand("trace", "Inspect or make attention traces");
  trace->require_subcommand(1);
  std::string file;
  bool as_json = false;
  CLI::App* info = trace->add_subcommand("info", "Shapes, ranges, outlier channels, provenance");
  info->add_option("file", file, "Trace")->required();
  info->add_flag("--json", as_json, "As JSON");
  synth_options s;
  CLI::App* synth = trace->add_subcommand("synth", "A synthetic trace of a model's shape");
  synth->add_option("--model", s.model, "llama2-7b, llama3-8b, qwen2.5-7b or smollm2-135m")
      ->capture_default_str();
  synth->add_option("--tokens", s.tokens, "PROMPT+GENERATED")->capture_default_str();
  synth->add_option("--layers", s.layers, "Recorded layers, spread over depth")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  synth->add_option("--seed", s.seed, "Seed")->capture_default_str();
  synth->add_option("--out", s.out, "File to write")->required()->type_name("FILE");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : exit_usage;
  }
  if (repro->parsed()) o.verbose = true;
  if (verify->parsed() || repro->parsed()) return run_cases(o);
  if (list_command->parsed()) return list(what);
  if (info->parsed()) return print_trace_info(file, as_json);
  return synthesize(s);
}

}  // namespace
}  // namespace kvproof::verify

int main(int argc, char** argv) {
  return kvproof::verify::run_guarded([&] { return kvproof::verify::run(argc, argv); });
}

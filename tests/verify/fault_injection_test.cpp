// The comparison sees damage: real kernels run in the emulator, then device state is changed behind
// their back, or a kernel is kept from running, and the case must fail at exactly that place.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "reference/spec/error.hpp"
#include "verify/case_runner.hpp"
#include "verify/compare.hpp"
#include "verify/exit_codes.hpp"
#include "verify/hash.hpp"
#include "verify/listed_cases.hpp"
#include "verify/score_update_cases.hpp"
#include "verify/score_update_runner.hpp"
#include "verify/synthetic_cases.hpp"

namespace kvproof::verify {
namespace {

template <class Workload = workload>
Workload build(const std::vector<test_case>& cases, const std::string& id) {
  for (const test_case& c : cases) {
    if (c.id == id) return std::get<Workload>(c.build(1));
  }
  BOOST_FAIL("no case " << id);
  return {};
}

// Three sequences of 200, 16 and 77 quantized tokens and 40, 0 and 5 recent ones.
workload ragged_case(std::string_view format) {
  return build(short_cases(), fmt::format("decode/{}/d64_g3_sharp", format));
}

// 200, 16 and 77 tokens in the high tier, 90, 150 and 33 in the low one and 40, 0 and 5 recent
// ones.
workload tiers_case() { return build(more_tier_cases(), "decode/tiers/d64_g3_sharp"); }

// Lists of random rows, or of random tokens that are appended and then put in the places of others.
workload listed_case(std::string_view kernel, std::string_view format) {
  return build(listed_cases(), fmt::format("{}/{}/d64_random", kernel, format));
}

std::vector<axis> axes_of(const std::string& name, const workload& w, const device_state& d) {
  const axis sequence{"sequence", w.batch}, kv_head{"kv_head", w.kv_heads},
      channel{"channel", w.head_dim};
  const axis q_head{"q_head", std::int64_t{w.kv_heads} * w.gqa_ratio};
  if (name == "out" || name == "q") return {sequence, q_head, channel};
  if (name == "state") return {sequence, q_head, {"m_l", 2}};
  if (name == "scores")
    return {sequence, kv_head, {"token", d.score_capacity}, {"query", w.gqa_ratio}};
  if (name == "page_table") return {sequence, kv_head, {"page", d.max_pages}};
  if (name == "recent_k" || name == "recent_v")
    return {sequence, kv_head, {"slot", w.recent_capacity}, channel};
  if (name == "k" || name == "v") return {sequence, {"token", w.source_tokens}, kv_head, channel};
  if (name == "lists") return {sequence, kv_head, {"entry", w.list_capacity}};
  if (name == "low_table")
    return {sequence, kv_head, {"page", d.low_table.size_bytes() / (w.heads() * 4)}};
  if (name == "pages" || name == "low_pages") {
    const spec::format_id format = name == "pages" ? w.format : spec::format_id::k4v2;
    const std::int64_t page = spec::page_size_bytes(spec::format_of(format), w.head_dim);
    return {{"page", (name == "pages" ? d.pages : d.low_pages).size_bytes() / page},
            {"byte", page}};
  }
  return {sequence, kv_head};  // lengths and tickets
}

std::int64_t element_bytes(const std::string& name) {
  if (name == "pages" || name == "low_pages") return 1;
  const std::array<std::string, 5> halves = {"k", "v", "recent_k", "recent_v", "q"};
  return std::ranges::count(halves, name) > 0 ? 2 : 4;
}

std::string place(const std::string& name, const std::vector<axis>& axes, std::int64_t index) {
  std::string inside;
  for (std::size_t i = axes.size(); i-- > 0; index /= axes[i].extent) {
    inside = fmt::format("{}={}{}{}", axes[i].name, index % axes[i].extent,
                         inside.empty() ? "" : ", ", inside);
  }
  return fmt::format("{}[{}]: expected 0x", name == "workspace" ? "workspace tickets" : name,
                     inside);
}

fenced_buffer& buffer_of(device_state& d, const std::string& name) {
  for (fenced_buffer* b : d.buffers()) {
    if (b->name() == name) return *b;
  }
  BOOST_FAIL("no buffer " << name);
  return d.pages;
}

// Flips bit `bit` of byte `byte` of a buffer after `stage`; the case must fail there.
void check_flip(const workload& w, gpu::device& dev, const std::string& stage,
                const std::string& name, double where, int bit) {
  std::string expected_place;
  const case_result r = run_case("flip", dev, w, [&](std::string_view at, device_state& d) {
    if (at != stage) return;
    fenced_buffer& buffer = buffer_of(d, name);
    std::vector<std::byte> bytes = buffer.read<std::byte>();
    const std::int64_t size =
        name == "workspace" ? w.heads() * 4 : static_cast<std::int64_t>(bytes.size());
    const auto byte =
        std::min(static_cast<std::int64_t>(where * static_cast<double>(size)), size - 1);
    bytes[static_cast<std::size_t>(byte)] ^= static_cast<std::byte>(1 << bit);
    buffer.write(bytes);
    expected_place = stage + ": " + place(name, axes_of(name, w, d), byte / element_bytes(name));
  });
  const std::string what = fmt::format("{} after {}: {}", name, stage, r.detail);
  BOOST_TEST(name_of(r.result) == name_of(verdict::failed), what);
  BOOST_TEST(r.mismatches == 1, what);
  BOOST_TEST(r.detail.starts_with(expected_place), what << " instead of " << expected_place);
  BOOST_TEST(r.stages.back().name == stage, what);
  BOOST_TEST(exit_code_of(std::span(&r, 1)) == exit_mismatch);
}

// Runs everything on the emulator but the launch with this number, which does nothing or faults.
class forgetful_device final : public gpu::device {
 public:
  explicit forgetful_device(int forgotten, bool faults = false)
      : forgotten_(forgotten), faults_(faults) {}
  [[nodiscard]] gpu::device_info info() const override { return inner_->info(); }
  [[nodiscard]] gpu::device_ptr allocate(std::int64_t n) override { return inner_->allocate(n); }
  void deallocate(gpu::device_ptr p) noexcept override { inner_->deallocate(p); }
  void copy_to_device(gpu::device_ptr to, std::span<const std::byte> from) override {
    inner_->copy_to_device(to, from);
  }
  void copy_to_host(std::span<std::byte> to, gpu::device_ptr from) override {
    inner_->copy_to_host(to, from);
  }
  void fill(gpu::device_ptr to, std::byte value, std::int64_t n) override {
    inner_->fill(to, value, n);
  }
  [[nodiscard]] std::shared_ptr<gpu::kernel> load(const gpu::kernel_module& module,
                                                  std::string_view entry) override {
    return inner_->load(module, entry);
  }
  [[nodiscard]] std::shared_ptr<gpu::stream> create_stream() override {
    return inner_->create_stream();
  }
  [[nodiscard]] std::shared_ptr<gpu::event> create_event() override {
    return inner_->create_event();
  }
  void record(gpu::event& e, gpu::stream* s) override { inner_->record(e, s); }
  [[nodiscard]] double elapsed_us(gpu::event& begin, gpu::event& end) override {
    return inner_->elapsed_us(begin, end);
  }
  void launch(gpu::kernel& k, const gpu::launch_shape& shape, std::span<const std::byte> params,
              gpu::stream* s) override {
    if (launches_++ != forgotten_) return inner_->launch(k, shape, params, s);
    if (faults_) throw spec::device_error("the GPU fell off the bus");
  }
  void synchronize() override { inner_->synchronize(); }

 private:
  std::unique_ptr<gpu::device> inner_ = gpu::open_emulator();
  int forgotten_;
  bool faults_;
  int launches_ = 0;
};

workload empty_workload(int batch) {
  workload w;
  w.format = spec::format_id::k8v4;
  w.head_dim = 64;
  w.batch = batch;
  w.kv_heads = 2;
  w.gqa_ratio = 1;
  w.softmax_scale = 1;
  w.recent_capacity = 16;
  w.events.push_back({"prompt", {}, {}, false, false, {}});
  w.events[0].append.assign(static_cast<std::size_t>(w.heads()), 0);
  w.events[0].quantize.assign(static_cast<std::size_t>(w.heads()), 0);
  return w;
}

}  // namespace

BOOST_AUTO_TEST_CASE(undamaged_cases_pass) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  for (const spec::kv_format& format : spec::kv_formats) {
    const workload w = ragged_case(format.name);
    std::vector<std::string> stages;
    const case_result r = run_case("sound", *dev, w, [&](std::string_view stage, device_state&) {
      stages.emplace_back(stage);
    });
    BOOST_TEST(name_of(r.result) == name_of(verdict::passed), r.detail);
    BOOST_TEST(r.mismatches == 0);
    BOOST_TEST(r.outputs > 0);
    BOOST_TEST(r.outputs < r.compared);
    BOOST_TEST((stages == std::vector<std::string>{"decode/quantize", "decode/decode"}));
    BOOST_TEST(r.entries.size() == 2u);
  }
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_of_any_tensor_fails_at_its_coordinates) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const std::array<std::string, 12> after_decode = {
      "out",        "state",    "scores",   "pages", "page_table", "num_quantized",
      "num_recent", "recent_k", "recent_v", "k",     "v",          "q"};
  std::uint64_t draw = 0;
  for (const spec::kv_format& format : spec::kv_formats) {
    const workload w = ragged_case(format.name);
    const auto flip = [&](const std::string& stage, const std::string& name) {
      const std::uint64_t bits = hash_index(7, name, draw++);
      check_flip(w, *dev, stage, name, static_cast<double>(bits >> 11) * 0x1p-53,
                 static_cast<int>(bits % 8));
    };
    for (const std::string& name : after_decode) flip("decode/decode", name);
    flip("decode/decode", "workspace");
    for (const char* name : {"pages", "first_token", "num_new"}) flip("decode/quantize", name);
  }
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_after_a_listed_stage_fails_at_its_coordinates) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  for (const double where : {0.0, 0.4, 1.0}) {
    for (const spec::kv_format& format : spec::kv_formats) {
      const workload w = listed_case("gather_quantize", format.name);
      for (const char* name : {"pages", "page_table", "lists", "first_token", "num_new", "k", "v"})
        check_flip(w, *dev, "append 1/gather_quantize", name, where, 3);
    }
    const workload w = listed_case("demote", "k8v4");
    for (const char* stage : {"new pages/demote", "more/demote", "replace/demote"}) {
      for (const char* name : {"pages", "page_table", "low_pages", "low_table", "lists",
                               "first_token", "num_new", "num_quantized"})
        check_flip(w, *dev, stage, name, where, 5);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_of_two_tiers_fails_at_its_coordinates) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const workload w = tiers_case();
  std::vector<std::string> stages;
  const case_result sound = run_case(
      "sound", *dev, w, [&](std::string_view stage, device_state&) { stages.emplace_back(stage); });
  BOOST_TEST(name_of(sound.result) == name_of(verdict::passed), sound.detail);
  const std::vector<std::string> expected_stages = {"decode/quantize", "decode/quantize_low",
                                                    "decode/demote", "decode/decode"};
  BOOST_TEST(stages == expected_stages, boost::test_tools::per_element());
  const std::vector<std::string> entries = {"quantize_k8v4_d64_kernel", "quantize_k4v2_d64_kernel",
                                            "demote_k8v4_d64_kernel", "decode_tiers_d64_g3_kernel"};
  BOOST_TEST(sound.entries == entries, boost::test_tools::per_element());
  for (const double where : {0.0, 0.3, 0.7, 1.0}) {
    for (const std::string& stage : expected_stages) {
      for (const char* name : {"pages", "page_table", "low_table", "num_quantized", "num_low"})
        check_flip(w, *dev, stage, name, where, 4);
    }
    for (const char* name : {"out", "state", "scores", "num_recent", "q", "workspace"})
      check_flip(w, *dev, "decode/decode", name, where, 2);
  }
}

// Which tier a page of the pool belongs to is said.
BOOST_AUTO_TEST_CASE(kernels_of_either_tier_that_write_nothing_fail) {
  const workload w = tiers_case();
  const std::array<std::pair<const char*, const char*>, 4> skipped = {
      {{"decode/quantize: pages[page=", " of the head"},
       {"decode/quantize_low: pages[page=", " of the head"},
       {"decode/demote: pages[page=", " of the head"},
       {"decode/decode: out[sequence=0, q_head=0, channel=0]", "never written"}}};
  for (std::size_t launch = 0; launch < skipped.size(); ++launch) {
    forgetful_device dev(static_cast<int>(launch));
    const case_result r = run_case("lazy", dev, w);
    BOOST_TEST(name_of(r.result) == name_of(verdict::failed));
    BOOST_TEST(r.detail.starts_with(skipped[launch].first), r.detail);
    BOOST_TEST(r.detail.find(skipped[launch].second) != std::string::npos, r.detail);
  }
  // The first byte of a low page holds key codes of channels 0 and 32, of K8V4 one code.
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const case_result r = run_case("flip", *dev, w, [&](std::string_view stage, device_state& d) {
    if (stage != "decode/decode") return;
    const auto id = d.low_table.read<std::int32_t>().front();
    std::vector<std::byte> bytes = d.pages.read<std::byte>();
    const std::int64_t page = spec::page_size_bytes(spec::format_of(w.format), w.head_dim);
    bytes[static_cast<std::size_t>(id * page)] ^= std::byte{0x10};
    d.pages.write(bytes);
  });
  BOOST_TEST(
      r.detail.find("page 0 of the head); key code[token=0, channel=32]") != std::string::npos,
      r.detail);
}

BOOST_AUTO_TEST_CASE(first_and_last_elements_are_compared_too) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const workload w = ragged_case("k4v2");
  for (const char* name : {"out", "state", "scores", "pages"}) {
    check_flip(w, *dev, "decode/decode", name, 0.0, 0);
    check_flip(w, *dev, "decode/decode", name, 1.0, 7);
  }
}

BOOST_AUTO_TEST_CASE(a_kernel_that_writes_nothing_fails) {
  forgetful_device no_quantize(0), no_decode(1);
  const workload w = ragged_case("k8v4");
  const case_result pages = run_case("lazy", no_quantize, w);
  BOOST_TEST(name_of(pages.result) == name_of(verdict::failed));
  BOOST_TEST(pages.detail.starts_with("decode/quantize: pages[page="), pages.detail);
  BOOST_TEST(pages.detail.find("got 0xa5") != std::string::npos, pages.detail);
  const case_result out = run_case("lazy", no_decode, w);
  BOOST_TEST(name_of(out.result) == name_of(verdict::failed));
  BOOST_TEST(out.detail.starts_with("decode/decode: out[sequence=0, q_head=0, channel=0]"),
             out.detail);
  BOOST_TEST(out.detail.find("never written") != std::string::npos, out.detail);
  BOOST_TEST(out.mismatches == 3 * 6 * 64);
}

BOOST_AUTO_TEST_CASE(a_listed_kernel_that_writes_nothing_fails) {
  forgetful_device no_gather(1), no_demote(1), no_replace(3);
  const case_result gather =
      run_case("lazy", no_gather, listed_case("gather_quantize", "int2_g16"));
  BOOST_TEST(name_of(gather.result) == name_of(verdict::failed));
  BOOST_TEST(gather.detail.starts_with("append 1/gather_quantize: pages[page="), gather.detail);
  BOOST_TEST(gather.entries == std::vector<std::string>{"gather_quantize_int2_g16_d64_kernel"},
             boost::test_tools::per_element());
  const workload w = listed_case("demote", "k8v4");
  const case_result demote = run_case("lazy", no_demote, w);
  BOOST_TEST(demote.detail.starts_with("new pages/demote: low_pages[page="), demote.detail);
  BOOST_TEST(demote.detail.find("got 0xa5") != std::string::npos, demote.detail);
  const std::vector<std::string> entries = {"quantize_k8v4_d64_kernel", "demote_k8v4_d64_kernel"};
  BOOST_TEST(demote.entries == entries, boost::test_tools::per_element());
  const case_result replace = run_case("lazy", no_replace, w);
  BOOST_TEST(replace.detail.starts_with("replace/demote: low_pages[page="), replace.detail);
}

score_update_workload update_case() {
  return build<score_update_workload>(score_update_cases(), "score_update/g3_mixed");
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_after_a_score_update_fails_at_its_tensor) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const score_update_workload w = update_case();
  const case_result sound = run_case("sound", *dev, w);
  BOOST_TEST(name_of(sound.result) == name_of(verdict::passed), sound.detail);
  BOOST_TEST(sound.entries == std::vector<std::string>{"score_update_g3_kernel"},
             boost::test_tools::per_element());
  std::int64_t tokens = 0;
  for (const score_update_workload::step& s : w.steps) {
    for (const std::int32_t n : s.num_tokens) tokens += n;
  }
  BOOST_TEST(sound.outputs == tokens);
  for (const std::string stage : {"step 0/score_update", "step 1/score_update"}) {
    for (std::size_t i = 0; i < 4; ++i) {
      for (const double where : {0.0, 0.5, 1.0}) {
        std::string name;
        const case_result r =
            run_case("flip", *dev, w, [&](std::string_view at, score_update_buffers& buffers) {
              if (at != stage) return;
              fenced_buffer& buffer = *buffers.all()[i];
              name = buffer.name();
              // -0 and numbers: a flipped sign shows everywhere but in a NaN.
              std::vector<std::uint32_t> words = buffer.read<std::uint32_t>();
              auto word = static_cast<std::size_t>(where * static_cast<double>(words.size() - 1));
              const auto is_nan = [](std::uint32_t x) { return (x & 0x7fffffffU) > 0x7f800000U; };
              while (is_nan(words[word])) --word;
              words[word] ^= 0x80000000U;
              buffer.write(words);
            });
        BOOST_TEST(name_of(r.result) == name_of(verdict::failed), r.detail);
        BOOST_TEST(r.mismatches == 1, r.detail);
        BOOST_TEST(r.detail.starts_with(stage + ": " + name + "[sequence="), r.detail);
      }
      for (const bool behind : {false, true}) {
        std::string name;
        const case_result r =
            run_case("canary", *dev, w, [&](std::string_view at, score_update_buffers& buffers) {
              if (at != stage) return;
              const fenced_buffer& buffer = *buffers.all()[i];
              name = buffer.name();
              dev->fill(buffer.get() + (behind ? buffer.size_bytes() : -1), std::byte{0x5b}, 1);
            });
        BOOST_TEST(r.detail.starts_with(stage + ": " + name + ": canary overwritten"), r.detail);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_score_update_that_does_nothing_or_faults) {
  forgetful_device no_second_step(1), broken(0, true);
  const score_update_workload w = update_case();
  const case_result lazy = run_case("lazy", no_second_step, w);
  BOOST_TEST(lazy.detail.starts_with("step 1/score_update: running["), lazy.detail);
  BOOST_TEST(name_of(run_case("fault", broken, w).result) == name_of(verdict::fault));
  score_update_workload nothing = w;
  for (score_update_workload::step& s : nothing.steps) std::ranges::fill(s.num_tokens, 0);
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const case_result idle = run_case("nothing", *dev, nothing);
  BOOST_TEST(name_of(idle.result) == name_of(verdict::vacuous), idle.detail);
}

BOOST_AUTO_TEST_CASE(outputs_of_an_earlier_step_do_not_stand_in_for_missing_ones) {
  forgetful_device no_second_decode(3);  // after: prompt quantize, step 0 flush and decode
  const case_result r =
      run_case("lazy", no_second_decode, build(stream_cases(), "stream/k8v4/d64_g3_flush16"));
  BOOST_TEST(name_of(r.result) == name_of(verdict::failed));
  BOOST_TEST(r.detail.starts_with("step 1/decode: out["), r.detail);
  BOOST_TEST(r.detail.find("never written") != std::string::npos, r.detail);
}

BOOST_AUTO_TEST_CASE(a_faulting_launch_is_a_fault_of_that_kernel) {
  forgetful_device broken_decode(1, true);
  const case_result r = run_case("fault", broken_decode, ragged_case("k8v4"));
  BOOST_TEST(name_of(r.result) == name_of(verdict::fault));
  BOOST_TEST(r.detail == "the GPU fell off the bus");
  BOOST_TEST_REQUIRE(r.entries.size() == 2u);
  BOOST_TEST(r.entries[1] == "decode_k8v4_d64_g3_kernel");
  BOOST_TEST(exit_code_of(std::span(&r, 1)) == exit_device_fault);
}

BOOST_AUTO_TEST_CASE(a_stream_attends_every_token_at_every_step) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const workload w = build(stream_cases(), "stream/k4v2/d64_g3_flush16");
  const event& prompt = w.events[0];
  int step = 0;
  const case_result r = run_case("stream", *dev, w, [&](std::string_view stage, device_state& d) {
    if (!stage.ends_with("/decode")) return;
    ++step;
    const auto quantized = d.num_quantized.read<std::int32_t>();
    const auto recent = d.num_recent.read<std::int32_t>();
    for (std::size_t h = 0; h < quantized.size(); ++h) {
      BOOST_TEST(quantized[h] + recent[h] == prompt.quantize[h] + prompt.append[h] + step);
      BOOST_TEST(recent[h] < 16);
    }
  });
  BOOST_TEST(name_of(r.result) == name_of(verdict::passed), r.detail);
  BOOST_TEST(step == 84);
}

BOOST_AUTO_TEST_CASE(an_overwritten_canary_of_any_buffer_is_named) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const workload w = ragged_case("k4v2");
  std::vector<std::string> names;
  static_cast<void>(run_case("names", *dev, w, [&](std::string_view stage, device_state& d) {
    if (stage != "decode/decode") return;
    for (const fenced_buffer* b : d.buffers()) names.push_back(b->name());
  }));
  BOOST_TEST_REQUIRE(names.size() == 19u);
  for (const std::string& name : names) {
    for (const bool behind : {false, true}) {
      std::int64_t at = 0;
      const case_result r =
          run_case("canary", *dev, w, [&](std::string_view stage, device_state& d) {
            if (stage != "decode/decode") return;
            const fenced_buffer& b = buffer_of(d, name);
            at = behind ? b.size_bytes() + canary_bytes - 1 : -1;
            d.device.fill(b.get() + at, std::byte{0x5b}, 1);
          });
      BOOST_TEST(name_of(r.result) == name_of(verdict::failed), name);
      BOOST_TEST(r.detail.starts_with(
                     fmt::format("decode/decode: {}: canary overwritten at byte {} ", name, at)),
                 r.detail);
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_to_write_is_vacuous) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  const case_result nothing = run_case("empty", *dev, empty_workload(1));
  BOOST_TEST(name_of(nothing.result) == name_of(verdict::vacuous));
  BOOST_TEST(nothing.outputs == 0);
  // Attention over no sequence: the pool's spare pages are compared, but no kernel writes anything.
  workload w = empty_workload(0);
  w.events[0].attend = true;
  const case_result pool_only = run_case("no sequence", *dev, w);
  BOOST_TEST(name_of(pool_only.result) == name_of(verdict::vacuous), pool_only.detail);
  BOOST_TEST(pool_only.compared > 0);
  BOOST_TEST(pool_only.outputs == 0);
  BOOST_TEST(exit_code_of(std::span(&pool_only, 1)) == exit_mismatch);
}

BOOST_AUTO_TEST_CASE(a_case_outside_the_contract_is_an_internal_error_that_names_the_case) {
  const std::unique_ptr<gpu::device> dev = gpu::open_emulator();
  workload w = empty_workload(1);
  w.gqa_ratio = 9;
  w.events[0].attend = true;
  w.events[0].q.assign(std::size_t{2} * 9 * 64, 0);
  const auto names_case = [](const spec::contract_error& e) {
    return std::string(e.what()).starts_with("broken/case: ") && exit_code_of(e) == exit_internal;
  };
  BOOST_CHECK_EXCEPTION(static_cast<void>(run_case("broken/case", *dev, w)), spec::contract_error,
                        names_case);
}

}  // namespace kvproof::verify

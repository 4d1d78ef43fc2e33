// bench_emulator: speed of the PTX emulator on one thread. Loops of hand-written PTX, one kind of
// instruction each, and launches of shipped kernels, whose output is first compared with the
// reference. Counters: README.md beside this file.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/device_data.hpp"
#include "bench/workload.hpp"
#include "gpu/device/emulator/emulator.hpp"
#include "verify/exit_codes.hpp"

namespace kvproof::bench {
namespace {

using gpu::emulator::emulator_device;
using gpu::emulator::statistics;

constexpr std::int64_t warp_size = 32;

struct bench_run {
  bool failed = false;

  void fail(benchmark::State& state, const std::string& why) {
    state.SkipWithError(why.c_str());
    failed = true;
  }
};

// A body repeated `copies` times in a loop of `trips`; {0} in it is the number of the copy.
// Registers: %r0..%r7 are integers, %r8 the address of 16 bytes of shared memory of the thread, %a0
// that of 16 bytes of global memory, %f0..%f3 numbers near 1, %p1 true in even lanes.
struct ptx_loop {
  static constexpr std::int64_t copies = 16, trips = 256, warps = 4;

  std::string name, body;
  std::int64_t mult_adds = 0;  // of one mma

  [[nodiscard]] std::int64_t instructions() const {  // of one copy
    return std::count(body.begin(), body.end(), ';');
  }
  [[nodiscard]] std::string ptx() const {
    std::string unrolled;
    for (std::int64_t i = 0; i < copies; ++i) unrolled += fmt::format(fmt::runtime(body), i) + "\n";
    return fmt::format(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry loop(.param .u64 loop_data)
{{
.reg .pred %p<3>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %a<3>;
.shared .align 16 .b8 words[{bytes}];
mov.u32 %r9, %tid.x; shl.b32 %r10, %r9, 4; mov.u32 %r8, words; add.s32 %r8, %r8, %r10;
ld.param.u64 %a0, [loop_data]; mul.wide.u32 %a1, %r9, 16; add.s64 %a0, %a0, %a1;
ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%a0]; st.shared.v4.u32 [%r8], {{%r0, %r1, %r2, %r3}};
add.s32 %r4, %r9, 0x3c003c01; add.s32 %r5, %r9, 0x3c01bc00; mov.u32 %r6, 3; mov.u32 %r7, 5;
mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f3F000000; mov.f32 %f2, 0f3F400000; mov.f32 %f3, 0f3F900000;
and.b32 %r11, %r9, 1; setp.eq.s32 %p1, %r11, 0;
mov.u32 %r15, {trips};
REPEAT:
{unrolled}
add.s32 %r15, %r15, -1; setp.ne.s32 %p2, %r15, 0; @%p2 bra REPEAT;
xor.b32 %r0, %r0, %r4; add.f32 %f0, %f0, %f1; mov.b32 %r1, %f0;
st.global.v4.u32 [%a0], {{%r0, %r1, %r2, %r3}};
ret;
}}
)",
                       fmt::arg("bytes", warps * warp_size * 16), fmt::arg("trips", trips),
                       fmt::arg("unrolled", unrolled));
  }
};

// {{ and }} are braces of PTX.
std::vector<ptx_loop> ptx_loops() {
  return {
      {"integer",
       "add.s32 %r0, %r0, %r1; xor.b32 %r1, %r1, %r4; shl.b32 %r2, %r0, 3; and.b32 %r3, %r2, %r5; "
       "mad.lo.s32 %r0, %r3, %r6, %r1; shr.u32 %r1, %r0, 2; "
       "lop3.b32 %r2, %r0, %r1, %r4, 0xe8; prmt.b32 %r3, %r2, %r1, 0x6420;"},
      {"f32",
       "fma.rn.f32 %f0, %f0, %f1, %f2; mul.f32 %f2, %f2, %f1; add.f32 %f2, %f2, %f1; "
       "fma.rn.f32 %f3, %f3, %f1, %f0; max.f32 %f3, %f3, %f1;"},
      {"shared_4B", "ld.shared.u32 %r0, [%r8]; st.shared.u32 [%r8+4], %r0;"},
      {"shared_16B",
       "ld.shared.v4.u32 {{%r0, %r1, %r2, %r3}}, [%r8]; "
       "st.shared.v4.u32 [%r8], {{%r0, %r1, %r2, %r3}};"},
      {"global_load_16B", "ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%a0];"},
      {"divergent",
       "@%p1 bra EVEN{0}; add.s32 %r0, %r0, %r4; xor.b32 %r1, %r1, %r0; bra JOIN{0}; "
       "EVEN{0}: sub.s32 %r0, %r0, %r4; or.b32 %r1, %r1, %r0; JOIN{0}: add.s32 %r2, %r2, %r1;"},
      {"predicated",
       "@%p1 add.s32 %r0, %r0, %r4; @!%p1 xor.b32 %r0, %r0, %r5; @%p1 fma.rn.f32 %f0, %f0, %f1, "
       "%f2; @!%p1 mul.f32 %f2, %f1, %f3;"},
      {"shfl",
       "shfl.sync.bfly.b32 %r0, %r0, 1, 31, 0xffffffff; "
       "shfl.sync.idx.b32 %r1, %r0, 5, 31, 0xffffffff;"},
      {"mma_m16n8k16_f16",
       "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f0, %f1, %f2, %f3}}, "
       "{{%r4, %r5, %r4, %r5}}, {{%r4, %r5}}, {{%f0, %f1, %f2, %f3}};",
       16 * 8 * 16},
      {"mma_m16n8k32_u8",
       "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {{%r0, %r1, %r2, %r3}}, "
       "{{%r4, %r5, %r4, %r5}}, {{%r4, %r5}}, {{%r0, %r1, %r2, %r3}};",
       16 * 8 * 32},
  };
}

std::unique_ptr<emulator_device> open_device() {
  gpu::emulator::options o;
  o.num_threads = 1;
  return gpu::emulator::open(o);
}

// Times `launch` and counts what one launch executes. At least `instructions` and exactly `mmas`
// per warp are expected of it, when not 0. Lanes that are masked off count.
void measure(benchmark::State& state, bench_run& run, emulator_device& dev,
             const std::function<void()>& launch, std::int64_t instructions, std::int64_t mmas,
             std::int64_t mult_adds_per_mma) {
  const statistics before = dev.totals();
  for (auto _ : state) {
    launch();
    dev.synchronize();
  }
  const statistics after = dev.totals();
  const std::int64_t launches = state.iterations();
  const std::int64_t executed = (after.warp_instructions - before.warp_instructions) / launches;
  const std::int64_t multiplied = (after.mmas - before.mmas) / launches;
  if (executed == 0 || executed < instructions || (mmas != 0 && multiplied != mmas)) {
    run.fail(state, fmt::format("a launch executed {} warp instructions and {} mma, expected at "
                                "least {} and exactly {}: look at the counters of the emulator",
                                executed, multiplied, instructions, mmas));
    return;
  }
  const auto rate = [&](std::int64_t per_launch) {
    return benchmark::Counter(static_cast<double>(per_launch * launches),
                              benchmark::Counter::kIsRate);
  };
  state.counters["lane_instr_per_s"] = rate(executed * warp_size);
  state.counters["warp_instr"] = static_cast<double>(executed);
  if (multiplied != 0 && mult_adds_per_mma != 0)
    state.counters["mult_adds_per_s"] = rate(multiplied * mult_adds_per_mma);
  if (multiplied != 0) state.counters["mma"] = static_cast<double>(multiplied);
}

void time_loop(benchmark::State& state, bench_run& run, const ptx_loop& loop) {
  const auto dev = open_device();
  const std::string ptx = loop.ptx();
  const auto kernel = dev->load({loop.name, ptx, {}}, "loop");
  constexpr std::int64_t threads = ptx_loop::warps * warp_size;
  const gpu::device_buffer data = uploaded(*dev, random_halves(threads * 8, 1));
  const std::array<gpu::device_ptr, 1> params = {data.get()};
  gpu::launch_shape shape;
  shape.block.x = threads;
  const std::int64_t bodies = ptx_loop::warps * ptx_loop::trips * ptx_loop::copies;
  measure(
      state, run, *dev, [&] { dev->launch(*kernel, shape, std::as_bytes(std::span(params))); },
      bodies * loop.instructions(), loop.mult_adds == 0 ? 0 : bodies, loop.mult_adds);
}

void time_kernel(benchmark::State& state, bench_run& run, const bench_case& c) {
  const auto dev = open_device();
  const auto work =
      c.op == operation::decode ? make_decode_workload(*dev, c, 1) : make_page_workload(*dev, c, 1);
  work->launch(0);
  dev->synchronize();
  if (const std::string found = work->mismatch(0); !found.empty()) {
    run.fail(state, c.name() + ": " + found);
    return;
  }
  measure(
      state, run, *dev, [&] { work->launch(0); }, 0, 0, 0);
}

std::vector<bench_case> kernel_cases() {
  std::vector<bench_case> cases;
  for (const operation op : {operation::decode, operation::quantize_pack}) {
    for (const spec::format_id format :
         {spec::format_id::k8v4, spec::format_id::k4v2, spec::format_id::int2_g16}) {
      bench_case c{};
      c.op = op;
      c.format = format;
      c.model = {"gqa4", 8, 2, 128};
      c.batch = 1;
      c.tokens = 512;
      cases.push_back(c);
    }
  }
  return cases;
}

int run_all(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return verify::exit_usage;
  benchmark::AddCustomContext("commit", KVPROOF_COMMIT);
  benchmark::AddCustomContext("threads", "1");
  bench_run run;
  const auto add = [](const std::string& name, const std::function<void(benchmark::State&)>& f) {
    benchmark::RegisterBenchmark(name.c_str(), f)->Unit(benchmark::kMillisecond);
  };
  for (const ptx_loop& loop : ptx_loops())
    add("ptx/" + loop.name, [&run, loop](benchmark::State& state) { time_loop(state, run, loop); });
  for (const bench_case& c : kernel_cases())
    add(c.name(), [&run, c](benchmark::State& state) { time_kernel(state, run, c); });
  benchmark::RunSpecifiedBenchmarks();
  return run.failed ? verify::exit_mismatch : verify::exit_pass;
}

}  // namespace
}  // namespace kvproof::bench

int main(int argc, char** argv) {
  return kvproof::verify::run_guarded([&] { return kvproof::bench::run_all(argc, argv); });
}

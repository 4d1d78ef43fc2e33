// Each kind of fault stops the launch with a message that names place and cause.
#include <boost/test/unit_test.hpp>

#include "reference/spec/error.hpp"
#include "tests/gpu/emulator/ptx_fixture.hpp"

namespace kvproof::gpu::emulator {
namespace {

void expect_fault(const std::string& code, const std::vector<std::string>& words,
                  std::size_t threads = 1, ptx_run run = {}) {
  std::vector<sources> in;
  for (std::size_t l = 0; l < threads; ++l) in.push_back({l, 0, 0, 0});
  try {
    static_cast<void>(run(code, in));
    BOOST_ERROR("no fault: " + code);
  } catch (const spec::device_error& e) {
    for (const std::string& word : words)
      BOOST_CHECK_MESSAGE(std::string(e.what()).find(word) != std::string::npos,
                          "'" + word + "' is not in: " + e.what());
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(faults)

BOOST_AUTO_TEST_CASE(source_line) {
  ptx_run run;
  run.module_scope = ".file 2 \"a kernel.cu\", 1700000000, 42\n.file 3 \"other.cu\"\n";
  const std::string code =
      "\n.loc 3 6 1\nmov.u64 %x5, 0;\n.loc 2 71 9, function_name $L__info_string0, inlined_at 3 5 "
      "1\nld.global.u32 %r9, [%x5];\n.loc 3 8 1 add.u32 %r9, %r9, 1;\n";
  expect_fault(code, {"(module hand_written), a kernel.cu:71, PTX line 22 (ld.global.u32)"}, 1,
               run);
  run.module_scope.clear();  // no file of that number
  expect_fault(code, {"(module hand_written), PTX line"}, 1, run);
}

BOOST_AUTO_TEST_CASE(global_out_of_bounds) {
  expect_fault(
      "ld.param.u64 %x5, [test_in]; ld.global.u32 %r9, [%x5+32];",
      {"kernel test", "PTX line 16", "ld.global.u32", "cta (0, 0, 0)", "warp 0", "lane 0",
       "out-of-bounds read of 4 bytes", "0 bytes past the end of the allocation of 32 bytes"});
  expect_fault("ld.param.u64 %x5, [test_in]; st.global.u32 [%x5+-4], %r0;",
               {"out-of-bounds write", "4 bytes before the allocation"});
  expect_fault(
      "ld.param.u64 %x5, [test_in]; mul.wide.u32 %x6, %r30, 32; add.s64 %x5, %x5, %x6; "
      "ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%x5+32];",
      {"lane 4"}, 5);
  expect_fault("mov.u64 %x5, 0; ld.global.u32 %r9, [%x5];", {"out-of-bounds read", "address 0x0"});
}
BOOST_AUTO_TEST_CASE(misaligned) {
  expect_fault("ld.param.u64 %x5, [test_in]; ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%x5+8];",
               {"misaligned read of 16 bytes", "align it to 16"});
}
BOOST_AUTO_TEST_CASE(use_after_free) {
  const auto dev = open({});
  const device_ptr p = dev->allocate(64);
  dev->deallocate(p);
  std::array<std::byte, 4> word{};
  BOOST_CHECK_EXCEPTION(dev->copy_to_host(word, p), spec::device_error, [](const auto& e) {
    return std::string(e.what()).find("freed allocation") != std::string::npos;
  });
}
BOOST_AUTO_TEST_CASE(shared_overrun) {
  ptx_run run;
  run.module_scope = ".shared .align 4 .b8 tile[16];";
  expect_fault("mov.u32 %r4, tile; ld.shared.u32 %r5, [%r4+16];",
               {"shared memory", "tile", "16 bytes"}, 1, run);
  expect_fault("mov.u32 %r4, 0; ld.shared.u32 %r5, [%r4];", {"shared memory"}, 1, run);
}
BOOST_AUTO_TEST_CASE(local_overrun) {
  expect_fault("{.local .align 4 .b8 a[8]; .reg .b64 p; mov.u64 p, a; st.local.u32 [p+8], %r0;}",
               {"local memory", "8 bytes"});
}
BOOST_AUTO_TEST_CASE(parameter_overrun) {
  expect_fault("ld.param.u32 %r4, [test_out+8];", {"of the 16 bytes of parameters"});
}
BOOST_AUTO_TEST_CASE(constant_write) {
  ptx_run run;
  run.module_scope = ".const .align 4 .u32 c = 1;";
  expect_fault("mov.u64 %x5, c; st.global.u32 [%x5], %r0;", {"write to constant memory"}, 1, run);
}
BOOST_AUTO_TEST_CASE(division_by_zero) {
  expect_fault("div.u32 %r4, 7, %r0;", {"integer division by zero", "lane 0"}, 2);
}
BOOST_AUTO_TEST_CASE(trap) { expect_fault("trap;", {"trap"}); }
BOOST_AUTO_TEST_CASE(divergent_barrier) {
  expect_fault("setp.eq.u32 %p0, %r0, 3; @%p0 bra SKIP; bar.sync 0; SKIP:",
               {"divergent barrier", "lane 3"}, 32);
}
BOOST_AUTO_TEST_CASE(barrier_deadlock) {
  expect_fault("setp.ge.u32 %p0, %r0, 32; @%p0 bra SKIP; bar.sync 1, 64; SKIP:",
               {"deadlock", "barrier 1"}, 64);
}
BOOST_AUTO_TEST_CASE(mbarrier_deadlock) {
  ptx_run run;
  run.module_scope = ".shared .align 8 .b64 bar;";
  expect_fault(
      "mov.u32 %r4, bar; mbarrier.init.shared::cta.b64 [%r4], 2; mbarrier.arrive.shared::cta.b64 "
      "_, [%r4];"
      "W: mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r4], 0; @!%p0 bra W;",
      {"deadlock", "mbarrier"}, 1, run);
  expect_fault("mov.u32 %r4, bar; mbarrier.arrive.shared::cta.b64 _, [%r4];",
               {"no mbarrier is initialised"}, 1, run);
}
BOOST_AUTO_TEST_CASE(endless_loop) {
  ptx_run run;
  run.how.max_warp_instructions_per_cta = 1000;
  expect_fault("L: bra L;", {"no end after"}, 1, run);
}
BOOST_AUTO_TEST_CASE(missing_lanes) {
  expect_fault(
      "setp.eq.u32 %p0, %r0, 3; @%p0 bra SKIP; shfl.sync.idx.b32 %r4, %r0, 0, 31, -1; SKIP:",
      {"member mask", "lane 3"}, 32);
}
BOOST_AUTO_TEST_CASE(unknown_instruction) {
  expect_fault("frobnicate.u32 %r4, %r0;",
               {"module hand_written", "line 16", "unknown instruction 'frobnicate'"});
  expect_fault("add.sparkling.u32 %r4, %r0, %r1;", {"unknown modifier '.sparkling'"});
  expect_fault("sin.approx.f32 %f0, %f1;", {"unknown instruction 'sin'"});
  expect_fault("div.approx.f32 %f0, %f1, %f2;", {"no exact model"});
  expect_fault("mov.u64 %x5, 0; red.global.add.f32 [%x5], %f0;", {"floating-point"});
}
BOOST_AUTO_TEST_CASE(lowest_cta) {
  ptx_run run;
  run.ctas = 40;
  run.how.num_threads = 4;
  expect_fault("setp.ge.u32 %p0, %r31, 17; @%p0 trap;", {"cta (17, 0, 0)"}, 1, run);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::gpu::emulator

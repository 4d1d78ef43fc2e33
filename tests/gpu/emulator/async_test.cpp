// cp.async groups, bulk copies with mbarriers; data that nobody waited for are poison.
#include <boost/test/unit_test.hpp>

#include "tests/gpu/emulator/ptx_fixture.hpp"

namespace kvproof::gpu::emulator {
namespace {
ptx_run with_shared() {
  ptx_run run;
  run.module_scope = ".shared .align 16 .b8 tile[64]; .shared .align 8 .b64 bar;";
  return run;
}
const std::vector<sources> one{{0x1111111122222222, 0x3333333344444444, 0x5555555566666666, 0x77}};
const std::string load_d = "ld.shared.u64 %d0, [%r4]; ld.shared.u64 %d1, [%r4+16];";
const std::string begin = "mov.u32 %r4, tile; ld.param.u64 %x5, [test_in];";
constexpr std::uint64_t poison = 0xcdcdcdcdcdcdcdcd;
}  // namespace

BOOST_AUTO_TEST_SUITE(async)

BOOST_AUTO_TEST_CASE(groups) {
  const std::string copies =
      begin +
      "cp.async.ca.shared.global [%r4], [%x5], 8; cp.async.commit_group;"
      "cp.async.cg.shared.global [%r4+16], [%x5+16], 16; cp.async.commit_group;";
  const auto both = with_shared()(copies + "cp.async.wait_group 0;" + load_d, one);
  BOOST_TEST(both[0][0] == one[0][0]);
  BOOST_TEST(both[0][1] == one[0][2]);
  const auto first = with_shared()(copies + "cp.async.wait_group 1;" + load_d, one);
  BOOST_TEST(first[0][0] == one[0][0]);
  BOOST_TEST(first[0][1] == poison);
}
BOOST_AUTO_TEST_CASE(zero_fill) {
  const auto out = with_shared()(
      begin +
          "mov.u32 %r5, 4; cp.async.ca.shared.global [%r4], [%x5], 8, %r5;"
          "mov.u32 %r5, 0; cp.async.cg.shared.global [%r4+16], [%x5], 16, %r5; cp.async.wait_all;" +
          load_d,
      one);
  BOOST_TEST(out[0][0] == 0x22222222u);
  BOOST_TEST(out[0][1] == 0u);
}
BOOST_AUTO_TEST_CASE(bulk_copy) {
  const std::string copy = begin +
                           "mov.u32 %r6, bar; mbarrier.init.shared::cta.b64 [%r6], 1;"
                           "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 32;"
                           "createpolicy.fractional.L2::evict_first.b64 %x6, 1.0; mov.u32 %r7, 32;"
                           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::"
                           "cache_hint [%r4], [%x5], %r7, [%r6], %x6;";
  const std::string wait =
      "W: mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r6], 0; @!%p0 bra W;";
  const auto waited = with_shared()(copy + wait + load_d, one);
  BOOST_TEST(waited[0][0] == one[0][0]);
  BOOST_TEST(waited[0][1] == one[0][2]);
  const auto early = with_shared()(copy + load_d + wait, one);
  BOOST_TEST(early[0][0] == poison);
}
// 64 threads arrive twice; both phases complete, the second under the other parity.
BOOST_AUTO_TEST_CASE(phases) {
  const std::string code = R"(
mov.u32 %r6, bar; setp.eq.u32 %p1, %r30, 0; @%p1 mbarrier.init.shared::cta.b64 [%r6], 64; bar.sync 0;
mbarrier.arrive.shared::cta.b64 %x6, [%r6];
W0: mbarrier.test_wait.shared::cta.b64 %p0, [%r6], %x6; @!%p0 bra W0;
mbarrier.arrive.shared::cta.b64 _, [%r6];
W1: mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r6], 1; @!%p0 bra W1;
mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r6], 0; selp.u32 %r7, 1, 0, %p2; cvt.u64.u32 %d0, %r7;)";
  for (const warp_order order :
       {warp_order::round_robin, warp_order::random, warp_order::latest_first}) {
    ptx_run run = with_shared();
    run.how.order = order;
    for (const results& r : run(code, std::vector<sources>(64))) BOOST_TEST(r[0] == 0u);
  }
}
BOOST_AUTO_TEST_CASE(bulk_store) {
  const auto out =
      with_shared()(begin +
                        "st.shared.u64 [%r4], %a1; st.shared.u64 [%r4+8], %a2; mov.u32 %r7, 16;"
                        "cp.async.bulk.global.shared::cta.bulk_group [%x5], [%r4], %r7; "
                        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
                        "ld.global.v2.u64 {%d0, %d1}, [%x5];",
                    one);
  BOOST_TEST(out[0][0] == one[0][1]);
  BOOST_TEST(out[0][1] == one[0][2]);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::gpu::emulator

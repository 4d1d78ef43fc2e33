// Divergence, barriers, warp-wide exchange, and independence of order and number of threads.
#include <boost/test/unit_test.hpp>

#include "tests/gpu/emulator/ptx_fixture.hpp"

namespace kvproof::gpu::emulator {
namespace {

std::vector<sources> lanes(std::size_t n) {
  std::vector<sources> in;
  for (std::size_t l = 0; l < n; ++l) in.push_back({l, l * l + 3, 0, 0});
  return in;
}

std::uint64_t collatz_steps(std::uint64_t n) {
  std::uint64_t steps = 0;
  for (; n > 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
  return steps;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(control)

// Every lane leaves the loop at another iteration; all meet again for the vote.
BOOST_AUTO_TEST_CASE(divergent_loop) {
  const auto out = ptx_run{}(R"(
mov.u32 %r4, %r0;
mov.u32 %r5, 0;
LOOP: setp.le.u32 %p0, %r4, 1;
@%p0 bra DONE;
and.b32 %r6, %r4, 1;
setp.eq.u32 %p1, %r6, 0;
@!%p1 bra ODD;
shr.u32 %r4, %r4, 1;
bra.uni NEXT;
ODD: mad.lo.u32 %r4, %r4, 3, 1;
NEXT: add.u32 %r5, %r5, 1;
bra LOOP;
DONE:
activemask.b32 %r7;
cvt.u64.u32 %d0, %r5; cvt.u64.u32 %d1, %r7;)",
                             lanes(32));
  for (std::size_t l = 0; l < 32; ++l) {
    BOOST_TEST(out[l][0] == collatz_steps(l));
    BOOST_TEST(out[l][1] == 0xffffffffu);
  }
}

BOOST_AUTO_TEST_CASE(scoped_labels) {
  const std::string spin =
      "{ .reg .pred p; .reg .b32 n; mov.u32 n, 3; L: sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra "
      "L; add.u32 %r9, %r9, 1; }\n";
  BOOST_TEST(evaluate("mov.u32 %r9, 0;\n" + spin + spin + "cvt.u64.u32 %d0, %r9;", {}) == 2u);
}

BOOST_AUTO_TEST_CASE(shuffles) {
  const auto out = ptx_run{}(R"(
shfl.sync.idx.b32 %r4|%p0, %r1, 5, 31, -1;
shfl.sync.up.b32 %r5|%p1, %r0, 3, 0, -1;
shfl.sync.down.b32 %r6|%p2, %r0, 1, 0x181f, -1;
shfl.sync.bfly.b32 %r7, %r0, 4, 31, -1;
selp.u32 %r8, 1, 0, %p1; selp.u32 %r9, 1, 0, %p2;
shl.b32 %r9, %r9, 1; or.b32 %r8, %r8, %r9;
mov.b64 %d0, {%r4, %r5}; shl.b32 %r6, %r6, 8; or.b32 %r6, %r6, %r7; mov.b64 %d1, {%r6, %r8};)",
                             lanes(32));
  for (std::uint64_t l = 0; l < 32; ++l) {
    BOOST_TEST((out[l][0] & 0xffffffffu) == 28u);
    BOOST_TEST(out[l][0] >> 32 == (l >= 3 ? l - 3 : l));
    BOOST_TEST((out[l][1] >> 8 & 0xff) == (l % 8 == 7 ? l : l + 1));  // segments of eight
    BOOST_TEST((out[l][1] & 0xff) == (l ^ 4));
    BOOST_TEST(out[l][1] >> 32 == (l >= 3 ? 1u : 0u) + (l % 8 != 7 ? 2u : 0u));
  }
}

BOOST_AUTO_TEST_CASE(votes_and_reductions) {
  const auto out = ptx_run{}(R"(
setp.lt.u32 %p0, %r0, 5;
vote.sync.ballot.b32 %r4, %p0, -1;
vote.sync.any.pred %p1, %p0, -1; vote.sync.all.pred %p2, %p0, -1;
selp.u32 %r5, 1, 0, %p1; selp.u32 %r6, 2, 0, %p2; add.u32 %r5, %r5, %r6;
redux.sync.add.u32 %r7, %r0, -1;
and.b32 %r8, %r0, 1; match.any.sync.b32 %r9, %r8, -1;
mov.b64 %d0, {%r4, %r5}; mov.b64 %d1, {%r7, %r9};)",
                             lanes(32));
  for (std::uint64_t l = 0; l < 32; ++l) {
    BOOST_TEST(out[l][0] == 0x10000001fu);
    BOOST_TEST((out[l][1] & 0xffffffffu) == 496u);
    BOOST_TEST(out[l][1] >> 32 == (l % 2 == 0 ? 0x55555555u : 0xaaaaaaaau));
  }
}

// Threads exchange through shared memory; the result is the same under every order of the warps.
BOOST_AUTO_TEST_CASE(barrier_orders) {
  const std::string code = R"(
shl.b32 %r4, %r30, 2; mov.u32 %r5, tile; add.u32 %r6, %r5, %r4;
st.shared.u32 [%r6], %r1;
bar.sync 0;
sub.u32 %r7, 127, %r30; shl.b32 %r7, %r7, 2; add.u32 %r7, %r5, %r7;
ld.shared.u32 %r8, [%r7]; cvt.u64.u32 %d0, %r8;)";
  for (const warp_order order :
       {warp_order::round_robin, warp_order::random, warp_order::latest_first}) {
    ptx_run run;
    run.how.order = order;
    run.how.seed = 42;
    run.module_scope = ".shared .align 4 .b8 tile[512];";
    const auto out = run(code, lanes(128));
    for (std::uint64_t t = 0; t < 128; ++t) BOOST_TEST(out[t][0] == (127 - t) * (127 - t) + 3);
  }
}

// The last CTA to draw a ticket sums what all have stored.
BOOST_AUTO_TEST_CASE(last_arriver) {
  for (const int threads : {1, 4}) {
    ptx_run run;
    run.how.num_threads = threads;
    run.ctas = 37;
    run.module_scope = ".global .align 4 .u32 ticket; .global .align 4 .u32 parts[37];";
    const auto out = run(R"(
add.u32 %r4, %r31, 1; mul.wide.u32 %x5, %r31, 4; mov.u64 %x6, parts; add.s64 %x5, %x5, %x6;
st.global.u32 [%x5], %r4; membar.gl;
mov.u64 %x7, ticket; atom.global.add.u32 %r5, [%x7], 1;
setp.ne.u32 %p0, %r5, 36; @%p0 bra DONE;
mov.u32 %r6, 0; mov.u32 %r7, 0;
SUM: ld.global.cg.u32 %r8, [%x6]; add.u32 %r7, %r7, %r8; add.s64 %x6, %x6, 4; add.u32 %r6, %r6, 1;
setp.lt.u32 %p1, %r6, 37; @%p1 bra SUM;
cvt.u64.u32 %d0, %r7;
DONE:)",
                         lanes(1));
    std::uint64_t sum = 0;
    for (const results& r : out) sum += r[0];
    BOOST_TEST(sum == 37u * 38u / 2u);
  }
}

BOOST_AUTO_TEST_CASE(module_variables) {
  ptx_run run;
  run.module_scope =
      ".const .align 4 .b32 table[4] = {7, 0xffffffff, 9}; .global .align 1 .b8 bytes[3] = {1, 2, "
      "3};";
  const auto out = run(R"(
mov.u64 %x5, table; ld.const.u32 %r4, [table+8]; ld.const.u32 %r5, [%x5+12];
mov.u64 %x6, bytes; ld.global.u8 %r6, [%x6+2]; ld.global.s8 %r7, [%x6];
add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7; cvt.u64.u32 %d0, %r4;)",
                       lanes(1));
  BOOST_TEST(out[0][0] == 13u);
}

// A load extends by the sign of its type to the width of the register; a store cuts.
BOOST_AUTO_TEST_CASE(extending_loads) {
  const std::uint64_t x = 0xfedcba9876543280;
  const auto loaded = [&](const std::string& load) {
    return ptx_run{}("ld.param.u64 %x5, [test_in]; " + load, {{x, 0, 0, 0}})[0];
  };
  const std::string to_d0 = " cvt.u64.u32 %d0, %r4;";
  BOOST_TEST(loaded("ld.global.s8 %r4, [%x5];" + to_d0)[0] == 0xffffff80u);
  BOOST_TEST(loaded("ld.global.u8 %r4, [%x5];" + to_d0)[0] == 0x80u);
  BOOST_TEST(loaded("ld.global.s16 %r4, [%x5+6];" + to_d0)[0] == 0xfffffedcu);
  BOOST_TEST(loaded("ld.global.u16 %r4, [%x5+6];" + to_d0)[0] == 0xfedcu);
  BOOST_TEST(loaded("ld.global.s8 %d0, [%x5];")[0] == 0xffffffffffffff80u);
  BOOST_TEST(loaded("ld.global.s32 %d0, [%x5+4];")[0] == 0xfffffffffedcba98u);
  BOOST_TEST(loaded("ld.global.u32 %d0, [%x5+4];")[0] == 0xfedcba98u);
  const results both = loaded("ld.global.v2.s16 {%d0, %d1}, [%x5+4];");
  BOOST_TEST(both[0] == 0xffffffffffffba98u);
  BOOST_TEST(both[1] == 0xfffffffffffffedcu);
  BOOST_TEST(loaded("st.global.u16 [%x5+2], %a0; st.global.u8 [%x5+7], %r0; "
                    "ld.global.u64 %d0, [%x5];")[0] == 0x80dcba9832803280u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::gpu::emulator

// Launchers refuse every argument outside their contract, by name and before anything is launched,
// and turn good arguments into one launch.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/launch/demote.hpp"
#include "gpu/launch/gather_quantize.hpp"
#include "gpu/launch/launch.hpp"
#include "gpu/launch/score_update.hpp"
#include "gpu/launch/significance.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::gpu {
namespace {

class counted_kernel : public kernel {
 public:
  [[nodiscard]] kernel_facts facts() const override { return {}; }
  [[nodiscard]] int max_ctas_per_multiprocessor(int, int) const override { return 2; }
};

// Launches nothing: keeps what it was asked for.
class recording_device : public device {
 public:
  [[nodiscard]] device_info info() const override {
    return {device_kind::emulator, "recorder", 90, num_multiprocessors, 0, 0, 232448, ""};
  }
  [[nodiscard]] device_ptr allocate(std::int64_t) override { return {}; }
  void deallocate(device_ptr) noexcept override {}
  void copy_to_device(device_ptr, std::span<const std::byte>) override {}
  void copy_to_host(std::span<std::byte>, device_ptr) override {}
  void fill(device_ptr, std::byte, std::int64_t) override {}
  [[nodiscard]] std::shared_ptr<kernel> load(const kernel_module&, std::string_view e) override {
    entry = e;
    return std::make_shared<counted_kernel>();
  }
  [[nodiscard]] std::shared_ptr<stream> create_stream() override { return nullptr; }
  [[nodiscard]] std::shared_ptr<event> create_event() override { return nullptr; }
  void record(event&, stream*) override {}
  [[nodiscard]] double elapsed_us(event&, event&) override { return 0; }
  void launch(kernel&, const launch_shape& s, std::span<const std::byte> p, stream*) override {
    ++launches;
    shape = s;
    params.assign(p.begin(), p.end());
    if (p.size() != sizeof(decode_params)) return;
    decodes.emplace_back();
    std::memcpy(&decodes.back(), p.data(), sizeof(decode_params));
  }
  void synchronize() override { ++synchronizations; }

  int num_multiprocessors = 10;
  int launches = 0, synchronizations = 0;
  std::string entry;
  launch_shape shape;
  std::vector<std::byte> params;
  std::vector<decode_params> decodes;
};

device_ptr at(std::uint64_t address) { return device_ptr{address}; }

decode_args good_decode() {
  decode_args a{};
  a.format = spec::format_id::k8v4;
  a.head_dim = 128;
  a.batch = 2;
  a.kv_heads = 3;
  a.gqa_ratio = 4;
  a.softmax_scale = 0.125f;
  a.max_quantized = 9000;
  a.equal_lengths = true;
  a.q = at(0x1000);
  a.page_table = at(0x2000);
  a.max_pages = 282;
  a.pages = at(0x3000);
  a.num_quantized = at(0x4000);
  a.num_recent = at(0x5000);
  a.recent_k = at(0x6000);
  a.recent_v = at(0x7000);
  a.recent_capacity = 128;
  a.out = at(0x8000);
  a.state = at(0x9000);
  a.scores = at(0xa000);
  a.score_capacity = 9128;
  a.workspace = at(0xb000);
  return a;
}

// 9000 tokens in the high tier and 8200 in the low one: at most 8 splits each.
decode_args good_tiers() {
  decode_args a = good_decode();
  a.max_low = 8200;
  a.num_low = at(0xc000);
  a.score_capacity = 9000 + 8200;
  return a;
}

quantize_args good_quantize() {
  quantize_args a{};
  a.format = spec::format_id::int2_g16;
  a.head_dim = 64;
  a.batch = 2;
  a.kv_heads = 3;
  a.max_new_tokens = 128;
  a.k = at(0x1000);
  a.v = at(0x2000);
  a.stride_batch = 128 * 3 * 64;
  a.stride_token = 3 * 64;
  a.stride_head = 64;
  a.first_token = at(0x3000);
  a.num_new = at(0x4000);
  a.page_table = at(0x5000);
  a.max_pages = 9;
  a.pages = at(0x6000);
  return a;
}

demote_args good_demote() {
  demote_args a{};
  a.head_dim = 128;
  a.batch = 2;
  a.kv_heads = 3;
  a.max_tokens = 130;
  a.tokens = at(0x1004);
  a.num_tokens = at(0x2000);
  a.from_table = at(0x3000);
  a.max_from_pages = 9;
  a.from_pages = at(0x4000);
  a.first_token = at(0x5000);
  a.to_table = at(0x6000);
  a.max_to_pages = 12;
  a.to_pages = at(0x7000);
  a.mode = demote_mode::replace;
  return a;
}

score_update_args good_score_update() {
  score_update_args a{};
  a.batch = 2;
  a.kv_heads = 3;
  a.gqa_ratio = 5;
  a.max_tokens = 1030;
  a.scores = at(0x1010);
  a.score_capacity = 1032;
  a.state = at(0x2008);
  a.num_tokens = at(0x3004);
  a.running = at(0x4010);
  a.running_capacity = 2048;
  return a;
}

// Slices of four sequences and one of the rest.
significance_args good_significance() {
  significance_args a{};
  a.decode = good_decode();
  a.decode.batch = 7;
  a.decode.kv_heads = 20;
  a.decode.scores = at(0x100000);
  a.decode.score_capacity = a.decode.max_quantized + 4096 - a.decode.max_quantized % 4;
  a.slice = 4;
  a.num_tokens = at(0x200000);
  a.max_tokens = a.decode.score_capacity;
  a.running = at(0x300000);
  a.running_capacity = a.max_tokens;
  return a;
}

template <class Args>
struct bad {
  std::string message;  // part of it
  std::function<void(Args&)> spoil;
};

template <class Args>
void check_refused(const Args& good, const std::vector<bad<Args>>& cases,
                   void (*launcher)(device&, const Args&, stream*)) {
  for (const bad<Args>& c : cases) {
    recording_device dev;
    Args a = good;
    c.spoil(a);
    std::string what = "nothing was thrown";
    try {
      launcher(dev, a, nullptr);
    } catch (const spec::contract_error& e) {
      what = e.what();
    }
    BOOST_TEST((what.find(c.message) != std::string::npos),
               "expected \"" << c.message << "\", got \"" << what << '"');
    BOOST_TEST(dev.launches == 0, c.message);
  }
}

BOOST_AUTO_TEST_CASE(decode_refuses) {
  using args = decode_args;
  const float infinity = std::numeric_limits<float>::infinity();
  check_refused<args>(
      good_decode(),
      {
          {"gqa ratio 9 is not supported: 1..8", [](args& a) { a.gqa_ratio = 9; }},
          {"gqa ratio 0 is not supported: 1..8", [](args& a) { a.gqa_ratio = 0; }},
          {"head_dim 96 is not supported: 64 or 128", [](args& a) { a.head_dim = 96; }},
          {"batch is -1", [](args& a) { a.batch = -1; }},
          {"kv_heads is -1", [](args& a) { a.kv_heads = -1; }},
          {"max_quantized is -1", [](args& a) { a.max_quantized = -1; }},
          {"max_pages is 281, must be at least 282", [](args& a) { a.max_pages = 281; }},
          {"recent_capacity is -8", [](args& a) { a.recent_capacity = -8; }},
          {"recent_capacity is 12", [](args& a) { a.recent_capacity = 12; }},
          {"softmax_scale", [](args& a) { a.softmax_scale = 0; }},
          {"softmax_scale", [=](args& a) { a.softmax_scale = infinity; }},
          {"softmax_scale", [=](args& a) { a.softmax_scale = infinity - infinity; }},
          {"q is null", [](args& a) { a.q = {}; }},
          {"q is 0x1002", [](args& a) { a.q = at(0x1002); }},
          {"page_table is null", [](args& a) { a.page_table = {}; }},
          {"page_table is 0x2002", [](args& a) { a.page_table = at(0x2002); }},
          {"pages is null", [](args& a) { a.pages = {}; }},
          {"pages is 0x3040", [](args& a) { a.pages = at(0x3040); }},
          {"num_quantized is null", [](args& a) { a.num_quantized = {}; }},
          {"num_recent is null", [](args& a) { a.num_recent = {}; }},
          {"recent_k is null", [](args& a) { a.recent_k = {}; }},
          {"recent_k is 0x6008", [](args& a) { a.recent_k = at(0x6008); }},
          {"recent_v is null", [](args& a) { a.recent_v = {}; }},
          {"out is null", [](args& a) { a.out = {}; }},
          {"state is null", [](args& a) { a.state = {}; }},
          {"state is 0x9004", [](args& a) { a.state = at(0x9004); }},
          {"scores is 0xa004", [](args& a) { a.scores = at(0xa004); }},
          {"score_capacity is 8999", [](args& a) { a.score_capacity = 8999; }},
          {"workspace is null", [](args& a) { a.workspace = {}; }},
          {"workspace is 0xb010", [](args& a) { a.workspace = at(0xb010); }},
          {"exceeds 2^31 - 1",
           [](args& a) {
             a.batch = 1 << 20;
             a.max_quantized = std::numeric_limits<int>::max();
             a.max_pages = std::numeric_limits<int>::max();
             a.score_capacity = std::numeric_limits<std::int64_t>::max();
           }},
      },
      decode);
}

BOOST_AUTO_TEST_CASE(decode_of_two_tiers_refuses) {
  using args = decode_args;
  check_refused<args>(
      good_tiers(),
      {
          {"num_low is given with format k4v2", [](args& a) { a.format = spec::format_id::k4v2; }},
          {"num_low is given with format int2_g16",
           [](args& a) { a.format = spec::format_id::int2_g16; }},
          {"max_low is -1", [](args& a) { a.max_low = -1; }},
          {"num_low is 0xc002", [](args& a) { a.num_low = at(0xc002); }},
          {"max_pages is 281, must be at least 282", [](args& a) { a.max_pages = 281; }},
          {"max_pages is 282, must be at least 283", [](args& a) { a.max_low = 282 * 64 + 1; }},
          {"score_capacity is 17199, must be at least 17200",
           [](args& a) { a.score_capacity = 17199; }},
          {"scores is 0xa004", [](args& a) { a.scores = at(0xa004); }},
          {"exceeds 2^31 - 1",
           [](args& a) {  // each tier alone has room
             a.batch = 1 << 18;
             a.max_quantized = a.max_low = 2048 * 1400;
             a.max_pages = std::numeric_limits<int>::max();
             a.score_capacity = std::numeric_limits<std::int64_t>::max();
           }},
      },
      decode);
}

BOOST_AUTO_TEST_CASE(max_low_without_num_low_means_nothing) {
  recording_device dev;
  decode_args a = good_decode();
  a.max_low = -1;
  decode(dev, a);
  BOOST_TEST(dev.launches == 1);
}

BOOST_AUTO_TEST_CASE(quantize_refuses) {
  using args = quantize_args;
  check_refused<args>(
      good_quantize(),
      {
          {"head_dim 32 is not supported", [](args& a) { a.head_dim = 32; }},
          {"batch is -1", [](args& a) { a.batch = -1; }},
          {"kv_heads is -1", [](args& a) { a.kv_heads = -1; }},
          {"max_new_tokens is -1", [](args& a) { a.max_new_tokens = -1; }},
          {"max_pages is 0", [](args& a) { a.max_pages = 0; }},
          {"k is null", [](args& a) { a.k = {}; }},
          {"k is 0x1008", [](args& a) { a.k = at(0x1008); }},
          {"v is null", [](args& a) { a.v = {}; }},
          {"v is 0x2008", [](args& a) { a.v = at(0x2008); }},
          {"stride", [](args& a) { a.stride_batch += 4; }},
          {"stride", [](args& a) { a.stride_token += 4; }},
          {"stride", [](args& a) { a.stride_head += 4; }},
          {"stride", [](args& a) { a.stride_token = -192; }},
          {"first_token is null", [](args& a) { a.first_token = {}; }},
          {"num_new is null", [](args& a) { a.num_new = {}; }},
          {"page_table is null", [](args& a) { a.page_table = {}; }},
          {"pages is null", [](args& a) { a.pages = {}; }},
          {"pages is 0x6040", [](args& a) { a.pages = at(0x6040); }},
          {"pages of max_new_tokens is 65536, must be at most 65535",
           [](args& a) {
             a.max_new_tokens = 64 * 65535;
             a.max_pages = 70000;
           }},
          {"batch is 65536, must be at most 65535", [](args& a) { a.batch = 65536; }},
      },
      quantize);
}

BOOST_AUTO_TEST_CASE(gather_quantize_refuses) {
  using args = gather_quantize_args;
  check_refused<args>(
      {good_quantize(), at(0x7000), 128},
      {
          {"gather_quantize: head_dim 32 is not supported",
           [](args& a) { a.append.head_dim = 32; }},
          {"v is null", [](args& a) { a.append.v = {}; }},
          {"selected is null", [](args& a) { a.selected = {}; }},
          {"selected is 0x7002", [](args& a) { a.selected = at(0x7002); }},
          {"max_selected is 127, must be at least 128", [](args& a) { a.max_selected = 127; }},
      },
      gather_quantize);
}

BOOST_AUTO_TEST_CASE(demote_refuses) {
  using args = demote_args;
  check_refused<args>(good_demote(),
                      {
                          {"demote: head_dim 32", [](args& a) { a.head_dim = 32; }},
                          {"batch is -1", [](args& a) { a.batch = -1; }},
                          {"kv_heads is -1", [](args& a) { a.kv_heads = -1; }},
                          {"max_tokens is -1", [](args& a) { a.max_tokens = -1; }},
                          {"max_from_pages is 0", [](args& a) { a.max_from_pages = 0; }},
                          {"max_to_pages is 0", [](args& a) { a.max_to_pages = 0; }},
                          {"tokens is null", [](args& a) { a.tokens = {}; }},
                          {"tokens is 0x1006", [](args& a) { a.tokens = at(0x1006); }},
                          {"num_tokens is null", [](args& a) { a.num_tokens = {}; }},
                          {"from_table is null", [](args& a) { a.from_table = {}; }},
                          {"from_pages is null", [](args& a) { a.from_pages = {}; }},
                          {"from_pages is 0x4040", [](args& a) { a.from_pages = at(0x4040); }},
                          {"first_token is null", [](args& a) { a.first_token = {}; }},
                          {"to_table is null", [](args& a) { a.to_table = {}; }},
                          {"to_pages is null", [](args& a) { a.to_pages = {}; }},
                          {"to_pages is 0x7010", [](args& a) { a.to_pages = at(0x7010); }},
                          {"pages of max_tokens is 65537, must be at most 65535",
                           [](args& a) {
                             a.max_tokens = 64 * 65536;
                             a.max_to_pages = 70000;
                           }},
                      },
                      demote);
}

BOOST_AUTO_TEST_CASE(score_update_refuses) {
  using args = score_update_args;
  check_refused<args>(
      good_score_update(),
      {
          {"score_update: gqa ratio 9", [](args& a) { a.gqa_ratio = 9; }},
          {"batch is -1", [](args& a) { a.batch = -1; }},
          {"batch is 65536, must be at most 65535", [](args& a) { a.batch = 65536; }},
          {"kv_heads is -1", [](args& a) { a.kv_heads = -1; }},
          {"max_tokens is -1", [](args& a) { a.max_tokens = -1; }},
          {"score_capacity is 1028, must be at least 1030",
           [](args& a) { a.score_capacity = 1028; }},
          {"score_capacity is 1034", [](args& a) { a.score_capacity = 1034; }},
          {"running_capacity is 1028", [](args& a) { a.running_capacity = 1028; }},
          {"running_capacity is 1031", [](args& a) { a.running_capacity = 1031; }},
          {"scores is null", [](args& a) { a.scores = {}; }},
          {"scores is 0x1008", [](args& a) { a.scores = at(0x1008); }},
          {"state is 0x2004", [](args& a) { a.state = at(0x2004); }},
          {"num_tokens is null", [](args& a) { a.num_tokens = {}; }},
          {"running is 0x4008", [](args& a) { a.running = at(0x4008); }},
      },
      score_update);
}

BOOST_AUTO_TEST_CASE(significance_refuses) {
  using args = significance_args;
  check_refused<args>(
      good_significance(),
      {
          {"decode_with_significance: slice is 0", [](args& a) { a.slice = 0; }},
          {"batch is -1", [](args& a) { a.decode.batch = -1; }},
          {"scores is null", [](args& a) { a.decode.scores = {}; }},
          {"num_tokens is null", [](args& a) { a.num_tokens = {}; }},
          {"running is 0x300008", [](args& a) { a.running = at(0x300008); }},
          {"max_tokens is 0", [](args& a) { a.max_tokens = 0; }},
          {"score_capacity is ", [](args& a) { a.decode.score_capacity -= 4; }},
          {"score_capacity is ", [](args& a) { a.decode.score_capacity += 2; }},
          {"running_capacity is ", [](args& a) { a.running_capacity -= 4; }},
          {"running_capacity is ", [](args& a) { a.running_capacity += 1; }},
          {"decode: head_dim 32", [](args& a) { a.decode.head_dim = 32; }},
          {"num_low is 0xc002", [](args& a) { a.decode.num_low = at(0xc002); }},
          // Limits of the score update, which comes behind a launch of decode.
          {"kv_heads is 65536, must be at most 65535", [](args& a) { a.decode.kv_heads = 65536; }},
          {"max_tokens is 2147483648, must be at most 2147483647",
           [](args& a) {
             a.max_tokens = 2147483648;
             a.decode.score_capacity = a.running_capacity = a.max_tokens;
           }},
      },
      decode_with_significance);
}

BOOST_AUTO_TEST_CASE(slices_take_the_batch_apart) {
  recording_device dev;
  const significance_args a = good_significance();
  decode_with_significance(dev, a);
  BOOST_TEST(dev.launches == 4);  // of the slices 0..3 and 4..6, decode and score update each
  BOOST_TEST(dev.shape.grid.y == 20u);
  BOOST_TEST(dev.shape.grid.z == 3u);
  score_update_params u{};
  BOOST_REQUIRE(dev.params.size() == sizeof u);
  std::memcpy(&u, dev.params.data(), sizeof u);
  const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  BOOST_TEST(address(u.scores) == 0x100000u);
  BOOST_TEST(address(u.num_tokens) == 0x200000u + 4 * 20 * 4);
  BOOST_TEST(address(u.running) ==
             0x300000u + static_cast<std::uintptr_t>(4 * 20 * a.running_capacity * 4));
  BOOST_TEST(address(u.state) == static_cast<std::uintptr_t>(a.decode.state) +
                                     4u * 20u * static_cast<unsigned>(a.decode.gqa_ratio) * 8u);
}

BOOST_AUTO_TEST_CASE(slices_of_two_tiers_take_their_lengths) {
  recording_device dev;
  significance_args a = good_significance();
  a.decode.num_low = at(0x400000);
  a.decode.max_low = 4096;
  a.decode.score_capacity = a.max_tokens = a.running_capacity = 16384;
  decode_with_significance(dev, a);
  BOOST_TEST(dev.launches == 4);
  BOOST_REQUIRE(dev.decodes.size() == 2u);
  const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  BOOST_TEST(address(dev.decodes[0].num_low) == 0x400000u);
  BOOST_TEST(address(dev.decodes[1].num_low) == 0x400000u + 4 * 20 * 4);
  BOOST_TEST(address(dev.decodes[1].num_quantized) == 0x4000u + 4 * 20 * 4);
  BOOST_TEST(address(dev.decodes[1].page_table) == 0x2000u + 4u * 20 * 282 * 4);
}

BOOST_AUTO_TEST_CASE(nothing_to_do_launches_nothing) {
  recording_device dev;
  decode_args d = good_decode();
  d.batch = 0;
  decode(dev, d);
  d = good_decode();
  d.kv_heads = 0;
  decode(dev, d);
  quantize_args q = good_quantize();
  q.max_new_tokens = 0;
  quantize(dev, q);
  q = good_quantize();
  q.batch = 0;
  quantize(dev, q);
  q = good_quantize();
  q.kv_heads = 0;
  quantize(dev, q);
  gather_quantize(dev, {q, {}, 0});
  demote_args m = good_demote();
  m.max_tokens = 0;
  demote(dev, m);
  score_update_args u = good_score_update();
  u.max_tokens = 0;
  score_update(dev, u);
  significance_args g = good_significance();
  g.decode.batch = 0;
  decode_with_significance(dev, g);
  BOOST_TEST(dev.launches == 0);
}

BOOST_AUTO_TEST_CASE(workspace_holds_tickets_and_partials) {
  const decode_args a = good_decode();
  // 8192 tokens are 8 splits of 1024, more than the 5 of 9000 tokens; the recent part is one more.
  const std::int64_t partials = std::int64_t{2} * 3 * (8 + 1) * 4 * (128 + 2) * 4;
  BOOST_TEST(decode_workspace_bytes(a) == 256 + partials);
  // 8200 tokens are 5 splits, but a head of 8192 has 8.
  BOOST_TEST(decode_workspace_bytes(good_tiers()) == 256 + partials / 9 * (8 + 8 + 1));
  decode_args short_low = good_tiers();
  short_low.max_low = 1025;
  BOOST_TEST(decode_workspace_bytes(short_low) == 256 + partials / 9 * (8 + 2 + 1));
  short_low.max_low = 0;
  BOOST_TEST(decode_workspace_bytes(short_low) == 256 + partials);
}

BOOST_AUTO_TEST_CASE(good_arguments_launch_once) {
  if (kernel_entries().empty()) return;
  recording_device dev;
  const decode_args a = good_decode();
  decode(dev, a);
  BOOST_TEST(dev.launches == 1);
  BOOST_TEST(dev.synchronizations == 0);
  BOOST_TEST(dev.entry == "decode_k8v4_d128_g4_kernel");
  BOOST_TEST(dev.shape.block.x == 128u);
  BOOST_TEST(dev.shape.grid.x == 18u);  // 20 fit, 54 splits: 3 each
  decode_params p{};
  BOOST_REQUIRE(dev.params.size() == sizeof p);
  std::memcpy(&p, dev.params.data(), sizeof p);
  BOOST_TEST(p.max_splits == 9);
  BOOST_TEST(p.balance == 0);

  decode_args mixed = good_decode();
  mixed.equal_lengths = false;
  decode(dev, mixed);
  std::memcpy(&p, dev.params.data(), sizeof p);
  BOOST_TEST(dev.shape.grid.x == 20u);  // all that fit: pages are shared, not splits
  BOOST_TEST(p.balance == 1);
  BOOST_TEST(p.work_items == 54);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(p.tickets) == 0xb000u);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(p.partials) == 0xb100u);
  BOOST_TEST(p.c == static_cast<float>(0.125 * 1.4426950408889634));

  dev.num_multiprocessors = 132;  // more CTAs than work: one a work item
  decode(dev, a);
  BOOST_TEST(dev.shape.grid.x == 54u);
  dev.num_multiprocessors = 3;  // a head for every CTA that fits: one CTA a head
  decode(dev, a);
  BOOST_TEST(dev.shape.grid.x == 6u);

  const decode_args tiers = good_tiers();
  recording_device other;
  decode(other, tiers);
  BOOST_TEST(other.launches == 1);
  BOOST_TEST(other.entry == "decode_tiers_d128_g4_kernel");
  BOOST_REQUIRE(other.decodes.size() == 1u);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(other.decodes[0].num_low) == 0xc000u);
  BOOST_TEST(other.decodes[0].max_splits == 17);
  BOOST_TEST(other.decodes[0].work_items == 6 * 17);
  BOOST_TEST(other.decodes[0].max_pages == 282);

  quantize(dev, good_quantize());
  BOOST_TEST(dev.launches == 5);
  BOOST_TEST(dev.entry == "quantize_int2_g16_d64_kernel");
  BOOST_TEST(dev.shape.grid.x == 3u);
  BOOST_TEST(dev.shape.grid.z == 2u);
  BOOST_TEST(dev.shape.grid.y == 3u);  // 128 tokens that start inside a page touch three
  BOOST_TEST(dev.shape.block.x == 128u);

  gather_quantize_args g{good_quantize(), at(0x7000), 130};
  g.append.head_dim = 128;
  gather_quantize(dev, g);
  BOOST_TEST(dev.launches == 6);
  BOOST_TEST(dev.synchronizations == 0);
  BOOST_TEST(dev.entry == "gather_quantize_int2_g16_d128_kernel");
  BOOST_TEST(dev.shape.block.x == 256u);
  quantize_params q{};
  BOOST_REQUIRE(dev.params.size() == sizeof q);
  std::memcpy(&q, dev.params.data(), sizeof q);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(q.selected) == 0x7000u);
  BOOST_TEST(q.max_selected == 130);

  demote(dev, good_demote());
  BOOST_TEST(dev.launches == 7);
  BOOST_TEST(dev.entry == "demote_k8v4_d128_kernel");
  BOOST_TEST(dev.shape.grid.x == 3u);
  BOOST_TEST(dev.shape.grid.z == 2u);
  BOOST_TEST(dev.shape.grid.y == 4u);  // 130 tokens that start inside a page touch four
  BOOST_TEST(dev.shape.block.x == 128u);
  demote_params d{};
  BOOST_REQUIRE(dev.params.size() == sizeof d);
  std::memcpy(&d, dev.params.data(), sizeof d);
  BOOST_TEST(d.replace == 1);
  BOOST_TEST(d.max_tokens == 130);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(d.to_pages) == 0x7000u);
}

}  // namespace
}  // namespace kvproof::gpu

// The numbers of trace_info against a trace small enough to be worked by hand.
#include "traces/trace_info.hpp"

#include <cmath>

#include "traces/half.hpp"
#include "traces/trace_fixture.hpp"

namespace kvproof::traces::test {

namespace {

std::vector<half_bits> halves(std::initializer_list<double> values) {
  std::vector<half_bits> bits;
  for (const double x : values) bits.push_back(finite_half(x));
  return bits;
}

// Two tokens, two query heads, two KV heads, four channels.
attention_trace hand_trace() {
  attention_trace trace;
  trace.model = {.name = "hand",
                 .num_layers = 4,
                 .query_heads = 2,
                 .kv_heads = 2,
                 .head_dim = 4,
                 .rope_theta = 10000,
                 .softmax_scale = 0.5};
  trace.num_tokens = 2;
  trace.prompt_length = 1;
  trace.token_ids = {7, 8};
  trace.layers = {
      {.layer = 3,
       .q = halves({0, 1, 2, 3, 4, 5, 6, 7, -9, 1, 1, 1, 1, 1, 1, 1}),
       .k = halves({1, -2, 0.5, 8, 0, 0, 0, 4, -3, 1, 0.25, -4, 0, 0, 0, 1}),
       .v = halves({-1, -1, -1, -1, -2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -0.5})}};
  trace.provenance = "by hand\x1b[31m\nsecond line";
  trace.license = "CC0-1.0";
  return trace;
}

void check_outlier(const outlier_channel& c, int kv_head, int channel, double peak, double ratio) {
  BOOST_TEST(c.kv_head == kv_head);
  BOOST_TEST(c.channel == channel);
  BOOST_TEST(c.peak == peak);
  BOOST_TEST(c.ratio == ratio);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_information)

BOOST_AUTO_TEST_CASE(hand_computed) {
  const trace_info info = compute_trace_info(hand_trace(), 212);
  BOOST_TEST(info.data_bytes == 2 * 4 + 3 * 16 * 2);
  BOOST_TEST(info.file_bytes == 212);
  BOOST_REQUIRE(info.layers.size() == 1);
  const layer_info& layer = info.layers[0];
  BOOST_TEST(layer.layer == 3);
  BOOST_TEST(layer.q.min == -9);
  BOOST_TEST(layer.q.max == 7);
  BOOST_TEST(layer.q.absmax == 9);
  BOOST_TEST(layer.k.min == -4);
  BOOST_TEST(layer.k.max == 8);
  BOOST_TEST(layer.k.absmax == 8);
  BOOST_TEST(layer.v.min == -2);
  BOOST_TEST(layer.v.max == -0.5);
  BOOST_TEST(layer.v.absmax == 2);
  // Peaks of KV head 0: 3, 2, 0.5, 8; median 2.5. Of KV head 1: 0, 0, 0, 4; median 0.
  BOOST_REQUIRE(layer.top_outliers.size() == max_outliers);
  check_outlier(layer.top_outliers[0], 1, 3, 4, HUGE_VAL);
  check_outlier(layer.top_outliers[1], 0, 3, 8, 8 / 2.5);
  check_outlier(layer.top_outliers[2], 0, 0, 3, 3 / 2.5);
  check_outlier(layer.top_outliers[3], 0, 1, 2, 2 / 2.5);
  check_outlier(layer.top_outliers[4], 0, 2, 0.5, 0.5 / 2.5);
  BOOST_REQUIRE(layer.head_outliers.size() == 2);
  check_outlier(layer.head_outliers[0], 0, 3, 8, 8 / 2.5);
  check_outlier(layer.head_outliers[1], 1, 3, 4, HUGE_VAL);
}

BOOST_AUTO_TEST_CASE(no_tokens) {
  const trace_info info = compute_trace_info(small_trace({0, 2, 1, 6}), 0);
  BOOST_TEST(info.data_bytes == 0);
  BOOST_TEST(info.layers[0].k.absmax == 0);
  BOOST_TEST(info.layers[0].top_outliers[0].ratio == 0);
  BOOST_TEST(format_trace_info(info).find("tokens      0 (0 prompt, 0 generated)") !=
             std::string::npos);
  BOOST_TEST(trace_info_json(info)["compression"] == 0);
}

BOOST_AUTO_TEST_CASE(as_text) {
  const std::string text = format_trace_info(compute_trace_info(hand_trace(), 212));
  for (const std::string_view line :
       {"model       hand, 4 layers\n", "heads       2 query, 2 kv, head_dim 4\n",
        "tokens      2 (1 prompt, 1 generated)\n", "q           float16 [2][2][4] a layer\n",
        "104 bytes of data in 212 bytes of file, compression 0.491\n", "license     CC0-1.0\n",
        "provenance  by hand [31m second line\n", "ratio = peak / median", "\nlayer 3\n",
        "  q  min     -9.0000  max      7.0000  absmax      9.0000\n",
        "  k  kv head   0  channel    3  peak      8.0000  ratio     3.20\n"}) {
    BOOST_TEST(text.find(line) != std::string::npos, "no '" << line << "' in:\n" << text);
  }
  BOOST_TEST(text.back() != '\n');
}

BOOST_AUTO_TEST_CASE(as_json) {
  const nlohmann::json json = trace_info_json(compute_trace_info(hand_trace(), 212));
  BOOST_TEST(json["model"]["head_dim"] == 4);
  BOOST_TEST(json["provenance"] == hand_trace().provenance);
  BOOST_TEST(json["layers"][0]["q"]["min"] == -9);
  BOOST_TEST(json["layers"][0]["k_outliers"][0]["ratio"].is_null());
  BOOST_TEST(json["layers"][0]["k_outliers"][1]["ratio"] == 3.2);
  BOOST_TEST(nlohmann::json::parse(json.dump()) == json);
}

// Recorded, not synthetic: SmolLM2 has outlier channels among its slow pairs.
BOOST_AUTO_TEST_CASE(shipped_trace) {
  const trace_info info =
      compute_trace_info(read_attention_trace("traces/data/smollm2-135m-instruct.h5"), 4203324);
  for (const layer_info& layer : info.layers) {
    BOOST_TEST_CONTEXT("layer " << layer.layer) {
      BOOST_TEST(layer.top_outliers[0].ratio > (layer.layer == 0 ? 2.5 : 4.0));
      BOOST_TEST(layer.top_outliers[0].ratio < 7);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::traces::test

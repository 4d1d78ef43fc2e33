// Synthetic traces: the same bits always, and the features they promise.
#include "traces/synthetic_trace.hpp"

#include <omp.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "traces/half.hpp"
#include "traces/trace_fixture.hpp"
#include "traces/trace_info.hpp"

namespace kvproof::traces::test {

namespace {

synthetic_options options_of(const char* model, std::int64_t prompt = 300,
                             std::int64_t generated = 20) {
  synthetic_options options;
  options.model = model_preset(model);
  options.prompt_length = prompt;
  options.generated = generated;
  return options;
}

std::uint64_t hash_of(const attention_trace& trace) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over 16-bit units
  const auto add = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const std::int32_t id : trace.token_ids) add(static_cast<std::uint64_t>(id));
  for (const layer_trace& layer : trace.layers) {
    for (const auto* tensor : {&layer.q, &layer.k, &layer.v}) {
      for (const half_bits bits : *tensor) add(bits);
    }
  }
  return hash;
}

double at(const std::vector<half_bits>& tensor, std::int64_t row, int head_dim, int channel) {
  return half_to_double(tensor[static_cast<std::size_t>(row * head_dim + channel)]);
}

// Share of the attention of `query` (a token) of one head that falls on token 0.
double mass_of_sink(const attention_trace& trace, const layer_trace& layer, std::int64_t query,
                    int head) {
  const model_facts& m = trace.model;
  const int kv_head = head / (m.query_heads / m.kv_heads);
  double first = 0;
  double total = 0;
  for (std::int64_t t = 0; t <= query; ++t) {
    double logit = 0;
    for (int c = 0; c < m.head_dim; ++c) {
      logit += at(layer.q, query * m.query_heads + head, m.head_dim, c) *
               at(layer.k, t * m.kv_heads + kv_head, m.head_dim, c);
    }
    const double mass = std::exp(logit * m.softmax_scale);
    total += mass;
    if (t == 0) first = mass;
  }
  return first / total;
}

double mean_mass_of_sink(const attention_trace& trace) {
  double sum = 0;
  int count = 0;
  for (const layer_trace& layer : trace.layers) {
    for (std::int64_t query = trace.num_tokens - 100; query < trace.num_tokens; query += 7) {
      for (int head = 0; head < trace.model.query_heads; ++head, ++count) {
        sum += mass_of_sink(trace, layer, query, head);
      }
    }
  }
  return sum / count;
}

bool starts_with(const std::vector<half_bits>& whole, const std::vector<half_bits>& part) {
  return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(synthetic)

BOOST_AUTO_TEST_CASE(shapes_of_presets) {
  struct preset {
    const char* name;
    int num_layers, query_heads, kv_heads, head_dim;
    double rope_theta;
  };
  const std::vector<preset> presets = {{"llama2-7b", 32, 32, 32, 128, 1e4},
                                       {"llama3-8b", 32, 32, 8, 128, 5e5},
                                       {"qwen2.5-7b", 28, 28, 4, 128, 1e6},
                                       {"smollm2-135m", 30, 9, 3, 64, 1e5}};
  BOOST_TEST(model_preset_names().size() == presets.size());
  for (std::size_t i = 0; i < presets.size(); ++i) {
    const model_facts m = model_preset(presets[i].name);
    BOOST_TEST(model_preset_names()[i] == presets[i].name);
    BOOST_TEST(m.name == presets[i].name);
    BOOST_TEST(m.num_layers == presets[i].num_layers);
    BOOST_TEST(m.query_heads == presets[i].query_heads);
    BOOST_TEST(m.kv_heads == presets[i].kv_heads);
    BOOST_TEST(m.head_dim == presets[i].head_dim);
    BOOST_TEST(m.rope_theta == presets[i].rope_theta);
    BOOST_TEST(m.softmax_scale * m.softmax_scale * m.head_dim == 1.0,
               boost::test_tools::tolerance(1e-15));
  }
  check_throws<spec::usage_error>([] { (void)model_preset("gpt-2"); }, {"gpt-2", "llama3-8b"});
}

BOOST_AUTO_TEST_CASE(bits_are_pinned) {
  BOOST_TEST(hash_of(synthesize_trace(options_of("smollm2-135m"))) == 0xde7bd87a5922b9deull);
  synthetic_options other = options_of("llama3-8b", 33, 4);
  other.seed = 0xfedcba9876543210;
  BOOST_TEST(hash_of(synthesize_trace(other)) == 0x1a4e429af3969022ull);
}

BOOST_AUTO_TEST_CASE(any_number_of_threads) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const attention_trace one = synthesize_trace(options_of("smollm2-135m"));
  omp_set_num_threads(3);
  BOOST_TEST(same_trace(synthesize_trace(options_of("smollm2-135m")), one));
  omp_set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(longer_trace_starts_with_the_shorter) {
  const attention_trace shorter = synthesize_trace(options_of("smollm2-135m", 40, 3));
  const attention_trace longer = synthesize_trace(options_of("smollm2-135m", 70, 0));
  for (std::size_t i = 0; i < shorter.layers.size(); ++i) {
    BOOST_TEST(starts_with(longer.layers[i].q, shorter.layers[i].q));
    BOOST_TEST(starts_with(longer.layers[i].k, shorter.layers[i].k));
    BOOST_TEST(starts_with(longer.layers[i].v, shorter.layers[i].v));
  }
}

BOOST_AUTO_TEST_CASE(seed_and_layer_change_everything) {
  synthetic_options options = options_of("smollm2-135m", 20, 0);
  const attention_trace a = synthesize_trace(options);
  options.seed = 2;
  const attention_trace b = synthesize_trace(options);
  const auto share_of_equal = [](const auto& x, const auto& y) {
    double equal = 0;
    for (std::size_t i = 0; i < x.size(); ++i) equal += x[i] == y[i] ? 1 : 0;
    return equal / static_cast<double>(x.size());
  };
  for (const auto tensor : {&layer_trace::q, &layer_trace::k, &layer_trace::v}) {
    BOOST_TEST(share_of_equal(a.layers[0].*tensor, b.layers[0].*tensor) < 0.01);
    BOOST_TEST(share_of_equal(a.layers[0].*tensor, a.layers[1].*tensor) < 0.01);
  }
  BOOST_TEST(share_of_equal(a.layers[0].k, a.layers[0].v) < 0.01);
}

BOOST_AUTO_TEST_CASE(layers_spread_over_depth) {
  synthetic_options options = options_of("smollm2-135m", 1, 0);
  const auto layers = [&](int count) {
    options.layers = count;
    std::vector<int> out;
    for (const layer_trace& layer : synthesize_trace(options).layers) out.push_back(layer.layer);
    return out;
  };
  BOOST_TEST(layers(1) == std::vector<int>{0});
  BOOST_TEST(layers(2) == (std::vector<int>{0, 29}));
  BOOST_TEST(layers(4) == (std::vector<int>{0, 9, 19, 29}));
  std::vector<int> all(30);
  std::iota(all.begin(), all.end(), 0);
  BOOST_TEST(layers(30) == all);
}

BOOST_AUTO_TEST_CASE(every_preset_can_be_written) {
  const scratch_folder folder;
  for (const std::string_view name : model_preset_names()) {
    synthetic_options options = options_of("smollm2-135m", 9, 2);
    options.model = model_preset(name);
    const attention_trace trace = synthesize_trace(options);
    BOOST_TEST(trace.num_tokens == 11);
    BOOST_TEST(trace.prompt_length == 9);
    write_attention_trace(folder / "a.h5", trace);
    BOOST_TEST(same_trace(read_attention_trace(folder / "a.h5"), trace));
  }
}

// Extreme shapes and scales stay finite: the writer checks every element.
BOOST_AUTO_TEST_CASE(extreme_options_are_finite) {
  const scratch_folder folder;
  for (const int head_dim : {2, 4, 6, 30, 256}) {
    for (const double scale : {1e-300, 1.0, 1e300}) {
      synthetic_options options = options_of("smollm2-135m", head_dim == 6 ? 0 : 5, 0);
      options.model.head_dim = head_dim;
      options.model.softmax_scale = scale;
      options.model.rope_theta = head_dim == 30 ? 1.0 : 1e30;
      write_attention_trace(folder / "a.h5", synthesize_trace(options));
    }
  }
}

BOOST_AUTO_TEST_CASE(refuses_impossible_options) {
  const auto check = [](const char* word, const std::function<void(synthetic_options&)>& spoil) {
    synthetic_options options = options_of("smollm2-135m", 1, 1);
    spoil(options);
    check_throws<spec::usage_error>([&] { (void)synthesize_trace(options); }, {word});
  };
  check("head_dim = 63", [](auto& o) { o.model.head_dim = 63; });
  check("multiple of kv_heads", [](auto& o) { o.model.kv_heads = 2; });
  check("0 recorded layers", [](auto& o) { o.layers = 0; });
  check("31 recorded layers of 30", [](auto& o) { o.layers = 31; });
  check("-1 prompt", [](auto& o) { o.prompt_length = -1; });
  check("-1 generated", [](auto& o) { o.generated = -1; });
  check("generated tokens are not", [](auto& o) { o.generated = 1LL << 62; });
  check("rope_theta = 0.5", [](auto& o) { o.model.rope_theta = 0.5; });
}

// Rotating back by the angles of theta gives the same vectors whatever theta was. A rotated
// channel is off by half a spacing of fp16, at most 2^-11 of the pair's length.
BOOST_AUTO_TEST_CASE(rope_by_theta) {
  synthetic_options options = options_of("smollm2-135m", 100, 0);
  const auto unrotated = [&options](double theta) {
    options.model.rope_theta = theta;
    const attention_trace trace = synthesize_trace(options);
    std::vector<double> out;
    const int head_dim = options.model.head_dim;
    for (const auto tensor : {&layer_trace::q, &layer_trace::k}) {
      const int heads =
          tensor == &layer_trace::q ? options.model.query_heads : options.model.kv_heads;
      for (std::int64_t row = 0; row < 100 * heads; ++row) {
        for (int c = 0; c < head_dim; c += 2) {
          const double even = at(trace.layers[1].*tensor, row, head_dim, c);
          const double odd = at(trace.layers[1].*tensor, row, head_dim, c + 1);
          const double angle = static_cast<double>(row / heads) *
                               std::pow(theta, -static_cast<double>(c) / head_dim);
          out.push_back(even * std::cos(angle) + odd * std::sin(angle));
          out.push_back(odd * std::cos(angle) - even * std::sin(angle));
        }
      }
    }
    return out;
  };
  const std::vector<double> a = unrotated(1e4);
  const std::vector<double> b = unrotated(1e6);
  int num_wrong = 0;
  for (std::size_t i = 0; i < a.size(); i += 2) {
    const double length = std::hypot(a[i], a[i + 1]);
    const double off = std::hypot(a[i] - b[i], a[i + 1] - b[i + 1]);
    // Two traces, two channels each.
    if (!(off <= 2 * std::sqrt(2.0) * 0x1p-11 * length + 0x1p-20)) ++num_wrong;
  }
  BOOST_TEST(num_wrong == 0);
}

BOOST_AUTO_TEST_CASE(first_token_draws_attention) {
  for (const std::string_view name : model_preset_names()) {
    synthetic_options options = options_of("smollm2-135m");
    options.model = model_preset(name);
    options.layers = 1;
    const double mass = mean_mass_of_sink(synthesize_trace(options));
    BOOST_TEST(mass > 0.2, name << ": token 0 draws " << mass);
    BOOST_TEST(mass < 0.95, name << ": token 0 draws " << mass);
  }
}

// Real K caches have a few channels of several times the usual magnitude, among the slow pairs.
BOOST_AUTO_TEST_CASE(outlier_channels_are_slow) {
  for (const std::string_view name : model_preset_names()) {
    synthetic_options options = options_of("smollm2-135m");
    options.model = model_preset(name);
    const trace_info info = compute_trace_info(synthesize_trace(options), 0);
    for (const layer_info& layer : info.layers) {
      for (const outlier_channel& c : layer.head_outliers) {
        BOOST_TEST(c.ratio > 4);
        BOOST_TEST(c.ratio < 9);
        BOOST_TEST(c.channel >= options.model.head_dim / 2);
      }
    }
  }
}

// The body of the noise ends at 2 sqrt(3); one value in 64 of v comes from the tail, and about
// one of 13 of those lies beyond 2 sqrt(3).
BOOST_AUTO_TEST_CASE(tails_are_heavy) {
  const attention_trace trace = synthesize_trace(options_of("llama2-7b", 64, 0));
  double beyond = 0;
  double largest = 0;
  double square = 0;
  for (const half_bits bits : trace.layers[0].v) {
    const double x = std::fabs(half_to_double(bits));
    beyond += x > 3.4651 ? 1 : 0;
    largest = std::max(largest, x);
    square += x * x;
  }
  const auto count = static_cast<double>(trace.layers[0].v.size());
  // P(|t2| > x) = 1 - x / sqrt(2 + x^2)
  const double expected = (1 - 3.4651 / std::sqrt(2 + 3.4651 * 3.4651)) / 64;
  BOOST_TEST(beyond / count == expected, boost::test_tools::tolerance(0.15));
  BOOST_TEST(largest == 16.0);
  BOOST_TEST(square / count > 1.0);
  BOOST_TEST(square / count < 1.2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::traces::test

// Statistics of a trace, see trace_info.hpp.
#include "traces/trace_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "traces/half_value.hpp"

namespace kvproof::traces {
namespace {

constexpr std::size_t outliers_shown = 5;

tensor_range range_of(const std::vector<half_bits>& x) {
  tensor_range r;
  if (x.empty()) return r;
  r.min = r.max = half_value(x.front());
  for (const half_bits h : x) {
    r.min = std::min(r.min, half_value(h));
    r.max = std::max(r.max, half_value(h));
  }
  return r;
}

double median(std::vector<double> x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  if (x.size() % 2 != 0) return *middle;
  return (*middle + *std::max_element(x.begin(), middle)) / 2;
}

std::vector<outlier_channel> outliers_of(const std::vector<half_bits>& k, int kv_heads,
                                         int head_dim) {
  std::vector<outlier_channel> all;
  const std::size_t row = static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(head_dim);
  for (int head = 0; head < kv_heads; ++head) {
    std::vector<double> magnitude(static_cast<std::size_t>(head_dim));
    for (std::size_t at = static_cast<std::size_t>(head) * static_cast<std::size_t>(head_dim);
         at < k.size(); at += row) {
      for (std::size_t c = 0; c < magnitude.size(); ++c)
        magnitude[c] = std::max(magnitude[c], std::fabs(half_value(k[at + c])));
    }
    const double typical = median(magnitude);
    for (int c = 0; c < head_dim; ++c) {
      const double m = magnitude[static_cast<std::size_t>(c)];
      all.push_back({head, c, m, typical > 0 ? m / typical : 0});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const outlier_channel& a, const outlier_channel& b) {
    return a.ratio > b.ratio;
  });
  all.resize(std::min(all.size(), outliers_shown));
  return all;
}

}  // namespace

trace_info compute_trace_info(const attention_trace& trace, std::int64_t file_size_bytes) {
  trace_info info;
  info.model = trace.model;
  info.num_tokens = trace.num_tokens;
  info.prompt_length = trace.prompt_length;
  info.provenance = trace.provenance;
  info.license = trace.license;
  info.file_size_bytes = file_size_bytes;
  info.raw_size_bytes = trace.num_tokens * 4;
  for (const layer_trace& layer : trace.layers) {
    info.raw_size_bytes +=
        2 * static_cast<std::int64_t>(layer.q.size() + layer.k.size() + layer.v.size());
    info.layers.push_back({layer.layer, range_of(layer.q), range_of(layer.k), range_of(layer.v),
                           outliers_of(layer.k, trace.model.kv_heads, trace.model.head_dim)});
  }
  return info;
}

std::string format_trace_info(const trace_info& info) {
  const model_facts& m = info.model;
  std::string text = fmt::format(
      "model       {}: {} layers, {} query heads, {} KV heads, head_dim {}, RoPE theta {}, softmax "
      "scale {}\n",
      m.name, m.num_layers, m.query_heads, m.kv_heads, m.head_dim, m.rope_theta, m.softmax_scale);
  text += fmt::format("tokens      {} prompt + {} generated\n", info.prompt_length,
                      info.num_tokens - info.prompt_length);
  text += fmt::format(
      "size        {} bytes, {} raw ({:.2f} : 1)\n", info.file_size_bytes, info.raw_size_bytes,
      info.file_size_bytes > 0
          ? static_cast<double>(info.raw_size_bytes) / static_cast<double>(info.file_size_bytes)
          : 0.0);
  text += fmt::format("license     {}\nprovenance  {}\n", info.license, info.provenance);
  text += fmt::format("q           [{}, {}, {}] fp16 a layer (token, head, channel)\n",
                      info.num_tokens, m.query_heads, m.head_dim);
  text += fmt::format("k, v        [{}, {}, {}] fp16 a layer\n\n", info.num_tokens, m.kv_heads,
                      m.head_dim);
  text += fmt::format("{:>5}  {:>20}  {:>20}  {:>20}\n", "layer", "q min .. max", "k min .. max",
                      "v min .. max");
  const auto range = [](const tensor_range& r) {
    return fmt::format("{:.4g} .. {:.4g}", r.min, r.max);
  };
  for (const layer_info& l : info.layers) {
    text +=
        fmt::format("{:>5}  {:>20}  {:>20}  {:>20}\n", l.layer, range(l.q), range(l.k), range(l.v));
  }
  text +=
      "\noutlier channels of K: largest |k| of a channel over all tokens / median of that over the "
      "head's channels\n";
  for (const layer_info& l : info.layers) {
    text += fmt::format("{:>5} ", l.layer);
    for (const outlier_channel& o : l.outliers)
      text += fmt::format("  head {} channel {}: {:.3g} = {:.2f}x", o.kv_head, o.channel,
                          o.magnitude, o.ratio);
    text += "\n";
  }
  text.pop_back();
  return text;
}

nlohmann::json trace_info_json(const trace_info& info) {
  const model_facts& m = info.model;
  nlohmann::json layers = nlohmann::json::array();
  for (const layer_info& l : info.layers) {
    nlohmann::json outliers = nlohmann::json::array();
    for (const outlier_channel& o : l.outliers) {
      outliers.push_back({{"kv_head", o.kv_head},
                          {"channel", o.channel},
                          {"magnitude", o.magnitude},
                          {"ratio", o.ratio}});
    }
    layers.push_back({{"layer", l.layer},
                      {"q", {l.q.min, l.q.max}},
                      {"k", {l.k.min, l.k.max}},
                      {"v", {l.v.min, l.v.max}},
                      {"outliers", outliers}});
  }
  return {{"model", m.name},
          {"num_layers", m.num_layers},
          {"query_heads", m.query_heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"rope_theta", m.rope_theta},
          {"softmax_scale", m.softmax_scale},
          {"num_tokens", info.num_tokens},
          {"prompt_length", info.prompt_length},
          {"license", info.license},
          {"provenance", info.provenance},
          {"file_size_bytes", info.file_size_bytes},
          {"raw_size_bytes", info.raw_size_bytes},
          {"layers", layers}};
}

}  // namespace kvproof::traces

#include "traces/trace_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>

#include "traces/half.hpp"

namespace kvproof::traces {

namespace {

constexpr std::string_view outlier_definition =
    "ratio = peak / median of the peaks of all channels of the KV head; peak = max over tokens of "
    "|k|";

tensor_range range_of(std::span<const half_bits> values) {
  if (values.empty()) return {};
  tensor_range range = {.min = std::numeric_limits<double>::infinity(),
                        .max = -std::numeric_limits<double>::infinity()};
  for (const half_bits bits : values) {
    const double x = half_to_double(bits);
    range.min = std::min(range.min, x);
    range.max = std::max(range.max, x);
  }
  range.absmax = std::max(std::fabs(range.min), std::fabs(range.max));
  return range;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::vector<outlier_channel> channels_of_head(const attention_trace& trace,
                                              const layer_trace& layer, int kv_head) {
  const auto head_dim = static_cast<std::size_t>(trace.model.head_dim);
  std::vector<double> peaks(head_dim, 0.0);
  const std::size_t row = head_dim * static_cast<std::size_t>(trace.model.kv_heads);
  for (std::size_t at = head_dim * static_cast<std::size_t>(kv_head); at < layer.k.size();
       at += row) {
    for (std::size_t c = 0; c < head_dim; ++c) {
      peaks[c] = std::max(peaks[c], std::fabs(half_to_double(layer.k[at + c])));
    }
  }
  const double middle = median(peaks);
  std::vector<outlier_channel> channels;
  for (std::size_t c = 0; c < head_dim; ++c) {
    const double ratio = peaks[c] == 0 ? 0
                         : middle == 0 ? std::numeric_limits<double>::infinity()
                                       : peaks[c] / middle;
    channels.push_back({kv_head, static_cast<int>(c), peaks[c], ratio});
  }
  return channels;
}

layer_info info_of_layer(const attention_trace& trace, const layer_trace& layer) {
  layer_info info = {.layer = layer.layer,
                     .q = range_of(layer.q),
                     .k = range_of(layer.k),
                     .v = range_of(layer.v),
                     .head_outliers = {},
                     .top_outliers = {}};
  for (int head = 0; head < trace.model.kv_heads; ++head) {
    const std::vector<outlier_channel> channels = channels_of_head(trace, layer, head);
    info.head_outliers.push_back(*std::ranges::max_element(channels, {}, &outlier_channel::ratio));
    std::ranges::copy(channels, std::back_inserter(info.top_outliers));
  }
  std::ranges::stable_sort(info.top_outliers, std::ranges::greater{}, &outlier_channel::ratio);
  info.top_outliers.resize(std::min(info.top_outliers.size(), max_outliers));
  return info;
}

double compression_ratio(const trace_info& info) {
  return info.file_bytes == 0
             ? 0
             : static_cast<double>(info.data_bytes) / static_cast<double>(info.file_bytes);
}

// Text of a file must not move the cursor or change the terminal.
std::string printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return out;
}

std::string range_text(const char* tensor, const tensor_range& range) {
  return fmt::format("  {}  min {:>11.4f}  max {:>11.4f}  absmax {:>11.4f}\n", tensor, range.min,
                     range.max, range.absmax);
}

nlohmann::json to_json(const tensor_range& range) {
  return {{"min", range.min}, {"max", range.max}, {"absmax", range.absmax}};
}

nlohmann::json to_json(const std::vector<outlier_channel>& channels) {
  nlohmann::json out = nlohmann::json::array();
  for (const outlier_channel& c : channels) {
    out.push_back({{"kv_head", c.kv_head},
                   {"channel", c.channel},
                   {"peak", c.peak},
                   {"ratio", std::isfinite(c.ratio) ? nlohmann::json(c.ratio) : nullptr}});
  }
  return out;
}

}  // namespace

trace_info compute_trace_info(const attention_trace& trace, std::int64_t file_size_bytes) {
  trace_info info = {.model = trace.model,
                     .num_tokens = trace.num_tokens,
                     .prompt_length = trace.prompt_length,
                     .layers = {},
                     .provenance = trace.provenance,
                     .license = trace.license,
                     .data_bytes = 0,
                     .file_bytes = file_size_bytes};
  std::size_t bytes = trace.token_ids.size() * sizeof(std::int32_t);
  for (const layer_trace& layer : trace.layers) {
    info.layers.push_back(info_of_layer(trace, layer));
    bytes += (layer.q.size() + layer.k.size() + layer.v.size()) * sizeof(half_bits);
  }
  info.data_bytes = static_cast<std::int64_t>(bytes);
  return info;
}

std::string format_trace_info(const trace_info& info) {
  const model_facts& m = info.model;
  std::string out;
  const auto row = [&out](std::string_view name, const std::string& value) {
    out += fmt::format("{:<12}{}\n", name, value);
  };
  row("model", fmt::format("{}, {} layers", printable(m.name), m.num_layers));
  row("heads", fmt::format("{} query, {} kv, head_dim {}", m.query_heads, m.kv_heads, m.head_dim));
  row("attention",
      fmt::format("softmax scale {:.6g}, RoPE theta {:.6g}", m.softmax_scale, m.rope_theta));
  row("tokens", fmt::format("{} ({} prompt, {} generated)", info.num_tokens, info.prompt_length,
                            info.num_tokens - info.prompt_length));
  row("q", fmt::format("float16 [{}][{}][{}] a layer", info.num_tokens, m.query_heads, m.head_dim));
  row("k, v", fmt::format("float16 [{}][{}][{}] a layer", info.num_tokens, m.kv_heads, m.head_dim));
  row("size", fmt::format("{} bytes of data in {} bytes of file, compression {:.3f}",
                          info.data_bytes, info.file_bytes, compression_ratio(info)));
  row("license", printable(info.license));
  row("provenance", printable(info.provenance));
  out += fmt::format("outlier channels of k: {}\n", outlier_definition);
  for (const layer_info& layer : info.layers) {
    out += fmt::format("\nlayer {}\n", layer.layer);
    out += range_text("q", layer.q) + range_text("k", layer.k) + range_text("v", layer.v);
    for (const outlier_channel& c : layer.top_outliers) {
      out += fmt::format("  k  kv head {:>3}  channel {:>4}  peak {:>11.4f}  ratio {:>8.2f}\n",
                         c.kv_head, c.channel, c.peak, c.ratio);
    }
  }
  out.pop_back();
  return out;
}

nlohmann::json trace_info_json(const trace_info& info) {
  const model_facts& m = info.model;
  nlohmann::json layers = nlohmann::json::array();
  for (const layer_info& layer : info.layers) {
    layers.push_back({{"layer", layer.layer},
                      {"q", to_json(layer.q)},
                      {"k", to_json(layer.k)},
                      {"v", to_json(layer.v)},
                      {"k_outliers", to_json(layer.top_outliers)},
                      {"k_outlier_of_each_head", to_json(layer.head_outliers)}});
  }
  return {{"schema", "kvproof.trace_info"},
          {"schema_version", 1},
          {"model",
           {{"name", m.name},
            {"num_layers", m.num_layers},
            {"query_heads", m.query_heads},
            {"kv_heads", m.kv_heads},
            {"head_dim", m.head_dim},
            {"rope_theta", m.rope_theta},
            {"softmax_scale", m.softmax_scale}}},
          {"num_tokens", info.num_tokens},
          {"prompt_length", info.prompt_length},
          {"layers", layers},
          {"outlier_definition", outlier_definition},
          {"provenance", info.provenance},
          {"license", info.license},
          {"data_bytes", info.data_bytes},
          {"file_bytes", info.file_bytes},
          {"compression", compression_ratio(info)}};
}

}  // namespace kvproof::traces

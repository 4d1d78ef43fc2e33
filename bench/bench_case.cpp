// See bench_case.hpp.
#include "bench/bench_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/splitmix64.hpp"

namespace kvproof::bench {
namespace {

constexpr std::int64_t granularity = spec::tokens_per_tile;
constexpr std::int64_t index_bytes = 4;  // of a selected token

std::string_view name_of(operation op) {
  constexpr std::array<std::string_view, 5> names = {"decode", "quantize_pack", "gather_quantize",
                                                     "demote", "score_update"};
  return names[static_cast<std::size_t>(op)];
}

// Bytes of one token of one KV head in pages; a page's content is a multiple of its tokens.
std::int64_t token_bytes(spec::format_id format, int head_dim) {
  return spec::page_content_bytes(spec::format_of(format), head_dim) /
         spec::format_of(format).tokens_per_page;
}

// K and V of one token of one KV head in fp16.
std::int64_t row_bytes(const bench_case& c) { return std::int64_t{2} * c.model.head_dim * 2; }

// The same of a cache.
std::int64_t cache_bytes(const bench_case& c, std::int64_t tokens) {
  const cache_parts parts = parts_of(c, tokens);
  return parts.quantized * token_bytes(c.format, c.model.head_dim) +
         parts.low * token_bytes(low_tier, c.model.head_dim) + parts.recent * row_bytes(c);
}

std::vector<std::int64_t> ragged_lengths(const length_range& range, int batch) {
  splitmix64 random(20240229);
  const double octaves =
      std::log2(static_cast<double>(range.longest) / static_cast<double>(range.shortest));
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < batch; ++i) {
    const double u = static_cast<double>(random.next() >> 11) * 0x1p-53;
    const double length = static_cast<double>(range.shortest) * std::exp2(u * octaves);
    lengths.push_back(static_cast<std::int64_t>(length) / granularity * granularity);
    if (lengths.back() < range.shortest) lengths.back() += granularity;
  }
  lengths[static_cast<std::size_t>(batch / 3)] = range.outlier;
  // The shortest grows until equal lengths can have the same total.
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const std::int64_t unit = granularity * batch;
  *std::min_element(lengths.begin(), lengths.end()) += (total + unit - 1) / unit * unit - total;
  return lengths;
}

std::int64_t set_bytes(const bench_case& c, std::int64_t tokens) {  // of one copy, all heads
  const std::int64_t cache = tokens * token_bytes(c.format, c.model.head_dim);
  switch (c.op) {
    case operation::decode: {
      const std::vector<std::int64_t> lengths = lengths_of(c);
      std::int64_t pages = 0;
      std::int64_t recent = 0;
      for (const std::int64_t n : lengths) {
        const cache_parts parts = parts_of(c, n);
        pages += c.model.kv_heads * pages_of(c, parts);
        recent += c.model.kv_heads * parts.recent;
      }
      // The two kinds of a pool with tiers are held in equal numbers.
      if (c.tiers) pages *= 2;
      const std::int64_t capacity = *std::max_element(lengths.begin(), lengths.end());
      const std::int64_t scores =
          c.scores || c.significance ? std::int64_t{c.batch} * c.model.q_heads * capacity * 4 : 0;
      const std::int64_t running =
          c.significance ? std::int64_t{c.batch} * c.model.kv_heads * capacity * 4 : 0;
      return pages * spec::page_size_bytes(spec::format_of(c.format), c.model.head_dim) +
             recent * row_bytes(c) + scores + running;
    }
    case operation::quantize_pack:
      return tokens * row_bytes(c) + cache;
    case operation::gather_quantize:
      return tokens * row_bytes(c) + cache / 2;
    case operation::demote:
      return cache + tokens / 2 * token_bytes(spec::format_id::k4v2, c.model.head_dim);
    case operation::score_update:
      return tokens * (c.model.gqa_ratio() + 2) * 4;
  }
  return 0;
}

}  // namespace

std::string bench_case::name() const {
  std::string text = fmt::format("{}/", name_of(op));
  if (op != operation::score_update) {
    text += fmt::format("{}{}/", tiers ? "tiers" : spec::format_of(format).name,
                        op == operation::demote ? "_k4v2" : "");
  }
  text += model.name;
  if (mix == length_mix::uniform) {
    text += fmt::format("/batch:{}/tokens:{}", batch, tokens);
  } else {
    text += fmt::format("/{}/batch:{}", mix == length_mix::ragged ? "ragged" : "equal", batch);
  }
  return text + (scores ? "/scores" : significance ? "/significance" : "");
}

std::vector<bench_case> gpu_cases() {
  std::vector<bench_case> cases;
  const auto add_matrix = [&](const bench_case& kind) {
    for (const model_shape& model : models) {
      for (const int batch : {1, 8, 64}) {
        for (const std::int64_t tokens : {4096, 16384, 65536}) {
          cases.push_back(kind);
          cases.back().model = model;
          cases.back().batch = batch;
          cases.back().tokens = tokens;
        }
      }
    }
  };
  const auto add_mixes = [&](const bench_case& kind) {
    for (const length_mix mix : {length_mix::ragged, length_mix::equal}) {
      cases.push_back(kind);
      cases.back().model = models[0];
      cases.back().batch = 64;
      cases.back().mix = mix;
    }
  };
  for (const spec::kv_format& format : spec::kv_formats) {
    bench_case decode{operation::decode, format.id};
    add_matrix(decode);
    add_mixes(decode);
    decode.scores = true;
    add_matrix(decode);
  }
  bench_case tiers{operation::decode, spec::format_id::k8v4};
  tiers.tiers = true;
  add_matrix(tiers);
  add_mixes(tiers);
  for (bench_case step : {bench_case{operation::decode, spec::format_id::k8v4},
                          bench_case{operation::decode, spec::format_id::k4v2}, tiers}) {
    step.significance = true;
    add_matrix(step);
  }
  for (const operation op : {operation::quantize_pack, operation::gather_quantize}) {
    for (const spec::kv_format& format : spec::kv_formats) add_matrix({op, format.id});
  }
  for (const operation op : {operation::demote, operation::score_update})
    add_matrix({op, spec::format_id::k8v4});
  return cases;
}

std::vector<bench_case> emulator_cases() {
  std::vector<bench_case> cases;
  const auto add = [&](operation op, spec::format_id format, length_mix mix, bool scores) {
    bench_case c{op, format, tiny_model, 3, mix};
    c.tokens = mix == length_mix::uniform ? 256 : 0;
    c.range = tiny_lengths;
    c.scores = scores;
    cases.push_back(c);
  };
  for (const spec::kv_format& format : spec::kv_formats) {
    for (const bool scores : {false, true})
      add(operation::decode, format.id, length_mix::uniform, scores);
    add(operation::decode, format.id, length_mix::ragged, false);
    add(operation::decode, format.id, length_mix::equal, false);
    add(operation::quantize_pack, format.id, length_mix::uniform, false);
    add(operation::gather_quantize, format.id, length_mix::uniform, false);
  }
  add(operation::demote, spec::format_id::k8v4, length_mix::uniform, false);
  add(operation::score_update, spec::format_id::k8v4, length_mix::uniform, false);
  for (const spec::kv_format& format : spec::kv_formats) {
    for (const length_mix mix : {length_mix::uniform, length_mix::ragged}) {
      add(operation::decode, format.id, mix, false);
      cases.back().significance = true;
    }
  }
  for (const bool significance : {false, true}) {
    for (const length_mix mix : {length_mix::uniform, length_mix::ragged}) {
      add(operation::decode, spec::format_id::k8v4, mix, false);
      cases.back().tiers = true;
      cases.back().significance = significance;
    }
  }
  return cases;
}

std::vector<std::int64_t> lengths_of(const bench_case& c) {
  const auto batch = static_cast<std::size_t>(c.batch);
  if (c.mix == length_mix::uniform) return std::vector<std::int64_t>(batch, c.tokens);
  std::vector<std::int64_t> lengths = ragged_lengths(c.range, c.batch);
  if (c.mix == length_mix::equal) {
    const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    lengths.assign(batch, total / c.batch);
  }
  return lengths;
}

cache_parts parts_of(const bench_case& c, std::int64_t tokens) {
  if (!c.tiers) return {tokens, 0, 0};
  const std::int64_t recent = std::min<std::int64_t>(tokens, 64), paged = tokens - recent;
  const std::int64_t high = paged / 4 / granularity * granularity;
  return {high, paged - high, recent};
}

std::int64_t pages_of(const bench_case& c, const cache_parts& parts) {
  return spec::pages_for_tokens(spec::format_of(c.format), parts.quantized) +
         spec::pages_for_tokens(spec::format_of(low_tier), parts.low);
}

case_costs costs_of(const bench_case& c, std::int64_t l2_bytes) {
  const std::vector<std::int64_t> lengths = lengths_of(c);
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const std::int64_t heads = c.model.kv_heads, head_dim = c.model.head_dim;
  const std::int64_t page_token = token_bytes(c.format, c.model.head_dim);
  case_costs costs{};
  switch (c.op) {
    case operation::decode: {
      const std::int64_t out_and_state = head_dim * 4 + 2 * 4, score = c.scores ? 4 : 0;
      costs.tokens = tokens;
      const std::int64_t running = c.significance ? 2 * 4 : 0;  // read and written
      std::int64_t cache = 0;
      for (const std::int64_t n : lengths) cache += cache_bytes(c, n);
      costs.moved_bytes = heads * cache + tokens * (heads * running + c.model.q_heads * score) +
                          c.batch * c.model.q_heads * (head_dim * 2 + out_and_state);
      break;
    }
    case operation::quantize_pack:
      costs.tokens = tokens;
      costs.moved_bytes = costs.tokens * heads * (row_bytes(c) + page_token);
      break;
    case operation::gather_quantize:
      costs.tokens = tokens / 2;
      costs.moved_bytes = costs.tokens * heads * (row_bytes(c) + index_bytes + page_token);
      break;
    case operation::demote:
      costs.tokens = tokens / 2;
      costs.moved_bytes =
          costs.tokens * heads *
          (page_token + index_bytes + token_bytes(spec::format_id::k4v2, c.model.head_dim));
      break;
    case operation::score_update:  // a logit a query head, and the running sum read and written
      costs.tokens = tokens;
      costs.moved_bytes =
          tokens * (c.model.q_heads + heads * 2) * 4 + c.batch * c.model.q_heads * 8;
      break;
  }
  const std::int64_t one = set_bytes(c, tokens * heads);
  costs.copies =
      std::max<std::int64_t>(1, (4 * l2_bytes + costs.moved_bytes - 1) / costs.moved_bytes);
  // Page ids, indices, queries, outputs and workspace are small beside a set: a sixteenth and 64
  // MB.
  costs.device_bytes = costs.copies * one + one / 16 + (std::int64_t{64} << 20);
  return costs;
}

}  // namespace kvproof::bench

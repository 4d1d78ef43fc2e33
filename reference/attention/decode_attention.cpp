// Shapes, plan and results of decode attention; the arithmetic of a block is in strands.cpp.
#include "reference/attention/decode_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/attention/attention_head.hpp"
#include "reference/attention/online_softmax.hpp"
#include "reference/attention/strands.hpp"
#include "reference/numerics/arithmetic.hpp"
#include "reference/spec/attention_plan.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::reference {
namespace {

void require(bool holds, std::string_view what) {
  if (!holds) throw spec::contract_error(fmt::format("decode_attention: {}", what));
}

void check_pages(const spec::kv_format& format, int head_dim, std::int64_t num_tokens,
                 std::span<const std::span<const std::byte>> pages) {
  require(num_tokens >= 0 && num_tokens % format.token_granularity == 0,
          fmt::format("{} quantized tokens; {} needs a non-negative multiple of {}", num_tokens,
                      format.name, format.token_granularity));
  const std::int64_t num_pages = spec::pages_for_tokens(format, num_tokens);
  require(std::ssize(pages) >= num_pages,
          fmt::format("{} tokens of {} need {} pages, {} given", num_tokens, format.name, num_pages,
                      pages.size()));
  const std::int64_t page_size = spec::page_size_bytes(format, head_dim);
  for (std::int64_t p = 0; p < num_pages; ++p) {
    require(std::ssize(pages[p]) == page_size,
            fmt::format("page {} has {} bytes; a page of {} at head_dim {} has {}", p,
                        pages[p].size(), format.name, head_dim, page_size));
  }
}

void check_shapes(const decode_input& in) {
  require(static_cast<std::size_t>(in.format) < spec::kv_formats.size(),
          "unknown format id; use one of spec::kv_formats");
  require(spec::is_supported_head_dim(in.head_dim),
          fmt::format("head_dim {} is not supported; use 64 or 128", in.head_dim));
  require(
      in.gqa_ratio >= 1 && in.gqa_ratio <= spec::max_gqa_ratio,
      fmt::format("{} query heads per KV head; use 1 .. {}", in.gqa_ratio, spec::max_gqa_ratio));
  require(std::isfinite(in.softmax_scale), "softmax_scale is not finite");
  require(std::ssize(in.q) == std::int64_t{in.gqa_ratio} * in.head_dim,
          fmt::format("q has {} elements; expected {} rows of {}", in.q.size(), in.gqa_ratio,
                      in.head_dim));

  check_pages(spec::format_of(in.format), in.head_dim, in.num_quantized, in.pages);
  require(in.num_low == 0 || in.format == spec::format_id::k8v4,
          fmt::format("{} tokens of a low tier beside {}; only k8v4 has one (k4v2): give one tier "
                      "alone as format, num_quantized and pages, with num_low 0",
                      in.num_low, spec::format_of(in.format).name));
  check_pages(spec::format_of(spec::format_id::k4v2), in.head_dim, in.num_low, in.low_pages);
  const std::int64_t recent_size = in.num_recent * in.head_dim;
  require(in.num_recent >= 0 && std::ssize(in.recent_k) == recent_size &&
              std::ssize(in.recent_v) == recent_size,
          fmt::format("recent_k has {} and recent_v {} elements; expected {} rows of {}",
                      in.recent_k.size(), in.recent_v.size(), in.num_recent, in.head_dim));
}

struct block_range {
  std::int64_t first, last;
};

// Strand w takes blocks first + w, first + w + 4, ...; strands without a block take no part.
// `start` is a strand that has visited nothing.
template <typename Strand>
partial_result run_split(const attention_head& head, const Strand& start, block_range blocks,
                         std::span<float> scores) {
  std::optional<partial_result> split;
  for (int w = 0; w < spec::strands_per_split && blocks.first + w < blocks.last; ++w) {
    Strand strand = start;
    for (std::int64_t b = blocks.first + w; b < blocks.last; b += spec::strands_per_split) {
      strand.visit(b, scores);
    }
    merge(split, strand.finish(), head.num_queries);
  }
  return *split;
}

template <typename Strand>
void run_quantized(const attention_head& head, const quantized_part& part, std::span<float> scores,
                   std::optional<partial_result>& total) {
  const spec::split_plan plan = spec::plan_splits(part.num_tokens);
  constexpr std::int64_t block = spec::tokens_per_block;
  const std::int64_t num_blocks = (part.num_tokens + block - 1) / block;
  const std::int64_t split_blocks = plan.tokens_per_split / block;
  const Strand start(head, part);
  for (std::int64_t split = 0; split < plan.num_splits; ++split) {
    const block_range blocks = {split * split_blocks,
                                std::min((split + 1) * split_blocks, num_blocks)};
    merge(total, run_split(head, start, blocks, scores), head.num_queries);
  }
}

std::optional<partial_result> run_plan(const attention_head& head, std::span<float> scores) {
  std::optional<partial_result> total;
  for (const quantized_part& part : head.quantized) {
    if (part.format.scales == spec::scale_layout::per_token) {
      run_quantized<per_token_strand>(head, part, scores, total);
    } else {
      run_quantized<group16_strand>(head, part, scores, total);
    }
  }
  if (head.input.num_recent > 0) {
    constexpr std::int64_t block = spec::tokens_per_recent_block;
    const block_range blocks = {0, (head.input.num_recent + block - 1) / block};
    merge(total, run_split(head, recent_strand(head), blocks, scores), head.num_queries);
  }
  return total;
}

decode_output attend(const decode_input& input, architecture arch) {
  const attention_head head(input, arch);
  const std::size_t num_queries = static_cast<std::size_t>(input.gqa_ratio);
  decode_output output = {
      std::vector<float>(num_queries * input.head_dim, 0.0f),
      std::vector<float>(num_queries * 2, 0.0f),
      std::vector<float>((input.num_quantized + input.num_low + input.num_recent) * num_queries,
                         0.0f)};

  const std::optional<partial_result> total = run_plan(head, output.scores);
  for (std::size_t g = 0; g < num_queries; ++g) {
    output.state[2 * g] = total ? total->m[g] : -std::numeric_limits<float>::infinity();
    if (!total) continue;
    output.state[2 * g + 1] = total->l[g];
    for (int channel = 0; channel < input.head_dim; ++channel) {
      output.out[g * input.head_dim + channel] = div(total->o[channel][g], total->l[g]);
    }
  }
  return output;
}

}  // namespace

decode_output decode_attention(const decode_input& input, architecture arch) {
  check_shapes(input);
  return attend(input, arch);
}

std::vector<decode_output> decode_attention(std::span<const decode_input> inputs,
                                            architecture arch) {
  std::ranges::for_each(inputs, check_shapes);  // no exception may leave the parallel region
  std::vector<decode_output> outputs(inputs.size());
#pragma omp parallel for schedule(dynamic)
  for (std::size_t i = 0; i < inputs.size(); ++i) outputs[i] = attend(inputs[i], arch);
  return outputs;
}

}  // namespace kvproof::reference

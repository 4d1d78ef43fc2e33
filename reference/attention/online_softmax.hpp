// The parts of decode attention that every kind of block shares: queries side by side, the online
// softmax step, partial results and their merge. decode_attention.md sections 1 to 4.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace kvproof::reference {

inline constexpr int query_columns = 8;  // queries, padded with zeros: the N dimension of the MMA

using query_row = std::array<float, query_columns>;  // one value a query
using query_rows = std::vector<query_row>;

inline constexpr query_row zero_row = {};
[[nodiscard]] query_row minus_infinity_row();

// row[query] *= factor[query] for all rows.
void rescale(std::span<query_row> rows, const query_row& factor);

// What one block of scores does to a running maximum.
struct softmax_step {
  query_row factor;  // for everything accumulated so far; 1 where the maximum did not rise
  query_rows p;      // one row a token
};

// Raises m to the maximum of the scores (one row a token). Columns from num_queries on stay zero.
[[nodiscard]] softmax_step advance_softmax(std::span<const query_row> scores, int num_queries,
                                           query_row& m);

// A finished strand, split or head: maximum, sum of probabilities, unnormalised output.
struct partial_result {
  query_row m, l;
  query_rows o;  // [head_dim]
};

// Merges `next` into `running`, which is empty before the first part.
void merge(std::optional<partial_result>& running, partial_result next, int num_queries);

}  // namespace kvproof::reference

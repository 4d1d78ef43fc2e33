// From a differing byte to a token and channel, see page_report.hpp.
#include "verify/page_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "reference/formats/page_codec.hpp"

namespace kvproof::verify {
namespace {

void explain_codes(mismatch_report& report, std::string_view what,
                   const std::vector<std::uint8_t>& e, const std::vector<std::uint8_t>& a,
                   std::int64_t head_dim, std::int64_t first_token) {
  const std::array<axis, 2> axes = {axis{"token", std::ssize(e) / head_dim}, {"channel", head_dim}};
  std::vector<std::int64_t> coordinates;
  bool off_by_one = true;
  for (std::size_t i = 0; i < e.size(); ++i) {
    if (e[i] == a[i]) continue;
    const std::int64_t token = static_cast<std::int64_t>(i) / head_dim;
    const std::int64_t channel = static_cast<std::int64_t>(i) % head_dim;
    if (coordinates.empty()) {
      report.first += fmt::format("; {}[token={}, channel={}]: expected {}, got {}", what,
                                  first_token + token, channel, e[i], a[i]);
    }
    off_by_one = off_by_one && std::abs(int{e[i]} - int{a[i]}) == 1;
    coordinates.insert(coordinates.end(), {token, channel});
  }
  if (coordinates.empty()) return;
  const std::string pattern = off_by_one ? fmt::format("{}s off by one: rounding or ties", what)
                                         : guess_pattern(axes, coordinates);
  if (pattern.empty()) return;
  report.pattern += (report.pattern.empty() ? "" : ", ") + pattern;
}

void explain_scales(mismatch_report& report, std::string_view what,
                    const std::vector<reference::half_bits>& e,
                    const std::vector<reference::half_bits>& a) {
  const auto [x, y] = std::mismatch(e.begin(), e.end(), a.begin());
  if (x == e.end()) return;
  report.first +=
      fmt::format("; {} [{}]: expected 0x{:04x}, got 0x{:04x}", what, x - e.begin(), *x, *y);
}

}  // namespace

mismatch_report explain_pages(std::string_view name, const paged_cache& expected, int kv_heads,
                              std::span<const std::byte> actual) {
  mismatch_report report;
  std::int64_t first = -1;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == (*expected.pool)[i]) continue;
    if (first < 0) first = static_cast<std::int64_t>(i);
    ++report.count;
  }
  const std::int64_t id = first / expected.page_bytes, byte = first % expected.page_bytes;
  const auto owner =
      std::find(expected.table.begin(), expected.table.end(), static_cast<std::int32_t>(id));
  report.first =
      fmt::format("{}[page={}, byte={}]: expected 0x{:02x}, got 0x{:02x}", name, id, byte,
                  std::to_integer<int>((*expected.pool)[static_cast<std::size_t>(first)]),
                  std::to_integer<int>(actual[static_cast<std::size_t>(first)]));
  if (owner == expected.table.end()) {
    report.first += ", a page that no head owns";
    return report;
  }
  const std::int64_t slot = owner - expected.table.begin();
  const std::int64_t head = slot / expected.max_pages, index = slot % expected.max_pages;
  report.first += fmt::format(" (sequence={}, kv_head={}, page {} of the head)", head / kv_heads,
                              head % kv_heads, index);
  const spec::kv_format& format = spec::format_of(expected.format);
  const std::int64_t first_token = index * format.tokens_per_page;
  const std::int64_t tokens = std::min<std::int64_t>(
      format.tokens_per_page, expected.num_tokens[static_cast<std::size_t>(head)] - first_token);
  if (tokens <= 0) {
    report.first += ", a page that holds no token yet";
    return report;
  }
  const std::span<const std::byte> expected_page = expected.page(head, index);
  const std::span<const std::byte> actual_page =
      actual.subspan(static_cast<std::size_t>(id * expected.page_bytes),
                     static_cast<std::size_t>(expected.page_bytes));
  const auto e =
      reference::unpack_tokens(format, expected.head_dim, tokens, std::span(&expected_page, 1));
  const auto a =
      reference::unpack_tokens(format, expected.head_dim, tokens, std::span(&actual_page, 1));
  explain_codes(report, "key code", e.key_codes, a.key_codes, expected.head_dim, first_token);
  explain_codes(report, "value code", e.value_codes, a.value_codes, expected.head_dim, first_token);
  explain_scales(report, "key scale", e.key_scales, a.key_scales);
  explain_scales(report, "key zero", e.key_zeros, a.key_zeros);
  explain_scales(report, "value scale", e.value_scales, a.value_scales);
  explain_scales(report, "value zero", e.value_zeros, a.value_zeros);
  if (e.key_codes == a.key_codes && e.value_codes == a.value_codes &&
      e.key_scales == a.key_scales && e.key_zeros == a.key_zeros &&
      e.value_scales == a.value_scales && e.value_zeros == a.value_zeros) {
    report.pattern = "only slots behind the last token or unused bytes: padding";
  }
  return report;
}

}  // namespace kvproof::verify

// Bit comparison and the guess at a pattern, see compare.hpp.
#include "verify/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <type_traits>

#include "verify/fenced_buffer.hpp"

namespace kvproof::verify {
namespace {

constexpr std::size_t max_coordinates = 1 << 16;  // mismatches that the pattern guess looks at

bool is_nan(std::uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

std::vector<std::int64_t> coordinates_of(std::span<const axis> axes, std::int64_t index) {
  std::vector<std::int64_t> result(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    result[i] = index % axes[i].extent;
    index /= axes[i].extent;
  }
  return result;
}

std::string place(const std::string& name, std::span<const axis> axes, std::int64_t index) {
  std::string text = name + "[";
  const std::vector<std::int64_t> c = coordinates_of(axes, index);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : ", ", axes[i].name, c[i]);
  }
  return text + "]";
}

void note_coordinates(std::vector<std::int64_t>& to, std::span<const axis> axes,
                      std::int64_t index) {
  if (to.size() >= max_coordinates * axes.size()) return;
  const std::vector<std::int64_t> c = coordinates_of(axes, index);
  to.insert(to.end(), c.begin(), c.end());
}

mismatch_report other_size(const std::string& name, std::size_t expected, std::size_t actual) {
  return {1, fmt::format("{}: {} elements expected, got {}", name, expected, actual), ""};
}

}  // namespace

std::int64_t ulp_distance(std::uint32_t a, std::uint32_t b) {
  const auto rank = [](std::uint32_t bits) -> std::int64_t {
    const auto magnitude = static_cast<std::int64_t>(bits & 0x7fffffffu);
    return (bits >> 31) != 0 ? -magnitude - 1 : magnitude;
  };
  return std::abs(rank(a) - rank(b));
}

std::string guess_pattern(std::span<const axis> axes, std::span<const std::int64_t> coordinates) {
  const std::size_t rank = axes.size();
  if (rank == 0 || coordinates.size() < 2 * rank) return "";  // one mismatch has every pattern
  const std::size_t n = coordinates.size() / rank;
  std::vector<std::string> found;
  for (std::size_t a = 0; a < rank; ++a) {
    if (axes[a].extent < 2) continue;
    const auto value = [&](std::size_t i) { return coordinates[i * rank + a]; };
    const auto all = [&](auto&& holds) {
      for (std::size_t i = 0; i < n; ++i) {
        if (!holds(value(i))) return false;
      }
      return true;
    };
    const std::int64_t first = value(0);
    if (all([&](std::int64_t v) { return v == first; })) {
      found.push_back(fmt::format("only {} = {}", axes[a].name, first));
      continue;
    }
    bool residue = false;
    for (const std::int64_t m : {32, 16, 8, 4, 2}) {
      if (axes[a].extent <= m) continue;
      if (all([&](std::int64_t v) { return v % m == first % m; })) {
        found.push_back(fmt::format("only {} = {} mod {}", axes[a].name, first % m, m));
        residue = true;
        break;
      }
    }
    if (residue) continue;
    const std::int64_t last_tile = (axes[a].extent - 1) / 16 * 16;
    if (last_tile > 0 && all([&](std::int64_t v) { return v >= last_tile; })) {
      found.push_back(fmt::format("only the last tile of {} (from {})", axes[a].name, last_tile));
    }
  }
  std::string text;
  for (const std::string& part : found) text += (text.empty() ? "" : ", ") + part;
  return text;
}

template <typename T>
comparison compare_exact(const std::string& name, std::span<const axis> axes,
                         std::span<const T> expected, std::span<const T> actual) {
  comparison result;
  result.compared = std::ssize(expected);
  if (expected.size() != actual.size()) {
    result.mismatch = other_size(name, expected.size(), actual.size());
    return result;
  }
  mismatch_report report;
  std::vector<std::int64_t> coordinates;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == actual[i]) continue;
    const auto index = static_cast<std::int64_t>(i);
    if (report.count++ == 0) {
      report.first = fmt::format("{}: expected {:#0{}x}, got {:#0{}x}", place(name, axes, index),
                                 std::make_unsigned_t<T>(expected[i]), 2 + 2 * sizeof(T),
                                 std::make_unsigned_t<T>(actual[i]), 2 + 2 * sizeof(T));
    }
    note_coordinates(coordinates, axes, index);
  }
  if (report.count == 0) return result;
  report.pattern =
      report.count == result.compared ? "every element" : guess_pattern(axes, coordinates);
  result.mismatch = report;
  return result;
}

template comparison compare_exact<std::int32_t>(const std::string&, std::span<const axis>,
                                                std::span<const std::int32_t>,
                                                std::span<const std::int32_t>);
template comparison compare_exact<std::uint16_t>(const std::string&, std::span<const axis>,
                                                 std::span<const std::uint16_t>,
                                                 std::span<const std::uint16_t>);

template comparison compare_exact<std::uint32_t>(const std::string&, std::span<const axis>,
                                                 std::span<const std::uint32_t>,
                                                 std::span<const std::uint32_t>);

comparison compare_floats(const std::string& name, std::span<const axis> axes,
                          std::span<const std::uint32_t> expected,
                          std::span<const std::uint32_t> actual) {
  comparison result;
  result.compared = static_cast<std::int64_t>(expected.size());
  if (std::equal(expected.begin(), expected.end(), actual.begin(), actual.end())) return result;
  if (expected.size() != actual.size()) {
    result.mismatch = other_size(name, expected.size(), actual.size());
    return result;
  }

  mismatch_report report;
  std::vector<std::int64_t> coordinates;
  std::int64_t first = -1;
  bool only_zero_signs = true;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == actual[i] || (is_nan(expected[i]) && is_nan(actual[i]))) continue;
    if (first < 0) first = static_cast<std::int64_t>(i);
    ++report.count;
    only_zero_signs = only_zero_signs && ((expected[i] | actual[i]) & 0x7fffffffu) == 0;
    note_coordinates(coordinates, axes, static_cast<std::int64_t>(i));
  }
  if (report.count == 0) return result;  // NaNs with other payloads

  const std::uint32_t e = expected[static_cast<std::size_t>(first)];
  const std::uint32_t g = actual[static_cast<std::size_t>(first)];
  report.first =
      fmt::format("{}: expected 0x{:08x} ({:.9g}), got 0x{:08x} ({:.9g})", place(name, axes, first),
                  e, std::bit_cast<float>(e), g, std::bit_cast<float>(g));
  if (g == poison_word) {
    report.first += ", never written";
  } else if (!is_nan(e) && !is_nan(g)) {
    report.first += fmt::format(", {} ulp apart", ulp_distance(e, g));
  }
  if (only_zero_signs) {
    report.pattern = "only the sign of zero";
  } else if (report.count == result.compared) {
    report.pattern = "every element";
  } else {
    report.pattern = guess_pattern(axes, coordinates);
  }
  result.mismatch = report;
  return result;
}

}  // namespace kvproof::verify

// The kernel table holds every (role, format, head_dim, ratio) once, and every entry is in the PTX
// and in the cubin of its module.
#include "gpu/kernels/kernel_table.hpp"

#include <boost/test/unit_test.hpp>
#include <set>
#include <string>
#include <tuple>

#include "reference/spec/error.hpp"

namespace kvproof::gpu {
namespace {

#if KVPROOF_EXPECT_KERNELS

BOOST_AUTO_TEST_CASE(every_combination_once) {
  std::set<std::tuple<kernel_role, spec::format_id, int, int>> keys;
  std::set<std::string_view> names;
  for (const kernel_entry& e : kernel_entries()) {
    BOOST_TEST(keys.insert({e.role, e.format, e.head_dim, e.gqa_ratio}).second, e.entry);
    BOOST_TEST(names.insert(e.entry).second, e.entry);
  }
  // quantize, gather_quantize, decode of each format; decode of two tiers, demote; score update
  BOOST_TEST(kernel_entries().size() == 3u * 2u * (2u + 8u) + 2u * (8u + 1u) + 8u);
  for (int ratio = 1; ratio <= spec::max_gqa_ratio; ++ratio)
    BOOST_TEST(keys.count({kernel_role::score_update, spec::format_id::k8v4, 0, ratio}) == 1u);
  for (const spec::kv_format& format : spec::kv_formats) {
    for (const int head_dim : {64, 128}) {
      BOOST_TEST(keys.count({kernel_role::quantize, format.id, head_dim, 0}) == 1u);
      BOOST_TEST(keys.count({kernel_role::demote, format.id, head_dim, 0}) ==
                 (format.id == spec::format_id::k8v4 ? 1u : 0u));
      BOOST_TEST(keys.count({kernel_role::gather_quantize, format.id, head_dim, 0}) == 1u);
      for (int ratio = 1; ratio <= spec::max_gqa_ratio; ++ratio) {
        BOOST_TEST(keys.count({kernel_role::decode, format.id, head_dim, ratio}) == 1u);
        BOOST_TEST(keys.count({kernel_role::decode_tiers, format.id, head_dim, ratio}) ==
                   (format.id == spec::format_id::k8v4 ? 1u : 0u));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(entry_names) {
  BOOST_TEST(find_kernel(kernel_role::decode, spec::format_id::k8v4, 128, 4).entry ==
             "decode_k8v4_d128_g4_kernel");
  BOOST_TEST(find_kernel(kernel_role::decode_tiers, spec::format_id::k8v4, 64, 7).entry ==
             "decode_tiers_d64_g7_kernel");
  BOOST_TEST(find_kernel(kernel_role::quantize, spec::format_id::int2_g16, 64, 0).entry ==
             "quantize_int2_g16_d64_kernel");
  BOOST_TEST(find_kernel(kernel_role::gather_quantize, spec::format_id::k4v2, 128, 0).entry ==
             "gather_quantize_k4v2_d128_kernel");
  BOOST_TEST(find_kernel(kernel_role::demote, spec::format_id::k8v4, 64, 0).entry ==
             "demote_k8v4_d64_kernel");
  BOOST_TEST(find_kernel(kernel_role::score_update, spec::format_id::k8v4, 0, 7).entry ==
             "score_update_g7_kernel");
}

BOOST_AUTO_TEST_CASE(entries_are_in_their_modules) {
  for (const kernel_entry& e : kernel_entries()) {
    BOOST_REQUIRE(e.module < kernel_modules().size());
    const kernel_module& m = kernel_modules()[e.module];
    BOOST_TEST((m.ptx.find(".entry " + std::string(e.entry) + "(") != std::string_view::npos),
               e.entry << " is missing in the PTX of " << m.name);
    const std::string_view cubin(reinterpret_cast<const char*>(m.cubin.data()), m.cubin.size());
    BOOST_TEST((cubin.find(".text." + std::string(e.entry) + '\0') != std::string_view::npos),
               e.entry << " is missing in the cubin of " << m.name);
  }
}

BOOST_AUTO_TEST_CASE(modules_hold_nothing_else) {
  std::size_t entries = 0;
  for (const kernel_module& m : kernel_modules()) {
    for (std::size_t at = m.ptx.find(".entry "); at != std::string_view::npos;
         at = m.ptx.find(".entry ", at + 1))
      ++entries;
    BOOST_TEST((m.ptx.find(".target sm_90a") != std::string_view::npos), m.name);
    BOOST_TEST((m.ptx.find('\0') == std::string_view::npos), m.name);
    const std::string_view cubin(reinterpret_cast<const char*>(m.cubin.data()), m.cubin.size());
    BOOST_TEST(cubin.substr(0, 4) ==
               "\x7f"
               "ELF");
  }
  BOOST_TEST(entries == kernel_entries().size());
}

BOOST_AUTO_TEST_CASE(unknown_shapes_are_refused) {
  for (const auto& [head_dim, ratio] : {std::pair{96, 4}, {128, 9}, {128, 0}, {64, -1}}) {
    BOOST_CHECK_THROW(
        static_cast<void>(find_kernel(kernel_role::decode, spec::format_id::k4v2, head_dim, ratio)),
        spec::contract_error);
  }
  BOOST_CHECK_THROW(
      static_cast<void>(find_kernel(kernel_role::quantize, spec::format_id::k4v2, 128, 4)),
      spec::contract_error);
  BOOST_CHECK_THROW(
      static_cast<void>(find_kernel(kernel_role::demote, spec::format_id::k4v2, 128, 0)),
      spec::contract_error);
  BOOST_CHECK_THROW(
      static_cast<void>(find_kernel(kernel_role::decode_tiers, spec::format_id::k4v2, 128, 4)),
      spec::contract_error);
}

#else

BOOST_AUTO_TEST_CASE(empty_without_kernels) {
  BOOST_TEST(kernel_entries().empty());
  BOOST_TEST(kernel_modules().empty());
  BOOST_CHECK_THROW(
      static_cast<void>(find_kernel(kernel_role::decode, spec::format_id::k8v4, 128, 4)),
      spec::device_error);
}

#endif

}  // namespace
}  // namespace kvproof::gpu

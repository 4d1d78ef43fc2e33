// The container of golden outputs refuses what is missing, cut, altered or of another kind.
#include "tests/golden/golden_file.hpp"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "reference/spec/error.hpp"

namespace {

using namespace kvproof::golden;
using kvproof::spec::input_error;

struct fixture {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("kvproof_golden_file_test_" + std::to_string(::getpid())))
                         .string();
  golden_file<std::uint32_t> file{77, 2, 3, {1, 2, 3, 4, 5, 0xffffffffu}};

  fixture() { write_golden_file(path, file); }
  ~fixture() { std::filesystem::remove(path); }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;

  [[nodiscard]] std::string bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void replace(const std::string& content) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(round_trip_and_layout, fixture) {
  const auto back = read_golden_file<std::uint32_t>(path);
  BOOST_TEST(back.seed == 77u);
  BOOST_TEST(back.sections == 2u);
  BOOST_TEST(back.words == file.words, boost::test_tools::per_element());
  BOOST_TEST(back.at(1, 2) == 0xffffffffu);
  BOOST_TEST(bytes().size() == 40u + 24u);
  BOOST_TEST(bytes().substr(0, 8) == "kvpgold1");
  BOOST_TEST(bytes().substr(40, 8) == std::string("\1\0\0\0\2\0\0\0", 8));
}

BOOST_FIXTURE_TEST_CASE(damage_is_refused, fixture) {
  const std::string whole = bytes();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (i >= 24 && i < 32) continue;  // the seed is the caller's to compare
    std::string altered = whole;
    altered[i] = static_cast<char>(altered[i] ^ 4);
    replace(altered);
    BOOST_CHECK_THROW((void)read_golden_file<std::uint32_t>(path), input_error);
  }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    replace(whole.substr(0, size));
    BOOST_CHECK_THROW((void)read_golden_file<std::uint32_t>(path), input_error);
  }
  replace(whole + "1234");
  BOOST_CHECK_THROW((void)read_golden_file<std::uint32_t>(path), input_error);
  replace(whole);
  BOOST_CHECK_THROW((void)read_golden_file<std::uint64_t>(path), input_error);
  BOOST_CHECK_NO_THROW((void)read_golden_file<std::uint32_t>(path));
}

BOOST_AUTO_TEST_CASE(missing_file_names_the_remedy) {
  BOOST_CHECK_EXCEPTION((void)read_golden_file<std::uint32_t>("no/such/file.bin"), input_error,
                        [](const input_error& e) {
                          return std::string(e.what()).find("tests/golden/README.md") !=
                                 std::string::npos;
                        });
}

// Where the tests find golden files: tests/golden of the source directory, or the directory given
// after `--` on the command line of a test (to check a new recording before it is committed).
#pragma once

#include <boost/test/unit_test.hpp>
#include <string>

namespace kvproof::golden {

[[nodiscard]] inline std::string golden_directory() {
  const auto& suite = boost::unit_test::framework::master_test_suite();
  return suite.argc > 1 ? suite.argv[1] : "tests/golden";
}

}  // namespace kvproof::golden

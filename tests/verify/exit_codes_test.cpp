// Each kind of error has its documented exit code and one line that says what happened.
#include "verify/exit_codes.hpp"

#include <boost/test/unit_test.hpp>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/spec/error.hpp"
#include "verify/device_choice.hpp"
#include "verify/verdict.hpp"

namespace kvproof::verify {

BOOST_AUTO_TEST_CASE(each_error_has_its_code) {
  BOOST_TEST(exit_code_of(spec::usage_error("x")) == 2);
  BOOST_TEST(exit_code_of(spec::input_error("x")) == 3);
  BOOST_TEST(exit_code_of(spec::device_error("x")) == 4);
  BOOST_TEST(exit_code_of(nothing_to_run_error("x")) == 77);
  BOOST_TEST(exit_code_of(spec::contract_error("x")) == 70);
  BOOST_TEST(exit_code_of(std::logic_error("x")) == 70);
  BOOST_TEST(exit_code_of(std::out_of_range("x")) == 70);
  BOOST_TEST(exit_code_of(std::bad_alloc()) == 70);
}

BOOST_AUTO_TEST_CASE(the_line_says_whose_fault_it_is) {
  BOOST_TEST(error_line(spec::input_error("a.h5: no such file")) == "kvproof: a.h5: no such file");
  const std::string internal = error_line(spec::contract_error("decode: batch is -1"));
  BOOST_TEST(internal.starts_with("kvproof: internal error: decode: batch is -1; "));
  BOOST_TEST(internal.find('\n') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_guarded_body_returns_its_code_or_that_of_its_error) {
  BOOST_TEST(run_guarded([] { return 5; }) == 5);
  BOOST_TEST(run_guarded([]() -> int { throw spec::contract_error("a test of exit code 70"); }) ==
             70);
  BOOST_TEST(run_guarded([]() -> int { throw spec::device_error("a test of exit code 4"); }) == 4);
}

BOOST_AUTO_TEST_CASE(verdicts_become_an_exit_code) {
  const auto code = [](std::vector<verdict> verdicts) {
    std::vector<case_result> results;
    for (const verdict v : verdicts) {
      results.emplace_back();
      results.back().result = v;
    }
    return exit_code_of(results);
  };
  using enum verdict;
  BOOST_TEST(code({passed, passed}) == 0);
  BOOST_TEST(code({passed, skipped}) == 0);
  BOOST_TEST(code({passed, failed}) == 1);
  BOOST_TEST(code({passed, vacuous}) == 1);
  BOOST_TEST(code({failed, fault}) == 4);
  BOOST_TEST(code({skipped}) == 77);
  BOOST_TEST(code({}) == 77);
}

}  // namespace kvproof::verify

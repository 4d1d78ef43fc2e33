# kvproof_add_test(<name> SOURCES <files> [LIBRARIES <targets>] [LABELS <labels>])
#   One Boost.Test executable `test_<name>`, registered with CTest as <name>. Exit code 77 = skipped.
#   Tests run in the source directory, so that they find traces/data and tests/golden.
function(kvproof_add_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  string(REPLACE "/" "_" target "test_${name}")
  add_executable(${target} ${arg_SOURCES})
  target_compile_definitions(${target} PRIVATE BOOST_TEST_DYN_LINK BOOST_TEST_MODULE=${target})
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} kvproof_options Boost::unit_test_framework)
  add_test(NAME ${name} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS "${arg_LABELS}")
endfunction()

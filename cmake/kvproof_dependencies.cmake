# Third-party libraries, all from Debian 12. HDF5 and fmt are linked statically so that the kvproof
# binary runs on a GPU machine that has neither.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(fmt 9 REQUIRED)  # used as fmt::fmt-header-only: Debian ships no archive
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)

include(kvproof_hdf5)
add_library(kvproof_hdf5 ALIAS kvproof::hdf5)

if(KVPROOF_TESTS)
  find_package(Boost 1.74 REQUIRED COMPONENTS unit_test_framework)
endif()

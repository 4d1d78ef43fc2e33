# Third-party libraries, all from Debian 12. HDF5 and fmt are linked statically so that the kvproof
# binary runs on a GPU machine that has neither.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(fmt 9 REQUIRED)  # used as fmt::fmt-header-only: Debian ships no archive
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)

set(HDF5_USE_STATIC_LIBRARIES ON)
find_package(HDF5 1.10 REQUIRED COMPONENTS C)
find_library(KVPROOF_HDF5_ARCHIVE NAMES libhdf5_serial.a libhdf5.a PATH_SUFFIXES hdf5/serial REQUIRED)
find_library(KVPROOF_SZ_ARCHIVE NAMES libsz.a REQUIRED)
find_library(KVPROOF_AEC_ARCHIVE NAMES libaec.a REQUIRED)
find_library(KVPROOF_Z_ARCHIVE NAMES libz.a REQUIRED)
add_library(kvproof_hdf5 INTERFACE)
target_include_directories(kvproof_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
# Debian's archive also holds a driver for remote storage; curl and crypto are linked only if it is used.
target_link_libraries(kvproof_hdf5 INTERFACE
  ${KVPROOF_HDF5_ARCHIVE} ${KVPROOF_SZ_ARCHIVE} ${KVPROOF_AEC_ARCHIVE} ${KVPROOF_Z_ARCHIVE}
  -Wl,--push-state,--as-needed curl crypto -Wl,--pop-state ${CMAKE_DL_LIBS} m)

if(KVPROOF_TESTS)
  find_package(Boost 1.74 REQUIRED COMPONENTS unit_test_framework)
endif()

# Third-party libraries, all from Debian 12. HDF5 and fmt are linked statically so that the kvproof
# binary runs on a GPU machine that has neither.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)

set(HDF5_USE_STATIC_LIBRARIES ON)
find_package(HDF5 1.10 REQUIRED COMPONENTS C)
add_library(kvproof_hdf5 INTERFACE)
target_include_directories(kvproof_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(kvproof_hdf5 INTERFACE ${HDF5_C_LIBRARIES} ${CMAKE_DL_LIBS})

if(KVPROOF_TESTS)
  find_package(Boost 1.74 REQUIRED COMPONENTS unit_test_framework)
endif()

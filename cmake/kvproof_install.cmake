# Installs the command, the shipped trace, the hardware evidence, and the libraries with their headers as kvproof::
# targets. Not installed: kvproof_verify, which is the command's inside.
include(CMakePackageConfigHelpers)
set(kvproof_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kvproof)

install(TARGETS kvproof_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES traces/data/smollm2-135m-instruct.h5 DESTINATION ${CMAKE_INSTALL_DATADIR}/kvproof)
install(DIRECTORY verify/evidence DESTINATION ${CMAKE_INSTALL_DATADIR}/kvproof FILES_MATCHING PATTERN "*.jsonl")
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(kvproof_public_targets
  kvproof_options kvproof_spec
  kvproof_reference_numerics kvproof_reference_formats kvproof_reference_attention kvproof_reference_oracle
  kvproof_traces kvproof_cuda_device kvproof_emulator kvproof_kernels kvproof_launch)
foreach(target IN LISTS kvproof_public_targets)
  string(REPLACE "kvproof_" "" export_name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${export_name})
endforeach()
install(TARGETS ${kvproof_public_targets} EXPORT kvproof_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY reference gpu traces DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvproof FILES_MATCHING
  PATTERN "*.hpp" PATTERN "data" EXCLUDE PATTERN "record" EXCLUDE)
install(EXPORT kvproof_targets NAMESPACE kvproof:: DESTINATION ${kvproof_package_folder})
configure_package_config_file(cmake/kvproof-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/kvproof-config.cmake
  INSTALL_DESTINATION ${kvproof_package_folder} PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/kvproof-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kvproof-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/kvproof-config-version.cmake
  cmake/kvproof_hdf5.cmake DESTINATION ${kvproof_package_folder})

# Installs the command, the shipped trace, and the libraries with their headers as kvproof:: targets.
include(CMakePackageConfigHelpers)

install(TARGETS kvproof_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_SOURCE_DIR}/traces/data/smollm2-135m-instruct.h5 DESTINATION ${CMAKE_INSTALL_DATADIR}/kvproof)

set(kvproof_public_targets
  kvproof_options kvproof_spec kvproof_reference_numerics kvproof_reference_formats kvproof_reference_attention
  kvproof_cuda_device kvproof_emulator kvproof_kernels kvproof_launch)
foreach(target IN LISTS kvproof_public_targets)
  string(REPLACE "kvproof_" "" export_name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${export_name})
endforeach()
install(TARGETS ${kvproof_public_targets} EXPORT kvproof_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY reference gpu DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvproof FILES_MATCHING PATTERN "*.hpp")
install(EXPORT kvproof_targets NAMESPACE kvproof:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvproof)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kvproof-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/kvproof-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvproof)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/kvproof-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kvproof-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/kvproof-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvproof)

# kvproof::hdf5: HDF5 1.10 and what it needs, as static archives, so that a kvproof binary runs where there is no
# HDF5. Used by the build and by find_package(kvproof), which therefore needs no C compiler (FindHDF5 does).
find_path(KVPROOF_HDF5_INCLUDE hdf5.h PATH_SUFFIXES hdf5/serial REQUIRED)
find_library(KVPROOF_HDF5_ARCHIVE NAMES libhdf5_serial.a libhdf5.a PATH_SUFFIXES hdf5/serial REQUIRED)
find_library(KVPROOF_SZ_ARCHIVE NAMES libsz.a REQUIRED)
find_library(KVPROOF_AEC_ARCHIVE NAMES libaec.a REQUIRED)
find_library(KVPROOF_Z_ARCHIVE NAMES libz.a REQUIRED)
mark_as_advanced(KVPROOF_HDF5_INCLUDE KVPROOF_HDF5_ARCHIVE KVPROOF_SZ_ARCHIVE KVPROOF_AEC_ARCHIVE KVPROOF_Z_ARCHIVE)
file(STRINGS ${KVPROOF_HDF5_INCLUDE}/H5public.h kvproof_hdf5_version REGEX "#define H5_VERS_INFO")
if(NOT kvproof_hdf5_version MATCHES "version: 1\\.1[0-9]\\.")
  message(FATAL_ERROR "${KVPROOF_HDF5_INCLUDE}/hdf5.h is not HDF5 1.10 or later: ${kvproof_hdf5_version}; install libhdf5-dev")
endif()
if(NOT TARGET kvproof::hdf5)
  add_library(kvproof::hdf5 INTERFACE IMPORTED GLOBAL)
  target_include_directories(kvproof::hdf5 SYSTEM INTERFACE ${KVPROOF_HDF5_INCLUDE})
  # Debian's archive also holds a driver for remote storage; curl and crypto are linked only if it is used.
  target_link_libraries(kvproof::hdf5 INTERFACE
    ${KVPROOF_HDF5_ARCHIVE} ${KVPROOF_SZ_ARCHIVE} ${KVPROOF_AEC_ARCHIVE} ${KVPROOF_Z_ARCHIVE}
    -Wl,--push-state,--as-needed curl crypto -Wl,--pop-state ${CMAKE_DL_LIBS} m)
endif()

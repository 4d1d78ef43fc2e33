# Compile options of every kvproof target. Bit-exactness on the host needs -ffp-contract=off and no
# fast-math anywhere; instruction sets beyond x86-64 are enabled per source file, never globally, so
# that one binary runs on any x86-64 machine. Warnings are ours alone: an installed kvproof passes
# none of them on.
add_library(kvproof_options INTERFACE)
target_compile_features(kvproof_options INTERFACE cxx_std_20)
target_compile_options(kvproof_options INTERFACE -ffp-contract=off
  $<BUILD_INTERFACE:-Wall> $<BUILD_INTERFACE:-Wextra> $<BUILD_INTERFACE:-Wpedantic> $<BUILD_INTERFACE:-Wshadow>
  $<BUILD_INTERFACE:-Wconversion> $<BUILD_INTERFACE:-Wno-sign-conversion>)
if(KVPROOF_WERROR)
  target_compile_options(kvproof_options INTERFACE $<BUILD_INTERFACE:-Werror>)
endif()
if(KVPROOF_SANITIZE)
  target_compile_options(kvproof_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(kvproof_options INTERFACE -fsanitize=address,undefined)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

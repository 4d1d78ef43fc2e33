# Compile options of every kvproof target. Bit-exactness on the host needs -ffp-contract=off and no
# fast-math anywhere; instruction sets beyond x86-64 are enabled per source file, never globally, so
# that one binary runs on any x86-64 machine.
add_library(kvproof_options INTERFACE)
target_compile_features(kvproof_options INTERFACE cxx_std_20)
target_compile_options(kvproof_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off)
if(KVPROOF_WERROR)
  target_compile_options(kvproof_options INTERFACE -Werror)
endif()
if(KVPROOF_SANITIZE)
  target_compile_options(kvproof_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(kvproof_options INTERFACE -fsanitize=address,undefined)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Finds nvcc and the ptxas beside it: KVPROOF_NVCC and KVPROOF_PTXAS. Defines kvproof_embed_kernels().
# Order: -DKVPROOF_NVCC, $CUDACXX (a file), $CUDA_HOME/bin, PATH, /usr/local/cuda/bin.
# Other releases make other PTX, which no hardware has confirmed, hence the strict version.
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/cuda_requirements.txt kvproof_nvcc_required REGEX "^nvidia-cuda-nvcc==")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" kvproof_nvcc_required "${kvproof_nvcc_required}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" kvproof_cuda_release "${kvproof_nvcc_required}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/cuda_requirements.txt)

set(kvproof_nvcc_remedy "install CUDA ${kvproof_cuda_release}, name its compiler with -DKVPROOF_NVCC=FILE, or configure with --preset cpu")
if(NOT KVPROOF_NVCC AND NOT "$ENV{CUDACXX}" STREQUAL "")
  find_program(KVPROOF_NVCC NAMES "$ENV{CUDACXX}" DOC "nvcc")
  if(NOT KVPROOF_NVCC)
    message(FATAL_ERROR "CUDACXX=$ENV{CUDACXX} is not an executable file; ${kvproof_nvcc_remedy}")
  endif()
endif()
find_program(KVPROOF_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin DOC "nvcc")
if(NOT KVPROOF_NVCC)
  message(FATAL_ERROR "nvcc not found; ${kvproof_nvcc_remedy}")
endif()

# kvproof_compiler_version(<variable> <program>): the x.y.z behind "V" in `program --version`, or empty.
function(kvproof_compiler_version variable program)
  execute_process(COMMAND ${program} --version OUTPUT_VARIABLE text RESULT_VARIABLE status ERROR_QUIET)
  set(${variable} "" PARENT_SCOPE)
  if(status EQUAL 0 AND text MATCHES "V([0-9]+\\.[0-9]+\\.[0-9]+)")
    set(${variable} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()

kvproof_compiler_version(kvproof_nvcc_version ${KVPROOF_NVCC})
if(NOT kvproof_nvcc_version MATCHES "^${kvproof_cuda_release}\\.")
  set(kvproof_nvcc_refused ${KVPROOF_NVCC})
  unset(KVPROOF_NVCC CACHE)  # the next attempt looks anew
  message(FATAL_ERROR "${kvproof_nvcc_refused} is version '${kvproof_nvcc_version}', not ${kvproof_cuda_release}; ${kvproof_nvcc_remedy}")
elseif(NOT kvproof_nvcc_version VERSION_EQUAL kvproof_nvcc_required)
  message(WARNING "${KVPROOF_NVCC} is version ${kvproof_nvcc_version}; verify/evidence was recorded with ${kvproof_nvcc_required}, "
    "and PTX names its compiler: the hashes will differ")
endif()

if(NOT KVPROOF_PTXAS)
  get_filename_component(kvproof_nvcc_folder ${KVPROOF_NVCC} DIRECTORY)
  get_filename_component(kvproof_nvcc_real ${KVPROOF_NVCC} REALPATH)
  get_filename_component(kvproof_nvcc_real ${kvproof_nvcc_real} DIRECTORY)
  find_program(KVPROOF_PTXAS ptxas PATHS ${kvproof_nvcc_folder} ${kvproof_nvcc_real} NO_DEFAULT_PATH DOC "ptxas of the same release as nvcc")
  if(NOT KVPROOF_PTXAS)
    message(FATAL_ERROR "no ptxas beside ${KVPROOF_NVCC}; name it with -DKVPROOF_PTXAS=FILE")
  endif()
endif()
kvproof_compiler_version(kvproof_ptxas_version ${KVPROOF_PTXAS})
if(NOT kvproof_ptxas_version STREQUAL kvproof_nvcc_version)
  set(kvproof_ptxas_refused ${KVPROOF_PTXAS})
  unset(KVPROOF_PTXAS CACHE)
  message(FATAL_ERROR "${kvproof_ptxas_refused} is version '${kvproof_ptxas_version}', nvcc is ${kvproof_nvcc_version}: "
    "name the ptxas that belongs to ${KVPROOF_NVCC} with -DKVPROOF_PTXAS=FILE")
endif()

# kvproof_embed_kernels(<target> PREFIX <prefix> MODULES <name>... FLAGS <nvcc flag>...)
# Each <name>.cu of this folder becomes PTX by nvcc, and that very PTX a cubin by ptxas; <target> holds both between the
# symbols <prefix>_<name>_ptx and <prefix>_<name>_ptx_end (a zero byte), and the same with cubin. Needs the language ASM.
function(kvproof_embed_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 embed "" "PREFIX" "MODULES;FLAGS")
  set(assembly "\t.section .rodata\n")
  set(binaries)
  foreach(name IN LISTS embed_MODULES)
    set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx)
    set(cubin ${CMAKE_CURRENT_BINARY_DIR}/${name}.cubin)
    add_custom_command(OUTPUT ${ptx}
      COMMAND ${KVPROOF_NVCC} ${embed_FLAGS} -arch=sm_90a -MD -MF ${ptx}.d
              -ptx ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cu -o ${ptx}
      DEPENDS ${name}.cu DEPFILE ${ptx}.d COMMENT "nvcc ${name}.ptx" VERBATIM)
    add_custom_command(OUTPUT ${cubin}
      COMMAND ${KVPROOF_PTXAS} -arch=sm_90a -O3 ${ptx} -o ${cubin}
      DEPENDS ${ptx} COMMENT "ptxas ${name}.cubin" VERBATIM)
    list(APPEND binaries ${ptx} ${cubin})
    foreach(kind IN ITEMS ptx cubin)
      set(symbol ${embed_PREFIX}_${name}_${kind})
      string(APPEND assembly
        "\t.balign 64\n\t.globl ${symbol}\n${symbol}:\n\t.incbin \"${${kind}}\"\n"
        "\t.globl ${symbol}_end\n${symbol}_end:\n\t.byte 0\n")
    endforeach()
  endforeach()
  string(APPEND assembly "\t.section .note.GNU-stack,\"\",@progbits\n")
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded_modules.S)
  file(CONFIGURE OUTPUT ${source} CONTENT "${assembly}" @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${binaries}")
  target_sources(${target} PRIVATE ${source})
endfunction()

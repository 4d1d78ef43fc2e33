# Installs the build into a prefix, moves that prefix, and builds and runs a project that finds kvproof there.
# -DBUILD -DSOURCE -DWORK -DGENERATOR -DCXX -DBUILD_TYPE -DKERNELS; fails with the step's output.
function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
step("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)  # a package that only works where it was installed is broken

file(GLOB_RECURSE package ${WORK}/prefix/*.cmake)
foreach(file IN LISTS package)
  file(READ ${file} text)
  foreach(folder IN ITEMS ${WORK}/first ${BUILD} ${SOURCE})
    string(FIND "${text}" "${folder}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names ${folder}")
    endif()
  endforeach()
endforeach()

step("configuring the consumer" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE}/tests/build/consumer -B ${WORK}/build
  -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
  -DEXPECT_KERNELS=${KERNELS})
step("building the consumer" ${CMAKE_COMMAND} --build ${WORK}/build)
step("running the consumer" ${WORK}/build/consumer ${WORK}/prefix/share/kvproof/smollm2-135m-instruct.h5)
message(STATUS "${output}")

# The installed command finds the shipped trace by itself.
step("the installed command" ${WORK}/prefix/bin/kvproof list cases)
if(NOT output MATCHES "smollm2-135m-instruct/")
  message(FATAL_ERROR "kvproof list cases names no case of the shipped trace:\n${output}")
endif()
file(REMOVE_RECURSE ${WORK})

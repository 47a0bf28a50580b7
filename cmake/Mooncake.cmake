# mooncake_library(NAME SOURCES a.cc ... [DEPS x ...] [LINK y ...]): one folder of src/, as a static
# library mooncake_<NAME>. DEPS names other folders; LINK names outside targets.
function(mooncake_library NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LINK" ${ARGN})
  add_library(mooncake_${NAME} STATIC ${ARG_SOURCES})
  target_include_directories(mooncake_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(mooncake_${NAME} PUBLIC ${ARG_LINK} Threads::Threads)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(mooncake_${NAME} PUBLIC mooncake_${dep})
  endforeach()
  mooncake_compile_options(mooncake_${NAME})
endfunction()

function(mooncake_compile_options TARGET)
  target_compile_options(${TARGET} PRIVATE -Wall -Wextra -Wpedantic -Werror
    -Wno-missing-field-initializers)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 sees overlapping copies in `"literal" + std::string` (its bug 105651).
    target_compile_options(${TARGET} PRIVATE -Wno-restrict)
  endif()
  if(MOONCAKE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Instrumented code makes GCC guess wrong about initialisation.
    target_compile_options(${TARGET} PRIVATE -Wno-maybe-uninitialized)
    if(MOONCAKE_SANITIZE STREQUAL thread)
      # Fences order what other processes see of memory that both map; the sanitizer follows none,
      # and reports none either: it knows memory by its address.
      target_compile_options(${TARGET} PRIVATE -Wno-tsan)
    endif()
  endif()
  mooncake_sanitize(${TARGET})
endfunction()

# mooncake_sanitize(TARGET): what MOONCAKE_SANITIZE asks for. Generated sources need it as well: a
# sanitizer sees only the accesses of code compiled for it.
function(mooncake_sanitize TARGET)
  if(NOT MOONCAKE_SANITIZE)
    return()
  endif()
  target_compile_options(${TARGET} PUBLIC -fsanitize=${MOONCAKE_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(${TARGET} PUBLIC -fsanitize=${MOONCAKE_SANITIZE})
  get_target_property(type ${TARGET} TYPE)
  if(type STREQUAL EXECUTABLE)
    target_sources(${TARGET} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/sanitizer_options.cc)
  endif()
endfunction()

# mooncake_test(FOLDER SOURCES a_test.cc ... [LINK y ...]): one test binary <FOLDER>_test a folder,
# registered with CTest as one test per binary.
function(mooncake_test FOLDER)
  if(NOT MOONCAKE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${FOLDER}_test ${ARG_SOURCES})
  target_link_libraries(${FOLDER}_test PRIVATE mooncake_${FOLDER} ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  # Only where it is used: a path in the command line keeps clones from sharing the compiler cache.
  foreach(source ${ARG_SOURCES})
    set(uses "")
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
      file(STRINGS ${source} uses REGEX MOONCAKE_SOURCE_DIR LIMIT_COUNT 1)
    endif()
    if(uses)
      set_property(SOURCE ${source} APPEND PROPERTY
        COMPILE_DEFINITIONS MOONCAKE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
  mooncake_compile_options(${FOLDER}_test)
  # Tests are most of a cold build, and none of them is timed: up to a third less to compile.
  target_compile_options(${FOLDER}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  add_test(NAME ${FOLDER} COMMAND ${FOLDER}_test)
  set_tests_properties(${FOLDER} PROPERTIES TIMEOUT 600)
endfunction()

# mooncake_bench(NAME SOURCES ... [DEPS ...]): a benchmark binary, run by ./x bench.
function(mooncake_bench NAME)
  if(NOT MOONCAKE_BENCH)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LINK" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${NAME} PRIVATE mooncake_${dep})
  endforeach()
  target_link_libraries(${NAME} PRIVATE ${ARG_LINK} benchmark::benchmark)
  mooncake_compile_options(${NAME})
endfunction()

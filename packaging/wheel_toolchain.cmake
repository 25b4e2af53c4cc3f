# The machine's g++, or Debian's cross compiler, with the C library of an older release, for wheels: both roots are
# unpacked by scripts/build_wheel.sh, which sets in the environment
#   CUBINERY_WHEEL_MACHINE   x86_64 or aarch64
#   CUBINERY_WHEEL_ROOT      folder; in it system/ has the C library, libraries/ what is compiled in
set(machine $ENV{CUBINERY_WHEEL_MACHINE})
set(triplet ${machine}-linux-gnu)
set(CMAKE_SYSROOT $ENV{CUBINERY_WHEEL_ROOT}/system)
set(CMAKE_C_COMPILER ${triplet}-gcc)
set(CMAKE_CXX_COMPILER ${triplet}-g++)
if(NOT machine STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR ${machine})
  # For what the build makes and runs.
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${machine}-static -L ${CMAKE_SYSROOT})
endif()
set(CMAKE_FIND_ROOT_PATH $ENV{CUBINERY_WHEEL_ROOT}/libraries)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Of the compiler's own folders those of C++ and of the compiler alone: in front of the root's, Debian's cross compiler
# has the headers and libraries of its own C library.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -E -v -x c++ /dev/null OUTPUT_QUIET ERROR_VARIABLE said)
string(REPLACE "\n" ";" lines "${said}")
list(FILTER lines INCLUDE REGEX "^ /.*(/c\\+\\+/|/lib/gcc[^/]*/${triplet}/[0-9]+/include$)")
list(TRANSFORM lines STRIP)
list(APPEND lines ${CMAKE_SYSROOT}/usr/include/${triplet} ${CMAKE_SYSROOT}/usr/include)
list(TRANSFORM lines PREPEND " -isystem ")
list(JOIN lines "" folders)
set(CMAKE_CXX_FLAGS_INIT "-nostdinc${folders}")
set(library_folder ${CMAKE_SYSROOT}/usr/lib/${triplet})
foreach(kind IN ITEMS EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT
      "-static-libstdc++ -pthread -Wl,--gc-sections -B${library_folder} -L${library_folder} -L${CMAKE_SYSROOT}/lib/${triplet}")
endforeach()
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT $ENV{CUBINERY_WHEEL_ROOT}/single_threaded.o)

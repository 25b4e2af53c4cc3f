# What makes an error in memory harder to exploit, for the targets that are shipped and no others:
# harden(TARGET...).  Each flag as far as the compiler and the linker have it.
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
include(CheckLinkerFlag)

set(hardening_options)
# Stack canaries; landing pads for indirect branches and a shadow stack, on x86-64 and on arm64.
set(CMAKE_REQUIRED_FLAGS -Werror)  # clang warns of flags that are for other processors
foreach(flag IN ITEMS -fstack-protector-strong -fcf-protection=full -mbranch-protection=standard)
  string(MAKE_C_IDENTIFIER "CUBINERY_HAS${flag}" has)
  check_cxx_compiler_flag(${flag} ${has})
  if(${has})
    list(APPEND hardening_options ${flag})
  endif()
endforeach()
unset(CMAKE_REQUIRED_FLAGS)

# Checked calls of the C library, where the compiler optimises, and the user does not say otherwise.  A level that it
# does not know is a warning.
if(NOT "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE} ${CMAKE_CXX_FLAGS_RELWITHDEBINFO} ${CMAKE_CXX_FLAGS_MINSIZEREL}"
   MATCHES "_FORTIFY_SOURCE")
  foreach(level IN ITEMS 3 2)
    set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level}")
    check_cxx_source_compiles("#include <string>\nint main() { return 0; }" CUBINERY_HAS_FORTIFY_${level})
    unset(CMAKE_REQUIRED_FLAGS)
    if(CUBINERY_HAS_FORTIFY_${level})
      foreach(flag IN ITEMS -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level})
        list(APPEND hardening_options $<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:${flag}>)
      endforeach()
      break()
    endif()
  endforeach()
endif()

# The tables of the dynamic linker are read-only before the first call, the stack is no code.
set(hardening_link_options)
foreach(flag IN ITEMS -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  string(MAKE_C_IDENTIFIER "CUBINERY_HAS${flag}" has)
  check_linker_flag(CXX ${flag} ${has})
  if(${has})
    list(APPEND hardening_link_options ${flag})
  endif()
endforeach()

function(harden)
  foreach(target IN LISTS ARGN)
    if(NOT TARGET ${target})
      continue()
    endif()
    target_compile_options(${target} PRIVATE ${hardening_options})
    get_target_property(type ${target} TYPE)
    if(NOT type MATCHES "^(STATIC|OBJECT)_LIBRARY$")
      target_link_options(${target} PRIVATE ${hardening_link_options})
    endif()
  endforeach()
endfunction()

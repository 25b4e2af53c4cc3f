# Debian packages, by scripts/build_deb.sh: the C library, what programs are built with, and the command.
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL library development command)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_PACKAGE_CONTACT "The cubinery developers")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${CUBINERY_DEB_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(needs "Running kernels takes the NVIDIA driver; compiling them takes NVRTC, of a
CUDA toolkit or of the PyPI package nvidia-cuda-nvrtc (of CUDA 12:
nvidia-cuda-nvrtc-cu12).")

# The package's name ends as the library's file does: two minor versions can be installed side by side.
set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libcubinery-c${soversion})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/debian/symbols)
configure_file(libcubinery_c.symbols.in debian/symbols @ONLY)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The C library.\n${needs}")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libcubinery-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS libdlpack-dev)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "What programs in C++ and C are built with.\n${needs}")

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME cubinery)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION devel)
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "The command.\n${needs}")

# Each has its licences where Debian has them.
file(READ ${PROJECT_SOURCE_DIR}/THIRD_PARTY_NOTICES notices)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/debian/copyright
     "cubinery is under the Apache license, version 2.0: /usr/share/common-licenses/Apache-2.0.\n\n${notices}")
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/debian/copyright
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME} COMPONENT ${component})
endforeach()
include(CPack)

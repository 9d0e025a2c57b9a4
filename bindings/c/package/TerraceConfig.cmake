# find_package(Terrace) gives the targets Terrace::terrace (shared) and Terrace::terrace_static.

get_filename_component(_terrace_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

include(CMakeFindDependencyMacro)
find_dependency(Threads)

if(NOT TARGET Terrace::terrace)
  add_library(Terrace::terrace SHARED IMPORTED)
  set_target_properties(Terrace::terrace PROPERTIES
    IMPORTED_LOCATION "${_terrace_prefix}/lib/libterrace.so.@ABI@"
    IMPORTED_SONAME "libterrace.so.@ABI@"
    INTERFACE_INCLUDE_DIRECTORIES "${_terrace_prefix}/include")
endif()

if(NOT TARGET Terrace::terrace_static)
  add_library(Terrace::terrace_static STATIC IMPORTED)
  set_target_properties(Terrace::terrace_static PROPERTIES
    IMPORTED_LOCATION "${_terrace_prefix}/lib/libterrace.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_terrace_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()

unset(_terrace_prefix)

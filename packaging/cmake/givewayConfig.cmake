# giveway's library for programs that call it: find_package(giveway), then link giveway::shimhip.
include_guard(GLOBAL)

get_filename_component(giveway_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET giveway::shimhip)
  add_library(giveway::shimhip SHARED IMPORTED)
  set_target_properties(giveway::shimhip PROPERTIES
    IMPORTED_LOCATION "${giveway_prefix}/lib/libshimhip.so.1"
    IMPORTED_SONAME libshimhip.so.1
    INTERFACE_INCLUDE_DIRECTORIES "${giveway_prefix}/include")
endif()
unset(giveway_prefix)

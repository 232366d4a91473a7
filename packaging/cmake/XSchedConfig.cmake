# The names under which a program written for XSched on HIP finds giveway's library. giveway is not affiliated with XSched.
include_guard(GLOBAL)

include("${CMAKE_CURRENT_LIST_DIR}/../giveway/givewayConfig.cmake")
foreach(xsched_name preempt halhip shimhip)
  if(NOT TARGET XSched::${xsched_name})
    add_library(XSched::${xsched_name} INTERFACE IMPORTED)
    set_target_properties(XSched::${xsched_name} PROPERTIES INTERFACE_LINK_LIBRARIES giveway::shimhip)
  endif()
endforeach()
unset(xsched_name)
get_filename_component(XSched_INCLUDE_DIRS "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)

# find_package(aotc_backend): the target `aotc::backend` has the headers of native back ends.
#
#     cmake -B build -DCMAKE_PREFIX_PATH="$(aotc backends include-dir)"
#
#     find_package(aotc_backend 1 REQUIRED)
#     add_library(custom_add MODULE custom_add.c)
#     target_link_libraries(custom_add PRIVATE aotc::backend)

get_filename_component(aotc_backend_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

if(NOT TARGET aotc::backend)
  add_library(aotc::backend INTERFACE IMPORTED)
  set_target_properties(aotc::backend PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${aotc_backend_INCLUDE_DIR}")
endif()

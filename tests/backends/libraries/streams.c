/* A back end for a device that tells on which stream it was called: place(out) writes its handle. */
#include <string.h>

#include "aotc_backend.h"

static int32_t place(const aotc_context *context, const DLTensor *tensors,
                     const aotc_scalar *scalars) {
  (void)scalars;
  *(int64_t *)tensors[0].data = (int64_t)(intptr_t)context->stream;
  return AOTC_OK;
}

static const aotc_tensor_spec tensors[] = {
    {.name = "out", .role = AOTC_OUTPUT, .dtypes = AOTC_I64, .rank = 1},
};
static const aotc_function function = {.struct_bytes = sizeof(aotc_function),
                                       .flags = AOTC_CONCURRENT,
                                       .name = "place",
                                       .devices = AOTC_CUDA,
                                       .tensor_count = 1,
                                       .tensors = tensors,
                                       .kernel = place};
static const char *const names[] = {"place", NULL};

static const aotc_function *get_function(const char *name) {
  return strcmp(name, "place") == 0 ? &function : NULL;
}

static const aotc_backend backend = {.abi_version = AOTC_BACKEND_ABI,
                                     .struct_bytes = sizeof(aotc_backend),
                                     .name = "streams",
                                     .version = "0.0.1",
                                     .devices = AOTC_CUDA,
                                     .function_names = names,
                                     .get_function = get_function};

const aotc_backend *aotc_backend_init(uint32_t host_abi_version) {
  return host_abi_version == AOTC_BACKEND_ABI ? &backend : NULL;
}

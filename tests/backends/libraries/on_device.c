/* A back end for a device, whose "device" is a fake driver's memory: this process's own. */
#include <stdint.h>
#include <string.h>

#include "aotc_backend.h"

static int64_t states[2];

/* scaled(out, x, factor): through its workspace; fails below 0, and off its stream or device. */
static int32_t scaled(const aotc_context *context, const DLTensor *tensors,
                      const aotc_scalar *scalars) {
  int64_t count = aotc_element_count(&tensors[1]);
  float *room = context->workspace;
  if (scalars[0].f64 < 0) return aotc_fail(context, "factor %g is below 0", scalars[0].f64);
  if (context->device_type != kDLCUDA || tensors[0].device.device_type != kDLCUDA)
    return aotc_fail(context, "device %d", context->device_type);
  if (context->state != &states[0]) return aotc_fail(context, "no state");
  if (context->workspace_bytes < (uint64_t)count * sizeof(float))
    return aotc_fail(context, "a workspace of %llu", (unsigned long long)context->workspace_bytes);
  for (int64_t i = 0; i < count; ++i)
    room[i] = ((const float *)tensors[1].data)[i] * (float)scalars[0].f64;
  memcpy(tensors[0].data, room, (size_t)count * sizeof(float));
  ++states[0];
  states[1] = (int64_t)(intptr_t)context->stream;
  return AOTC_OK;
}

static int64_t scaled_bytes(const aotc_context *context, const DLTensor *tensors,
                            const aotc_scalar *scalars) {
  (void)context;
  (void)scalars;
  return aotc_element_count(&tensors[1]) * (int64_t)sizeof(float);
}

static int32_t initialize(aotc_context *context, const aotc_config *configs, size_t count) {
  (void)configs;
  (void)count;
  if (context->device_type != kDLCUDA) return aotc_fail(context, "asked for the host");
  context->state = &states[0];
  return AOTC_OK;
}

static const aotc_tensor_spec tensors[] = {
    {.name = "out", .role = AOTC_OUTPUT, .dtypes = AOTC_F32, .rank = AOTC_ANY_RANK},
    {.name = "x", .role = AOTC_INPUT, .dtypes = AOTC_F32, .rank = AOTC_ANY_RANK},
};
static const aotc_scalar_spec scalars[] = {{.name = "factor", .kind = AOTC_REAL_NUMBER}};
static const aotc_function function = {.struct_bytes = sizeof(aotc_function),
                                       .name = "scaled",
                                       .devices = AOTC_CUDA,
                                       .tensor_count = 2,
                                       .tensors = tensors,
                                       .scalar_count = 1,
                                       .scalars = scalars,
                                       .kernel = scaled,
                                       .workspace_bytes = scaled_bytes};
static const char *const names[] = {"scaled", NULL};

static const aotc_function *get_function(const char *name) {
  return strcmp(name, "scaled") == 0 ? &function : NULL;
}

static const aotc_backend backend = {.abi_version = AOTC_BACKEND_ABI,
                                     .struct_bytes = sizeof(aotc_backend),
                                     .name = "on_device",
                                     .version = "0.0.1",
                                     .devices = AOTC_CUDA,
                                     .initialize = initialize,
                                     .function_names = names,
                                     .get_function = get_function};

const aotc_backend *aotc_backend_init(uint32_t host_abi_version) {
  return host_abi_version == AOTC_BACKEND_ABI ? &backend : NULL;
}

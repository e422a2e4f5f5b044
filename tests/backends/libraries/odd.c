/* A back end that breaks one rule of the header, chosen by what it is compiled with. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "aotc_backend.h"

#ifndef ABI
#define ABI AOTC_BACKEND_ABI
#endif
#ifndef NAME
#define NAME "odd"
#endif
#ifndef STRUCT_BYTES
#define STRUCT_BYTES sizeof(aotc_backend)
#endif
#ifndef DEVICES
#define DEVICES AOTC_CPU
#endif
#ifndef KERNEL
#define KERNEL fill
#endif
#ifndef DTYPES
#define DTYPES AOTC_F32
#endif
#ifndef ROLE
#define ROLE AOTC_OUTPUT
#endif
#ifndef LISTED
#define LISTED "fill"
#endif
#ifndef ALIGNMENT
#define ALIGNMENT 0
#endif

/* fill(out, value): fails for a negative value, and says nothing for -2. */
int32_t fill(const aotc_context *context, const DLTensor *tensors, const aotc_scalar *scalars) {
  if (scalars[0].f64 == -2) return 7;
  if (scalars[0].f64 < 0) return aotc_fail(context, "%g is below 0", scalars[0].f64);
  for (int64_t i = 0; i < aotc_element_count(&tensors[0]); ++i)
    ((float *)tensors[0].data)[i] = (float)scalars[0].f64;
  return AOTC_OK;
}

/* overrun(out, value): writes behind a copy on the heap. */
int32_t overrun(const aotc_context *context, const DLTensor *tensors, const aotc_scalar *scalars) {
  int64_t count = aotc_element_count(&tensors[0]);
  float *copy = malloc((size_t)count * sizeof(float));
  for (int64_t i = 0; i <= count; ++i) copy[i] = (float)scalars[0].f64;
  memcpy(tensors[0].data, copy, (size_t)count * sizeof(float));
  free(copy);
  (void)context;
  return AOTC_OK;
}

static int32_t initialize(aotc_context *context, const aotc_config *configs, size_t count) {
#ifdef CRASH
  raise(CRASH);
#endif
#ifdef EXIT
  exit(EXIT);
#endif
  for (size_t i = 0; i < count; ++i)
    if (strcmp(configs[i].key, "refuse") == 0)
      return aotc_fail(context, "refuses as asked: %s", configs[i].value);
  return AOTC_OK;
}

static const aotc_tensor_spec tensors[] = {{.name = "out",
                                            .role = ROLE,
                                            .dtypes = DTYPES,
                                            .rank = 1,
                                            .alignment_bytes = ALIGNMENT}};
static const aotc_scalar_spec scalars[] = {{.name = "value", .kind = AOTC_REAL_NUMBER}};
static const aotc_function function = {.struct_bytes = sizeof(aotc_function),
                                       .name = "fill",
                                       .devices = AOTC_CPU,
                                       .tensor_count = 1,
                                       .tensors = tensors,
                                       .scalar_count = 1,
                                       .scalars = scalars,
                                       .kernel = KERNEL};
static const char *const names[] = {LISTED, NULL};

static const aotc_function *get_function(const char *name) {
  return strcmp(name, LISTED) == 0 ? &function : NULL;
}

static const aotc_backend backend = {.abi_version = ABI,
                                     .struct_bytes = STRUCT_BYTES,
                                     .name = NAME,
                                     .version = "0.0.1",
                                     .devices = DEVICES,
                                     .initialize = initialize,
                                     .function_names = names,
                                     .get_function = get_function};

const aotc_backend *aotc_backend_init(uint32_t host_abi_version) {
  (void)host_abi_version;
#ifdef REFUSE
  return NULL;
#endif
  return &backend;
}

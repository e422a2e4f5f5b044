/* The hello world of native back ends: element-wise addition, in C. */
#include <string.h>

#include "aotc_backend.h"

/* add(out, a, b, n): out[i] = a[i] + b[i] for the first n elements; f32 or f64. */
static int32_t add(const aotc_context *context, const DLTensor *tensors,
                   const aotc_scalar *scalars) {
  const DLTensor *out = &tensors[0], *a = &tensors[1], *b = &tensors[2];
  int64_t n = scalars[0].i64, first, end;
  for (int place = 0; place < 3; ++place) {
    int64_t count = aotc_element_count(&tensors[place]);
    if (n < 0 || n > count)
      return aotc_fail(context, "n is %lld, expected 0 to %lld", (long long)n, (long long)count);
    if (tensors[place].dtype.bits != out->dtype.bits)
      return aotc_fail(context, "a, b and out have different element types");
  }
  aotc_tile_range(context, n, &first, &end);
  if (out->dtype.bits == 64) {
    double *to = out->data;
    const double *left = a->data, *right = b->data;
    for (int64_t i = first; i < end; ++i) to[i] = left[i] + right[i];
  } else {
    float *to = out->data;
    const float *left = a->data, *right = b->data;
    for (int64_t i = first; i < end; ++i) to[i] = left[i] + right[i];
  }
  return AOTC_OK;
}

#define REAL (AOTC_F32 | AOTC_F64)
static const aotc_tensor_spec add_tensors[] = {
    {.name = "out", .role = AOTC_OUTPUT, .dtypes = REAL, .rank = AOTC_ANY_RANK},
    {.name = "a", .role = AOTC_INPUT, .dtypes = REAL, .rank = AOTC_ANY_RANK},
    {.name = "b", .role = AOTC_INPUT, .dtypes = REAL, .rank = AOTC_ANY_RANK},
};
static const aotc_scalar_spec add_scalars[] = {{.name = "n", .kind = AOTC_WHOLE_NUMBER}};

static const aotc_function functions[] = {
    {
        .struct_bytes = sizeof(aotc_function),
        .flags = AOTC_CONCURRENT | AOTC_TILED,
        .name = "add",
        .devices = AOTC_CPU,
        .tensor_count = 3,
        .tensors = add_tensors,
        .scalar_count = 1,
        .scalars = add_scalars,
        .kernel = add,
    },
};
static const char *const function_names[] = {"add", NULL};

static const aotc_function *get_function(const char *name) {
  return strcmp(name, "add") == 0 ? &functions[0] : NULL;
}

static const aotc_backend backend = {
    .abi_version = AOTC_BACKEND_ABI,
    .struct_bytes = sizeof(aotc_backend),
    .name = "custom_add",
    .version = "1.0.0",
    .devices = AOTC_CPU,
    .function_names = function_names,
    .get_function = get_function,
};

const aotc_backend *aotc_backend_init(uint32_t host_abi_version) {
  return host_abi_version == AOTC_BACKEND_ABI ? &backend : NULL;
}

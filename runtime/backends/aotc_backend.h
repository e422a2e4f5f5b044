/* aotc_backend.h: how a shared library becomes a native back end of aotc. C11, and C++ from C++11.
 *
 * A back end is a shared library `libNAME.so` that exports one symbol, `aotc_backend_init`. It
 * returns a table: a name, the devices, and functions with their signatures. A function gets its
 * tensors as DLPack's `DLTensor`, its numbers as `aotc_scalar`, and an `aotc_context`. Python calls
 * it directly, and compiled graphs call it from within their plan, with no Python in between.
 *
 * Rules that hold for every function:
 *   - it checks sizes itself; element types, ranks, alignment, gaps and devices were checked by the
 *     host against the signature;
 *   - it returns 0, or anything else after `aotc_fail(context, ...)`; no exception may leave it;
 *   - on a device it puts its work on `context->stream` and waits for nothing;
 *   - it keeps no pointer that it was given once it has returned.
 *
 * Copyright the aotc authors, Apache License 2.0. The declarations between the two DLPack lines are
 * those of DLPack 1.1 (dlpack/dlpack.h, Copyright 2017 by its contributors, Apache License 2.0) and
 * give way to that header where the compiler finds it.
 */
#ifndef AOTC_BACKEND_H
#define AOTC_BACKEND_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define AOTC_BACKEND_ABI 1u

#if defined(__GNUC__)
#define AOTC_BACKEND_EXPORT __attribute__((visibility("default")))
#define AOTC_PRINTF __attribute__((format(printf, 2, 3), unused))
#else
#define AOTC_BACKEND_EXPORT
#define AOTC_PRINTF
#endif

/* ---- DLPack ---------------------------------------------------------------------------------- */
#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 1

typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 } DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;

typedef struct {
  uint8_t code; /* DLDataTypeCode */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} DLDataType;

typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; aotc always gives them */
  uint64_t byte_offset; /* aotc always gives 0: `data` is the first element */
} DLTensor;
#endif
/* ---- DLPack ends ----------------------------------------------------------------------------- */

#ifdef __cplusplus
extern "C" {
#endif

/* Devices, as bits of a mask. */
enum { AOTC_CPU = 1u << 0, AOTC_CUDA = 1u << 1 };

/* Element types, as bits of a mask. A bool is one byte, 0 or 1. */
enum {
  AOTC_F64 = 1u << 0,
  AOTC_F32 = 1u << 1,
  AOTC_F16 = 1u << 2,
  AOTC_BF16 = 1u << 3,
  AOTC_I64 = 1u << 4,
  AOTC_I32 = 1u << 5,
  AOTC_I16 = 1u << 6,
  AOTC_I8 = 1u << 7,
  AOTC_U8 = 1u << 8,
  AOTC_BOOL = 1u << 9
};

enum { AOTC_INPUT = 0, AOTC_OUTPUT = 1 };             /* role of a tensor */
enum { AOTC_WHOLE_NUMBER = 0, AOTC_REAL_NUMBER = 1 }; /* kind of a scalar */
enum { AOTC_ANY_RANK = -1 };
enum { AOTC_OK = 0, AOTC_FAILED = 1 };

/* Flags of a tensor. Without any, its elements lie row by row without gaps. */
enum { AOTC_STRIDED = 1u << 0 }; /* it may have gaps: the function goes by its strides */

/* Flags of a function. */
enum {
  AOTC_CONCURRENT = 1u << 0, /* several calls may run at once, in several threads */
  AOTC_TILED = 1u << 1       /* it does part `tile` of `tiles` of its work, whatever `tiles` is;
                                parts may run at once, in any order */
};

typedef union aotc_scalar {
  int64_t i64; /* AOTC_WHOLE_NUMBER */
  double f64;  /* AOTC_REAL_NUMBER */
} aotc_scalar;

/* What a call gets beside its arguments. Later versions only add fields behind these. */
typedef struct aotc_context {
  uint32_t struct_bytes;
  int32_t device_type;      /* kDLCPU or kDLCUDA */
  int32_t device_id;
  int32_t threads;          /* how many threads the call may keep busy, its own included */
  int32_t tile;             /* 0 ... tiles - 1; 0 of 1 unless the function is AOTC_TILED */
  int32_t tiles;
  void *stream;             /* CUstream on kDLCUDA, else NULL */
  void *state;              /* what `initialize` left here for this device */
  void *workspace;          /* memory on the device, aligned to 64 bytes; nothing is known of it */
  uint64_t workspace_bytes; /* at least what the function asked for */
  char *message;            /* where `aotc_fail` writes */
  uint64_t message_bytes;
} aotc_context;

typedef int32_t (*aotc_kernel)(const aotc_context *context, const DLTensor *tensors,
                               const aotc_scalar *scalars);

/* Bytes of memory that a call on tensors of these shapes needs beside them (for one tile), or a
 * negative number after `aotc_fail`. It reads no tensor's elements: a plan asks before there are any, and
 * for a device perhaps on a machine without one, with a `state` of NULL. */
typedef int64_t (*aotc_workspace)(const aotc_context *context, const DLTensor *tensors,
                                  const aotc_scalar *scalars);

typedef struct aotc_tensor_spec {
  const char *name;
  uint32_t role;            /* AOTC_INPUT or AOTC_OUTPUT */
  uint32_t dtypes;          /* mask of element types */
  int32_t rank;             /* or AOTC_ANY_RANK */
  uint32_t flags;
  uint32_t alignment_bytes; /* of the first element: a power of two; 0 is the element's size */
} aotc_tensor_spec;

typedef struct aotc_scalar_spec {
  const char *name;
  uint32_t kind; /* AOTC_WHOLE_NUMBER or AOTC_REAL_NUMBER */
} aotc_scalar_spec;

typedef struct aotc_function {
  uint32_t struct_bytes; /* sizeof(aotc_function) */
  uint32_t flags;
  const char *name;
  uint32_t devices; /* mask; those of the tensors that it takes */
  uint32_t tensor_count;
  const aotc_tensor_spec *tensors; /* in the order in which the kernel gets them */
  uint32_t scalar_count;
  const aotc_scalar_spec *scalars;
  aotc_kernel kernel;
  aotc_workspace workspace_bytes; /* NULL: it needs none */
} aotc_function;

typedef struct aotc_config {
  const char *key;
  const char *value;
} aotc_config;

typedef struct aotc_backend {
  uint32_t abi_version;  /* AOTC_BACKEND_ABI */
  uint32_t struct_bytes; /* sizeof(aotc_backend) */
  const char *name;      /* of a file libNAME.so: letters, digits and _ */
  const char *version;   /* for people and bundles: "1.4.0" */
  uint32_t devices;      /* mask */

  /* Called once for each device before its first function, with `device_type` and `device_id`
   * set; leaves what the device needs in `context->state`. Returns 0, or anything else after
   * `aotc_fail`. May be NULL. */
  int32_t (*initialize)(aotc_context *context, const aotc_config *configs, size_t config_count);
  /* Called once for each device that was initialized, with its `state`. May be NULL. */
  void (*finalize)(aotc_context *context);

  const char *const *function_names; /* ends with NULL */
  const aotc_function *(*get_function)(const char *name); /* NULL where there is none */
} aotc_backend;

/* The one symbol that a back end exports. `host_abi_version` is the host's AOTC_BACKEND_ABI; NULL
 * says that the library does not work with it. The table stays valid while the library is loaded. */
AOTC_BACKEND_EXPORT const aotc_backend *aotc_backend_init(uint32_t host_abi_version);

/* Writes an error message as printf does, and returns AOTC_FAILED to return. */
static inline int32_t AOTC_PRINTF aotc_fail(const aotc_context *context, const char *format, ...) {
  if (context->message != NULL && context->message_bytes != 0) {
    va_list values;
    va_start(values, format);
    vsnprintf(context->message, (size_t)context->message_bytes, format, values);
    va_end(values);
  }
  return AOTC_FAILED;
}

/* Number of elements of a tensor. */
static inline int64_t aotc_element_count(const DLTensor *tensor) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) count *= tensor->shape[axis];
  return count;
}

/* First and last + 1 of `count` things for this call's tile: tiles differ by one at most. */
static inline void aotc_tile_range(const aotc_context *context, int64_t count, int64_t *first,
                                   int64_t *end) {
  int64_t tiles = context->tiles, each = count / tiles, more = count % tiles;
  int64_t tile = context->tile;
  *first = tile * each + (tile < more ? tile : more);
  *end = *first + each + (tile < more ? 1 : 0);
}

#ifdef __cplusplus
}
static_assert(sizeof(DLTensor) == 48, "DLPack's DLTensor has another layout");
static_assert(sizeof(aotc_context) == 72, "aotc_context has another layout");
#else
_Static_assert(sizeof(DLTensor) == 48, "DLPack's DLTensor has another layout");
_Static_assert(sizeof(aotc_context) == 72, "aotc_context has another layout");
#endif

#endif /* AOTC_BACKEND_H */

// A back end for NVIDIA devices: out = alpha · x + y, on the stream of the call.
//
// What a device needs for itself stands in `State`, made by `initialize` and freed by `finalize`;
// here it is the number of blocks that fill the device.
#include <algorithm>
#include <stdexcept>
#include <string>

#include <cuda_runtime.h>

#include "aotc_backend.hpp"

namespace {

constexpr int THREADS = 256;

void check(cudaError_t status, const char *what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

__global__ void axpy_kernel(float *out, const float *x, const float *y, float alpha, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    out[i] = alpha * x[i] + y[i];
}

struct State {
  int64_t blocks;
};

// Makes the device of the call current, and the caller's one again.
class OnDevice {
 public:
  explicit OnDevice(const aotc::Context &context) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    check(cudaSetDevice(context.device_id()), "cudaSetDevice");
  }
  ~OnDevice() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

void axpy(const aotc::Context &context, aotc::Tensor<float> out, aotc::Tensor<const float> x,
          aotc::Tensor<const float> y, double alpha) {
  const int64_t n = out.element_count();
  aotc::require(x.element_count() == n && y.element_count() == n,
                "x, y and out differ in their number of elements");
  if (n == 0) return;
  const OnDevice guard(context);
  const int64_t wanted = (n + THREADS - 1) / THREADS;
  const int64_t blocks = std::min(wanted, context.state<State>()->blocks);
  axpy_kernel<<<static_cast<unsigned>(blocks), THREADS, 0,
                static_cast<cudaStream_t>(context.stream())>>>(
      out.data(), x.data(), y.data(), static_cast<float>(alpha), n);
  check(cudaGetLastError(), "the launch of axpy");
}

class CudaAxpy : public aotc::Backend {
 public:
  CudaAxpy() {
    aotc::Options options;
    options.flags = AOTC_CONCURRENT;
    options.devices = AOTC_CUDA;
    define<&axpy>("axpy", {"out", "x", "y", "alpha"}, options);
  }
  std::string get_name() const override { return "cuda_axpy"; }
  std::string get_version() const override { return "1.0.0"; }
  uint32_t get_supported_devices() const override { return AOTC_CUDA; }

  void *initialize(const aotc::Context &context, const aotc::Configs &) override {
    int processors = 0;
    check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount,
                                 context.device_id()),
          "cudaDeviceGetAttribute");
    return new State{int64_t(processors) * 8};
  }
  void finalize(const aotc::Context &context) override { delete context.state<State>(); }
};

}  // namespace

AOTC_EXPORT_BACKEND(CudaAxpy)

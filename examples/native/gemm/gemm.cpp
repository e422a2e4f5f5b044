// A matrix product with a register-tiled micro-kernel: c[m, n] = a[m, k] · b[k, n], f32.
//
// The micro-kernel keeps ROWS × COLUMNS sums in registers. A panel of b, COLUMNS wide, is copied to
// the workspace first, so that the innermost loop reads it in order.
#include <algorithm>

#include "aotc_backend.hpp"

namespace {

constexpr int64_t ROWS = 6, COLUMNS = 16;
constexpr int64_t DEPTH = 256;  // of a panel: 16 KB, which the first cache holds

using Output = aotc::Tensor<float, 2>;
using Matrix = aotc::Tensor<const float, 2>;

// sums += a[rows, depth] · panel[depth, COLUMNS]; `a` has `stride` elements from row to row.
template <int Rows>
void micro_kernel(const float *a, int64_t stride, const float *panel, int64_t depth,
                  float (&sums)[ROWS][COLUMNS]) {
  for (int64_t k = 0; k < depth; ++k)
    for (int row = 0; row < Rows; ++row) {
      const float left = a[row * stride + k];
      for (int64_t column = 0; column < COLUMNS; ++column)
        sums[row][column] += left * panel[k * COLUMNS + column];
    }
}

using MicroKernel = void (*)(const float *, int64_t, const float *, int64_t,
                             float (&)[ROWS][COLUMNS]);
constexpr MicroKernel MICRO_KERNELS[ROWS + 1] = {
    nullptr,          &micro_kernel<1>, &micro_kernel<2>, &micro_kernel<3>,
    &micro_kernel<4>, &micro_kernel<5>, &micro_kernel<6>};

void pack(const Matrix &b, int64_t from, int64_t depth, int64_t column, float *panel) {
  const int64_t width = std::min(COLUMNS, b.size(1) - column);
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t x = 0; x < COLUMNS; ++x)
      panel[k * COLUMNS + x] = x < width ? b[(from + k) * b.size(1) + column + x] : 0.0f;
}

int64_t panel_bytes(const aotc::Context &, Output, Matrix, Matrix) {
  return static_cast<int64_t>(sizeof(float)) * DEPTH * COLUMNS;
}

void matmul(const aotc::Context &context, Output c, Matrix a, Matrix b) {
  const int64_t m = c.size(0), n = c.size(1), k = a.size(1);
  aotc::require(a.size(0) == m && b.size(1) == n && b.size(0) == k,
                "the sizes of a, b and c do not fit each other");
  float *panel = context.workspace<float>();
  const auto [first, end] = context.tile_range(m);
  for (int64_t row = first; row < end; ++row) std::fill_n(&c(row, 0), n, 0.0f);
  for (int64_t column = 0; column < n; column += COLUMNS)
    for (int64_t from = 0; from < k; from += DEPTH) {
      const int64_t depth = std::min(DEPTH, k - from), width = std::min(COLUMNS, n - column);
      pack(b, from, depth, column, panel);
      for (int64_t row = first; row < end; row += ROWS) {
        const int64_t height = std::min(ROWS, end - row);
        float sums[ROWS][COLUMNS] = {};
        MICRO_KERNELS[height](a.data() + row * k + from, k, panel, depth, sums);
        for (int64_t y = 0; y < height; ++y)
          for (int64_t x = 0; x < width; ++x) c(row + y, column + x) += sums[y][x];
      }
    }
}

class Gemm : public aotc::Backend {
 public:
  Gemm() {
    aotc::Options options;
    options.flags = AOTC_CONCURRENT | AOTC_TILED;
    options.workspace_bytes = aotc::workspace<&panel_bytes>();
    define<&matmul>("matmul", {"c", "a", "b"}, options);
  }
  std::string get_name() const override { return "gemm"; }
  std::string get_version() const override { return "1.0.0"; }
};

}  // namespace

AOTC_EXPORT_BACKEND(Gemm)

// Filters of 8-bit pictures [height, width, channels]: nothing of a neural network.
#include <algorithm>
#include <cmath>

#include "aotc_backend.hpp"

namespace {

using Picture = aotc::Tensor<uint8_t, 3>;
using Source = aotc::StridedTensor<const uint8_t, 3>;  // a crop of a larger picture will do

void require_same_size(const Picture &out, const Source &image) {
  for (int32_t axis = 0; axis < 3; ++axis)
    aotc::require(out.size(axis) == image.size(axis), "out and image differ in size");
}

// Mean of the square of 2 · radius + 1 pixels around each pixel, rounded; edges are repeated.
void box_blur(const aotc::Context &context, Picture out, Source image, int64_t radius) {
  require_same_size(out, image);
  aotc::require(radius >= 0 && radius <= 64, "radius is not 0 to 64");
  const int64_t height = image.size(0), width = image.size(1), channels = image.size(2);
  const int64_t side = 2 * radius + 1, half = side * side / 2;
  const auto [first, end] = context.tile_range(height);
  for (int64_t row = first; row < end; ++row)
    for (int64_t column = 0; column < width; ++column)
      for (int64_t channel = 0; channel < channels; ++channel) {
        int64_t sum = half;
        for (int64_t y = row - radius; y <= row + radius; ++y)
          for (int64_t x = column - radius; x <= column + radius; ++x)
            sum += image(std::clamp<int64_t>(y, 0, height - 1),
                         std::clamp<int64_t>(x, 0, width - 1), channel);
        out(row, column, channel) = static_cast<uint8_t>(sum / (side * side));
      }
}

// out = 255 · (image / 255) ^ gamma, through a table of 256 entries.
void adjust_gamma(const aotc::Context &context, Picture out, Source image, double gamma) {
  require_same_size(out, image);
  aotc::require(gamma > 0, "gamma is not above 0");
  uint8_t table[256];
  for (int value = 0; value < 256; ++value)
    table[value] = static_cast<uint8_t>(std::lround(255.0 * std::pow(value / 255.0, gamma)));
  const auto [first, end] = context.tile_range(image.size(0));
  for (int64_t row = first; row < end; ++row)
    for (int64_t column = 0; column < image.size(1); ++column)
      for (int64_t channel = 0; channel < image.size(2); ++channel)
        out(row, column, channel) = table[image(row, column, channel)];
}

class ImageFilter : public aotc::Backend {
 public:
  ImageFilter() {
    aotc::Options options;
    options.flags = AOTC_CONCURRENT | AOTC_TILED;
    define<&box_blur>("box_blur", {"out", "image", "radius"}, options);
    define<&adjust_gamma>("adjust_gamma", {"out", "image", "gamma"}, options);
  }
  std::string get_name() const override { return "image_filter"; }
  std::string get_version() const override { return "1.0.0"; }
};

}  // namespace

AOTC_EXPORT_BACKEND(ImageFilter)

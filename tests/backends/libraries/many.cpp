// Functions of every shape of signature, in C++: state, workspace, strides, dtypes, exceptions.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "aotc_backend.hpp"

namespace {

struct State {
  std::string greeting;
  int64_t calls = 0;
};

void throws(const aotc::Context &, aotc::Tensor<float>) {
  throw std::runtime_error("thrown across the border");
}
void throws_a_number(const aotc::Context &, aotc::Tensor<float>) { throw 7; }

// Not concurrent: it counts its calls in the state.
void count(const aotc::Context &context, aotc::Tensor<int64_t, 1> out) {
  out[0] = ++context.state<State>()->calls;
  out[1] = static_cast<int64_t>(context.state<State>()->greeting.size());
}

void transpose(const aotc::Context &, aotc::StridedTensor<double, 2> out,
               aotc::StridedTensor<const double, 2> x) {
  for (int64_t row = 0; row < x.size(0); ++row)
    for (int64_t column = 0; column < x.size(1); ++column) out(column, row) = x(row, column);
}

int64_t sorted_bytes(const aotc::Context &, aotc::Tensor<int32_t>, aotc::Tensor<const int32_t> x) {
  aotc::require(x.rank() > 0, "a scalar has no order");
  return x.element_count() * static_cast<int64_t>(sizeof(int32_t));
}
void sorted(const aotc::Context &context, aotc::Tensor<int32_t> out,
            aotc::Tensor<const int32_t> x) {
  int32_t *copy = context.workspace<int32_t>();
  aotc::require(context.workspace_bytes() >= size_t(x.element_count()) * 4, "no workspace");
  std::copy(x.begin(), x.end(), copy);
  std::sort(copy, copy + x.element_count());
  std::copy(copy, copy + x.element_count(), out.begin());
}

// An input before the outputs, and two of them.
void split(const aotc::Context &, aotc::Tensor<const bool> x, aotc::Tensor<uint8_t> set,
           aotc::Tensor<int8_t> clear, int64_t by) {
  for (int64_t i = 0; i < x.element_count(); ++i) {
    set[i] = static_cast<uint8_t>(x[i] ? by : 0);
    clear[i] = static_cast<int8_t>(x[i] ? 0 : -by);
  }
}

void bits(const aotc::Context &, aotc::Tensor<int32_t> out, aotc::Tensor<const aotc::Bfloat16> x) {
  for (int64_t i = 0; i < x.element_count(); ++i) out[i] = x[i].bits;
}

// Fails by what is in the memory, in whichever tile finds it.
void positive(const aotc::Context &context, aotc::Tensor<float> out, aotc::Tensor<const float> x) {
  const auto [first, end] = context.tile_range(x.element_count());
  for (int64_t i = first; i < end; ++i) {
    if (x[i] < 0) throw std::domain_error("element " + std::to_string(i) + " is below 0");
    out[i] = x[i] + 1;
  }
}

// Which parts of the work a call was given, and how many threads it may keep busy.
void tiles(const aotc::Context &context, aotc::Tensor<int32_t, 2> out,
           aotc::Tensor<const float>) {
  const auto [first, end] = context.tile_range(out.size(0));
  for (int64_t row = first; row < end; ++row) {
    out(row, 0) = context.tile();
    out(row, 1) = context.tiles();
    out(row, 2) = context.threads();
  }
}

class Many : public aotc::Backend {
 public:
  Many() {
    define<&throws>("throws", {"out"});
    define<&throws_a_number>("throws_a_number", {"out"});
    define<&count>("count", {"out"});
    define<&transpose>("transpose", {"out", "x"});
    aotc::Options options;
    options.flags = AOTC_CONCURRENT;
    options.workspace_bytes = aotc::workspace<&sorted_bytes>();
    define<&sorted>("sorted", {"out", "x"}, options);
    define<&split>("split", {"x", "set", "clear", "by"});
    define<&bits>("bits", {"out", "x"});
    aotc::Options tiled;
    tiled.flags = AOTC_CONCURRENT | AOTC_TILED;
    define<&positive>("positive", {"out", "x"}, tiled);
    define<&tiles>("tiles", {"out", "x"}, tiled);
    aotc::Options aligned;
    aligned.alignment_bytes = 32;
    define<&positive>("aligned", {"out", "x"}, aligned);
  }
  std::string get_name() const override { return "many"; }
  void *initialize(const aotc::Context &, const aotc::Configs &configs) override {
    const auto found = configs.find("greeting");
    if (found != configs.end() && found->second == "none") throw std::runtime_error("no greeting");
    return new State{found == configs.end() ? "hello" : found->second};
  }
  void finalize(const aotc::Context &context) override { delete context.state<State>(); }
};

}  // namespace

AOTC_EXPORT_BACKEND(Many)

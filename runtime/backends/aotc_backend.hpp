// aotc_backend.hpp: native back ends in C++17, over aotc_backend.h.
//
//     class Filters : public aotc::Backend {
//      public:
//       Filters() { define<&blur>("blur", {"out", "image", "radius"}); }
//       std::string get_name() const override { return "filters"; }
//       static void blur(const aotc::Context &context, aotc::Tensor<uint8_t, 3> out,
//                        aotc::Tensor<const uint8_t, 3> image, int64_t radius) { ... }
//     };
//     AOTC_EXPORT_BACKEND(Filters)
//
// The signature is that of the C++ function: a `Tensor<T, Rank>` is an output, a
// `Tensor<const T, Rank>` an input, `int64_t` and `double` are scalars, which come last. An
// exception becomes an error at the border, with its text.
//
// Copyright the aotc authors, Apache License 2.0.
#ifndef AOTC_BACKEND_HPP
#define AOTC_BACKEND_HPP

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "aotc_backend.h"

namespace aotc {

// Sixteen-bit floats are carried, not computed with.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

template <class Element>
constexpr uint32_t dtype_bit() {
  using T = std::remove_const_t<Element>;
  if constexpr (std::is_same_v<T, double>) return AOTC_F64;
  else if constexpr (std::is_same_v<T, float>) return AOTC_F32;
  else if constexpr (std::is_same_v<T, Half>) return AOTC_F16;
  else if constexpr (std::is_same_v<T, Bfloat16>) return AOTC_BF16;
  else if constexpr (std::is_same_v<T, int64_t>) return AOTC_I64;
  else if constexpr (std::is_same_v<T, int32_t>) return AOTC_I32;
  else if constexpr (std::is_same_v<T, int16_t>) return AOTC_I16;
  else if constexpr (std::is_same_v<T, int8_t>) return AOTC_I8;
  else if constexpr (std::is_same_v<T, uint8_t>) return AOTC_U8;
  else if constexpr (std::is_same_v<T, bool>) return AOTC_BOOL;
  else static_assert(!sizeof(T), "tensors have elements of double, float, aotc::Half, "
                                 "aotc::Bfloat16, int8_t to int64_t, uint8_t or bool");
}

// A tensor's memory with its type: a view, which owns nothing. `IsStrided`: it may have gaps.
template <class Element, int Rank = AOTC_ANY_RANK, bool IsStrided = false>
class Tensor {
 public:
  static constexpr uint32_t role = std::is_const_v<Element> ? AOTC_INPUT : AOTC_OUTPUT;
  static constexpr uint32_t dtypes = dtype_bit<Element>();
  static constexpr int32_t fixed_rank = Rank;
  static constexpr uint32_t flags = IsStrided ? uint32_t(AOTC_STRIDED) : 0u;

  explicit Tensor(const DLTensor &tensor) : tensor_(&tensor) {}

  Element *data() const { return static_cast<Element *>(tensor_->data); }
  int32_t rank() const { return tensor_->ndim; }
  int64_t size(int32_t axis) const { return tensor_->shape[axis]; }
  int64_t stride(int32_t axis) const { return tensor_->strides[axis]; }  // in elements
  int64_t element_count() const { return aotc_element_count(tensor_); }
  std::vector<int64_t> shape() const {
    return std::vector<int64_t>(tensor_->shape, tensor_->shape + tensor_->ndim);
  }

  // The element at one index for each dim: `out(row, column)`.
  template <class... Index>
  Element &operator()(Index... index) const {
    static_assert(Rank == AOTC_ANY_RANK || sizeof...(Index) == Rank, "one index for each dim");
    const int64_t *stride = tensor_->strides;
    int64_t offset = 0;
    ((offset += static_cast<int64_t>(index) * *stride++), ...);
    return data()[offset];
  }
  // By its place in memory: of tensors without gaps only.
  Element &operator[](int64_t place) const {
    static_assert(!IsStrided, "a tensor that may have gaps is indexed by its dims");
    return data()[place];
  }
  Element *begin() const {
    static_assert(!IsStrided, "a tensor that may have gaps is indexed by its dims");
    return data();
  }
  Element *end() const { return begin() + element_count(); }

 private:
  const DLTensor *tensor_;
};

template <class Element, int Rank = AOTC_ANY_RANK>
using StridedTensor = Tensor<Element, Rank, true>;

// What a call gets beside its arguments.
class Context {
 public:
  explicit Context(const aotc_context &context) : context_(&context) {}

  int32_t device_type() const { return context_->device_type; }
  int32_t device_id() const { return context_->device_id; }
  int32_t threads() const { return context_->threads; }
  int32_t tile() const { return context_->tile; }
  int32_t tiles() const { return context_->tiles; }
  void *stream() const { return context_->stream; }  // CUstream; wait for nothing on it
  template <class State>
  State *state() const { return static_cast<State *>(context_->state); }
  template <class Element = void>
  Element *workspace() const { return static_cast<Element *>(context_->workspace); }
  uint64_t workspace_bytes() const { return context_->workspace_bytes; }

  // First and last + 1 of `count` things for this call's tile.
  std::pair<int64_t, int64_t> tile_range(int64_t count) const {
    int64_t first = 0, end = 0;
    aotc_tile_range(context_, count, &first, &end);
    return {first, end};
  }

 private:
  const aotc_context *context_;
};

// Throws std::invalid_argument with `text` unless `holds`: what a function says of sizes.
inline void require(bool holds, const char *text) {
  if (!holds) throw std::invalid_argument(text);
}

using Configs = std::map<std::string, std::string>;

namespace detail {

template <class Work>
int32_t at_the_border(const aotc_context *context, Work work) noexcept {
  try {
    work();
    return AOTC_OK;
  } catch (const std::exception &error) {
    return aotc_fail(context, "%s", error.what());
  } catch (...) {
    return aotc_fail(context, "an exception that is no std::exception");
  }
}

template <class Argument>
struct is_tensor : std::false_type {};
template <class Element, int Rank, bool IsStrided>
struct is_tensor<Tensor<Element, Rank, IsStrided>> : std::true_type {};

template <class Argument>
constexpr bool is_scalar =
    std::is_same_v<Argument, int64_t> || std::is_same_v<Argument, double>;

// A function (const Context &, tensors ..., scalars ...) as an `aotc_kernel` with its signature.
template <auto Function, class Result, class... Arguments>
struct Kernel {
  static constexpr size_t count = sizeof...(Arguments);
  static constexpr size_t tensor_count =
      (size_t(0) + ... + size_t(is_tensor<std::decay_t<Arguments>>::value));
  using Types = std::tuple<std::decay_t<Arguments>...>;

  template <size_t Place>
  static auto argument(const DLTensor *tensors, const aotc_scalar *scalars) {
    using Type = std::tuple_element_t<Place, Types>;
    if constexpr (is_tensor<Type>::value) {
      static_assert(Place < tensor_count, "tensors come before scalars");
      return Type(tensors[Place]);
    } else {
      static_assert(is_scalar<Type>, "an argument is a Tensor, an int64_t or a double");
      const aotc_scalar &scalar = scalars[Place - tensor_count];
      if constexpr (std::is_same_v<Type, double>) return scalar.f64;
      else return scalar.i64;
    }
  }

  template <size_t... Places>
  static Result invoke(const aotc_context *context, const DLTensor *tensors,
                       const aotc_scalar *scalars, std::index_sequence<Places...>) {
    return Function(Context(*context), argument<Places>(tensors, scalars)...);
  }

  static int32_t call(const aotc_context *context, const DLTensor *tensors,
                      const aotc_scalar *scalars) noexcept {
    return at_the_border(context, [&] {
      invoke(context, tensors, scalars, std::make_index_sequence<count>());
    });
  }

  // The same for a function that says how much workspace another one needs.
  static int64_t measure(const aotc_context *context, const DLTensor *tensors,
                         const aotc_scalar *scalars) noexcept {
    int64_t nbytes = 0;
    const int32_t status = at_the_border(context, [&] {
      nbytes = static_cast<int64_t>(
          invoke(context, tensors, scalars, std::make_index_sequence<count>()));
    });
    return status == AOTC_OK ? nbytes : -1;
  }

  template <size_t Place>
  static void describe(const char *name, std::vector<aotc_tensor_spec> &tensors,
                       std::vector<aotc_scalar_spec> &scalars) {
    using Type = std::tuple_element_t<Place, Types>;
    if constexpr (is_tensor<Type>::value)
      tensors.push_back({name, Type::role, Type::dtypes, Type::fixed_rank, Type::flags, 0});
    else
      scalars.push_back(
          {name, std::is_same_v<Type, double> ? AOTC_REAL_NUMBER : AOTC_WHOLE_NUMBER});
  }
};

template <auto Function>
struct Deduced;
template <class Result, class... Arguments, Result (*Function)(const Context &, Arguments...)>
struct Deduced<Function> : Kernel<Function, Result, Arguments...> {};

}  // namespace detail

// What a function is beside its signature.
struct Options {
  uint32_t flags = 0;                       // AOTC_CONCURRENT | AOTC_TILED
  uint32_t devices = AOTC_CPU;              // where its tensors may be
  aotc_workspace workspace_bytes = nullptr;  // `aotc::workspace<&function>()`
  uint32_t alignment_bytes = 0;             // of every tensor; 0 is the element's size
};

// A C++ function with a kernel's arguments that returns bytes, for `Options::workspace_bytes`.
template <auto Function>
constexpr aotc_workspace workspace() {
  return &detail::Deduced<Function>::measure;
}

// Inherit, say what it is called, `define` functions in the constructor, export it by the macro.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend &) = delete;
  Backend &operator=(const Backend &) = delete;
  virtual ~Backend() = default;

  virtual std::string get_name() const = 0;
  virtual std::string get_version() const { return "0.1.0"; }
  virtual uint32_t get_supported_devices() const { return AOTC_CPU; }
  // Once for each device; the result is `context.state<T>()` of its calls.
  virtual void *initialize(const Context &, const Configs &) { return nullptr; }
  // Once for each initialized device: free its state.
  virtual void finalize(const Context &) {}
  // The function of that name; nullptr where there is none.
  virtual aotc_kernel get_function_ptr(const std::string &name) const {
    const aotc_function *found = get_function(name);
    return found == nullptr ? nullptr : found->kernel;
  }

  const aotc_function *get_function(const std::string &name) const {
    for (const Definition &each : definitions_)
      if (each.name == name) return &each.function;
    return nullptr;
  }
  std::vector<const char *> function_names() const {
    std::vector<const char *> names;
    for (const Definition &each : definitions_) names.push_back(each.name.c_str());
    names.push_back(nullptr);
    return names;
  }

 protected:
  // Makes a C++ function a function of the back end; `names` are those of all its arguments.
  template <auto Function>
  void define(const char *name, std::initializer_list<const char *> names,
              const Options &options = {}) {
    using Found = detail::Deduced<Function>;
    if (names.size() != Found::count)
      throw std::logic_error(std::string(name) + ": one name for each argument");
    definitions_.emplace_back();  // a deque: what stands in it never moves
    Definition &made = definitions_.back();
    made.name = name;
    made.argument_names.assign(names.begin(), names.end());
    describe<Found>(made, std::make_index_sequence<Found::count>());
    for (aotc_tensor_spec &each : made.tensors) each.alignment_bytes = options.alignment_bytes;
    made.function = {sizeof(aotc_function),
                     options.flags,
                     made.name.c_str(),
                     options.devices,
                     static_cast<uint32_t>(made.tensors.size()),
                     made.tensors.data(),
                     static_cast<uint32_t>(made.scalars.size()),
                     made.scalars.data(),
                     &Found::call,
                     options.workspace_bytes};
  }

 private:
  struct Definition {
    std::string name;
    std::vector<std::string> argument_names;
    std::vector<aotc_tensor_spec> tensors;
    std::vector<aotc_scalar_spec> scalars;
    aotc_function function{};
  };

  template <class Found, size_t... Places>
  static void describe(Definition &made, std::index_sequence<Places...>) {
    (Found::template describe<Places>(made.argument_names[Places].c_str(), made.tensors,
                                      made.scalars),
     ...);
  }

  std::deque<Definition> definitions_;
};

namespace detail {

// The C table of one class of back end; made at the first call, kept while the library is loaded.
template <class Made>
struct Exported {
  Made backend;
  std::string name = backend.get_name();
  std::string version = backend.get_version();
  std::vector<const char *> names = backend.function_names();
  aotc_backend table{AOTC_BACKEND_ABI,
                     sizeof(aotc_backend),
                     name.c_str(),
                     version.c_str(),
                     backend.get_supported_devices(),
                     &initialize,
                     &finalize,
                     names.data(),
                     &get_function};

  static Exported &instance() {
    static Exported made;
    return made;
  }
  static int32_t initialize(aotc_context *context, const aotc_config *configs,
                            size_t count) noexcept {
    return at_the_border(context, [&] {
      Configs given;
      for (size_t place = 0; place < count; ++place)
        given[configs[place].key] = configs[place].value;
      context->state = instance().backend.initialize(Context(*context), given);
    });
  }
  static void finalize(aotc_context *context) noexcept {
    at_the_border(context, [&] { instance().backend.finalize(Context(*context)); });
  }
  static const aotc_function *get_function(const char *name) noexcept {
    try {
      return instance().backend.get_function(name);
    } catch (...) {
      return nullptr;
    }
  }
};

template <class Made>
const aotc_backend *init(uint32_t host_abi_version) noexcept {
  if (host_abi_version != AOTC_BACKEND_ABI) return nullptr;
  try {
    return &Exported<Made>::instance().table;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "aotc back end: %s\n", error.what());
    return nullptr;
  } catch (...) {
    return nullptr;
  }
}

}  // namespace detail
}  // namespace aotc

// Exports `aotc_backend_init` for a class that inherits aotc::Backend.
#define AOTC_EXPORT_BACKEND(Class)                                                             \
  extern "C" AOTC_BACKEND_EXPORT const aotc_backend *aotc_backend_init(uint32_t host) {        \
    return ::aotc::detail::init<Class>(host);                                                  \
  }

#endif  // AOTC_BACKEND_HPP

#include "gluon/kernels/cuda/orthogonalize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "gluon/kernels/cuda/orthogonalize_input.cuh"
#include "gluon/kernels/half_plan.h"

namespace gluon::cuda {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Allocates from the workspace; only counts bytes if the workspace is null.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}

  template <typename T> T* take(int64_t count) {
    char* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += static_cast<size_t>(round_up(count * static_cast<int64_t>(sizeof(T)), 256));
    return reinterpret_cast<T*>(piece);
  }

  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

// The products of one stack, in order, and the conversion before them.
struct StackPlan {
  bool convert = false;
  InputConversion conversion;
  std::vector<Product> products;
};

// Plans the iteration as a list of products.
class Planner {
 public:
  Planner(const OrthogonalizeStack& stack, const OrthogonalizeOptions& options, Arena& arena, StackPlan& plan)
      : stack_(stack),
        options_(options),
        arena_(arena),
        plan_(plan),
        side_(std::min(stack.rows, stack.columns)),
        updates_last_(kernels::updates_last(options.steps, stack.rows, stack.columns)) {}

  void run() {
    place_input();
    squares_ = arena_.take<float>(static_cast<int64_t>(stack_.count) * product_partials(side_));
    const int64_t row_stride = round_up(side_, 8), matrix_stride = row_stride * side_;
    for (size_t i = 0; i < (updates_last_ ? 4 : 3); ++i) {
      buffers_[i] = {arena_.take<__half>(matrix_stride * stack_.count), row_stride, matrix_stride};
    }
    append_gram(0);
    for (size_t i = 0; i < steps(); ++i) {
      append_polynomial(i);
      if (updates_last_ && i + 2 == steps()) {
        append_update(i + 1);
      } else {
        append_multiplication();
        if (i + 1 < steps()) append_gram(i + 1);
      }
    }
    plan_.products.back().target = stack_.target;
  }

 private:
  // X alternates between scratch and output and ends in the output; converted input starts where that works out.
  void place_input() {
    const bool half_input = stack_.input_type == ElementType::kFloat16;
    multiplications_ = steps() - (updates_last_ ? 1 : 0);
    if (!half_input || multiplications_ > 1) {
      const int64_t row_stride = round_up(stack_.columns, 8);
      scratch_ = {nullptr, row_stride, row_stride * stack_.rows};
      scratch_.data = arena_.take<__half>(scratch_.matrix_stride * stack_.count);
    }
    if (half_input) {
      // The input is only read: no product writes C to it.
      x_ = {static_cast<__half*>(const_cast<void*>(stack_.input)), stack_.row_stride, stack_.matrix_stride};
      return;
    }
    x_ = multiplications_ % 2 == 1 ? scratch_ : stack_.output;
    InputConversion& conversion = plan_.conversion;
    conversion = {stack_, x_, orthogonalize_input_length(stack_.rows, stack_.columns)};
    conversion.partials = arena_.take<double>(static_cast<int64_t>(stack_.count) * input_partials(conversion));
    plan_.convert = true;
  }

  size_t steps() const { return options_.steps.size(); }

  // What R of a step is stored with.
  double shift(size_t step) const { return kernels::stored_shift(options_.steps, step, updates_last_); }

  // A buffer that holds neither R nor `used`, nor the Z that waits for the last one.
  int free_buffer(int used) const {
    int index = 1;
    while (index == used || index == waiting_) ++index;
    return index;
  }

  // R = X X^T.
  void append_gram(size_t step) {
    Product& product = append(wide() ? ProductKind::kRowGram : ProductKind::kColumnGram);
    product.a = x_;
    product.c = buffers_[0];
    product.squares = step == 0 ? squares_ : nullptr;
    product.identity = static_cast<float>(shift(step));
  }

  // Z, by squares. R stays for the addend of the last one.
  void append_polynomial(size_t step) {
    z_ = 0;
    for (const ExpandedSquare& square : expand(options_.steps[step], shift(step))) {
      const int result = free_buffer(z_);
      Product& product = append_symmetric(z_, z_, result, square.square);
      product.identity = static_cast<float>(square.constant);
      if (square.addend != 0) add(product, 0, square.addend);
      if (step == 0 && (z_ == 0 || square.addend != 0)) use_bound(product, z_ == 0 ? 4 : 0, 2);
      z_ = result;
    }
  }

  // R <- Z R Z for step `next`.
  void append_update(size_t next) {
    const int half = free_buffer(z_);
    Product& product = append_symmetric(z_, 0, half, 1);
    if (next == 1) use_bound(product, 2, 0);
    append_symmetric(half, z_, 0, 1).identity = static_cast<float>(shift(next));
    waiting_ = z_;
  }

  // X <- Z X, with the Z that has waited.
  void append_multiplication() {
    if (waiting_ >= 0) {
      const int product = free_buffer(z_);
      append_symmetric(z_, waiting_, product, 1);
      z_ = product;
    }
    const HalfStack& target = multiplications_ % 2 == 1 ? stack_.output : scratch_;
    const HalfStack& z = buffers_[static_cast<size_t>(z_)];
    Product& product = append(wide() ? ProductKind::kLeft : ProductKind::kRight);
    product.a = wide() ? z : x_;
    product.b = wide() ? x_ : z;
    product.c = target;
    if (!bounded_) use_bound(product, 1, 0);
    bounded_ = true;
    x_ = target;
    --multiplications_;
  }

  Product& append(ProductKind kind) {
    Product product;
    product.kind = kind;
    product.count = stack_.count;
    product.rows = kind == ProductKind::kSymmetric ? side_ : stack_.rows;
    product.columns = kind == ProductKind::kSymmetric ? side_ : stack_.columns;
    plan_.products.push_back(product);
    return plan_.products.back();
  }

  Product& append_symmetric(int a, int b, int c, double alpha) {
    Product& product = append(ProductKind::kSymmetric);
    product.a = buffers_[static_cast<size_t>(a)];
    product.b = buffers_[static_cast<size_t>(b)];
    product.c = buffers_[static_cast<size_t>(c)];
    product.alpha = static_cast<float>(alpha);
    return product;
  }

  void add(Product& product, int d, double beta) const {
    product.d = buffers_[static_cast<size_t>(d)];
    product.beta = static_cast<float>(beta);
  }

  void use_bound(Product& product, int alpha_power, int addend_power) const {
    product.bound = squares_;
    product.bound_side = side_;
    product.safety = static_cast<float>(options_.safety);
    product.alpha_power = alpha_power;
    product.addend_power = addend_power;
  }

  bool wide() const { return stack_.rows <= stack_.columns; }

  const OrthogonalizeStack& stack_;
  const OrthogonalizeOptions& options_;
  Arena& arena_;
  StackPlan& plan_;
  const int side_;
  const bool updates_last_;
  HalfStack x_, scratch_;
  float* squares_ = nullptr;
  std::array<HalfStack, 4> buffers_;  // (count, side, side): R, two for its squares, one for the Z that waits
  int z_ = 0, waiting_ = -1;          // buffers
  size_t multiplications_ = 0;        // of X, to come
  bool bounded_ = false;              // whether X has been divided by its bound
};

bool valid(std::span<const OrthogonalizeStack> stacks, const OrthogonalizeOptions& options) {
  if (stacks.empty() || options.steps.empty() || !(options.safety >= 1)) return false;
  for (const PolarStep& step : options.steps) {
    if (step.squares.empty()) return false;
  }
  return std::all_of(stacks.begin(), stacks.end(), [](const OrthogonalizeStack& stack) {
    return stack.count > 0 && stack.rows > 0 && stack.columns > 0;
  });
}

// Stacks that share a launch: each has up to 7 distinct operands.
constexpr int kStacksPerLaunch = kMaxOperands / 8;

// The work of a call: conversions, then launches of products.
struct Plan {
  std::vector<StackPlan> stacks;
  std::vector<std::vector<Product>> launches;
  int* progress = nullptr;
  size_t bytes = 0;
};

Plan make_plan(std::span<const OrthogonalizeStack> stacks, const OrthogonalizeOptions& options, void* workspace) {
  const int stack_count = static_cast<int>(stacks.size());
  Plan plan;
  plan.stacks.resize(stacks.size());
  Arena arena(workspace);
  int64_t progress = 0;
  for (int first = 0; first < stack_count; first += kStacksPerLaunch) {
    const int end = std::min(first + kStacksPerLaunch, stack_count);
    size_t longest = 0;
    for (int i = first; i < end; ++i) {
      Planner(stacks[i], options, arena, plan.stacks[i]).run();
      longest = std::max(longest, plan.stacks[i].products.size());
    }
    plan.launches.emplace_back();
    for (size_t step = 0; step < longest; ++step) {
      if (plan.launches.back().size() + kStacksPerLaunch > kMaxProducts) plan.launches.emplace_back();
      for (int i = first; i < end; ++i) {
        if (step >= plan.stacks[i].products.size()) continue;
        plan.launches.back().push_back(plan.stacks[i].products[step]);
        plan.launches.back().back().chain = i;
      }
    }
  }
  for (const auto& launch : plan.launches) progress = std::max(progress, product_progress(launch));
  plan.progress = arena.take<int>(progress);
  plan.bytes = arena.used();
  return plan;
}

}  // namespace

float orthogonalize_input_length(int rows, int columns) {
  return static_cast<float>(std::sqrt(std::min({rows, columns, 32768})));
}

size_t orthogonalize_workspace(std::span<const OrthogonalizeStack> stacks, const OrthogonalizeOptions& options) {
  return valid(stacks, options) ? make_plan(stacks, options, nullptr).bytes : 0;
}

cudaError_t orthogonalize(std::span<const OrthogonalizeStack> stacks, const OrthogonalizeOptions& options,
                          void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (!valid(stacks, options) || workspace == nullptr) return cudaErrorInvalidValue;
  const Plan plan = make_plan(stacks, options, workspace);
  if (workspace_bytes < plan.bytes) return cudaErrorInvalidValue;
  for (const OrthogonalizeStack& stack : stacks) {
    if (!are_given({stack.input, stack.output.data})) return cudaErrorInvalidValue;
  }

  cudaError_t error = cudaSuccess;
  for (const StackPlan& stack : plan.stacks) {
    if (stack.convert && error == cudaSuccess) error = convert_input(stack.conversion, stream);
  }
  for (const auto& launch : plan.launches) {
    if (error != cudaSuccess) return error;
    error = launch_products(launch, plan.progress, stream);
  }
  return error;
}

}  // namespace gluon::cuda

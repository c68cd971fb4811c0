#include "gluon/kernels/cuda/orthogonalize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "gluon/kernels/cuda/orthogonalize_input.cuh"
#include "gluon/kernels/stored_shift.h"

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
      : stack_(stack), options_(options), arena_(arena), plan_(plan), side_(std::min(stack.rows, stack.columns)) {}

  void run() {
    place_input();
    squares_ = arena_.take<float>(static_cast<int64_t>(stack_.count) * product_partials(side_));
    const int64_t row_stride = round_up(side_, 8), matrix_stride = row_stride * side_;
    for (HalfStack& buffer : buffers_) {
      buffer = {arena_.take<__half>(matrix_stride * stack_.count), row_stride, matrix_stride};
    }
    for (size_t i = 0; i < options_.steps.size(); ++i) run_step(i);
  }

 private:
  // X alternates between scratch and output and ends in the output; converted input starts where that works out.
  void place_input() {
    const bool half_input = stack_.input_type == ElementType::kFloat16;
    if (!half_input || options_.steps.size() > 1) {
      const int64_t row_stride = round_up(stack_.columns, 8);
      scratch_ = {nullptr, row_stride, row_stride * stack_.rows};
      scratch_.data = arena_.take<__half>(scratch_.matrix_stride * stack_.count);
    }
    if (half_input) {
      // The input is only read: no product writes C to it.
      x_ = {static_cast<__half*>(const_cast<void*>(stack_.input)), stack_.row_stride, stack_.matrix_stride};
      return;
    }
    x_ = options_.steps.size() % 2 == 1 ? scratch_ : stack_.output;
    InputConversion& conversion = plan_.conversion;
    conversion = {stack_, x_, orthogonalize_input_length(stack_.rows, stack_.columns)};
    conversion.partials = arena_.take<double>(static_cast<int64_t>(stack_.count) * input_partials(conversion));
    plan_.convert = true;
  }

  // R, its squares, X <- Z X.
  void run_step(size_t index) {
    const PolarStep& step = options_.steps[index];
    const bool first = index == 0, last = index + 1 == options_.steps.size();
    const double shift = kernels::stored_shift(step, first);
    append_gram(buffers_[0], first ? squares_ : nullptr, shift);
    int w = 0;  // R; it stays for the addend of the last square, the other two buffers take turns
    for (const ExpandedSquare& square : expand(step, shift)) {
      const int result = w == 1 ? 2 : 1;
      append_square(square, buffers_[w], buffers_[result]);
      if (first && (w == 0 || square.addend != 0)) use_bound(plan_.products.back(), w == 0 ? 4 : 0, 2);
      w = result;
    }
    const HalfStack& target = (options_.steps.size() - index) % 2 == 1 ? stack_.output : scratch_;
    append_multiplication(buffers_[w], target);
    if (first) use_bound(plan_.products.back(), 1, 0);
    if (last) plan_.products.back().target = stack_.target;
    x_ = target;
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

  void append_gram(const HalfStack& r, float* squares, double shift) {
    Product& product = append(wide() ? ProductKind::kRowGram : ProductKind::kColumnGram);
    product.a = x_;
    product.c = r;
    product.squares = squares;
    product.identity = static_cast<float>(shift);
  }

  void append_square(const ExpandedSquare& square, const HalfStack& w, const HalfStack& result) {
    Product& product = append(ProductKind::kSymmetric);
    product.a = product.b = w;
    product.c = result;
    product.alpha = static_cast<float>(square.square);
    product.identity = static_cast<float>(square.constant);
    if (square.addend == 0) return;
    product.d = buffers_[0];
    product.beta = static_cast<float>(square.addend);
  }

  void append_multiplication(const HalfStack& z, const HalfStack& target) {
    Product& product = append(wide() ? ProductKind::kLeft : ProductKind::kRight);
    product.a = wide() ? z : x_;
    product.b = wide() ? x_ : z;
    product.c = target;
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
  HalfStack x_, scratch_;
  float* squares_ = nullptr;
  std::array<HalfStack, 3> buffers_;  // (count, side, side): R, and two for its squares
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

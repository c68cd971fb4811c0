#include "gluon/kernels/cuda/orthogonalize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gluon/kernels/cuda/orthogonalize_input.cuh"
#include "gluon/kernels/half_plan.h"

namespace gluon::cuda {
namespace {

using kernels::HalfStep;

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
        steps_(kernels::half_plan(options.coefficients, stack.rows, stack.columns)),
        arena_(arena),
        plan_(plan),
        side_(std::min(stack.rows, stack.columns)) {}

  void run() {
    const auto restarts = [](const HalfStep& step) { return step.restart; };
    auto multiplications = static_cast<int>(std::count_if(steps_.begin(), steps_.end(), restarts));
    place_input(multiplications);
    squares_ = arena_.take<float>(static_cast<int64_t>(stack_.count) * product_partials(side_));

    for (auto begin = steps_.begin(); begin != steps_.end(); --multiplications) {
      const auto end = std::find_if(begin, steps_.end(), restarts) + 1;
      run_segment({begin, end}, multiplications % 2 == 1 ? stack_.output : scratch_);
      begin = end;
    }
  }

 private:
  static constexpr int kNone = -1;

  // X alternates between scratch and output and ends in the output; converted input starts where that works out.
  void place_input(int multiplications) {
    const bool half_input = stack_.input_type == ElementType::kFloat16;
    if (!half_input || multiplications > 1) {
      const int64_t row_stride = round_up(stack_.columns, 8);
      scratch_ = {nullptr, row_stride, row_stride * stack_.rows};
      scratch_.data = arena_.take<__half>(scratch_.matrix_stride * stack_.count);
    }
    if (half_input) {
      // The input is only read: no product writes C to it.
      x_ = {static_cast<__half*>(const_cast<void*>(stack_.input)), stack_.row_stride, stack_.matrix_stride};
      return;
    }
    x_ = multiplications % 2 == 1 ? scratch_ : stack_.output;
    InputConversion& conversion = plan_.conversion;
    conversion = {stack_, x_, orthogonalize_input_length(stack_.rows, stack_.columns)};
    conversion.partials = arena_.take<double>(static_cast<int64_t>(stack_.count) * input_partials(conversion));
    plan_.convert = true;
  }

  // Runs the steps up to a restart on Gram matrices alone, then X <- Q X.
  void run_segment(std::span<const HalfStep> segment, const HalfStack& target) {
    const bool first = segment.data() == steps_.data();
    int r = take(), q = kNone;
    append_gram(r, first ? squares_ : nullptr, segment.front().shift);
    for (size_t step = 0; step < segment.size(); ++step) {
      const bool scale = first && step == 0, last = step + 1 == segment.size();
      const int z = take();
      append_polynomial(segment[step], r, z);
      if (scale) use_bound(plan_.products.back(), 4, 2);
      if (last) release(r);
      const int old_q = q;
      if (old_q == kNone) {
        q = z;
      } else {
        q = take();
        append_symmetric(old_q, z, q);
        release(old_q);
      }
      if (last) {
        if (z != q) release(z);
        break;
      }
      const int half_way = take();
      Product& once = append_symmetric(z, r, half_way);
      if (scale) use_bound(once, 2, 0);
      release(r);
      r = take();
      append_symmetric(z, half_way, r).identity = static_cast<float>(segment[step + 1].shift);
      release(half_way);
      if (z != q) release(z);
    }
    append_multiplication(q, target, first);
    if (&segment.back() == &steps_.back()) plan_.products.back().target = stack_.target;
    release(q);
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

  void append_gram(int r, float* squares, double shift) {
    Product& product = append(wide() ? ProductKind::kRowGram : ProductKind::kColumnGram);
    product.a = x_;
    product.c = buffers_[r];
    product.squares = squares;
    product.identity = static_cast<float>(shift);
  }

  Product& append_symmetric(int a, int b, int c) {
    Product& product = append(ProductKind::kSymmetric);
    product.a = buffers_[a];
    product.b = buffers_[b];
    product.c = buffers_[c];
    return product;
  }

  // z = a I + b R + c R^2, where r holds R + shift I.
  void append_polynomial(const HalfStep& step, int r, int z) {
    const auto& [row, shift, restart] = step;
    Product& product = append_symmetric(r, r, z);
    product.alpha = static_cast<float>(row.c);
    product.identity = static_cast<float>(row.a - row.c * shift * shift);
    if (shift != 0) return;
    product.d = buffers_[r];
    product.beta = static_cast<float>(row.b);
  }

  void append_multiplication(int q, const HalfStack& target, bool scale) {
    Product& product = append(wide() ? ProductKind::kLeft : ProductKind::kRight);
    product.a = wide() ? buffers_[q] : x_;
    product.b = wide() ? x_ : buffers_[q];
    product.c = target;
    if (scale) use_bound(product, 1, 0);
  }

  void use_bound(Product& product, int alpha_power, int addend_power) const {
    product.bound = squares_;
    product.bound_side = side_;
    product.safety = static_cast<float>(options_.safety);
    product.alpha_power = alpha_power;
    product.addend_power = addend_power;
  }

  bool wide() const { return stack_.rows <= stack_.columns; }

  // The index of a free (count, side, side) buffer.
  int take() {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (used_[i]) continue;
      used_[i] = true;
      return static_cast<int>(i);
    }
    const int64_t row_stride = round_up(side_, 8), matrix_stride = row_stride * side_;
    buffers_.push_back({arena_.take<__half>(matrix_stride * stack_.count), row_stride, matrix_stride});
    used_.push_back(true);
    return static_cast<int>(buffers_.size()) - 1;
  }

  void release(int buffer) { used_[buffer] = false; }

  const OrthogonalizeStack& stack_;
  const OrthogonalizeOptions& options_;
  const std::vector<HalfStep> steps_;
  Arena& arena_;
  StackPlan& plan_;
  const int side_;
  HalfStack x_, scratch_;
  float* squares_ = nullptr;
  std::vector<HalfStack> buffers_;
  std::vector<bool> used_;
};

bool valid(std::span<const OrthogonalizeStack> stacks, const OrthogonalizeOptions& options) {
  if (stacks.empty() || options.coefficients.empty() || !(options.safety >= 1)) return false;
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

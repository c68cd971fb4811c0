// RMS norm, QK norm with rotary positions, the MLP's products with squared ReLU and cross-entropy against float64,
// forward and backward.

#include <cfloat>

#include "lab/models/cuda/cross_entropy.h"
#include "lab/models/cuda/mlp_product.h"
#include "lab/models/cuda/qk_rotary.h"
#include "lab/models/cuda/rms_norm.h"
#include "tests/kernels/fused_check.h"

namespace gluon::fused_check {
namespace {

constexpr double kHalfUlp = 0x1p-8 * 1.01;  // one rounding to bfloat16, 8 bits
using Vector = std::vector<double>;

Vector doubles(const std::vector<bf16>& values) {
  Vector out;
  for (bf16 v : values) out.push_back(to_double(v));
  return out;
}

Vector part(const Vector& v, size_t start, size_t size) {
  return {v.begin() + start, v.begin() + start + size};
}

Vector rms_norm(const Vector& x) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double r = 1 / std::sqrt(squares / x.size() + double{FLT_EPSILON});
  Vector out;
  for (double v : x) out.push_back(v * r);
  return out;
}

// With `out` the norm of x, as it was rounded.
Vector rms_norm_gradient(const Vector& x, const Vector& out, const Vector& dout) {
  double squares = 0, along = 0;
  for (size_t i = 0; i < x.size(); ++i) squares += x[i] * x[i], along += out[i] * dout[i];
  const double r = 1 / std::sqrt(squares / x.size() + double{FLT_EPSILON});
  Vector dx;
  for (size_t i = 0; i < x.size(); ++i) dx.push_back(r * (dout[i] - out[i] * along / x.size()));
  return dx;
}

// x [x1, x2] of a head at a position -> [x1 cos + x2 sin, x2 cos - x1 sin]; direction -1 turns back.
Vector rotate(const Vector& x, int64_t position, int direction) {
  const size_t half = x.size() / 2;
  Vector out(x.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle = position / std::pow(10000.0, 2.0 * i / x.size());
    const double c = std::cos(angle), s = direction * std::sin(angle);
    out[i] = x[i] * c + x[i + half] * s;
    out[i + half] = x[i + half] * c - x[i] * s;
  }
  return out;
}

void expect_gradient(const std::function<Vector(const Vector&)>& f, const Vector& analytic, const Vector& x,
                     const Vector& weights, const std::string& what) {
  const Vector numeric = numeric_gradient(f, x, weights);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::fmax(worst, std::abs(numeric[i] - analytic[i]));
  expect(worst <= 1e-6 * largest(analytic), what + ": the reference's gradient against differences");
}

void check_rms_case(int64_t rows, int64_t width, double magnitude, bool has_residual) {
  const std::string what = "rms_norm " + std::to_string(rows) + "x" + std::to_string(width) + " at " +
                           std::to_string(magnitude) + (has_residual ? " with a residual" : "");
  std::mt19937_64 random(width);
  const size_t size = rows * width;
  std::vector<bf16> x = random_values<bf16>(size, magnitude, random);
  if (rows > 2) std::fill_n(x.begin() + width, width, rounded<bf16>(0));
  const std::vector<bf16> d = random_values<bf16>(size, 1, random),
                          past = random_values<bf16>(size, 1, random);
  Array<bf16> dx(x), dout(d), residual(past), out(size), gradient(size);
  Array<float> inverse(rows);
  const auto run = [&] {
    out.poison(), gradient.poison(), inverse.poison();
    require(lab::cuda::rms_norm_forward(dx.data(), out.data(), inverse.data(), rows, width, nullptr),
            "rms_norm_forward");
    require(lab::cuda::rms_norm_backward(out.data(), inverse.data(), dout.data(),
                                         has_residual ? residual.data() : nullptr, gradient.data(), rows,
                                         width, nullptr),
            "rms_norm_backward");
    return out.get();
  };
  const std::vector<bf16> got = run(), got_gradient = gradient.get();
  expect(same_bits(got, run()) && same_bits(got_gradient, gradient.get()), what + ": two runs differ");
  expect(out.guard_intact() && inverse.guard_intact() && gradient.guard_intact(), what + ": guard");
  const Vector inputs = doubles(x), normed = doubles(got), weights = doubles(d);
  Vector want;
  for (int64_t row = 0; row < rows; ++row) {
    const Vector s = part(inputs, row * width, width), w = part(weights, row * width, width);
    for (double v : rms_norm(s)) want.push_back(v);
    Vector want_gradient = rms_norm_gradient(s, part(normed, row * width, width), w);
    for (int64_t i = 0; i < width && has_residual; ++i) want_gradient[i] += to_double(past[row * width + i]);
    expect_close(
        std::vector<bf16>(got_gradient.begin() + row * width, got_gradient.begin() + (row + 1) * width),
        want_gradient, kHalfUlp, 2e-6 * largest(want_gradient), what + ": gradient");
    if (row == 0 && width <= 64 && magnitude == 1) {
      expect_gradient(rms_norm, rms_norm_gradient(s, rms_norm(s), w), s, w, what);
    }
  }
  expect_close(got, want, kHalfUlp, 1e-39, what);
  require(lab::cuda::rms_norm_forward(dx.data(), dx.data(), inverse.data(), rows, width, nullptr),
          "in place");
  require(lab::cuda::rms_norm_backward(dx.data(), inverse.data(), dout.data(),
                                       has_residual ? residual.data() : nullptr, dout.data(), rows, width,
                                       nullptr),
          "in place");
  expect(same_bits(dx.get(), got) && same_bits(dout.get(), got_gradient), what + ": in place");
  if (!has_residual) return;
  dout.set(d);
  require(lab::cuda::rms_norm_backward(out.data(), inverse.data(), dout.data(), residual.data(),
                                       residual.data(), rows, width, nullptr),
          "in place of the residual");
  expect(same_bits(residual.get(), got_gradient), what + ": in place of the residual");
}

void check_rotary_case(int64_t tokens, int64_t positions, int64_t heads, int64_t dimension, bool packed) {
  const std::string what = "qk_rotary " + std::to_string(tokens) + "x" + std::to_string(heads) + "x" +
                           std::to_string(dimension) + (packed ? " packed" : "");
  std::mt19937_64 random(tokens * dimension);
  const int64_t width = heads * dimension, stride = packed ? 3 * width : width;
  const std::vector<bf16> q = random_values<bf16>(tokens * stride, 2, random);
  std::vector<bf16> k = random_values<bf16>(tokens * stride, 1e-3, random);
  if (tokens > 2) std::fill_n(k.begin() + stride, stride, rounded<bf16>(0));
  const std::vector<bf16> dq = random_values<bf16>(tokens * width, 1, random),
                          dk = random_values<bf16>(tokens * width, 1, random),
                          dv = random_values<bf16>(tokens * width, 1, random);
  std::vector<float> cos, sin;
  for (int64_t t = 0; t < positions; ++t) {
    for (int64_t i = 0; i < dimension / 2; ++i) {
      const double angle = t / std::pow(10000.0, 2.0 * i / dimension);
      cos.push_back(static_cast<float>(std::cos(angle))), sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  Array<float> c(cos), s(sin), inverse(tokens * 2 * heads);
  Array<bf16> qa(q), ka(k), dqo(dq), dko(dk), dvo(dv), qo(tokens * width), ko(tokens * width),
      dp(tokens * 3 * width);
  const lab::cuda::RotaryShape shape{tokens, positions, heads, dimension, c.data(), s.data()};
  const auto run = [&] {
    qo.poison(), ko.poison(), dp.poison(), inverse.poison();
    require(lab::cuda::qk_rotary_forward(shape, {qa.data(), stride}, {ka.data(), stride}, {qo.data(), width},
                                         {ko.data(), width}, inverse.data(), nullptr),
            "qk_rotary_forward");
    const lab::cuda::RotaryGradients gradients{{qo.data(), width},  {ko.data(), width},  inverse.data(),
                                               {dqo.data(), width}, {dko.data(), width}, {dvo.data(), width}};
    require(lab::cuda::qk_rotary_backward(shape, gradients, {dp.data(), 3 * width},
                                          {dp.data() + width, 3 * width}, {dp.data() + 2 * width, 3 * width},
                                          nullptr),
            "qk_rotary_backward");
    return dp.get();
  };
  const std::vector<bf16> got = run(), got_q = qo.get(), got_k = ko.get();
  expect(same_bits(got, run()) && same_bits(got_q, qo.get()) && same_bits(got_k, ko.get()),
         what + ": two runs differ");
  expect(qo.guard_intact() && ko.guard_intact() && dp.guard_intact() && inverse.guard_intact(),
         what + ": guard");
  Vector want_q(tokens * width), want_k(tokens * width);
  const Vector qd = doubles(q), kd = doubles(k), dqd = doubles(dq), dkd = doubles(dk);
  double error = 0, total = 0, worst = 0;
  for (int64_t at = 0; at < tokens * 2 * heads; ++at) {
    const int64_t token = at / (2 * heads), head = at % heads, t = token % positions;
    const bool key = at / heads % 2 == 1;
    const Vector x = part(key ? kd : qd, token * stride + head * dimension, dimension);
    const Vector d = part(key ? dkd : dqd, token * width + head * dimension, dimension);
    const Vector y = rotate(rms_norm(x), t, 1), g = rms_norm_gradient(x, rms_norm(x), rotate(d, t, -1));
    const double most = largest(g);
    for (int64_t i = 0; i < dimension; ++i) {
      (key ? want_k : want_q)[token * width + head * dimension + i] = y[i];
      const size_t to = token * 3 * width + key * width + head * dimension + i;
      const double off =
          (to_double(got[to]) - g[i]) / most;  // relative to its own head: none hides another's error
      error += off * off, total += g[i] * g[i] / (most * most);
      worst = std::isnan(off) ? INFINITY : std::fmax(worst, std::abs(off));
    }
    if (at == 0 && dimension <= 32) {
      expect_gradient([&](const Vector& v) { return rotate(rms_norm(v), t, 1); }, g, x, d, what);
    }
  }
  expect(worst < 0.02, what + ": gradient, worst entry " + std::to_string(worst));
  expect(std::sqrt(error / total) < 4e-3,
         what + ": gradient, relative error " + std::to_string(std::sqrt(error / total)));
  expect_close(got_q, want_q, kHalfUlp, 1e-6, what + ": queries");
  expect_close(got_k, want_k, kHalfUlp, 1e-6, what + ": keys");
  bool carried = true;
  for (int64_t i = 0; i < tokens * width; ++i) {
    carried = carried && to_double(got[i / width * 3 * width + 2 * width + i % width]) == to_double(dv[i]);
  }
  expect(carried, what + ": the values' gradient");
  // In place, forward and backward.
  if (packed) return;
  require(lab::cuda::qk_rotary_forward(shape, {qa.data(), width}, {ka.data(), width}, {qa.data(), width},
                                       {ka.data(), width}, nullptr, nullptr),
          "in place");
  expect(same_bits(qa.get(), got_q) && same_bits(ka.get(), got_k), what + ": in place");
}

// Rows 0, every, 2 every, ... of a product in float64: (rows, depth) times (columns, depth) or (depth, columns).
Vector product_rows(const std::vector<bf16>& a, const std::vector<bf16>& b, const lab::cuda::MlpShape& shape,
                    bool across, int64_t every) {
  const auto [rows, columns, depth] = shape;
  Vector c;
  for (int64_t row = 0; row < rows; row += every) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += to_double(a[row * depth + k]) * to_double(b[across ? k * columns + j : j * depth + k]);
      }
      c.push_back(sum);
    }
  }
  return c;
}

template <typename T>
std::vector<T> rows_of(const std::vector<T>& x, int64_t columns, int64_t every) {
  std::vector<T> some;
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    if (i / columns % every == 0) some.push_back(x[i]);
  }
  return some;
}

void check_mlp_case(const lab::cuda::MlpShape& shape, int64_t every = 1) {
  const auto [rows, columns, depth] = shape;
  const std::string what =
      "mlp " + std::to_string(rows) + "x" + std::to_string(columns) + "x" + std::to_string(depth);
  std::mt19937_64 random(columns + depth);
  std::vector<bf16> x = random_values<bf16>(rows * depth, 1, random);
  const std::vector<bf16> g = random_values<bf16>(rows * depth, 1, random),
                          w = random_values<bf16>(static_cast<int64_t>(columns) * depth, 1 / std::sqrt(depth),
                                                  random);
  if (rows > 1) x[(rows - 1) / every * every * depth] = rounded<bf16>(NAN);  // a row that is looked at
  Array<bf16> dx(x), dg(g), dw(w), y(rows * columns), gradient(rows * columns);
  const auto up = [&] {
    y.poison();
    require(lab::cuda::mlp_up(shape, dx.data(), dw.data(), y.data(), nullptr), "mlp_up");
    return y.get();
  };
  const std::vector<bf16> square = up();
  expect(same_bits(square, up()) && y.guard_intact(), what + ": two runs, guard");
  Vector want = product_rows(x, w, shape, false, every);
  for (double& z : want) z = z < 0 ? 0 : 2 * z * z;
  // The product is rounded before its square is, and its float32 sum before that.
  expect_close(rows_of(square, columns, every), want, 3.2 * kHalfUlp, 1e-6, what);

  const auto back = [&](Array<bf16>& target) {
    require(lab::cuda::mlp_down_backward(shape, dg.data(), dw.data(), y.data(), target.data(), nullptr),
            "back");
    return target.get();
  };
  const std::vector<bf16> got = back(gradient);
  gradient.poison();
  expect(same_bits(got, back(gradient)) && gradient.guard_intact(), what + ": gradient, two runs, guard");
  want = product_rows(g, w, shape, true, every);
  const std::vector<bf16> squares = rows_of(square, columns, every);
  for (size_t i = 0; i < want.size(); ++i) want[i] *= std::sqrt(8 * to_double(squares[i]));
  expect_close(rows_of(got, columns, every), want, 2.2 * kHalfUlp, 1e-5, what + ": gradient");
  expect(same_bits(got, back(y)), what + ": gradient in place");
}

void check_entropy_case(int64_t rows, int64_t vocabulary, double magnitude) {
  const std::string what = "cross_entropy " + std::to_string(rows) + "x" + std::to_string(vocabulary) +
                           " at " + std::to_string(magnitude);
  std::mt19937_64 random(vocabulary + rows);
  std::vector<bf16> x = random_values<bf16>(rows * vocabulary, magnitude, random);
  std::vector<int64_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) labels[i] = static_cast<int64_t>(random() % vocabulary);
  labels[0] = vocabulary - 1;
  if (rows > 2) labels[1] = 0, labels[2] = vocabulary;  // the last one is outside
  if (vocabulary > 8 && rows > 3) x[3 * vocabulary + (labels[3] + 1) % vocabulary] = rounded<bf16>(-INFINITY);
  Array<bf16> logits(x);
  Array<int64_t> targets(labels);
  Array<float> losses(rows);
  lab::cuda::CrossEntropy a{.rows = rows,
                            .vocabulary = vocabulary,
                            .logits = logits.data(),
                            .labels = targets.data(),
                            .losses = losses.data(),
                            .scale = 0.125F,
                            .gradient = true};
  const auto run = [&] {
    logits.set(x), losses.poison();
    require(lab::cuda::cross_entropy(a, nullptr), "cross_entropy");
    return logits.get();
  };
  const std::vector<bf16> got = run();
  const std::vector<float> got_losses = losses.get();
  expect(same_bits(got, run()) && same_bits(got_losses, losses.get()), what + ": two runs differ");
  expect(logits.guard_intact() && losses.guard_intact(), what + ": guard");
  a.gradient = false;
  expect(same_bits(run(), x) && same_bits(got_losses, losses.get()), what + ": loss alone");
  Vector want, want_losses;
  for (int64_t row = 0; row < rows; ++row) {
    const bf16* of = x.data() + row * vocabulary;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) most = std::fmax(most, to_double(of[j]));
    for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(to_double(of[j]) - most);
    const bool inside = labels[row] < vocabulary;
    want_losses.push_back(inside ? most + std::log(sum) - to_double(of[labels[row]]) : NAN);
    for (int64_t j = 0; j < vocabulary; ++j) {
      const double p = std::exp(to_double(of[j]) - most) / sum;
      want.push_back(!inside ? NAN : 0.125 * (p - (j == labels[row])));
    }
  }
  expect_close(got_losses, want_losses, 1e-6, 2e-6, what + ": loss");
  expect_close(got, want, kHalfUlp + 3e-6 * std::fmin(magnitude, 10), 1e-8, what + ": gradient");
}

}  // namespace

void check_rms_norm() {
  for (const int64_t width : {8, 24, 64, 768, 1024, 1032, 2048, 4104, 8192}) {
    for (const bool has_residual : {false, true}) {
      check_rms_case(7, width, 1, has_residual);
      check_rms_case(33, width, 1e-30, has_residual);
    }
  }
  check_rms_case(9, 768, 1e15, true);
  Array<bf16> x(64), out(64);
  Array<float> inverse(8);
  const auto refused = [&](const bf16* from, int64_t width) {
    return lab::cuda::rms_norm_forward(from, out.data(), inverse.data(), 1, width, nullptr) ==
           cudaErrorInvalidValue;
  };
  expect(refused(x.data(), 7) && refused(x.data(), 8200) && refused(x.data() + 1, 8), "rms_norm: refusals");
}

void check_qk_rotary() {
  for (const int64_t dimension : {16, 32, 48, 64, 96, 128, 256, 512}) {
    check_rotary_case(33, 11, 3, dimension, true);
    check_rotary_case(5, 5, 1, dimension, false);
  }
  check_rotary_case(130, 130, 6, 128, true);
}

void check_mlp() {
  for (const lab::cuda::MlpShape& shape : {lab::cuda::MlpShape{1, 8, 8},
                                           {5, 24, 72},
                                           {64, 64, 64},
                                           {300, 264, 136},
                                           {257, 520, 768},
                                           {130, 3072, 768}}) {
    check_mlp_case(shape);
  }
  // Several tiles a cluster: depths that leave no time to store a tile beside the next one, just enough, and more.
  for (const int depth : {136, 256, 264, 320, 384, 448, 840}) check_mlp_case({8000, 1032, depth}, 97);
  Array<bf16> a(1024), b(1024), c(1024);
  const auto refused = [&](const lab::cuda::MlpShape& shape, bf16* x) {
    return lab::cuda::mlp_up(shape, x, b.data(), c.data(), nullptr) == cudaErrorInvalidValue &&
           lab::cuda::mlp_down_backward(shape, x, b.data(), b.data(), c.data(), nullptr) ==
               cudaErrorInvalidValue;
  };
  expect(refused({8, 8, 8}, nullptr), "mlp: no matrix");
  expect(refused({8, 8, 8}, a.data() + 1), "mlp: an address that is not divisible by 16");
  expect(refused({8, 12, 8}, a.data()) && refused({8, 8, 12}, a.data()), "mlp: 12 columns, a depth of 12");
}

void check_cross_entropy() {
  check_entropy_case(300, 50304, 3);  // three turns for the first blocks
  check_entropy_case(5, 50304, 30);
  check_entropy_case(1000, 1024, 3);  // eight turns
  check_entropy_case(5, 8, 1);
  check_entropy_case(5, 51200, 1);
  check_entropy_case(5, 51208, 1);  // beyond the registers
  check_entropy_case(7, 50257, 3);  // the plain path
  check_entropy_case(7, 1001, 3);
  check_entropy_case(4, 4096, 1e30);
  check_entropy_case(4, 4096, 1e-30);
  check_entropy_case(4, 4097, 1e30);
}

}  // namespace gluon::fused_check

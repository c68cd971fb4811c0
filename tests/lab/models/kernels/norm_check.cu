// RMS norm, and QK norm with rotary positions.

#include <cfloat>
#include <functional>

#include "lab/models/cuda/qk_rotary.h"
#include "lab/models/cuda/rms_norm.h"
#include "tests/kernels/kernel_check.h"

namespace gluon::kernel_check {
namespace {

template <typename T> std::vector<T> part(const std::vector<T>& v, size_t start, size_t size) {
  return {v.begin() + start, v.begin() + start + size};
}

double inverse_rms(const Vector& x) {
  double squares = 0;
  for (double v : x) squares += v * v;
  return 1 / std::sqrt(squares / x.size() + double{FLT_EPSILON});
}

Vector rms_norm(const Vector& x) {
  const double r = inverse_rms(x);
  Vector out;
  for (double v : x) out.push_back(v * r);
  return out;
}

// `out` is the norm of x, rounded.
Vector rms_norm_gradient(const Vector& x, const Vector& out, const Vector& dout) {
  double along = 0;
  for (size_t i = 0; i < x.size(); ++i) along += out[i] * dout[i];
  const double r = inverse_rms(x);
  Vector dx;
  for (size_t i = 0; i < x.size(); ++i) dx.push_back(r * (dout[i] - out[i] * along / x.size()));
  return dx;
}

double rotary_angle(int64_t position, size_t i, size_t dimension) {
  return position / std::pow(10000.0, 2.0 * i / dimension);
}

// x [x1, x2] of a head at a position -> [x1 cos + x2 sin, x2 cos - x1 sin]; direction -1: the inverse rotation.
Vector rotate(const Vector& x, int64_t position, int direction) {
  const size_t half = x.size() / 2;
  Vector out(x.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle = rotary_angle(position, i, x.size());
    const double c = std::cos(angle), s = direction * std::sin(angle);
    out[i] = x[i] * c + x[i + half] * s;
    out[i + half] = x[i + half] * c - x[i] * s;
  }
  return out;
}

// The reference's gradient of sum(weights * f(x)) against central differences.
void expect_gradient(const std::function<Vector(const Vector&)>& f, const Vector& analytic, Vector x,
                     const Vector& weights, const std::string& what) {
  const auto value = [&] {
    const Vector y = f(x);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
    return sum;
  };
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i], h = 1e-5 * std::fmax(std::abs(kept), 0.1);
    x[i] = kept + h;
    const double above = value();
    x[i] = kept - h;
    const double below = value();
    x[i] = kept;
    worst = std::fmax(worst, std::abs((above - below) / (2 * h) - analytic[i]));
  }
  expect(worst <= 1e-6 * largest(analytic), what + ": the reference's gradient against differences");
}

void check_rms_case(int64_t rows, int64_t width, double magnitude, bool has_residual) {
  const std::string what =
      join("rms_norm ", rows, "x", width, " at ", magnitude, has_residual ? " with a residual" : "");
  std::mt19937_64 random(width);
  const size_t size = rows * width;
  std::vector<bf16> x = random_values<bf16>(size, magnitude, random);
  if (rows > 2) std::fill_n(x.begin() + width, width, rounded<bf16>(0));
  const std::vector<bf16> d = random_values<bf16>(size, 1, random), past = random_values<bf16>(size, 1, random);
  Array<bf16> dx(x), dout(d), residual(past), out(size), gradient(size);
  Array<float> inverse(rows);
  const auto forward = [&](Array<bf16>& target) {
    require(lab::cuda::rms_norm_forward(dx.data(), target.data(), inverse.data(), rows, width, nullptr));
  };
  const auto backward = [&](Array<bf16>& normed, Array<bf16>& target) {
    require(lab::cuda::rms_norm_backward(normed.data(), inverse.data(), dout.data(),
                                         has_residual ? residual.data() : nullptr, target.data(), rows, width,
                                         nullptr));
  };
  const auto run = [&] {
    poison(out, gradient, inverse);
    forward(out), backward(out, gradient);
  };
  expect_repeatable(what, run, out, gradient, inverse);
  const std::vector<bf16> got = out.get(), got_gradient = gradient.get();
  const Vector inputs = doubles(x), normed = doubles(got), weights = doubles(d);
  Vector want;
  for (int64_t row = 0; row < rows; ++row) {
    const Vector s = part(inputs, row * width, width), w = part(weights, row * width, width);
    for (double v : rms_norm(s)) want.push_back(v);
    Vector want_gradient = rms_norm_gradient(s, part(normed, row * width, width), w);
    for (int64_t i = 0; i < width && has_residual; ++i) want_gradient[i] += to_double(past[row * width + i]);
    expect_close(part(got_gradient, row * width, width), want_gradient, kRounding, 2e-6 * largest(want_gradient),
                 what + ": gradient");
    if (row == 0 && width <= 64 && magnitude == 1) {
      expect_gradient(rms_norm, rms_norm_gradient(s, rms_norm(s), w), s, w, what);
    }
  }
  expect_close(got, want, kRounding, 1e-39, what);
  forward(dx), backward(dx, dout);
  expect(same_bits(dx.get(), got) && same_bits(dout.get(), got_gradient), what + ": in place");
  if (!has_residual) return;
  dout.set(d);
  backward(out, residual);
  expect(same_bits(residual.get(), got_gradient), what + ": in place of the residual");
}

void check_rotary_case(int64_t tokens, int64_t positions, int64_t heads, int64_t dimension, bool packed) {
  const std::string what = join("qk_rotary ", tokens, "x", heads, "x", dimension, packed ? " packed" : "");
  std::mt19937_64 random(tokens * dimension);
  const int64_t width = heads * dimension, stride = packed ? 3 * width : width;
  const std::vector<bf16> q = random_values<bf16>(tokens * stride, 2, random);
  std::vector<bf16> k = random_values<bf16>(tokens * stride, 1e-3, random);
  if (tokens > 2) std::fill_n(k.begin() + stride, stride, rounded<bf16>(0));
  const std::vector<bf16> dq = random_values<bf16>(tokens * width, 1, random),
                          dk = random_values<bf16>(tokens * width, 1, random),
                          dv = random_values<bf16>(tokens * width, 1, random);
  std::vector<float> cos, sin;
  for (int64_t i = 0; i < positions * dimension / 2; ++i) {
    const double angle = rotary_angle(i / (dimension / 2), i % (dimension / 2), dimension);
    cos.push_back(static_cast<float>(std::cos(angle))), sin.push_back(static_cast<float>(std::sin(angle)));
  }
  Array<float> c(cos), s(sin), inverse(tokens * 2 * heads);
  Array<bf16> qa(q), ka(k), dqo(dq), dko(dk), dvo(dv), qo(tokens * width), ko(tokens * width), dp(tokens * 3 * width);
  const lab::cuda::RotaryShape shape{tokens, positions, heads, dimension, c.data(), s.data()};
  const lab::cuda::QueryKeyValue in{{qa.data(), stride}, {ka.data(), stride}},
      out{{qo.data(), width}, {ko.data(), width}};
  const auto run = [&] {
    poison(qo, ko, dp, inverse);
    require(lab::cuda::qk_rotary_forward(shape, in, out, inverse.data(), nullptr));
    require(lab::cuda::qk_rotary_backward(
        shape, out, inverse.data(), {{dqo.data(), width}, {dko.data(), width}, {dvo.data(), width}},
        {{dp.data(), 3 * width}, {dp.data() + width, 3 * width}, {dp.data() + 2 * width, 3 * width}}, nullptr));
  };
  expect_repeatable(what, run, dp, qo, ko, inverse);
  const std::vector<bf16> got = dp.get(), got_q = qo.get(), got_k = ko.get();
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
      // Relative to its own head, so that none hides the error of another.
      const double off = (to_double(got[to]) - g[i]) / most;
      error += off * off, total += g[i] * g[i] / (most * most);
      worst = std::isnan(off) ? INFINITY : std::fmax(worst, std::abs(off));
    }
    if (at == 0 && dimension <= 32) {
      expect_gradient([&](const Vector& v) { return rotate(rms_norm(v), t, 1); }, g, x, d, what);
    }
  }
  expect(worst < 0.02, join(what, ": gradient, worst entry ", worst));
  expect(std::sqrt(error / total) < 4e-3, join(what, ": gradient, relative error ", std::sqrt(error / total)));
  expect_close(got_q, want_q, kRounding, 1e-6, what + ": queries");
  expect_close(got_k, want_k, kRounding, 1e-6, what + ": keys");
  bool carried = true;
  for (int64_t i = 0; i < tokens * width; ++i) {
    carried = carried && to_double(got[i / width * 3 * width + 2 * width + i % width]) == to_double(dv[i]);
  }
  expect(carried, what + ": the values' gradient");
  if (packed) return;
  require(lab::cuda::qk_rotary_forward(shape, in, in, inverse.data(), nullptr));
  expect(same_bits(qa.get(), got_q) && same_bits(ka.get(), got_k), what + ": in place");
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
    return lab::cuda::rms_norm_forward(from, out.data(), inverse.data(), 1, width, nullptr) == cudaErrorInvalidValue;
  };
  expect(refused(x.data(), 7) && refused(x.data(), 8200) && refused(x.data() + 1, 8),
         "rms_norm: widths and addresses it cannot take");
}

void check_qk_rotary() {
  for (const int64_t dimension : {16, 32, 48, 64, 96, 128, 256, 512}) {
    check_rotary_case(33, 11, 3, dimension, true);
    check_rotary_case(5, 5, 1, dimension, false);
  }
  check_rotary_case(130, 130, 6, 128, true);
}

}  // namespace gluon::kernel_check

// The checks of the models' CUDA kernels, forward and backward against float64.

#pragma once

#include "tests/kernels/kernel_check.h"

namespace gluon::kernel_check {

inline constexpr double kRounding = 0x1p-8 * 1.01;  // relative error of one rounding to bfloat16
using Vector = std::vector<double>;

void check_rms_norm();
void check_qk_rotary();
void check_mlp();
void check_cross_entropy();
void check_embedding_gradient();

}  // namespace gluon::kernel_check

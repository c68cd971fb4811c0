// The step on a sphere: a matrix whose rule has one stays on |X|_F = R and moves by a relative step eta, its radius.
//
//   X <- R Norm(Norm(X) + eta Norm(U))             U = lmo(M), Norm(A) = A / |A|_F
//      = (X + t U) / q   on the sphere             t = eta R / |U|_F, q = sqrt(1 + 2 a eta + eta^2), a = <X, U> / (|X| |U|)_F
//
// In the layer's own norm |U| = 1, so X + t U is the paper's step of radius t. On a sphere of its own R, the length of U
// (Norm::lmo_length()), t is eta: a radius in the norm is a relative step. The division by q brings X back:
//
//   X' - X = (t U - (q - 1) X) / q                 |X' - X| <= (t + |q - 1| |X|) / q
//
// which is a step of radius t / q beside a decay of 1 - 1/q. Where X is orthogonal to U, as under a loss that does not
// depend on the scale of X, the decay is eta^2 / 2 to first order: Scion in a ball of radius 2 t / eta^2. In the
// Frobenius norm |X' - X| <= eta R where q >= 1, and <= eta R sqrt(2 / (1 + sqrt(1 - eta^2))) for every eta <= 1.
//
// U is the step's heading, lmo(M) normalised where the rule says so: as long as lmo(M), and |U| is not 1 then.
//
// Only the direction of X counts: weights off the sphere are brought onto it by their first step, and a matrix of zeros
// becomes R Norm(U). A zero U, eta = 0 and a step that would end within 1e-4 of the centre move nothing. In the
// flow: radius -> update; ball and decay are in plain_executor.cpp.

#pragma once

#include "gluon/core/batch_step.h"

namespace gluon {

/// Moves the batch's matrices by their radii as relative steps, on the sphere |X|_F = `sphere`.
void step_on_sphere(const BatchStep& batch, double sphere);

}  // namespace gluon

#!/usr/bin/python3
"""Computes the steps of polar_squares, the table in gluon/lmo/orthogonalize/coefficients.cpp.

    scripts/polar_squares.py [--squares 3,3,2] [--lower 1e-3]

A step with k squares moves singular values as s -> s Z(s^2), where

    Z(x) = scale ((...((x + p_1)^2 + p_2)^2 + ...)^2 + p_k)^2 + linear x + top

and linear is 0 but in the last step, where it makes the error a third smaller; before, it gains nothing. Each step in turn takes the parameters with the smallest max |1 - s Z(s^2)| on the interval [l, u] that the steps before
it leave, as Polar Express does with quintics: then l <- its smallest value, u <- 2 - l. The minimum is found by
Levenberg and Marquardt's method on p-norms of growing p, starting from an easy interval that is widened little by
little. Two guards against rounding, as for the quintics: no interval begins below CUSHION u (the step is then recentred,
so that both ends are equally far from 1), and every step but the last expects values larger by SAFETY.
"""
import argparse

import numpy as np

CUSHION, SAFETY = 0.003, 1.01
NARROW, WIDENING = 0.8, 0.93
POINTS = 300


def z(parameters, x):
    scale, top, linear, *shifts = parameters
    w = x
    for shift in shifts:
        w = (w + shift) ** 2
    return scale * w + linear * x + top


def p(parameters, s):
    return s * z(parameters, s * s)


def grid(lower):
    share = (1 - np.cos(np.linspace(0, np.pi, POINTS))) / 2
    return np.unique(np.concatenate([lower + (1 - lower) * share, lower ** (1 - share)]))


def least_squares(residuals, x, steps):
    """Levenberg and Marquardt's method with differences for derivatives."""
    r, damping = residuals(x), 1e-2
    for _ in range(steps):
        moves = 1e-7 * np.maximum(1e-3, np.abs(x))
        jacobian = np.stack([(residuals(x + move) - r) / move.sum() for move in np.diag(moves)], 1)
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ r
        for _ in range(12):
            new = x - np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-30), gradient)
            with np.errstate(over="ignore", invalid="ignore"):
                r_new = residuals(new)
                better = r_new @ r_new < r @ r
            if better:
                break
            damping *= 4
        if not better:
            return x
        x, r, damping = new, r_new, damping / 5
    return x


def improve(parameters, with_linear, lower, norms, steps):
    s = grid(lower)
    free = np.ones(len(parameters), bool)
    free[2] = with_linear and len(parameters) > 4  # one square has its linear term by its shift

    def merged(x):
        result = parameters.copy()
        result[free] = x
        return result

    for norm in norms:
        largest = np.abs(1 - p(parameters, s)).max()

        def residuals(x):
            error = (1 - p(merged(x), s)) / largest
            return np.sign(error) * np.abs(error) ** (norm / 2)

        parameters = merged(least_squares(residuals, parameters[free], steps))
    return parameters


def minimax(squares, with_linear, lower):
    """The parameters for the interval [lower, 1]."""
    parameters = np.array([3 / 8, 15 / 8 - 25 / 24, 0, -5 / 3])  # the flattest quintic at 1
    interval = NARROW
    parameters = improve(parameters, with_linear, interval, (2, 8, 32, 128), 30)
    for _ in range(squares - 1):
        scale = parameters[0] / 6  # (w + 3)^2 is nearly 6 w + 9 where w is small
        parameters = np.array([scale, parameters[1] - 9 * scale, *parameters[2:], 3.0])
        parameters = improve(parameters, with_linear, interval, (2, 8, 32, 128), 30)
    while interval > lower:
        interval = max(lower, interval * WIDENING)
        parameters = improve(parameters, with_linear, interval, (4, 16, 64, 128), 12)
    return improve(parameters, with_linear, lower, (64, 256, 1024), 40)


def stretched(parameters, u):
    """The same step for values that are u times as large: s Z(s^2 / u^2) / u."""
    scale, top, linear, *shifts = parameters
    square = u * u
    for i, shift in enumerate(shifts):
        shifts[i], square = shift * square, square * square
    return np.array([scale / square / u, top / u, linear / u**3, *shifts])


def steps_for(squares, lower):
    result, low, high = [], lower, 1.0
    for i, count in enumerate(squares):
        begin = max(low, CUSHION * high)
        last = i + 1 == len(squares)
        step = stretched(minimax(count, last, begin / high), high)
        if begin > low:
            ends = p(step, low) + p(step, np.linspace(begin, high, 4000)).max()
            step[:3] *= 2 / ends
        low = p(step, low)
        result.append((step if last else stretched(step, SAFETY), SAFETY * high))
        high = 2 - low
    return result, low


def as_squares(parameters, largest):
    """(shift, [(factor, offset)...], linear) whose intermediate values are at most 1 up to s = largest."""
    scale, top, linear, first, *shifts = parameters
    w, unit, squares = np.linspace(0, largest**2, 4001) + first, 1.0, []
    for shift in shifts:
        exact = (w / unit) ** 2 + shift
        new_unit = 1 / np.abs(exact).max()
        squares.append((new_unit / unit**2, new_unit * shift))
        w, unit = new_unit * exact, new_unit
    return first, [*squares, (scale / unit**2, top)], linear


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squares", default="3,3,2", help="of each step")
    parser.add_argument("--lower", default=1e-3, type=float, help="smallest singular value aimed at")
    options = parser.parse_args()
    steps, low = steps_for([int(count) for count in options.squares.split(",")], options.lower)
    for parameters, largest in steps:
        shift, squares, linear = as_squares(parameters, largest)
        inner = ", ".join(f"{{{factor:.17g}, {offset:.17g}}}" for factor, offset in squares)
        print(f"{{{shift:.17g}, {{{inner}}}, {linear:.17g}}},")
    print(f"// [{options.lower:g}, 1] ends in {low:.4f}..{2 - low:.4f}")


if __name__ == "__main__":
    main()

// Smoothing of a noisy curve: an exponential mean that starts without bias, as TensorBoard's.
import type {Value} from './data.ts';

/** `weight` in [0, 1): how much of the mean stays from one point to the next of average distance. Gaps stay gaps. */
export function smoothed(x: Value[], y: Value[], weight: number): Value[] {
  if (weight === 0 || x.length < 2) return y;
  // Thinned curves have points at unequal distances: what stays depends on the distance.
  const apart = ((x.at(-1) ?? 0) - (x[0] ?? 0)) / (x.length - 1) || 1;
  let mean = 0;
  let total = 0;
  let before: Value = null;
  return y.map((value, i) => {
    if (value === null || x[i] === null) return null;
    const keep = before === null ? 0 : weight ** Math.max((x[i]! - before) / apart, 0);
    mean = keep * mean + (1 - weight) * value;
    total = keep * total + (1 - weight);
    before = x[i];
    return mean / total;
  });
}


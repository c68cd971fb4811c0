// Ticks: whole steps, round numbers, and labels on logarithmic axes shorter than a decade.
import type uPlot from 'uplot';

const kMostTicks = 100; // on an axis; there is room for about 20

/** 1, 2, 5, 10, 20, ... : steps and tokens have no halves. */
export const kWholeIncrements = Array.from({length: 60}, (_, k) => [1, 2, 5][k % 3] * 10 ** Math.floor(k / 3));

// Multiples of the increment between the ends. Counted: uPlot adds the increment until it is past the end, which never
// ends where a step is lost in rounding, as beside 2^53.
export function linearTicks(_: uPlot, __: number, low: number, high: number, increment: number): number[] {
  const first = Math.ceil(low / increment);
  const count = Math.floor(high / increment) - first + 1;
  if (!(count >= 1 && count <= kMostTicks) || first + count > Number.MAX_SAFE_INTEGER) return [low, high];
  return Array.from({length: count}, (___, k) => Number(((first + k) * increment).toPrecision(15)));
}

// The multiples of `factors` in each decade, or of a power of ten inside a decade.
function decades(low: number, high: number, factors: number[], every = 1): number[] {
  const ticks: number[] = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; ++power) {
    if (power % every !== 0) continue;
    for (const factor of factors) {
      const tick = Number((factor * 10 ** power).toPrecision(12));
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  }
  return ticks;
}

/** The finest of some sets of round numbers that has room. */
export function logTicks(chart: uPlot, axis: number, low: number, high: number): number[] {
  if (!(low > 0 && high > low)) return [low, high];
  const pixels = (axis === 0 ? chart.bbox.width / 60 : chart.bbox.height / 32) / devicePixelRatio;
  const room = Math.max(3, Math.floor(pixels));
  if (Math.log10(high / low) < 1) {
    const rough = (high - low) / room;
    const increment = kLinear.find((one) => one >= rough) ?? rough;
    return linearTicks(chart, axis, low, high, increment);
  }
  for (const factors of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3]]) {
    const ticks = decades(low, high, factors);
    if (ticks.length <= room) return ticks;
  }
  for (let every = 1; ; ++every) {
    const ticks = decades(low, high, [1], every);
    if (ticks.length <= room || every > 600) return ticks;
  }
}

const kLinear = Array.from({length: 180}, (_, k) => Number(`${[1, 2, 5][k % 3]}e${Math.floor(k / 3) - 30}`));

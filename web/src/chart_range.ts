// The range of an axis that a few outliers do not stretch: a diverged run or the first sample would flatten all others.
import type {Value} from './data.ts';

export interface Fence {
  low: number;
  high: number;
  outside: number; // values beyond the fence
}

const kFew = 8; // fewer values have no outliers
const kReach = 3; // times the distance between the quartiles, as in a box plot's far outliers
const kStretch = 1.5; // values that stretch the axis by less than this are shown

/** The fence around most of the values, or null where everything fits well. `log`: distances are ratios. */
export function fenceOf(columns: Iterable<ArrayLike<Value | undefined>>, log: boolean): Fence | null {
  const known: number[] = [];
  for (const column of columns) {
    for (let i = 0; i < column.length; ++i) {
      const value = column[i];
      if (value != null && (!log || value > 0)) known.push(log ? Math.log(value) : value);
    }
  }
  if (known.length < kFew) return null;
  const sorted = Float64Array.from(known).sort();
  const lower = sorted[Math.floor(sorted.length / 4)];
  const upper = sorted[Math.floor((3 * sorted.length) / 4)];
  const reach = kReach * (upper - lower);
  if (reach === 0) return null;
  const most = sorted.filter((value) => value >= lower - reach && value <= upper + reach);
  const room = kStretch * (most[most.length - 1] - most[0]);
  const inside = sorted.filter((value) => value >= most[0] - room && value <= most[most.length - 1] + room);
  const [low, high] = [inside[0], inside[inside.length - 1]];
  if (inside.length === sorted.length) return null;
  const back = (value: number) => (log ? Math.exp(value) : value);
  return {low: back(low), high: back(high), outside: sorted.length - inside.length};
}

/** The range to draw for values between `min` and `max`, with some room around them. */
export function roomy(min: number, max: number, log: boolean, fence: Fence | null): [number, number] {
  let [low, high] = fence ? [Math.max(min, fence.low), Math.min(max, fence.high)] : [min, max];
  if (low > high) [low, high] = [min, max]; // zoomed to outliers
  if (log) {
    const room = Math.max((high / low) ** 0.05, 1.02);
    return [low / room, high * room];
  }
  const room = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
  // Shares and losses near zero keep zero as their floor.
  return [low >= 0 && low < room ? 0 : low - room, high + room];
}

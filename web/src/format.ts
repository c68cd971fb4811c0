import type {Value} from './data.ts';

/** Four digits, and powers of ten where they are shorter. */
export function number(value: Value | undefined, digits = 4): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return String(Number(value.toPrecision(digits)).toExponential()).replace('e+', 'e');
  return String(Number(value.toPrecision(digits)));
}

/** 12k, 3.4M: for axes. */
export function short(value: number): string {
  for (const [unit, name, least] of [[1e9, 'B', 1e9], [1e6, 'M', 1e6], [1e3, 'k', 1e4]] as const) {
    if (Math.abs(value) >= least) return `${Number((value / unit).toPrecision(4))}${name}`;
  }
  return number(value);
}

export function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}

export function median(values: number[]): Value {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The smallest and the largest known value. */
export function extent(values: Value[]): [number, number] | null {
  const known = values.filter((value): value is number => value !== null);
  if (known.length === 0) return null;
  return [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
}

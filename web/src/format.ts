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

/** A step or another position on an x axis, in full. */
export function exact(value: number): string {
  return Number.isSafeInteger(value) ? value.toLocaleString('en') : number(value, 6);
}

/** Losses of a table: as many decimals each, so that they stand under one another. */
export function decimals(value: Value | undefined, count = 4): string {
  if (value === null || value === undefined) return '–';
  return Math.abs(value) < 1e4 && Math.abs(value) >= 10 ** -count ? value.toFixed(count) : number(value, count + 1);
}

/** 45 s, 12 min, 3 h 20 min. */
export function duration(seconds: Value | undefined): string {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
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

// How the lines and axes of a chart look.
import type uPlot from 'uplot';
import type {Value} from './data.ts';
import {kWholeIncrements, linearTicks, logTicks} from './chart_ticks.ts';
import {short} from './format.ts';
import {color, paint} from './theme.ts';

/** marked: a few measured points; faint: a noisy line beside a better one; raw: what smoothing replaced. */
export type Style = 'line' | 'marked' | 'faint' | 'raw' | 'dashed' | 'dots';

export interface Series {
  label: string; // a run, a group, a quantity
  kind?: string; // which of its lines: training, validation
  run?: string; // the run it belongs to, for marking
  x: Value[];
  y: Value[];
  color: string; // CSS, may name variables of the theme
  dash?: number[];
  style?: Style;
}

export const kDashed = [6, 4];
const kMostMarkers = 60; // on a line

/** Width, opacity and markers of each style, for canvases and legends. */
export const kLooks: Record<Style, {width: number; alpha: number; marker: number}> = {
  line: {width: 1.8, alpha: 1, marker: 0},
  marked: {width: 2, alpha: 1, marker: 6},
  faint: {width: 1.1, alpha: 0.6, marker: 0},
  raw: {width: 1, alpha: 0.18, marker: 0},
  dashed: {width: 1.6, alpha: 1, marker: 0},
  dots: {width: 0, alpha: 1, marker: 5},
};

export const fullName = (series: Series) => (series.kind ? `${series.label}, ${series.kind}` : series.label);

// Points with a gap on both sides: no line shows them. `undefined` is a step of another series, null a gap.
function isolated(values: ArrayLike<Value | undefined>): number[] {
  const found: number[] = [];
  let start = -1;
  let length = 0;
  for (let i = 0; i <= values.length; ++i) {
    const value = i < values.length ? values[i] : null;
    if (value === undefined) continue;
    if (value === null) {
      if (length === 1) found.push(start);
      length = 0;
    } else if (++length === 1) {
      start = i;
    }
  }
  return found;
}

function markers(values: ArrayLike<Value | undefined>): number[] {
  const known = Array.from(values).flatMap((value, i) => (value == null ? [] : [i]));
  const every = Math.ceil(known.length / kMostMarkers);
  return known.filter((_, k) => k % every === 0 || k === known.length - 1);
}

export function lineOf(series: Series, logY: boolean): uPlot.Series {
  const style = series.style ?? 'line';
  const look = kLooks[style];
  const stroke = () => paint(series.color);
  const shown = style === 'marked' ? markers : isolated;
  return {
    label: fullName(series), scale: logY ? 'log' : 'y', stroke, width: look.width, alpha: look.alpha,
    dash: style === 'dashed' ? kDashed : series.dash,
    ...(style === 'dots'
      ? {paths: () => null, points: {show: true, size: look.marker, fill: stroke, width: 0}}
      : {points: {show: false, size: Math.max(look.marker, 6), fill: stroke, width: 0,
        filter: (chart: uPlot, index: number) => shown(chart.data[index])}}),
  };
}

export function axisOf(label: string, scale: 'x' | 'y' | 'log', size: number, whole: boolean): uPlot.Axis {
  return {
    scale, label, labelSize: 20, labelFont: '12px system-ui, sans-serif', font: '11px system-ui, sans-serif', size,
    ...(scale === 'log' ? {splits: logTicks, filter: (_: uPlot, ticks: number[]) => ticks} : {splits: linearTicks}),
    ...(whole ? {incrs: kWholeIncrements} : {}),
    stroke: () => color('ink-soft'), grid: {stroke: () => color('grid'), width: 1},
    ticks: {stroke: () => color('grid'), width: 1, size: 4},
    values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : short(tick))),
  };
}

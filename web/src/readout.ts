// The values at the pointer: a box beside it, the nearest line first, each value with its own step.
import type uPlot from 'uplot';
import {fullName, type Series} from './chart_style.ts';
import {h} from './element.ts';
import {exact, number} from './format.ts';
import {lineSample} from './legend.ts';

const kMostRows = 8;

interface Reading {
  series: Series;
  index: number; // in the chart's series
  x: number;
  y: number;
  away: number; // pixels from the pointer
}

/** Each series has its own points: at the pointer it shows its nearest one. */
export function nearest(chart: uPlot, series: number, at: number): number {
  const [x, values] = [chart.data[0], chart.data[series]];
  let before = at;
  let after = at;
  while (before >= 0 && values[before] == null) --before;
  while (after < values.length && values[after] == null) ++after;
  if (before < 0) return after < values.length ? after : at;
  if (after === values.length) return before;
  return x[at] - x[before] <= x[after] - x[at] ? before : after;
}

/** What each visible line shows at the pointer, the nearest first. */
export function readings(chart: uPlot, series: Series[]): Reading[] {
  const {idxs, top} = chart.cursor;
  if (!idxs) return [];
  return series.flatMap((one, k) => {
    const index = k + 1;
    const at = idxs[index];
    if (at == null || one.style === 'raw' || !chart.series[index].show) return [];
    const y = chart.data[index][at];
    if (y == null) return [];
    const away = Math.abs(chart.valToPos(y, chart.series[index].scale!) - (top ?? 0));
    return [{series: one, index, x: chart.data[0][at], y, away}];
  }).sort((a, b) => a.away - b.away);
}

const unit = (xLabel: string) => ({steps: 'step', seconds: 'second', tokens: 'token'})[xLabel] ?? xLabel;

export class Readout {
  readonly box = h('div', {class: 'readout', hidden: true});

  constructor(private readonly xLabel: string) {}

  show(chart: uPlot, found: Reading[]): void {
    const at = chart.cursor.idx == null ? undefined : chart.data[0][chart.cursor.idx];
    this.box.hidden = found.length === 0 || at === undefined || (chart.cursor.left ?? -1) < 0;
    if (this.box.hidden) return;
    const rows = found.slice(0, kMostRows).map(({series, x, y}, k) => h('tr', {class: k === 0 ? 'nearest' : ''},
      h('td', {}, lineSample(series.color, series.dash, series.style)), h('th', {scope: 'row'}, series.label),
      h('td', {class: 'kind'}, series.kind ?? ''), h('td', {class: 'value'}, number(y, 5)),
      // A value of another step says so: validation is evaluated now and then.
      h('td', {class: 'at'}, x === at ? '' : `at ${unit(this.xLabel)} ${exact(x)}`)));
    this.box.replaceChildren(h('b', {}, `${unit(this.xLabel)} ${exact(at!)}`), h('table', {}, ...rows),
      ...(found.length > kMostRows ? [h('i', {}, `and ${found.length - kMostRows} more`)] : []));
    this.place(chart);
  }

  /** The same for a screen reader. */
  words(found: Reading[]): string {
    return found.slice(0, 3).map(({series, x, y}) =>
      `${fullName(series)} ${number(y, 5)} at ${unit(this.xLabel)} ${exact(x)}`).join('; ');
  }

  // On the side of the pointer that has more room.
  private place(chart: uPlot): void {
    const left = chart.cursor.left!;
    const width = chart.over.clientWidth;
    const offset = chart.over.offsetLeft;
    const right = left < width / 2;
    this.box.style.left = right ? `${offset + left + 14}px` : '';
    this.box.style.right = right ? '' : `${chart.width - offset - left + 14}px`;
    this.box.style.maxWidth = `${Math.max(right ? width - left - 14 : left - 14, 180)}px`;
    this.box.style.top = `${chart.over.offsetTop + 6}px`;
  }
}

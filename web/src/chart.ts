// One chart: uPlot with our colours, values at the pointer, zoom by dragging and by keys.
import uPlot from 'uplot';
import type {Value} from './data.ts';
import {h} from './element.ts';
import {number, short} from './format.ts';
import {color, onThemeChange, paint} from './theme.ts';

export interface Series {
  label: string;
  x: Value[];
  y: Value[];
  color: string; // CSS, may name variables of the theme
  dash?: number[];
  style?: 'line' | 'dots' | 'dashed' | 'faint';
}

export interface ChartOptions {
  id: string; // for tests: data-chart, and the key in globalThis.gluonCharts
  xLabel: string;
  yLabel: string;
  logY?: boolean;
  height?: number;
}

// Read by tests.
const drawn: Record<string, uPlot> = ((globalThis as Record<string, unknown>).gluonCharts = {}) as never;

// Points with a known x, sorted by it; on a log scale, values <= 0 are gaps.
function points({x, y}: Series, logY: boolean): [number[], Value[]] {
  const order = x.flatMap((value, i) => (value === null ? [] : [i])).sort((a, b) => x[a]! - x[b]!);
  const shown = (value: Value) => (logY && value !== null && value <= 0 ? null : value);
  return [order.map((i) => x[i]!), order.map((i) => shown(y[i]))];
}

const kMostTicks = 100; // on an axis; there is room for about 20

// Each series has its own points: at the pointer it shows its nearest one.
function nearest(chart: uPlot, series: number, at: number): number {
  const values = chart.data[series];
  for (let away = 0; away < values.length; ++away) {
    if (values[at - away] != null) return at - away;
    if (values[at + away] != null) return at + away;
  }
  return at;
}

function style(series: Series, logY: boolean): uPlot.Series {
  const common = {
    label: series.label, stroke: () => paint(series.color), dash: series.dash, width: 1.6,
    value: (_: uPlot, value: Value) => number(value, 5), scale: logY ? 'log' : 'y',
  };
  const styles = {
    line: {points: {show: series.x.length < 2}},
    dots: {paths: () => null, points: {show: true, size: 5, fill: () => paint(series.color), width: 0}},
    dashed: {dash: [6, 4], points: {show: false}},
    faint: {width: 1, alpha: 0.45, points: {show: false}},
  };
  return {...common, ...styles[series.style ?? 'line']};
}

// Multiples of the increment between the ends. Counted: uPlot adds the increment until it is past the end, which never
// ends where a step is lost in rounding, as beside 2^53.
function splits(_: uPlot, __: number, low: number, high: number, increment: number): number[] {
  const first = Math.ceil(low / increment);
  const count = Math.floor(high / increment) - first + 1;
  if (!(count >= 1 && count <= kMostTicks) || first + count > Number.MAX_SAFE_INTEGER) return [low, high];
  return Array.from({length: count}, (___, k) => Number(((first + k) * increment).toPrecision(15)));
}

function axis(label: string, scale: string, size: number): uPlot.Axis {
  return {
    scale, label, labelSize: 20, labelFont: '12px system-ui, sans-serif', font: '11px system-ui, sans-serif', size,
    ...(scale === 'log' ? {} : {splits}),
    stroke: () => color('ink-soft'), grid: {stroke: () => color('grid'), width: 1},
    ticks: {stroke: () => color('grid'), width: 1, size: 4},
    values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : short(tick))),
  };
}

// Charts that the reader has zoomed; newer data keeps the zoom.
const zoomed = new WeakSet<uPlot>();

function showAll(chart: uPlot): void {
  zoomed.delete(chart);
  chart.setData(chart.data, true);
}

// Arrow keys move the pointer, + and - zoom around it, 0 and Escape show everything again.
function keys(chart: uPlot, event: KeyboardEvent): boolean {
  const x = chart.data[0];
  const {min, max} = chart.scales.x;
  if (x.length === 0 || min == null || max == null) return false;
  const at = chart.cursor.idx ?? 0;
  const step = event.shiftKey ? 10 : 1;
  const middle = x[at] ?? (min + max) / 2;
  const move = (index: number) => {
    const clamped = Math.min(Math.max(index, 0), x.length - 1);
    chart.setCursor({left: chart.valToPos(x[clamped], 'x'), top: chart.bbox.height / devicePixelRatio / 2});
  };
  const zoom = (factor: number) => {
    zoomed.add(chart);
    chart.setScale('x', {
      min: Math.max(middle - (middle - min) * factor, x[0]),
      max: Math.min(middle + (max - middle) * factor, x[x.length - 1]),
    });
  };
  switch (event.key) {
    case 'ArrowLeft': move(at - step); return true;
    case 'ArrowRight': move(at + step); return true;
    case '+': case '=': zoom(0.6); return true;
    case '-': zoom(1 / 0.6); return true;
    case '0': case 'Escape': showAll(chart); return event.key === '0';
    default: return false;
  }
}

// The chart of each place. Newer data of the same kind goes into the same chart.
const placed = new WeakMap<HTMLElement, {chart: uPlot; frame: HTMLElement; kind: string; forget: () => void}>();

/** Removes the chart of `place`, if there is one. */
export function removeChart(place: HTMLElement): void {
  placed.get(place)?.forget();
  placed.delete(place);
  place.replaceChildren();
}

/** Draws `series` into `place` and replaces what was there; newer data of the same series keeps the zoom. */
export function drawChart(place: HTMLElement, series: Series[], options: ChartOptions): void {
  const logY = options.logY ?? false;
  const shown = series.filter((one) => one.x.some((x, i) => x !== null && one.y[i] !== null));
  if (shown.length === 0) {
    removeChart(place);
    place.append(h('p', {class: 'empty'}, 'No data.'));
    return;
  }
  const parts = shown.map((one) => points(one, logY));
  const data = uPlot.join(parts.map(([x, y]) => [x, y])) as uPlot.AlignedData;
  const counts = parts.map(([, y]) => y.filter((value) => value !== null).length).join(',');
  const kind = JSON.stringify([options, shown.map((one) => [one.label, one.color, one.dash, one.style, one.x.length < 2])]);
  const before = placed.get(place);
  if (before?.kind === kind) {
    before.frame.dataset.points = counts;
    const keep = zoomed.has(before.chart);
    before.chart.setData(data, !keep);
    if (keep) before.chart.redraw();
    return;
  }
  removeChart(place);
  const frame = h('div', {
    class: 'chart', tabindex: 0, role: 'group', 'data-chart': options.id, 'data-points': counts,
    'aria-label': `${options.yLabel} over ${options.xLabel}: ${shown.map((one) => one.label).join(', ')}. ` +
      'Arrow keys read values, plus and minus zoom, zero shows everything.',
  });
  place.append(frame);
  const height = options.height ?? 320;
  const narrow = frame.clientWidth < 480;
  const chart = new uPlot({
    width: Math.max(frame.clientWidth, 200), height: narrow ? Math.min(height, 260) : height,
    scales: {x: {time: false}, ...(logY ? {log: {distr: 3}} : {})},
    axes: [axis(options.xLabel, 'x', 34), axis(options.yLabel, logY ? 'log' : 'y', narrow ? 44 : 56)],
    cursor: {drag: {x: true, y: true, uni: 40}, dataIdx: nearest, focus: {prox: 24}},
    hooks: {setSelect: [(self) => { if (self.select.width > 0 || self.select.height > 0) zoomed.add(self); }]},
    focus: {alpha: 0.35},
    legend: {live: true, markers: {stroke: (_, i) => shown[i - 1]?.color ?? null}},
    series: [{label: options.xLabel, value: (_, value) => (value == null ? '–' : short(value))},
      ...shown.map((one) => style(one, logY))],
  }, data, frame);
  drawn[options.id] = chart;
  chart.over.addEventListener('dblclick', () => zoomed.delete(chart));
  frame.addEventListener('keydown', (event) => {
    if (keys(chart, event)) event.preventDefault();
  });
  const resized = new ResizeObserver(() => {
    if (frame.clientWidth > 0) chart.setSize({width: frame.clientWidth, height: chart.height});
  });
  resized.observe(frame);
  const forgetTheme = onThemeChange(() => chart.redraw(false));
  placed.set(place, {chart, frame, kind, forget: () => {
    resized.disconnect();
    forgetTheme();
    chart.destroy();
    delete drawn[options.id];
  }});
}

// One chart: uPlot with our colours, values at the pointer, zoom by dragging and by keys, a legend under it.
import uPlot from 'uplot';
import {pressKey} from './chart_keys.ts';
import {fenceOf, roomy, type Fence} from './chart_range.ts';
import {axisOf, fullName, kLooks, lineOf, type Series} from './chart_style.ts';
import type {Value} from './data.ts';
import {h} from './element.ts';
import {legendOf} from './legend.ts';
import {nearest, Readout, readings} from './readout.ts';
import {markedRun, onMark} from './selection.ts';
import {onThemeChange} from './theme.ts';

interface ChartOptions {
  id: string; // for tests: data-chart, and the key in globalThis.gluonCharts
  name: string; // what a screen reader says first
  xLabel: string;
  yLabel: string;
  logY?: boolean;
  height?: number;
  empty?: string; // said instead of a chart without lines
}

// Read by tests.
const drawn: Record<string, uPlot> = ((globalThis as Record<string, unknown>).gluonCharts = {}) as never;

const kWhole = ['steps', 'tokens'];
const kDim = 0.12; // opacity of lines beside the marked one
const kNear = 24; // pixels in which the pointer marks a line
const kNamesSaid = 6;

// Points with a known x, sorted by it; on a log scale, values <= 0 are gaps.
function points({x, y}: Series, logY: boolean): [number[], Value[]] {
  const order = x.flatMap((value, i) => (value === null ? [] : [i])).sort((a, b) => x[a]! - x[b]!);
  const shown = (value: Value) => (logY && value !== null && value <= 0 ? null : value);
  return [order.map((i) => x[i]!), order.map((i) => shown(y[i]))];
}

function accessibleName(options: ChartOptions, series: Series[]): string {
  const names = [...new Set(series.filter((one) => one.style !== 'raw').map(fullName))];
  const more = names.length > kNamesSaid ? ` and ${names.length - kNamesSaid} more` : '';
  return `${options.name}: ${options.yLabel} over ${options.xLabel}. Lines: ${names.slice(0, kNamesSaid).join('; ')}` +
    `${more}. Arrow keys read values, plus and minus zoom, zero shows everything.`;
}

class Chart {
  readonly element = h('div', {class: 'chart-box'});
  readonly kind: string;
  readonly off = new Set<string>(); // labels hidden with the legend
  everything = false; // outliers too
  zoomed = false;
  private readonly frame: HTMLElement;
  private readonly said = h('output', {class: 'said'});
  private readonly all = h('button', {type: 'button', class: 'all', click: () => this.showOutliers(!this.everything)});
  private readonly whole = h('button', {type: 'button', hidden: true, click: () => this.reset()}, 'Reset zoom');
  private readonly logY: boolean;
  private plot!: uPlot;
  private fence: Fence | null = null;
  private fenceX: Fence | null = null;
  private near: string | undefined;
  private readonly forget: (() => void)[] = [];

  constructor(place: HTMLElement, private readonly series: Series[], private readonly options: ChartOptions,
    before: Chart | undefined) {
    this.logY = options.logY ?? false;
    this.kind = kindOf(series, options);
    this.frame = h('div', {class: 'chart', tabindex: 0, role: 'img', 'data-chart': options.id,
      'aria-label': accessibleName(options, series)});
    if (before?.sameAxes(options)) {
      this.everything = before.everything;
      for (const label of before.off) this.off.add(label);
    }
    const legend = legendOf(series, this.off, () => this.showLines());
    this.element.append(this.frame, h('div', {class: 'tools'}, this.whole, this.all), legend, this.said);
    place.append(this.element);
    this.build();
    this.showLines();
    if (before?.zoomed && before.sameAxes(options)) this.zoomAs(before);
  }

  sameAxes(options: ChartOptions): boolean {
    const axes = ({id, xLabel, yLabel, logY}: ChartOptions) => [id, xLabel, yLabel, logY].join();
    return axes(options) === axes(this.options);
  }

  update(series: Series[]): void {
    series.forEach((one, i) => Object.assign(this.series[i], {x: one.x, y: one.y}));
    const data = this.join();
    this.plot.setData(data, !this.zoomed);
    if (this.zoomed) this.plot.redraw();
  }

  destroy(): void {
    for (const forget of this.forget) forget();
    this.plot.destroy();
    if (drawn[this.options.id] === this.plot) delete drawn[this.options.id];
    this.element.remove();
  }

  private join(): uPlot.AlignedData {
    const parts = this.series.map((one) => points(one, this.logY));
    this.frame.dataset.points = parts.map(([, y]) => y.filter((value) => value !== null).length).join(',');
    // Measured dots are to be seen, however far the line beside them is. Steps have no outliers; gradients have.
    const dots = parts.filter((_, i) => this.series[i].style === 'dots');
    this.fence = fenceOf((dots.length ? dots : parts).map(([, y]) => y), this.logY);
    this.fenceX = fenceOf(dots.map(([x]) => x), false);
    const outside = (this.fence?.outside ?? 0) + (this.fenceX?.outside ?? 0);
    this.all.hidden = outside === 0;
    this.all.textContent = this.everything ? 'Leave out outliers'
      : `Show everything: ${outside} ${outside === 1 ? 'value is' : 'values are'} outside`;
    return uPlot.join(parts.map(([x, y]) => [x, y])) as uPlot.AlignedData;
  }

  private build(): void {
    const {options, logY, frame} = this;
    const height = options.height ?? 320;
    const narrow = frame.clientWidth < 480;
    const readout = new Readout(options.xLabel);
    const range = (log: boolean) => (_: uPlot, min: Value, max: Value): [Value, Value] =>
      min === null || max === null ? [min, max] : roomy(min, max, log, this.everything ? null : this.fence);
    const rangeX = (_: uPlot, min: number, max: number): [number, number] => {
      if (min === max) return [min - Math.max(1, Math.abs(min) * 1e-6), max + Math.max(1, Math.abs(max) * 1e-6)];
      return this.fenceX && !this.everything ? roomy(min, max, false, this.fenceX) : [min, max];
    };
    this.plot = new uPlot({
      width: Math.max(frame.clientWidth, 200), height: narrow ? Math.min(height, 260) : height,
      scales: {x: {time: false, range: rangeX},
        ...(logY ? {log: {distr: 3, range: range(true)}} : {y: {range: range(false)}})},
      axes: [axisOf(options.xLabel, 'x', 34, kWhole.includes(options.xLabel)),
        axisOf(options.yLabel, logY ? 'log' : 'y', narrow ? 46 : 58, false)],
      cursor: {drag: {x: true, y: true, uni: 40}, dataIdx: nearest, points: {size: 7}},
      hooks: {
        setSelect: [({select}) => { if (select.width > 0 || select.height > 0) this.setZoomed(true); }],
        setCursor: [(self) => {
          const found = readings(self, this.series);
          readout.show(self, found);
          this.markNear(readout.box.hidden || found[0].away > kNear ? undefined : found[0].series.label);
        }],
      },
      legend: {show: false},
      series: [{}, ...this.series.map((one) => lineOf(one, logY))],
    }, this.join(), frame);
    frame.append(readout.box);
    drawn[options.id] = this.plot;
    this.plot.over.addEventListener('dblclick', () => this.setZoomed(false));
    this.listen(readout);
  }

  private listen(readout: Readout): void {
    const {frame, plot} = this;
    frame.addEventListener('keydown', (event) => {
      if (!pressKey(plot, event, {mark: () => this.setZoomed(true), reset: () => this.reset()})) return;
      event.preventDefault();
      if (event.key.startsWith('Arrow')) this.said.textContent = readout.words(readings(plot, this.series));
    });
    frame.addEventListener('blur', () => plot.setCursor({left: -10, top: -10}));
    const resized = new ResizeObserver(() => {
      if (frame.clientWidth > 0) plot.setSize({width: frame.clientWidth, height: plot.height});
    });
    resized.observe(frame);
    this.forget.push(() => resized.disconnect(), onThemeChange(() => plot.redraw(false)), onMark(() => this.dim()));
  }

  private showLines(): void {
    this.series.forEach((one, i) => {
      const show = !this.off.has(one.label);
      if (this.plot.series[i + 1].show !== show) this.plot.setSeries(i + 1, {show});
    });
  }

  private setZoomed(zoomed: boolean): void {
    this.zoomed = zoomed;
    this.whole.hidden = !zoomed;
  }

  private reset(): void {
    this.setZoomed(false);
    this.plot.setData(this.plot.data, true);
  }

  private showOutliers(everything: boolean): void {
    this.everything = everything;
    this.setZoomed(false);
    this.plot.setData(this.join(), true);
  }

  private zoomAs(before: Chart): void {
    const y = this.logY ? 'log' : 'y';
    for (const scale of ['x', y]) {
      const {min, max} = before.plot.scales[scale];
      if (min != null && max != null) this.plot.setScale(scale, {min, max});
    }
    this.setZoomed(true);
  }

  private markNear(label: string | undefined): void {
    if (label === this.near) return;
    this.near = label;
    this.dim();
  }

  // The line at the pointer, or the run marked in the table, stands out.
  private dim(): void {
    const run = markedRun();
    const hasRun = run !== null && this.series.some((one) => one.run === run);
    if (this.series.length < 3) return;
    this.series.forEach((one, i) => {
      const out = this.near !== undefined ? one.label !== this.near : hasRun && one.run !== run;
      this.plot.series[i + 1].alpha = out ? kDim : kLooks[one.style ?? 'line'].alpha;
    });
    this.plot.redraw(false);
  }
}

function kindOf(series: Series[], options: ChartOptions): string {
  return JSON.stringify([options, series.map((one) => [one.label, one.kind, one.color, one.dash, one.style])]);
}

// The chart of each place. Newer data of the same kind goes into the same chart.
const placed = new WeakMap<HTMLElement, Chart>();

/** Removes the chart of `place`, if there is one. */
export function removeChart(place: HTMLElement): void {
  placed.get(place)?.destroy();
  placed.delete(place);
  place.replaceChildren();
}

/** Draws `series` into `place` and replaces what was there; newer data of the same series keeps the zoom. */
export function drawChart(place: HTMLElement, series: Series[], options: ChartOptions): void {
  const shown = series.filter((one) => one.x.some((x, i) => x !== null && one.y[i] !== null));
  const before = placed.get(place);
  if (shown.length === 0) {
    removeChart(place);
    place.append(h('p', {class: 'empty'}, options.empty ?? 'There is nothing to draw yet.'));
    return;
  }
  if (before?.kind === kindOf(shown, options)) {
    before.update(shown);
    return;
  }
  const chart = new Chart(place, shown, options, before);
  before?.destroy();
  placed.set(place, chart);
  place.replaceChildren(chart.element);
  place.style.minHeight = ''; // it was a stand-in for the chart
}

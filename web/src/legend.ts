// The legend under a chart: a button per run or group that hides its lines, and what the kinds of lines mean.
import {kDashed, kLooks, type Series, type Style} from './chart_style.ts';
import {h, svg} from './element.ts';

/** A piece of a line as the chart draws it. */
export function lineSample(color: string, dash: number[] = [], style: Style = 'line'): SVGElement {
  const look = kLooks[style];
  const parts: SVGElement[] = [];
  if (look.width > 0) {
    parts.push(svg('line', {x1: '1', x2: '25', y1: '5', y2: '5', 'stroke-width': String(Math.max(look.width, 1.4)),
      'stroke-dasharray': (style === 'dashed' ? kDashed : dash).join(' ')}));
  }
  if (look.marker > 0) parts.push(svg('circle', {cx: '13', cy: '5', r: '3'}));
  const sample = svg('svg', {viewBox: '0 0 26 10', class: 'sample', 'aria-hidden': 'true'}, ...parts);
  sample.style.stroke = color;
  sample.style.fill = color;
  sample.style.opacity = String(Math.max(look.alpha, 0.5));
  return sample;
}

/** `off` holds the hidden labels; `changed` is called after a click has changed it. */
export function legendOf(series: Series[], off: Set<string>, changed: () => void): HTMLElement {
  const named = series.filter((one) => one.style !== 'raw');
  const labels = new Map(named.map((one) => [one.label, one])); // the last line of a label has its dash
  const kinds = new Map(named.filter((one) => one.kind).map((one) => [one.kind!, one]));
  const entries = [...labels.values()].map((one) => {
    // Where kinds are explained apart, the sample shows colour and dash only.
    const entry = h('button', {type: 'button', class: 'entry', 'aria-pressed': String(!off.has(one.label)),
      title: 'Hide or show', click: () => {
        if (!off.delete(one.label)) off.add(one.label);
        entry.setAttribute('aria-pressed', String(!off.has(one.label)));
        changed();
      }}, lineSample(one.color, one.dash, one.kind ? 'line' : one.style), h('span', {}, one.label));
    return entry;
  });
  const key = [...kinds].map(([kind, one]) =>
    h('span', {class: 'kind'}, lineSample('var(--ink-soft)', [], one.style), kind));
  return h('div', {class: 'legend'}, ...(kinds.size ? [h('div', {class: 'kinds'}, ...key)] : []),
    h('div', {class: 'entries'}, ...entries));
}

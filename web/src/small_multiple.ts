// A small chart of Lhat and L0 + L1 |g|* of one layer, as SVG: fast enough for hundreds on a page.
import {fenceOf} from './chart_range.ts';
import {fitted, type Layer, type Value} from './data.ts';
import {svg} from './element.ts';
import {extent} from './format.ts';

const kWidth = 200;
const kHeight = 72;

function path(steps: number[], values: Value[], xs: [number, number], ys: [number, number], name: string): SVGElement {
  const sx = kWidth / (xs[1] - xs[0] || 1);
  const sy = (kHeight - 6) / (ys[1] - ys[0] || 1);
  let text = '';
  let down = false;
  steps.forEach((step, i) => {
    const value = values[i];
    if (value !== null) {
      text += down ? 'L' : 'M';
      text += `${((step - xs[0]) * sx).toFixed(1)} ${(kHeight - 3 - (value - ys[0]) * sy).toFixed(1)}`;
    }
    down = value !== null;
  });
  return svg('path', {d: text, class: name});
}

export function smallMultiple(layer: Layer, color: string): SVGElement {
  const line = fitted(layer);
  const xs = extent(layer.step) ?? [0, 1];
  const [low, high] = extent([...layer.smoothness, ...line]) ?? [0, 1];
  // Outliers leave the chart at its top.
  const ys: [number, number] = [Math.min(low, 0), fenceOf([layer.smoothness], false)?.high ?? high];
  const measured = path(layer.step, layer.smoothness, xs, ys, 'measured');
  measured.style.stroke = color;
  return svg('svg', {viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: 'none', 'aria-hidden': 'true'},
    measured, path(layer.step, line, xs, ys, 'fitted'));
}

// A small chart of Lhat and L0 + L1 |g|* of one layer, as SVG: fast enough for hundreds on a page.
import {fitted, type Layer, type Value} from './data.ts';

const kWidth = 200;
const kHeight = 72;
const kSpace = 'http://www.w3.org/2000/svg';

function extent(values: Value[]): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

function path(steps: number[], values: Value[], xs: [number, number], ys: [number, number], name: string): SVGElement {
  const sx = kWidth / (xs[1] - xs[0] || 1);
  const sy = (kHeight - 6) / (ys[1] - ys[0] || 1);
  let text = '';
  let down = false;
  steps.forEach((step, i) => {
    const value = values[i];
    if (value === null) {
      down = false;
      return;
    }
    text += `${down ? 'L' : 'M'}${((step - xs[0]) * sx).toFixed(1)} ${(kHeight - 3 - (value - ys[0]) * sy).toFixed(1)}`;
    down = true;
  });
  const element = document.createElementNS(kSpace, 'path');
  element.setAttribute('d', text);
  element.setAttribute('class', name);
  return element;
}

export function smallMultiple(layer: Layer): SVGElement {
  const svg = document.createElementNS(kSpace, 'svg');
  svg.setAttribute('viewBox', `0 0 ${kWidth} ${kHeight}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const line = fitted(layer);
  const xs = extent(layer.step);
  const ys = extent([...layer.smoothness, ...line]);
  ys[0] = Math.min(ys[0], 0);
  svg.append(path(layer.step, layer.smoothness, xs, ys, 'measured'), path(layer.step, line, xs, ys, 'fitted'));
  return svg;
}

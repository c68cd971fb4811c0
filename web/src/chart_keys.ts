// The keys of a chart: arrows move the pointer, + and - zoom around it, 0 and Escape show everything again.
import type uPlot from 'uplot';

interface Zoom {
  mark(): void; // the reader has zoomed
  reset(): void;
}

/** Whether the key was one of the chart's. */
export function pressKey(chart: uPlot, event: KeyboardEvent, zoom: Zoom): boolean {
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
  const scale = (factor: number) => {
    zoom.mark();
    chart.setScale('x', {
      min: Math.max(middle - (middle - min) * factor, x[0]),
      max: Math.min(middle + (max - middle) * factor, x[x.length - 1]),
    });
  };
  switch (event.key) {
    case 'ArrowLeft': move(at - step); return true;
    case 'ArrowRight': move(at + step); return true;
    case '+': case '=': scale(0.6); return true;
    case '-': scale(1 / 0.6); return true;
    case '0': case 'Escape': zoom.reset(); return event.key === '0';
    default: return false;
  }
}

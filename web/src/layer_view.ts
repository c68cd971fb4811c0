// One layer in a dialog: Lhat[k] and L0 + L1 |g|* over the steps and against |g|*, for all runs side by side.
import {drawChart, removeChart} from './chart.ts';
import {estimate, fitted, title, type Layer, type Report, type Run} from './data.ts';
import {h} from './element.ts';
import {extent, number, percent} from './format.ts';
import {runColor} from './palette.ts';
import {color} from './theme.ts';

function heading(run: Run, layer: Layer): string {
  const fit = layer.fit;
  if (!fit) return `${run.name}: not fitted, ${layer.unfitted}`;
  return `${run.name}: L0 ${number(fit.L0)}, L1 ${number(fit.L1)}, relative MSE ${number(fit.mseRel, 3)}`;
}

function details(layer: Layer): string {
  const parts = [layer.norm && `norm ${layer.norm}`, layer.dualMethod && `dual ${layer.dualMethod}`,
    `${layer.step.length} samples`];
  if (layer.fit) parts.push(`${percent(layer.fit.violations)} above the line`);
  if (layer.unmoved) parts.push(`${layer.unmoved} left out: the layer had not moved`);
  return parts.filter(Boolean).join(' · ');
}

function drawRun(panel: HTMLElement, run: Run, layer: Layer, index: number): void {
  const over = h('div');
  const against = h('div');
  panel.append(h('h3', {}, heading(run, layer)), h('p', {class: 'about'}, details(layer)), over, against);
  const stroke = runColor(index);
  // The fitted line from the smallest to the largest gradient.
  const ends = (layer.fit && extent(layer.gradient)) ?? [];
  drawChart(over, [
    {label: 'Lhat', x: layer.step, y: layer.smoothness, color: stroke, style: 'dots'},
    {label: 'L0 + L1 |g|*', x: layer.step, y: fitted(layer), color: color('fit')},
  ], {id: `layer-${index}-steps`, xLabel: 'steps', yLabel: 'Lhat', height: 260});
  drawChart(against, [
    {label: 'Lhat', x: layer.gradient, y: layer.smoothness, color: stroke, style: 'dots'},
    {label: 'L0 + L1 |g|*', x: ends, y: ends.map((g) => estimate(layer.fit!, g)), color: color('fit')},
  ], {id: `layer-${index}-gradient`, xLabel: '|g|*', yLabel: 'Lhat', height: 220});
}

export class LayerView {
  readonly dialog = h('dialog', {id: 'layer', 'aria-labelledby': 'layer-title'});
  private names: string[] = [];

  /** `report` may be replaced by a newer one; an open dialog keeps its data. */
  constructor(public report: Report) {
    this.dialog.addEventListener('click', (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener('close', () => this.clear());
  }

  /** Shows the layer; the buttons step through `names`, the order of the grid. */
  open(name: string, names: string[]): void {
    this.names = names;
    this.clear();
    const at = names.indexOf(name);
    const found = this.report.runs.flatMap((run, index) => {
      const layer = run.layers.find((one) => one.name === name);
      return layer ? [{run, index, layer}] : [];
    });
    const short = title(found[0].layer);
    const full = short === name || short.startsWith(`${name}:`) ? short : `${short} (${name})`;
    const step = (by: number, text: string, label: string) => h('button', {
      type: 'button', disabled: names[at + by] === undefined, 'aria-label': label,
      click: () => this.open(this.names[at + by], this.names),
    }, text);
    const panels = h('div', {class: 'panels'});
    this.dialog.append(
      h('header', {}, h('h2', {id: 'layer-title'}, full), step(-1, '←', 'Previous layer'),
        step(1, '→', 'Next layer'),
        h('button', {type: 'button', 'aria-label': 'Close', click: () => this.dialog.close()}, '✕')),
      panels);
    if (!this.dialog.open) this.dialog.showModal();
    for (const {run, index, layer} of found) {
      const panel = h('div');
      panels.append(panel);
      drawRun(panel, run, layer, index);
    }
  }

  private clear(): void {
    for (const chart of this.dialog.querySelectorAll('.chart')) removeChart(chart.parentElement!);
    this.dialog.replaceChildren();
  }
}

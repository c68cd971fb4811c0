// One layer in a dialog: Lhat[k] and L0 + L1 |g|* over the steps and against |g|*, for all runs side by side.
import {drawChart} from './chart.ts';
import {estimate, fitted, title, type Layer, type Report, type Run} from './data.ts';
import {clearDialog, dialogHeader, makeDialog} from './dialog.ts';
import {h} from './element.ts';
import {extent, number, percent} from './format.ts';
import {lineSample} from './legend.ts';
import {runColor, runDash} from './palette.ts';
import {wordList} from './words.ts';

function heading(run: Run, layer: Layer, index: number): HTMLElement {
  const {fit} = layer;
  const words = fit ? `L0 ${number(fit.L0)}, L1 ${number(fit.L1)}, relative error (MSE) ${number(fit.mseRel, 3)}`
    : `not fitted: ${layer.unfitted}`;
  return h('h3', {}, lineSample(runColor(index), runDash(index)), `${run.name} `,
    h('span', {class: fit?.doubt ? 'doubtful' : ''}, words));
}

function details(layer: Layer): string {
  const parts = [layer.norm && `norm ${layer.norm}`, layer.dualMethod && `dual ${layer.dualMethod}`,
    `${layer.step.length} samples`];
  if (layer.fit) parts.push(`${percent(layer.fit.violations)} above the line`);
  if (layer.fit?.leftOut) parts.push(`samples left out of the fit at the start: ${layer.fit.leftOut}`);
  if (layer.unmoved) parts.push(`${layer.unmoved} left out: the layer had not moved`);
  return parts.filter(Boolean).join(' · ');
}

function drawRun(panel: HTMLElement, run: Run, layer: Layer, index: number): void {
  const over = h('div');
  const against = h('div');
  panel.append(heading(run, layer, index), h('p', {class: 'about'}, details(layer)),
    ...(layer.fit?.doubt ? [h('p', {class: 'note doubt'}, `In doubt: ${layer.fit.doubt}.`)] : []), over, against);
  const lhat = {label: 'Lhat', y: layer.smoothness, color: runColor(index), style: 'dots' as const};
  const line = {label: 'L0 + L1 |g|*', color: 'var(--fit)'};
  // The fitted line from the smallest to the largest gradient.
  const ends = (layer.fit && extent(layer.gradient)) ?? [];
  drawChart(over, [{...lhat, x: layer.step}, {...line, x: layer.step, y: fitted(layer)}],
    {id: `layer-${index}-steps`, name: `${run.name}, ${layer.name}`, xLabel: 'steps', yLabel: 'Lhat', height: 260});
  drawChart(against, [{...lhat, x: layer.gradient}, {...line, x: ends, y: ends.map((g) => estimate(layer.fit!, g))}],
    {id: `layer-${index}-gradient`, name: `${run.name}, ${layer.name}`, xLabel: '|g|*', yLabel: 'Lhat', height: 220});
}

export class LayerView {
  readonly dialog = makeDialog('layer');
  report!: Report; // a newer one may replace it; an open dialog keeps its data
  private names: string[] = [];

  /** Shows the layer; the buttons step through `names`, the order of the grid. */
  open(name: string, names: string[]): void {
    this.names = names;
    clearDialog(this.dialog);
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
    this.dialog.append(dialogHeader(this.dialog, full, step(-1, '←', 'Previous layer'), step(1, '→', 'Next layer')),
      wordList('Lhat', '|g|*', 'relative error', 'above'), panels);
    if (!this.dialog.open) this.dialog.showModal();
    for (const {run, index, layer} of found) {
      const panel = h('div');
      panels.append(panel);
      drawRun(panel, run, layer, index);
    }
  }
}

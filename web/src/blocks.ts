// Lhat by block and type of layer: how smoothness changes with depth.
import {drawChart} from './chart.ts';
import type {Layer, Report, Run} from './data.ts';
import {h, section, select} from './element.ts';
import {rampColor} from './theme.ts';

interface Choice {
  text: string;
  layers: Layer[];
  label: (layer: Layer) => string;
}

// One chart per type with a line per block, then one per block with a line per type.
function choices(run: Run): Choice[] {
  const types = [...new Set(run.layers.filter((layer) => layer.block >= 0).map((layer) => layer.type))];
  const blocks = [...new Set(run.layers.map((layer) => layer.block).filter((block) => block >= 0))];
  const outside = run.layers.filter((layer) => layer.block < 0);
  return [
    ...types.map((type) => ({text: `${type}, all blocks`, layers: run.layers.filter((l) => l.block >= 0 && l.type === type),
      label: (layer: Layer) => `B.${layer.block}`})),
    ...blocks.map((block) => ({text: `block ${block}, all types`, layers: run.layers.filter((l) => l.block === block),
      label: (layer: Layer) => layer.type})),
    ...(outside.length ? [{text: 'outside of the blocks', layers: outside, label: (layer: Layer) => layer.type}] : []),
  ];
}

export function blocksSection(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run) => run.layers.length > 0);
  if (runs.length === 0) return null;
  let run = runs[0];
  let list = choices(run);
  let at = 0;
  let logY = true;
  const place = h('div');
  const draw = () => {
    const choice = list[at];
    drawChart(place, choice.layers.map((layer, i) => ({label: choice.label(layer), x: layer.step, y: layer.smoothness,
      color: rampColor(i, choice.layers.length)})), {id: 'blocks', xLabel: 'steps', yLabel: 'Lhat', logY, height: 360});
  };
  const options = (): [string, string][] => list.map((choice, i) => [String(i), choice.text]);
  const picker = h('span');
  const pick = () => picker.replaceChildren(select('layers', options(), (value) => { at = Number(value); draw(); }));
  const controls = h('div', {class: 'controls'},
    ...(runs.length > 1 ? [select('run', runs.map((one, i) => [String(i), one.name]), (value) => {
      run = runs[Number(value)];
      list = choices(run);
      at = 0;
      pick();
      draw();
    })] : []),
    picker,
    select('scale', [['log', 'log'], ['linear', 'linear']], (value) => { logY = value === 'log'; draw(); }));
  pick();
  queueMicrotask(draw);
  return section('blocks', 'Smoothness by block and type', 'Lhat along the run, one line per block or per type of layer.',
    controls, place);
}

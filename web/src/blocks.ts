// Lhat by block and type of layer: how smoothness changes with depth.
import {drawChart} from './chart.ts';
import {measured, type Layer, type Report, type Run} from './data.ts';
import {h, section, select, selectRun} from './element.ts';
import type {Section} from './section.ts';
import {rampColor} from './palette.ts';

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
    ...types.map((type) => ({text: `${type}, all blocks`,
      layers: run.layers.filter((layer) => layer.block >= 0 && layer.type === type),
      label: (layer: Layer) => `B.${layer.block}`})),
    ...blocks.map((block) => ({text: `block ${block}, all types`, layers: run.layers.filter((l) => l.block === block),
      label: (layer: Layer) => layer.type})),
    ...(outside.length ? [{text: 'outside the blocks', layers: outside, label: (layer: Layer) => layer.type}] : []),
  ];
}

export function blocksSection(first: Report): Section | null {
  let runs = measured(first);
  if (runs.length === 0) return null;
  let chosenRun = 0;
  let chosen = 0;
  let logY = true;
  const place = h('div');
  const draw = () => {
    const {layers, label} = choices(runs[chosenRun])[chosen];
    drawChart(place, layers.map((layer, i) => ({label: label(layer), x: layer.step, y: layer.smoothness,
      color: rampColor(i, layers.length)})), {id: 'blocks', xLabel: 'steps', yLabel: 'Lhat', logY, height: 360});
  };
  const picker = h('span');
  const pick = () => picker.replaceChildren(select('layers',
    choices(runs[chosenRun]).map((choice, i) => [String(i), choice.text]), (value) => {
      chosen = Number(value);
      draw();
    }));
  const controls = h('div', {class: 'controls'},
    ...selectRun(runs, (index) => {
      chosenRun = index;
      chosen = 0;
      pick();
      draw();
    }),
    picker,
    select('scale', [['log', 'log'], ['linear', 'linear']], (value) => { logY = value === 'log'; draw(); }));
  pick();
  queueMicrotask(draw);
  const element = section('blocks', 'Smoothness by block and type',
    'Lhat along the run, one line per block or per type of layer.', controls, place);
  return {element, update: (report) => {
    runs = measured(report);
    draw();
  }};
}

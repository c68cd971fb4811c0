// Lhat by block and type of layer: how smoothness changes with depth.
import {drawChart} from './chart.ts';
import {measured, type Layer, type Report, type Run} from './data.ts';
import {h, section, select} from './element.ts';
import {makePlace, whenNear} from './lazy.ts';
import {rampColor} from './palette.ts';
import {RunPicker} from './run_picker.ts';
import type {Section} from './section.ts';
import {wordList} from './words.ts';

interface Choice {
  text: string;
  layers: Layer[];
  label: (layer: Layer) => string;
}

// One chart per type with a line per block, then one per block with a line per type.
function choices(run: Run): Choice[] {
  const types = [...new Set(run.layers.filter((layer) => layer.block >= 0).map((layer) => layer.type))];
  const numbers = run.layers.map((layer) => layer.block).filter((block) => block >= 0);
  const blocks = [...new Set(numbers)].sort((a, b) => a - b);
  const outside = run.layers.filter((layer) => layer.block < 0);
  return [
    ...types.map((type) => ({text: `${type}, all blocks`,
      layers: run.layers.filter((layer) => layer.block >= 0 && layer.type === type).sort((a, b) => a.block - b.block),
      label: (layer: Layer) => `B.${layer.block}`})),
    ...blocks.map((block) => ({text: `block ${block}, all types`, layers: run.layers.filter((l) => l.block === block),
      label: (layer: Layer) => layer.type})),
    ...(outside.length ? [{text: 'outside the blocks', layers: outside, label: (layer: Layer) => layer.type}] : []),
  ];
}

const kHeight = 360;

export function blocksSection(): Section {
  let report: Report | null = null;
  let chosen = '';
  let logY = true;
  let offered = '';
  const place = makePlace('blocks', kHeight);
  const layers = h('span');
  const draw = () => {
    const run = picker.offer(measured(report!));
    const offers = choices(run);
    const choice = offers.find(({text}) => text === chosen) ?? offers[0];
    const names = offers.map(({text}) => text).join('\n');
    if (names !== offered) {
      offered = names;
      layers.replaceChildren(select('layers', offers.map(({text}) => [text, text]), (text) => {
        chosen = text;
        draw();
      }, choice.text));
    }
    whenNear(place, () => drawChart(place, choice.layers.map((layer, i) => ({label: choice.label(layer), x: layer.step,
      y: layer.smoothness, color: rampColor(i, choice.layers.length)})),
    {id: 'blocks', name: `Smoothness of ${choice.text}`, xLabel: 'steps', yLabel: 'Lhat', logY, height: kHeight}));
  };
  const picker = new RunPicker(draw);
  const controls = h('div', {class: 'controls'}, picker.element, layers,
    select('scale', [['log', 'log'], ['linear', 'linear']], (value) => { logY = value === 'log'; draw(); }));
  const element = section('blocks', 'Smoothness by block and type',
    'How smoothness changes along the run and with depth: one line per block or per type of layer.',
    wordList('Lhat', 'B.0'), controls, place);
  return {element, update: (newer) => {
    report = newer;
    element.hidden = measured(newer).length === 0;
    if (!element.hidden) draw();
  }};
}

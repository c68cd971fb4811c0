// All layers: a grid of small charts to filter and sort.
import {measured, title, type Fit, type Layer, type Report} from './data.ts';
import {h, keepFocus, section, select} from './element.ts';
import {number, percent} from './format.ts';
import {groupDot, groupName} from './group_mark.ts';
import {LayerView} from './layer_view.ts';
import {networkOrder} from './network_order.ts';
import {runColor} from './palette.ts';
import {RunPicker} from './run_picker.ts';
import type {Section} from './section.ts';
import {smallMultiple} from './small_multiple.ts';
import {wordList} from './words.ts';

type Order = 'network' | 'L1' | 'mseRel' | 'violations' | 'name';

const kOrders: [Order, string][] = [['network', 'position in the network'], ['L1', 'L1, largest first'],
  ['mseRel', 'relative error, largest first'], ['violations', 'samples above the line, most first'], ['name', 'name']];

const collator = new Intl.Collator('en', {numeric: true});

function sorted(layers: Layer[], order: Order): Layer[] {
  if (order === 'network') return networkOrder(layers);
  if (order === 'name') return [...layers].sort((a, b) => collator.compare(a.name, b.name));
  return [...layers].sort((a, b) => (b.fit?.[order] ?? -1) - (a.fit?.[order] ?? -1));
}

function constants(fit: Fit): HTMLElement[] {
  const texts = [`L0 ${number(fit.L0, 3)} · L1 ${number(fit.L1)}`,
    `relative error ${number(fit.mseRel, 2)} · ${percent(fit.violations)} above`];
  const lines = texts.map((text) => h('span', {class: fit.doubt ? 'doubtful' : ''}, text));
  if (fit.leftOut) {
    lines.push(h('span', {}, `${fit.leftOut} ${fit.leftOut === 1 ? 'sample' : 'samples'} left out at the start`));
  }
  if (fit.doubt) lines.push(h('span', {class: 'doubt'}, `In doubt: ${fit.doubt}`));
  return lines;
}

function card(layer: Layer, color: string, open: () => void): HTMLElement {
  return h('button', {
    type: 'button', class: 'card', 'data-layer': layer.name, 'data-focus': layer.name, 'data-samples': layer.step.length,
    'aria-label': `Open ${layer.name}, group ${groupName(layer.group)}`, click: open,
  },
    h('strong', {}, groupDot(layer.group), title(layer)), smallMultiple(layer, color),
    ...(layer.fit ? constants(layer.fit) : [h('span', {}, `not fitted: ${layer.unfitted}`)]));
}

export function layersSection(): Section {
  let report: Report | null = null;
  const view = new LayerView();
  let order: Order = 'network';
  let filter = '';
  let shownNames: string[] = [];
  const grid = h('div', {class: 'grid'});
  const groups = h('div', {class: 'groups'});
  const count = h('output', {'aria-live': 'polite'});
  let cards = new Map<Layer, HTMLElement>();
  const draw = () => {
    const run = picker.offer(measured(report!));
    const color = runColor(report!.runs.indexOf(run));
    const wanted = filter.toLowerCase();
    const list = sorted(run.layers, order).filter((layer) =>
      `${layer.name} ${title(layer)} ${layer.group}`.toLowerCase().includes(wanted));
    grid.replaceChildren(...list.map((layer) => {
      // shownNames is read at the click: filter and sort change it.
      if (!cards.has(layer)) cards.set(layer, card(layer, color, () => view.open(layer.name, shownNames)));
      return cards.get(layer)!;
    }));
    if (list.length === 0) {
      grid.append(h('p', {class: 'empty'}, `No layer of ${run.name} has “${filter}” in its name, type or group.`));
    }
    shownNames = list.map((layer) => layer.name);
    count.textContent = `${list.length} of ${run.layers.length} layers`;
    groups.replaceChildren(...[...new Set(run.layers.map((layer) => layer.group))].map((group) =>
      h('span', {class: 'group'}, groupDot(group), group ? `group ${group}` : 'layers without a group')));
  };
  const picker = new RunPicker(draw);
  const search = h('input', {type: 'search', placeholder: 'name, group or type', id: 'filter', input: () => {
    filter = search.value;
    draw();
  }});
  const controls = h('div', {class: 'controls'}, picker.element, h('label', {}, 'filter', search),
    select('sort by', kOrders, (value) => { order = value as Order; draw(); }), count, groups);
  const about = 'Measured Lhat (in the run’s colour) and the fitted line L0 + L1 |g|* (dashed) over the run, each ' +
    'from 0 to its largest value; outliers leave the chart. ' +
    'Open a layer to see its values, with several runs side by side.';
  const words = wordList('Lhat', '|g|*', 'L0, L1', 'relative error', 'above', 'B.0');
  const element = section('layers', 'Layers', about, words, controls, grid, view.dialog);
  return {element, update: (newer) => {
    report = newer;
    element.hidden = measured(newer).length === 0;
    if (element.hidden) return;
    cards = new Map();
    view.report = newer;
    const top = grid.scrollTop;
    keepFocus(grid, draw);
    grid.scrollTop = top;
  }};
}

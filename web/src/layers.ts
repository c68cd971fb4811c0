// All layers: a grid of small charts to filter and sort.
import {measured, title, type Layer, type Report} from './data.ts';
import {h, section, select, selectRun} from './element.ts';
import {number, percent} from './format.ts';
import {LayerView} from './layer_view.ts';
import {runColor} from './palette.ts';
import type {Section} from './section.ts';
import {smallMultiple} from './small_multiple.ts';

type Order = 'network' | 'L1' | 'mseRel' | 'violations' | 'name';

const kOrders: [Order, string][] = [['network', 'position in the network'], ['L1', 'L1, largest first'],
  ['mseRel', 'relative MSE, largest first'], ['violations', 'samples above the line, most first'], ['name', 'name']];

const collator = new Intl.Collator('en', {numeric: true});
const byName = (a: Layer, b: Layer) => collator.compare(a.name, b.name);

function sorted(layers: Layer[], order: Order): Layer[] {
  const list = [...layers];
  if (order === 'network') {
    const depth = (layer: Layer) => (layer.block < 0 ? Infinity : layer.block);
    return list.sort((a, b) => (depth(a) === depth(b) ? byName(a, b) : depth(a) - depth(b)));
  }
  if (order === 'name') return list.sort(byName);
  return list.sort((a, b) => (b.fit?.[order] ?? -1) - (a.fit?.[order] ?? -1));
}

function card(layer: Layer, color: string, open: () => void): HTMLElement {
  const fit = layer.fit;
  return h('button', {
    type: 'button', class: 'card', 'data-layer': layer.name, 'data-samples': layer.step.length, title: layer.name,
    click: open,
  },
    h('strong', {}, title(layer)), smallMultiple(layer, color),
    ...(fit ? [h('span', {}, `L0 ${number(fit.L0, 3)} · L1 ${number(fit.L1)}`),
      h('span', {}, `MSE ${number(fit.mseRel, 2)} · ${percent(fit.violations)} above`)]
      : [h('span', {}, `not fitted: ${layer.unfitted}`)]));
}

export function layersSection(first: Report): Section | null {
  let report = first;
  let runs = measured(first);
  if (runs.length === 0) return null;
  const view = new LayerView(first);
  let chosenRun = 0;
  let order: Order = 'network';
  let filter = '';
  let shownNames: string[] = [];
  const grid = h('div', {class: 'grid'});
  const count = h('output', {'aria-live': 'polite'});
  let cards = new Map<Layer, HTMLElement>();
  const draw = () => {
    const {layers} = runs[chosenRun];
    const color = runColor(report.runs.indexOf(runs[chosenRun]));
    const wanted = filter.toLowerCase();
    const list = sorted(layers, order).filter((layer) =>
      `${layer.name} ${title(layer)} ${layer.group}`.toLowerCase().includes(wanted));
    grid.replaceChildren(...list.map((layer) => {
      // shownNames is read at the click: filter and sort change it.
      if (!cards.has(layer)) cards.set(layer, card(layer, color, () => view.open(layer.name, shownNames)));
      return cards.get(layer)!;
    }));
    shownNames = list.map((layer) => layer.name);
    count.textContent = `${list.length} of ${layers.length} layers`;
  };
  const search = h('input', {type: 'search', placeholder: 'name, group or type', id: 'filter', input: () => {
    filter = search.value;
    draw();
  }});
  const controls = h('div', {class: 'controls'},
    ...selectRun(runs, (index) => {
      chosenRun = index;
      draw();
    }),
    h('label', {}, 'filter ', search),
    select('sort by', kOrders, (value) => { order = value as Order; draw(); }), count);
  draw();
  const about = 'Measured Lhat and the fit L0 + L1 |g|* (dashed) over the run, each scaled from 0 to its maximum. ' +
    'Open a layer to see its values, with several runs side by side.';
  const element = section('layers', 'Layers', about, controls, grid, view.dialog);
  return {element, update: (newer) => {
    report = newer;
    runs = measured(report);
    cards = new Map();
    view.report = report;
    const active = document.activeElement as HTMLElement | null;
    const focused = grid.contains(active) ? active?.dataset.layer : undefined;
    const top = grid.scrollTop;
    draw();
    grid.scrollTop = top;
    if (focused !== undefined) grid.querySelector<HTMLElement>(`[data-layer="${CSS.escape(focused)}"]`)?.focus();
  }};
}

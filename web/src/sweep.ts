// Sweeps as heatmaps: the validation loss for each pair of radii. A cell opens its run.
import {CellView, cellName} from './cell_view.ts';
import type {Sweep, SweepCell, Value} from './data.ts';
import {h} from './element.ts';
import {decimals, number} from './format.ts';
import {groupMark} from './group_mark.ts';
import {plainSection, type Section} from './section.ts';

const distinct = (values: number[]) => [...new Set(values)].sort((a, b) => a - b);

// From the best (strong) to the worst (pale). By rank: on a linear scale one bad cell would make all others look alike.
function shade(value: Value, ranks: Map<number, number>): string {
  if (value === null) return '';
  const share = ranks.size > 1 ? ranks.get(value)! / (ranks.size - 1) : 0;
  return `color-mix(in oklab, var(--accent) ${Math.round(8 + 52 * (1 - share))}%, var(--panel))`;
}

function cellButton(sweep: Sweep, cell: SweepCell, best: boolean, background: string, view: CellView): HTMLElement {
  const state = cell.run && cell.run.status.state !== 'finished' ? cell.run.status.state : '';
  const words = cell.val !== null ? decimals(cell.val) : state || 'no loss';
  const loss = cell.val === null ? words : `validation loss ${words}`;
  const said = `${cellName(sweep, cell)}: ${loss}${best ? ', the best' : ''}`;
  const button = h('button', {type: 'button', class: `cell${best ? ' best' : ''}${cell.failed ? ' failed' : ''}`,
    'data-radii': cell.radii.join(','), 'data-focus': `${sweep.name} ${cell.radii.join(',')}`,
    'aria-label': cell.failed ? `${said}. ${cell.failed}` : said,
    click: () => view.open(sweep, cell)},
    h('b', {}, words), ...(best ? [h('small', {}, 'best')] : []),
    ...(cell.failed ? [h('small', {}, cell.failed)] : []));
  button.style.background = background;
  return button;
}

function bestWords(sweep: Sweep): string {
  if (sweep.best === null) return '';
  const cell = sweep.cells[sweep.best];
  return `; the best is ${decimals(cell.val)} with ${cellName(sweep, cell)}`;
}

function heatmap(sweep: Sweep, view: CellView): HTMLElement {
  const across = sweep.groups.length - 1; // the last group
  const columns = distinct(sweep.cells.map((cell) => cell.radii[across]));
  const key = (radii: number[]) => radii.slice(0, across).join(',');
  const rows = [...new Map(sweep.cells.map((cell) => [key(cell.radii), cell.radii.slice(0, across)])).entries()]
    .sort((a, b) => a[1].map((radius, i) => radius - b[1][i]).find((difference) => difference !== 0) ?? 0);
  const known = sweep.cells.flatMap((cell) => (cell.val === null ? [] : [cell.val]));
  const ranks = new Map(distinct(known).map((value, i) => [value, i]));
  const cells = new Map(sweep.cells.map((cell, i) => [cell.radii.join(','), i]));
  const place = (row: string, column: number) => {
    const at = cells.get([...(row ? [row] : []), column].join(','));
    if (at === undefined) return h('td', {}, '–');
    const cell = sweep.cells[at];
    return h('td', {}, cellButton(sweep, cell, at === sweep.best, shade(cell.val, ranks), view));
  };
  const [last, ...down] = [...sweep.groups].reverse();
  const heading = h('h3', {}, sweep.name);
  const about = h('p', {class: 'about'}, `Validation loss of ${sweep.cells.length} cells${bestWords(sweep)}.`);
  const cellTable = h('table', {class: 'heatmap', 'aria-label': `${sweep.name}: validation loss`},
    h('thead', {},
      h('tr', {}, h('th', {class: 'text'}, ...down.reverse().flatMap((group) => [groupMark(group), ' ']),
        down.length ? '↓' : ''),
        h('th', {colspan: columns.length, class: 'axis'}, groupMark(last), ' →')),
      h('tr', {}, h('th', {}), ...columns.map((radius) => h('th', {scope: 'col'}, number(radius))))),
    h('tbody', {}, ...rows.map(([row, radii]) => h('tr', {},
      h('th', {scope: 'row'}, radii.map((radius) => number(radius)).join(', ')),
      ...columns.map((column) => place(row, column))))));
  return h('div', {}, heading, about, h('div', {class: 'scroll'}, cellTable));
}

export function sweepSection(): Section {
  const view = new CellView();
  const section = plainSection('sweep', 'Sweeps', 'One run per cell. A stronger colour is a lower loss; the best cell ' +
    'has a frame. Open a cell to see its curves and settings.', ({sweeps}) =>
    sweeps.length === 0 ? null : sweeps.map((sweep) => heatmap(sweep, view)));
  document.body.append(view.dialog); // outside the section, which newer data rebuilds
  return section;
}

// Sweeps as heatmaps: the validation loss for each pair of radii.
import type {Report, Sweep, Value} from './data.ts';
import {h, section} from './element.ts';
import {number} from './format.ts';

function distinct(values: number[]): number[] {
  return [...new Set(values)].sort((a, b) => a - b);
}

// From the best (strong) to the worst (pale). By rank: on a linear scale one bad cell would make all others look alike.
function shade(value: Value, ranked: number[]): string {
  if (value === null) return 'transparent';
  const share = ranked.length > 1 ? ranked.indexOf(value) / (ranked.length - 1) : 0;
  return `color-mix(in oklab, var(--accent) ${Math.round(72 * (1 - share))}%, var(--panel))`;
}

function heatmap(sweep: Sweep): HTMLElement {
  const across = sweep.groups.length - 1; // the last group
  const columns = distinct(sweep.cells.map((cell) => cell.radii[across]));
  const key = (radii: number[]) => radii.slice(0, across).join(',');
  const rows = [...new Map(sweep.cells.map((cell) => [key(cell.radii), cell.radii.slice(0, across)])).entries()]
    .sort((a, b) => a[1].map((radius, i) => radius - b[1][i]).find((difference) => difference !== 0) ?? 0);
  const ranked = distinct(sweep.cells.flatMap((cell) => (cell.val === null ? [] : [cell.val])));
  const cellAt = (row: string, column: number) =>
    sweep.cells.find((cell) => key(cell.radii) === row && cell.radii[across] === column);
  const rowName = sweep.groups.slice(0, across).join(', ');
  return h('div', {class: 'scroll'}, h('table', {class: 'heatmap'},
    h('caption', {}, `${sweep.name}: validation loss`),
    h('thead', {},
      h('tr', {}, h('th', {class: 'text'}, rowName),
        h('th', {colspan: columns.length, class: 'axis'}, sweep.groups[across])),
      h('tr', {}, h('th', {}), ...columns.map((radius) => h('th', {scope: 'col'}, number(radius))))),
    h('tbody', {}, ...rows.map(([row, radii]) => h('tr', {},
      h('th', {scope: 'row'}, radii.map((radius) => number(radius)).join(', ') || ' '),
      ...columns.map((column) => {
        const cell = cellAt(row, column);
        const best = cell !== undefined && cell.val !== null && cell.val === ranked[0];
        const box = h('td', {class: best ? 'best' : ''},
          cell === undefined ? '' : cell.val === null ? 'diverged' : number(cell.val, 5));
        box.style.background = shade(cell?.val ?? null, ranked);
        return box;
      }))))));
}

export function sweepSection(report: Report): HTMLElement | null {
  if (report.sweeps.length === 0) return null;
  return section('sweep', 'Sweeps', 'A stronger colour is a lower loss; the best cell has a frame.',
    ...report.sweeps.map(heatmap));
}

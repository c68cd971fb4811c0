// Radii: predicted against used.
import type {GroupRadius, Report} from './data.ts';
import {h, section, table} from './element.ts';
import {number} from './format.ts';

function bar(radius: GroupRadius): HTMLElement {
  if (radius.used === null) return h('span', {}, '–');
  const ratio = radius.predicted / radius.used;
  // A ratio of 1 is in the middle; each end is a factor of 10.
  const place = 3 + 3 * Math.max(-1, Math.min(1, Math.log10(ratio)));
  const mark = h('i');
  mark.style.left = `${place}rem`;
  return h('span', {class: 'ratio', title: `predicted / used = ${number(ratio)}`}, mark, h('b', {}, number(ratio, 3)));
}

export function radiiSection(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run) => run.radii.length > 0);
  if (runs.length === 0) return null;
  const several = runs.length > 1;
  const rows = runs.flatMap((run) => run.radii.map((radius) => [...(several ? [run.name] : []), radius.group || '(all)',
    number(radius.predicted), number(radius.used), bar(radius), String(radius.layers), number(radius.L0),
    number(radius.L1), number(radius.gradient)]));
  const notes = runs.flatMap((run) => run.notes.map((note) => (several ? `${run.name}: ${note}` : note)));
  const about = 'Predicted: |g|* / (L0 + L1 |g|*), the radius of theorem 1, as the median over the layers of a group. The mark ' +
    'shows predicted / used: both are equal in the middle and differ by a factor of 10 at the ends.';
  return section('radii', 'Predicted against used radii', about,
    table([...(several ? ['run'] : []), 'group', 'predicted', 'used', 'ratio', 'layers', 'L0', 'L1', '|g|*'], rows),
    ...notes.map((note) => h('p', {class: 'note'}, note)));
}

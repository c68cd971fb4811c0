// Radii: predicted against used.
import type {GroupRadius} from './data.ts';
import {h, table} from './element.ts';
import {number} from './format.ts';
import {groupMark} from './group_mark.ts';
import {plainSection, type Section} from './section.ts';

function bar(radius: GroupRadius): HTMLElement {
  if (radius.used === null) return h('span', {}, '–');
  const ratio = radius.predicted / radius.used;
  // A ratio of 1 is in the middle; each end is a factor of 10.
  const place = 3 + 3 * Math.max(-1, Math.min(1, Math.log10(ratio)));
  const mark = h('i');
  mark.style.left = `${place}rem`;
  return h('span', {class: 'ratio'}, mark, h('b', {}, number(ratio, 3)));
}

// What comes from a doubtful fit is grey, and the doubt stands beside it.
const from = (radius: GroupRadius, text: string) => (radius.doubt ? h('span', {class: 'doubtful'}, text) : text);

const kFewNotes = 3;

function foldedNotes(notes: string[]): HTMLElement[] {
  const lines = notes.map((note) => h('p', {class: 'note'}, note));
  if (lines.length <= kFewNotes) return lines;
  return [h('details', {}, h('summary', {}, `${lines.length} notes on these numbers`), ...lines)];
}

export function radiiSection(): Section {
  const about = 'Predicted: |g|* / (L0 + L1 |g|*), the radius of the paper’s theorem 1, as the median over the layers of a ' +
    'group; |g|* is the size of the gradient. The mark shows predicted / used: equal in the middle, a factor of 10 apart ' +
    'at the ends.';
  return plainSection('radii', 'Predicted against used radii', about, (report) => {
    const runs = report.runs.filter((run) => run.radii.length > 0);
    if (runs.length === 0) return null;
    const several = runs.length > 1;
    const doubts = runs.some((run) => run.radii.some((radius) => radius.doubt));
    const rows = runs.flatMap((run) => run.radii.map((radius) => [...(several ? [run.name] : []), groupMark(radius.group),
      from(radius, number(radius.predicted)), number(radius.used), bar(radius), String(radius.layers),
      from(radius, number(radius.L0)), from(radius, number(radius.L1)), number(radius.gradient),
      ...(doubts ? [h('span', {class: 'doubt'}, radius.doubt)] : [])]));
    const notes = runs.flatMap((run) => run.notes.map((note) => (several ? `${run.name}: ${note}` : note)));
    return [table([...(several ? ['run'] : []), 'group', 'predicted', 'used', 'predicted / used', 'layers', 'L0', 'L1',
      '|g|*', ...(doubts ? ['doubt'] : [])], rows), ...foldedNotes(notes)];
  });
}

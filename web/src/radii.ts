// Radii: predicted against used, and over the run; alignment over the run.
import {drawChart, type Series} from './chart.ts';
import type {GroupRadius, Report, Run} from './data.ts';
import {h, section, table} from './element.ts';
import {median, number} from './format.ts';
import {rampColor, runColor} from './theme.ts';

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
  const rows = runs.flatMap((run) => run.radii.map((radius) => [run.name, radius.group || '(all)', String(radius.layers),
    number(radius.L0), number(radius.L1), number(radius.gradient), number(radius.predicted), number(radius.used), bar(radius)]));
  return section('radii', 'Predicted against used radii', 'Theorem 1 would move a group by |g|* / (L0 + L1 |g|*), the median ' +
    'over its layers. The mark is predicted / used: in the middle both are equal, at the ends they differ by a factor of 10.',
    table(['run', 'group', 'layers', 'L0', 'L1', '|g|*', 'predicted', 'used', 'ratio'], rows),
    ...runs.flatMap((run) => run.notes.map((note) => h('p', {class: 'note'}, `${run.name}: ${note}`))));
}

// The median over the layers of a group at each step.
function alignment(run: Run, group: string): {x: number[]; y: (number | null)[]} {
  const byStep = new Map<number, number[]>();
  for (const layer of run.layers) {
    if (layer.group !== group) continue;
    layer.step.forEach((step, i) => {
      const value = layer.alignment[i];
      if (value === null) return;
      if (!byStep.has(step)) byStep.set(step, []);
      byStep.get(step)!.push(value);
    });
  }
  const x = [...byStep.keys()].sort((a, b) => a - b);
  return {x, y: x.map((step) => median(byStep.get(step)!))};
}

function overRun(report: Report, series: (run: Run) => Omit<Series, 'color'>[]): Series[] {
  const all = report.runs.map(series);
  const several = all.filter((list) => list.length > 0).length > 1;
  return all.flatMap((list, index) => list.map((one, i) => ({...one,
    label: several ? `${report.runs[index].name}, ${one.label}` : one.label,
    style: i > 0 && several ? 'dashed' as const : 'line' as const,
    color: several ? runColor(index) : rampColor(i, list.length)})));
}

export function courseSection(report: Report): HTMLElement | null {
  const radii = overRun(report, (run) => Object.entries(run.log.radii).map(([group, curve]) =>
    ({label: group, x: curve.step, y: curve.value})));
  const alignments = overRun(report, (run) => [...new Set(run.layers.map((layer) => layer.group))]
    .map((group) => ({label: group || 'all', ...alignment(run, group)})).filter((one) => one.x.length > 0));
  if (radii.length + alignments.length === 0) return null;
  const left = h('div');
  const right = h('div');
  queueMicrotask(() => {
    if (radii.length) drawChart(left, radii, {id: 'radius', xLabel: 'steps', yLabel: 'radius', logY: true, height: 280});
    if (alignments.length) {
      drawChart(right, alignments, {id: 'alignment', xLabel: 'steps', yLabel: 'alignment', height: 280});
    }
  });
  return section('course', 'Radii and alignment over the run', 'Radii with their schedule. Alignment is 1 when a step goes ' +
    'straight down; the median over the layers of a group.', h('div', {class: 'panels'}, left, right));
}

/** Groups of layers measured in several runs: the paper's comparison of norms. */
export function normsSection(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run) => run.layers.length > 0);
  if (runs.length < 2) return null;
  const groups = [...new Set(runs.flatMap((run) => run.layers.map((layer) => layer.group)))];
  const rows = groups.flatMap((group) => runs.flatMap((run) => {
    const layers = run.layers.filter((layer) => layer.group === group);
    const fits = layers.flatMap((layer) => (layer.fit ? [layer.fit] : []));
    if (fits.length === 0) return [];
    const norms = [...new Set(layers.map((layer) => layer.norm))];
    return [[group || '(all)', run.name, norms.length > 2 ? `${norms[0]}, … (${norms.length})` : norms.join(', '),
      run.estimator, number(median(fits.map((fit) => fit.L0))), number(median(fits.map((fit) => fit.L1))),
      number(median(fits.map((fit) => fit.mseRel)), 3)]];
  }));
  return section('norms', 'Norms side by side', 'How well L0 + L1 |g|* explains Lhat in each run: medians over the layers of ' +
    'a group. Record one run with --smoothness-geometry normalized_descent for Euclidean norms. A layer opened above shows ' +
    'its charts of all runs.', table(['group', 'run', 'norm', 'estimator', 'L0', 'L1', 'relative MSE'], rows));
}

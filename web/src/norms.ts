// The fits of several runs side by side, to compare specialised with Euclidean norms.
import {measured, type Report} from './data.ts';
import {section, table} from './element.ts';
import {median, number} from './format.ts';

/** Groups of layers measured in several runs: the paper's comparison of norms. */
export function normsSection(report: Report): HTMLElement | null {
  const runs = measured(report);
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
  const about = 'How well L0 + L1 |g|* explains Lhat in each run: medians over the layers of a group. Record one run ' +
    'with --smoothness-geometry normalized_descent for Euclidean norms. Open a layer above to see its charts of all runs.';
  return section('norms', 'Norms side by side', about,
    table(['group', 'run', 'norm', 'estimator', 'L0', 'L1', 'relative MSE'], rows));
}

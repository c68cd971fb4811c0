// The fits of several runs side by side, to compare specialised with Euclidean norms.
import {measured} from './data.ts';
import {table} from './element.ts';
import {median, number} from './format.ts';
import {groupMark} from './group_mark.ts';
import {plainSection, type Section} from './section.ts';

/** Groups of layers measured in several runs: the paper's comparison of norms. */
export function normsSection(): Section {
  const about = 'How well the line L0 + L1 |g|* explains Lhat in each run: medians over the trusted fits of a group’s ' +
    'layers. Record one run with --smoothness-geometry normalized_descent for Euclidean norms.';
  return plainSection('norms', 'Norms side by side', about, (report) => {
    const runs = measured(report);
    if (runs.length < 2) return null;
    const groups = [...new Set(runs.flatMap((run) => run.layers.map((layer) => layer.group)))];
    const rows = groups.flatMap((group) => runs.flatMap((run) => {
      const layers = run.layers.filter((layer) => layer.group === group);
      const fits = layers.flatMap((layer) => (layer.fit ? [layer.fit] : []));
      const trusted = fits.filter((fit) => !fit.doubt);
      if (fits.length === 0) return [];
      const norms = [...new Set(layers.map((layer) => layer.norm))];
      return [[groupMark(group), run.name, norms.length > 2 ? `${norms[0]}, … (${norms.length})` : norms.join(', '),
        run.estimator, `${trusted.length} of ${layers.length}`, number(median(trusted.map((fit) => fit.L0))),
        number(median(trusted.map((fit) => fit.L1))), number(median(trusted.map((fit) => fit.mseRel)), 3)]];
    }));
    return [table(['group', 'run', 'norm', 'estimator', 'trusted fits', 'L0', 'L1', 'relative error'], rows)];
  });
}

// The run itself: routing, config, machine and version.
import type {Report, Run} from './data.ts';
import {h, section} from './element.ts';

// Which runs are unfolded; kept when the section is rebuilt.
const opened = new Map<string, boolean>();

function facts(run: Run): HTMLElement {
  const list = h('dl');
  const add = (name: string, value: string | number | undefined) => {
    if (value !== undefined && value !== '') list.append(h('dt', {}, name), h('dd', {}, String(value)));
  };
  add('path', run.path);
  if (run.layers.length) add('estimator', run.estimator);
  for (const name of ['data', 'machine', 'device', 'threads', 'precision'] as const) add(name, run.facts?.[name]);
  add('version', run.facts?.version && `gluon ${run.facts.version}`);
  return list;
}

export function aboutSection(report: Report): HTMLElement | null {
  if (report.runs.length === 0) return null;
  return section('about', 'About the runs', 'The routing lists the rule of each layer.',
    ...report.runs.map((run, i) => h('details', {open: opened.get(run.name) ?? i === 0, toggle: (event) => {
      opened.set(run.name, (event.target as HTMLDetailsElement).open);
    }}, h('summary', {}, run.name), facts(run),
      ...(run.facts?.routing ? [h('h3', {}, 'Routing'), h('pre', {tabindex: 0}, run.facts.routing)] : []),
      ...(run.config ? [h('h3', {}, 'Config'), h('pre', {class: 'config', tabindex: 0}, run.config)] : []),
      ...run.notes.map((note) => h('p', {class: 'note'}, note)))));
}

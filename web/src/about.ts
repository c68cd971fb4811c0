// The run itself: routing, machine and version.
import type {Run} from './data.ts';
import {h} from './element.ts';
import {plainSection, type Section} from './section.ts';

// Which runs are unfolded; kept when the section is rebuilt.
const opened = new Set<string>();

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

export function aboutSection(): Section {
  return plainSection('about', 'About the runs', 'The routing lists the rule of each layer.', ({runs}) =>
    runs.length === 0 ? null : runs.map((run) => h('details', {open: opened.has(run.name), toggle: (event) => {
      if ((event.target as HTMLDetailsElement).open) opened.add(run.name);
      else opened.delete(run.name);
    }}, h('summary', {}, run.name), facts(run),
      ...(run.facts?.routing ? [h('h3', {}, 'Routing'), h('pre', {tabindex: 0}, run.facts.routing)] : []),
      ...run.notes.map((note) => h('p', {class: 'note'}, note)))));
}

// The settings of the shown runs side by side, as the runs resolved them; where they differ is marked.
import type {Report, Run} from './data.ts';
import {h, section} from './element.ts';
import {lineSample} from './legend.ts';
import {runColor, runDash} from './palette.ts';
import type {Section} from './section.ts';
import {isShown, noRunText, onSelection} from './selection.ts';

interface Line {
  key: string;
  values: (string | undefined)[]; // of each run; undefined: it has no such setting
  usual: string | undefined; // the most frequent one
  differs: boolean;
}

function linesOf(runs: Run[]): Line[] {
  const maps = runs.map((run) => new Map(run.settings));
  const keys = new Set(runs.flatMap((run) => run.settings.map(([key]) => key)));
  return [...keys].map((key) => {
    const values = maps.map((map) => map.get(key));
    const counts = new Map<string | undefined, number>();
    for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
    const [usual] = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a));
    return {key, values, usual, differs: counts.size > 1};
  });
}

function row({key, values, usual, differs}: Line): HTMLElement {
  return h('tr', {class: differs ? 'differs' : '', 'data-key': key}, h('th', {scope: 'row'}, key),
    ...values.map((value) => h('td', {class: differs && value !== usual ? 'text other' : 'text'},
      shownValue(value))));
}

const shownValue = (value: string | undefined) => (value === undefined ? '–' : value === '' ? '(empty)' : value);

// One run has nothing beside it: its settings fill columns.
function settingsList(lines: Line[]): HTMLElement {
  return h('dl', {class: 'setting-list'}, ...lines.map(({key, values}) =>
    h('div', {'data-key': key}, h('dt', {}, key), h('dd', {}, shownValue(values[0])))));
}

/** The settings of `runs`, whose colours have the numbers `indices`. */
export function settingsTable(runs: Run[], indices: number[], onlyDifferences: boolean): HTMLElement {
  const all = linesOf(runs);
  const lines = onlyDifferences ? all.filter((line) => line.differs) : all;
  if (lines.length === 0) {
    return h('p', {class: 'empty'}, all.length === 0 ? 'There are no settings: the source has no config.'
      : runs.length === 1 ? 'One run is shown: there is nothing to differ from.'
        : 'The shown runs have the same settings.');
  }
  if (runs.length === 1) return settingsList(lines);
  const heads = runs.map((run, i) => h('th', {scope: 'col', class: 'text', title: run.name},
    lineSample(runColor(indices[i]), runDash(indices[i])), h('span', {class: 'name'}, run.name)));
  return h('div', {class: 'scroll tall', tabindex: 0, role: 'region', 'aria-label': 'Settings'},
    h('table', {class: 'settings'}, h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'setting'), ...heads)),
      h('tbody', {}, ...lines.map(row))));
}

export function settingsSection(): Section {
  let report: Report | null = null;
  let only = false;
  const place = h('div');
  let drawn = ''; // live data redraws only what has changed: the reader may have scrolled
  const box = h('input', {type: 'checkbox', id: 'only-differences', change: () => {
    only = box.checked;
    draw();
  }});
  const draw = () => {
    const indices = report!.runs.flatMap((run, i) => (isShown(run) && run.settings.length ? [i] : []));
    const next = JSON.stringify([only, indices.map((i) => [report!.runs[i].name, report!.runs[i].settings])]);
    if (next === drawn && indices.length) return;
    drawn = next;
    place.replaceChildren(indices.length === 0 ? h('p', {class: 'empty'}, noRunText())
      : settingsTable(indices.map((i) => report!.runs[i]), indices, only && report!.runs.length > 1));
  };
  const controls = h('div', {class: 'controls'}, h('label', {}, box, 'only differences'));
  const element = section('settings', 'Settings', 'What each run was trained with, defaults included. Settings that ' +
    'differ between the shown runs are marked, values other than the most frequent one strongly.', controls, place);
  onSelection(() => draw());
  return {element, update: (newer) => {
    report = newer;
    element.hidden = newer.runs.every((run) => run.settings.length === 0);
    controls.hidden = newer.runs.length < 2;
    draw();
  }};
}

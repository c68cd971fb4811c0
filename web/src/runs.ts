// All runs in a table: their colours, states and results. It chooses what the charts show.
import type {Report, Run} from './data.ts';
import {h, section} from './element.ts';
import {decimals, duration, exact, short} from './format.ts';
import {lineSample} from './legend.ts';
import {runColor, runDash} from './palette.ts';
import type {Section} from './section.ts';
import {currentFilter, isOn, isShown, markRun, matches, onSelection, presetOf, setFilter, switchRuns}
  from './selection.ts';
import {SortedTable, type Column} from './sorted_table.ts';
import {statusElement, statusWords} from './status.ts';

interface Row {
  run: Run;
  index: number;
  best: {value: number; step: number} | null;
  last: number | null;
  training: number | null;
  speed: number | null; // tokens per second
  seconds: number | null;
}

function rowOf(run: Run, index: number): Row {
  const {loss, val} = run.log;
  let best: Row['best'] = null;
  val.value.forEach((value, i) => {
    if (value !== null && (best === null || value < best.value)) best = {value, step: val.step[i]};
  });
  const seconds = loss.seconds.at(-1) ?? null;
  const tokens = loss.tokens.at(-1) ?? 0;
  return {run, index, best, last: val.value.at(-1) ?? null, training: loss.value.at(-1) ?? null, seconds,
    speed: seconds && tokens ? tokens / seconds : null};
}

function swatch({run, index}: Row): HTMLElement {
  return h('button', {type: 'button', class: 'toggle', 'aria-pressed': String(isOn(run)), 'data-focus': run.name,
    'aria-label': `Show ${run.name} in the charts`, title: 'Show or hide in the charts',
    click: () => switchRuns([run], !isOn(run))}, lineSample(runColor(index), runDash(index)));
}

function bestCell({best}: Row): HTMLElement | string {
  if (best === null) return '–';
  return h('span', {}, h('small', {}, `step ${exact(best.step)}`), decimals(best.value));
}

const kColumns: Column<Row>[] = [
  {id: 'shown', heading: 'shown', text: true, value: ({run}) => (isOn(run) ? 0 : 1), cell: swatch},
  {id: 'run', heading: 'run', text: true, value: ({run}) => run.name,
    cell: ({run}) => h('span', {class: 'name'}, run.name)},
  {id: 'status', heading: 'status', text: true, value: ({run}) => statusWords(run.status),
    cell: ({run}) => statusElement(run.status)},
  {id: 'preset', heading: 'preset', text: true, value: ({run}) => presetOf(run) || null,
    cell: ({run}) => presetOf(run) || '–'},
  {id: 'best', heading: 'best validation', value: ({best}) => best?.value ?? null, cell: bestCell},
  {id: 'last', heading: 'last validation', value: ({last}) => last, cell: ({last}) => decimals(last)},
  {id: 'training', heading: 'last training', value: ({training}) => training, cell: ({training}) => decimals(training)},
  {id: 'speed', heading: 'tokens/s', largestFirst: true, value: ({speed}) => speed,
    cell: ({speed}) => (speed === null ? '–' : short(Number(speed.toPrecision(3))))},
  {id: 'time', heading: 'time', value: ({seconds}) => seconds, cell: ({seconds}) => duration(seconds)},
];

const kManyRuns = 5; // from here on a filter is useful

export function runsSection(): Section {
  let report: Report | null = null;
  const search = h('input', {type: 'search', id: 'run-filter', placeholder: 'name, preset or state',
    input: () => setFilter(search.value)});
  const count = h('output', {'aria-live': 'polite'});
  const listed = () => report!.runs.filter(matches);
  const filter = h('label', {}, 'filter', search);
  const buttons = h('span', {class: 'buttons'},
    h('button', {type: 'button', click: () => switchRuns(listed(), true)}, 'Show all'),
    h('button', {type: 'button', click: () => switchRuns(listed(), false)}, 'Hide all'));
  const table = new SortedTable<Row>(kColumns, (element, {run, best}) => {
    element.dataset.run = run.name;
    element.classList.toggle('off', !isOn(run));
    element.classList.toggle('winner', best !== null && run.name === winner);
    element.addEventListener('pointerenter', () => markRun(run.name));
    element.addEventListener('pointerleave', () => markRun(null));
  }, () => `No run matches “${currentFilter()}”.`);
  let winner = '';
  const draw = () => {
    const rows = report!.runs.map(rowOf);
    const judged = rows.filter((row) => row.best !== null);
    winner = judged.length > 1 ? judged.reduce((a, b) => (b.best!.value < a.best!.value ? b : a)).run.name : '';
    table.show(rows.filter(({run}) => matches(run)));
    const shown = report!.runs.filter(isShown).length;
    count.textContent = shown === rows.length ? `${rows.length} runs` : `${shown} of ${rows.length} runs shown`;
  };
  const controls = h('div', {class: 'controls'}, filter, buttons, count);
  const notes = h('div');
  const element = section('runs', 'Runs', 'Click a heading to sort, a line to hide or show its run in the charts. The ' +
    'lowest validation loss is bold.', controls, table.element, notes);
  onSelection(() => draw());
  return {element, update: (newer) => {
    report = newer;
    element.hidden = newer.runs.length === 0 && newer.skipped.length === 0;
    notes.replaceChildren(...newer.skipped.map((text) => h('p', {class: 'note'}, text)));
    controls.hidden = newer.runs.length < 2;
    element.querySelector<HTMLElement>('.about')!.hidden = newer.runs.length < 2;
    filter.hidden = newer.runs.length < kManyRuns && currentFilter() === '';
    draw();
  }};
}

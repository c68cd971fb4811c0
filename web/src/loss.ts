// Training and validation loss of all runs.
import {drawChart, type Series} from './chart.ts';
import type {Curve, Report, Run} from './data.ts';
import {h, section, select, table} from './element.ts';
import {extent, number, short} from './format.ts';
import type {Section} from './section.ts';
import {runColor, runDash} from './palette.ts';

type Axis = 'step' | 'tokens' | 'seconds';

const kAxes: [Axis, string][] = [['step', 'steps'], ['tokens', 'tokens'], ['seconds', 'seconds']];

function hasAxis(curve: Curve, axis: Axis): boolean {
  return curve[axis].some((x) => x !== null && x > 0);
}

function logged(report: Report): Run[] {
  return report.runs.filter((run) => run.log.loss.step.length > 0);
}

function lossTable(runs: Run[]): HTMLElement {
  const rows = runs.map(({name, log: {loss, val}}) => [name, short(loss.step.at(-1) ?? 0), number(loss.value.at(-1)),
    number(val.value.at(-1)), number(extent(val.value)?.[0]), number(loss.seconds.at(-1))]);
  return table(['run', 'steps', 'training, last', 'validation, last', 'validation, least', 'seconds'], rows);
}

export function lossSection(first: Report): Section | null {
  let report = first;
  const runs = logged(first);
  if (runs.length === 0) return null;
  const shown = new Set(runs.map((run) => run.name));
  let axis: Axis = 'step';
  let logY = false;
  const place = h('div');
  const numbers = h('div');
  const draw = () => {
    const series: Series[] = [];
    for (const run of logged(report)) {
      if (!shown.has(run.name)) continue;
      const index = report.runs.indexOf(run);
      const look = {color: runColor(index), dash: runDash(index)};
      const {loss, val} = run.log;
      if (loss.value.some((value) => value !== null) && hasAxis(loss, axis)) {
        series.push({label: `${run.name}, training`, x: loss[axis], y: loss.value, ...look, style: 'faint'});
      }
      if (val.value.length && hasAxis(val, axis)) {
        series.push({label: `${run.name}, validation`, x: val[axis], y: val.value, ...look});
      }
    }
    const label = kAxes.find(([key]) => key === axis)![1];
    drawChart(place, series, {id: 'loss', xLabel: label, yLabel: 'loss', logY, height: 380});
    numbers.replaceChildren(lossTable(logged(report)));
  };
  const picks = runs.map((run) => {
    const box = h('input', {type: 'checkbox', checked: true, change: () => {
      if (box.checked) shown.add(run.name);
      else shown.delete(run.name);
      draw();
    }});
    const swatch = h('span', {class: 'swatch'});
    swatch.style.background = runColor(report.runs.indexOf(run));
    return h('label', {}, box, swatch, run.name);
  });
  const axes = kAxes.filter(([key]) => runs.some((run) => hasAxis(run.log.loss, key)));
  const controls = h('div', {class: 'controls'},
    select('over', axes, (value) => { axis = value as Axis; draw(); }),
    select('scale', [['linear', 'linear'], ['log', 'log']], (value) => { logY = value === 'log'; draw(); }),
    ...(runs.length > 1 ? picks : []));
  queueMicrotask(draw);
  const element = section('loss', 'Loss', 'Training (thin) and validation loss. Drag to zoom, double-click to ' +
    'reset.', controls, place, numbers);
  return {element, update: (newer) => {
    report = newer;
    draw();
  }};
}

// Training and validation loss of the shown runs.
import {drawChart} from './chart.ts';
import type {Series} from './chart_style.ts';
import type {Curve, Report, Run} from './data.ts';
import {h, section, select, slider} from './element.ts';
import {makePlace, whenNear} from './lazy.ts';
import {runColor, runDash} from './palette.ts';
import type {Section} from './section.ts';
import {isShown, noRunText, onSelection} from './selection.ts';
import {smoothed} from './smoothing.ts';

type Axis = 'step' | 'tokens' | 'seconds';

const kAxes: [Axis, string][] = [['step', 'steps'], ['tokens', 'tokens'], ['seconds', 'seconds']];
const kFewRuns = 10; // only so many keep their raw line behind the smoothed one
const kHeight = 400;

function hasAxis(curve: Curve, axis: Axis): boolean {
  return curve[axis].some((x) => x !== null && x > 0);
}

/** The lines of one run, whose colour has the number `index`. */
export function lossSeries(run: Run, index: number, axis: Axis, smoothing: number, raw: boolean): Series[] {
  const look = {label: run.name, run: run.name, color: runColor(index), dash: runDash(index)};
  const {loss, val} = run.log;
  const series: Series[] = [];
  if (loss.value.some((value) => value !== null) && hasAxis(loss, axis)) {
    const x = loss[axis];
    // Dashes are lost on a noisy line: the validation has them.
    const solid = val.value.length ? {...look, dash: []} : look;
    if (smoothing > 0 && raw) series.push({...solid, x, y: loss.value, style: 'raw'});
    series.push({...solid, kind: 'training', x, y: smoothed(loss.step, loss.value, smoothing), style: 'faint'});
  }
  if (val.value.length && hasAxis(val, axis)) {
    series.push({...look, kind: 'validation', x: val[axis], y: val.value, style: 'marked'});
  }
  return series;
}

// A run that failed at once has a log without a known loss.
const hasLog = (run: Run) => run.log.loss.step.length > 0;

export function lossSection(): Section {
  let report: Report | null = null;
  let axis: Axis = 'step';
  let logY = false;
  let smoothing = 0;
  const place = makePlace('loss', kHeight);
  const draw = () => whenNear(place, () => {
    const shown = report!.runs.flatMap((run, index) => (isShown(run) && hasLog(run) ? [{run, index}] : []));
    const lines = shown.flatMap(({run, index}) => lossSeries(run, index, axis, smoothing, shown.length <= kFewRuns));
    // Validation above the noise of training.
    const isAbove = ({kind}: Series) => Number(kind === 'validation');
    const series = lines.sort((a, b) => isAbove(a) - isAbove(b));
    const [, xLabel] = kAxes.find(([key]) => key === axis)!;
    drawChart(place, series, {id: 'loss', name: 'Loss', xLabel, yLabel: 'loss', logY, height: kHeight,
      empty: shown.length === 0 ? noRunText() : 'No loss is known: the status in the table of runs says why.'});
  });
  const over = h('span');
  let offered = '';
  // Which axes there are may change while a run is watched.
  const offerAxes = () => {
    const axes = kAxes.filter(([key]) => key === 'step' || report!.runs.some((run) => hasAxis(run.log.loss, key)));
    if (axes.join() === offered) return;
    offered = axes.join();
    over.replaceChildren(select('over', axes, (value) => { axis = value as Axis; draw(); }, axis));
  };
  const controls = h('div', {class: 'controls'}, over,
    select('scale', [['linear', 'linear'], ['log', 'log']], (value) => { logY = value === 'log'; draw(); }),
    slider('smoothing of training', 0, 0.99, 0.01, (value) => { smoothing = value; draw(); }));
  onSelection(draw);
  const element = section('loss', 'Loss', 'Drag to zoom, double-click to see everything again.', controls, place);
  return {element, update: (newer) => {
    report = newer;
    element.hidden = !newer.runs.some(hasLog);
    offerAxes();
    draw();
  }};
}

// Curves over the run: radii, predicted and used radii, alignment, the optimizer's share of time.
import {drawChart, removeChart} from './chart.ts';
import type {Series} from './chart_style.ts';
import type {Report, Run} from './data.ts';
import {h, section, slider} from './element.ts';
import {groupDot, groupName} from './group_mark.ts';
import {forgetPlace, makePlace, whenNear} from './lazy.ts';
import {groupColor, runColor, runDash} from './palette.ts';
import type {Section} from './section.ts';
import {isShown, noRunText, onSelection} from './selection.ts';
import {smoothed} from './smoothing.ts';
import {wordList} from './words.ts';

interface Line extends Pick<Series, 'x' | 'y' | 'kind' | 'style'> {
  group: string | null; // null: of the whole run
}

interface Metric {
  id: string;
  heading: string;
  about: string;
  yLabel: string;
  logY?: boolean;
  lines: (run: Run) => Line[];
}

const kHeight = 280;

const kMetrics: Metric[] = [
  {id: 'radius', heading: 'Radii', yLabel: 'radius', logY: true,
    about: 'The mean over the layers of a group, schedule included.',
    lines: (run) => Object.entries(run.log.radii).map(([group, curve]) => ({group, x: curve.step, y: curve.value}))},
  {id: 'predicted', heading: 'Predicted and used radii', yLabel: 'radius', logY: true,
    about: 'At each sample; the median over the layers of a group.',
    lines: (run) => run.histories.flatMap(({group, used, predicted}) => [
      {group, kind: 'used', x: used.step, y: used.value},
      {group, kind: 'predicted', x: predicted.step, y: predicted.value, style: 'dashed' as const},
    ])},
  {id: 'alignment', heading: 'Alignment', yLabel: 'alignment',
    about: 'Of each step with the negative gradient; the median over the layers of a group.',
    lines: (run) => run.histories.map(({group, alignment}) => ({group, x: alignment.step, y: alignment.value}))},
  {id: 'optimizer', heading: "The optimizer's share of time", yLabel: 'share of time',
    about: 'Part of each step that the optimizer takes, without the recording of smoothness; not measured on a GPU.',
    lines: (run) => [{group: null, x: run.log.optimizer.step, y: run.log.optimizer.value}]},
];

interface Panel {
  id: string;
  metric: Metric;
  group: string | null; // null: all groups in one chart
  series: Series[];
}

const isKnown = (line: Line) => line.y.some((value) => value !== null);

// With one run a colour is a group of layers. With several a colour is a run, and each group has a chart of its own.
function panelsOf(report: Report, smoothing: number): Panel[] {
  return kMetrics.flatMap((metric): Panel[] => {
    const known = report.runs.map((run) => metric.lines(run).filter(isKnown));
    const [only, ...others] = known.flatMap((lines, index) => (lines.length ? [index] : []));
    if (only === undefined) return [];
    const groups = others.length === 0 ? [null] : [...new Set(known.flat().map((line) => line.group))];
    return groups.map((group) => {
      const series = report.runs.flatMap((run, index) => (isShown(run) ? known[index] : [])
        .filter((line) => others.length === 0 || line.group === group)
        .map((line): Series => ({...line, y: smoothed(line.x, line.y, smoothing), run: run.name,
          ...(others.length === 0 && line.group !== null ? {label: groupName(line.group), color: groupColor(line.group)}
            : {label: run.name, color: runColor(index), dash: runDash(index)})})));
      return {id: group === null ? metric.id : `${metric.id}-${group}`, metric, group, series};
    });
  });
}

export function historySection(): Section {
  let report: Report | null = null;
  let smoothing = 0;
  const places = new Map<string, {place: HTMLElement; element: HTMLElement}>();
  const panels = h('div', {class: 'panels wide'});
  const element = section('history', 'Over the run', 'How far the layers moved, in which direction, and the cost.',
    wordList('radius', 'predicted', 'alignment'),
    h('div', {class: 'controls'}, slider('smoothing', 0, 0.99, 0.01, (value) => { smoothing = value; draw(); })),
    panels);
  const placeOf = ({id, metric, group}: Panel) => {
    const place = makePlace(id, kHeight);
    const heading = group === null ? [metric.heading] : [`${metric.heading}: `, groupDot(group), groupName(group)];
    return {place, element: h('div', {}, h('h3', {}, ...heading), h('p', {class: 'about'}, metric.about), place)};
  };
  const draw = () => {
    const wanted = panelsOf(report!, smoothing);
    element.hidden = wanted.length === 0;
    for (const [id, {place}] of places) {
      if (wanted.some((panel) => panel.id === id)) continue;
      forgetPlace(place);
      removeChart(place);
      places.delete(id);
    }
    for (const panel of wanted) if (!places.has(panel.id)) places.set(panel.id, placeOf(panel));
    const elements = wanted.map(({id}) => places.get(id)!.element);
    if (elements.some((one, i) => panels.children[i] !== one) || panels.childElementCount !== elements.length) {
      panels.replaceChildren(...elements);
    }
    for (const {id, metric, group, series} of wanted) {
      const {place} = places.get(id)!;
      const name = group === null ? metric.heading : `${metric.heading}, ${groupName(group)}`;
      whenNear(place, () => drawChart(place, series, {id, name, xLabel: 'steps', yLabel: metric.yLabel,
        logY: metric.logY, height: kHeight,
        empty: report!.runs.some(isShown) ? 'The shown runs have no such values.' : noRunText()}));
    }
  };
  onSelection(draw);
  return {element, update: (newer) => {
    report = newer;
    draw();
  }};
}

// Curves over the run: radii, predicted and used radii, alignment, the optimizer's share of time.
import {drawChart, type Series} from './chart.ts';
import type {GroupHistory, Report, Run} from './data.ts';
import {h, section} from './element.ts';
import type {Section} from './section.ts';
import {groupColor, runColor, runDash} from './palette.ts';

type Line = Omit<Series, 'color'>;

interface Panel {
  id: string;
  heading: string;
  about: string;
  yLabel: string;
  logY?: boolean;
  lines: (run: Run) => Line[];
}

const groupOf = (line: Line) => line.label.replace(/, .*/, '');
const groupName = (history: GroupHistory) => history.group || 'all';

const kPanels: Panel[] = [
  {id: 'radius', heading: 'Radii', yLabel: 'radius', logY: true,
    about: 'The mean over the layers of a role, schedule included.',
    lines: (run) => Object.entries(run.log.radii).map(([role, curve]) =>
      ({label: role, x: curve.step, y: curve.value}))},
  {id: 'predicted', heading: 'Predicted and used radii', yLabel: 'radius', logY: true,
    about: 'Predicted (dashed): |g|* / (L0 + L1 |g|*) at each sample; the median over the layers of a group.',
    lines: (run) => run.histories.flatMap((history) => [
      {label: `${groupName(history)}, used`, x: history.used.step, y: history.used.value},
      {label: `${groupName(history)}, predicted`, x: history.predicted.step, y: history.predicted.value,
        style: 'dashed' as const},
    ])},
  {id: 'alignment', heading: 'Alignment', yLabel: 'alignment',
    about: 'Of each step with the negative gradient: 1 is steepest descent. The median over the layers of a group.',
    lines: (run) => run.histories.map((history) =>
      ({label: groupName(history), x: history.alignment.step, y: history.alignment.value}))},
  {id: 'optimizer', heading: "The optimizer's share of time", yLabel: 'share of time',
    about: 'Part of each step that the optimizer takes; not measured on a GPU.',
    lines: (run) => [{label: 'optimizer', x: run.log.optimizer.step, y: run.log.optimizer.value}]},
];

// With one run, a colour is a group of layers. With several, a colour is a run and every other group is paler.
function seriesOf(panel: Panel, report: Report): Series[] {
  const known = report.runs.map((run) => panel.lines(run).filter((line) => line.y.some((value) => value !== null)));
  const several = known.filter((lines) => lines.length > 0).length > 1;
  return known.flatMap((lines, index) => {
    const groups = [...new Set(lines.map((line) => groupOf(line)))];
    return lines.map((line) => several
      ? {...line, label: `${report.runs[index].name}, ${line.label}`,
        color: runColor(index), dash: runDash(index),
        ...(groups.indexOf(groupOf(line)) % 2 ? {style: 'faint' as const} : {})}
      : {...line, color: groupColor(groupOf(line))});
  });
}

export function historySection(first: Report): Section | null {
  const known = kPanels.filter((panel) => seriesOf(panel, first).length > 0);
  const places = new Map(known.map((panel) => [panel, h('div')]));
  if (places.size === 0) return null;
  const update = (report: Report) => {
    for (const [panel, place] of places) {
      drawChart(place, seriesOf(panel, report),
        {id: panel.id, xLabel: 'steps', yLabel: panel.yLabel, logY: panel.logY, height: 280});
    }
  };
  queueMicrotask(() => update(first));
  const element = section('history', 'Over the run', 'How far the layers moved, in which direction, and the cost.',
    h('div', {class: 'panels wide'}, ...[...places].map(([panel, place]) =>
      h('div', {}, h('h3', {}, panel.heading), h('p', {class: 'about'}, panel.about), place))));
  return {element, update};
}

// The page: its sections in order, without those that have no data.
import {aboutSection} from './about.ts';
import {blocksSection} from './blocks.ts';
import {removeChart} from './chart.ts';
import {historySection} from './history.ts';
import {readReport, type Report} from './data.ts';
import {h} from './element.ts';
import {layersSection} from './layers.ts';
import {follow} from './live.ts';
import {lossSection} from './loss.ts';
import {normsSection} from './norms.ts';
import {radiiSection} from './radii.ts';
import {makeSection, type Section, type SectionMaker} from './section.ts';
import {sweepSection} from './sweep.ts';
import {themeButton} from './theme.ts';

const kMakers: SectionMaker[] = [lossSection, layersSection, blocksSection, normsSection, radiiSection, historySection,
  sweepSection, aboutSection];

const heading = h('h1');
const nav = h('nav', {'aria-label': 'Sections'});
const live = h('output', {id: 'live', 'aria-live': 'polite'});
const main = h('main');
const footer = h('footer');

let sections: Section[] = [];
let shape = '';

// The sections and their controls depend on these parts of a report only.
function shapeOf({runs, sweeps}: Report): string {
  return JSON.stringify([runs.map((run) => [run.name, run.log.loss.step.length > 0, run.log.val.step.length > 0,
    run.layers.map((layer) => layer.name), run.radii.length, run.histories.length]), sweeps.length]);
}

function build(report: Report): void {
  for (const chart of main.querySelectorAll('.chart')) removeChart(chart.parentElement!);
  sections = kMakers.map((make) => makeSection(make, report)).filter((section) => section !== null);
  main.replaceChildren(...sections.map((section) => section.element));
  const names = [...report.runs, ...report.sweeps].map((one) => one.name).join(', ');
  document.title = `${names} – Gluon report`;
  heading.textContent = names;
  nav.replaceChildren(...sections.map(({element}) =>
    h('a', {href: `#${element.id}`}, element.querySelector('h2')!.textContent!)));
  const fit = `Fits: lambda ${report.fit.lambda}${report.fit.l0Zero ? ', L0 = 0' : ''}` +
    `${report.fit.skipFirst ? `, without the first ${report.fit.skipFirst} samples` : ''}`;
  footer.textContent = `Written by gluon ${report.version}. ${fit}.`;
}

function show(report: Report): void {
  const next = shapeOf(report);
  if (next === shape) sections.forEach((section) => section.update(report));
  else build(report);
  shape = next;
}

const embedded = readReport();
document.body.prepend(
  h('header', {class: 'top'}, heading, nav, ...(embedded ? [] : [live]), themeButton()), main, footer);
if (embedded) show(embedded);
else follow(show, (words) => { if (live.textContent !== words) live.textContent = words; });

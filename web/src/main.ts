// The page: its sections in order, without those that have no data.
import {aboutSection} from './about.ts';
import {blocksSection} from './blocks.ts';
import {readReport, type Report} from './data.ts';
import {h} from './element.ts';
import {historySection} from './history.ts';
import {layersSection} from './layers.ts';
import {follow} from './live.ts';
import {lossSection} from './loss.ts';
import {normsSection} from './norms.ts';
import {radiiSection} from './radii.ts';
import {runsSection} from './runs.ts';
import {settingsSection} from './settings.ts';
import {sweepSection} from './sweep.ts';
import {themeButton} from './theme.ts';

const sections = [runsSection(), sweepSection(), lossSection(), settingsSection(), layersSection(), blocksSection(),
  normsSection(), radiiSection(), historySection(), aboutSection()];

const heading = h('h1');
const nav = h('nav', {'aria-label': 'Sections'});
const live = h('output', {id: 'live', 'aria-live': 'polite'});
const main = h('main', {}, ...sections.map(({element}) => element));
const footer = h('footer');

const kNamesInTitle = 3;

/** The names of a few runs and sweeps, or how many there are. */
function titleOf({runs, sweeps}: Report): string {
  const all = [...runs, ...sweeps];
  if (all.length <= kNamesInTitle) return all.map((one) => one.name).join(', ');
  const counted = (count: number, word: string) => (count ? [`${count} ${word}${count === 1 ? '' : 's'}`] : []);
  return [...counted(runs.length, 'run'), ...counted(sweeps.length, 'sweep')].join(', ');
}

function fitWords({lambda, l0Zero, skipFirst}: Report['fit']): string {
  const start = skipFirst === null ? ', outliers at the start left out'
    : skipFirst > 0 ? `, without the first ${skipFirst} samples` : '';
  return `Fits: lambda ${lambda}${l0Zero ? ', L0 = 0' : ''}${start}.`;
}

function show(report: Report): void {
  const title = titleOf(report);
  document.title = `${title} – Gluon report`;
  heading.textContent = title;
  heading.title = title;
  for (const section of sections) section.update(report);
  const shown = sections.filter(({element}) => !element.hidden).map(({element}) => element);
  if (nav.childElementCount !== shown.length) {
    nav.replaceChildren(...shown.map((element) =>
      h('a', {href: `#${element.id}`}, element.querySelector('h2')!.textContent!)));
  }
  footer.textContent = `Written by gluon ${report.version}. ${fitWords(report.fit)}`;
}

const embedded = readReport();
document.body.prepend(
  h('header', {class: 'top'}, heading, nav, ...(embedded ? [] : [live]), themeButton()), main, footer);
if (embedded) show(embedded);
else follow(show, (words) => { if (live.textContent !== words) live.textContent = words; });

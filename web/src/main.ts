// The page: its sections in order, those without data left out.
import {aboutSection} from './about.ts';
import {blocksSection} from './blocks.ts';
import {readReport} from './data.ts';
import {h} from './element.ts';
import {layersSection} from './layers.ts';
import {lossSection} from './loss.ts';
import {courseSection, normsSection, radiiSection} from './radii.ts';
import {sweepSection} from './sweep.ts';
import {themeButton} from './theme.ts';

const report = readReport();
const sections = [lossSection, layersSection, blocksSection, normsSection, radiiSection, courseSection, sweepSection,
  aboutSection].map((make) => make(report)).filter((section) => section !== null);

const names = [...report.runs, ...report.sweeps].map((one) => one.name);
document.title = `${names.join(', ')} – Gluon report`;
const links = sections.map((section) => h('a', {href: `#${section.id}`}, section.querySelector('h2')!.textContent!));
const fit = `Fits: lambda ${report.fit.lambda}${report.fit.l0Zero ? ', L0 = 0' : ''}` +
  `${report.fit.skipFirst ? `, without the first ${report.fit.skipFirst} samples` : ''}`;
document.body.prepend(
  h('header', {class: 'top'}, h('h1', {}, names.join(', ')), h('nav', {'aria-label': 'Sections'}, ...links), themeButton()),
  h('main', {}, ...sections),
  h('footer', {}, `Made by gluon ${report.version}. ${fit}.`));

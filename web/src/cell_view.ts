// One cell of a sweep in a dialog: its state, losses and settings.
import {drawChart} from './chart.ts';
import {clearDialog, dialogHeader, makeDialog} from './dialog.ts';
import {h, type Child} from './element.ts';
import {number} from './format.ts';
import {lossSeries} from './loss.ts';
import type {Sweep, SweepCell} from './data.ts';
import {settingsTable} from './settings.ts';
import {statusElement} from './status.ts';

/** hidden 0.01, embedding 1 */
export function cellName(sweep: Sweep, cell: SweepCell): string {
  return sweep.groups.map((group, i) => `${group} ${number(cell.radii[i])}`).join(', ');
}

export class CellView {
  readonly dialog = makeDialog('cell');

  open(sweep: Sweep, cell: SweepCell): void {
    clearDialog(this.dialog);
    const {run} = cell;
    const chart = h('div');
    this.dialog.append(dialogHeader(this.dialog, `${sweep.name}: ${cellName(sweep, cell)}`));
    if (cell.failed) this.dialog.append(h('p', {class: 'note failure'}, cell.failed));
    if (!run) {
      this.dialog.append(h('p', {class: 'empty'}, 'The folder of this cell is gone: only its losses are known.'));
    }
    const facts: [string, Child][] =
      [['validation loss', number(cell.val, 5)], ['training loss', number(cell.loss, 5)]];
    if (run) facts.push(['status', statusElement(run.status)], ['path', run.path]);
    this.dialog.append(h('dl', {}, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])));
    if (!this.dialog.open) this.dialog.showModal();
    if (!run) return;
    this.dialog.append(chart, h('h3', {}, 'Settings'), settingsTable([run], [0], false));
    drawChart(chart, lossSeries(run, 0, 'step', 0, false), {id: 'cell-loss', name: `Loss of ${cellName(sweep, cell)}`,
      xLabel: 'steps', yLabel: 'loss', height: 320, empty: 'No loss is known: the cell ended before its first step.'});
  }
}

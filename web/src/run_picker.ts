// The choice of one run; kept by name while runs come and go.
import type {Run} from './data.ts';
import {h, select} from './element.ts';

export class RunPicker {
  readonly element = h('span', {class: 'run-picker'});
  private chosen = '';
  private offered = '';

  constructor(private readonly changed: () => void) {}

  /** Offers `runs`, of which there is at least one, and returns the chosen one. */
  offer(runs: Run[]): Run {
    const names = runs.map((run) => run.name);
    if (!names.includes(this.chosen)) this.chosen = names[0];
    if (names.join('\n') !== this.offered) {
      this.offered = names.join('\n');
      this.element.hidden = names.length < 2;
      this.element.replaceChildren(select('run', names.map((name) => [name, name]), (name) => {
        this.chosen = name;
        this.changed();
      }, this.chosen));
    }
    return runs.find((run) => run.name === this.chosen)!;
  }
}

// The state of a run in words.
import type {Status} from './data.ts';
import {h} from './element.ts';
import {duration, exact} from './format.ts';

// Colour alone would not tell them apart.
const kSigns: Record<Status['state'], string> =
  {finished: '✓', running: '▶', interrupted: '‖', failed: '✕', killed: '■', unknown: '–'};

export function statusWords({state, step, steps, secondsLeft}: Status): string {
  const place = `step ${exact(step)}${steps === null ? '' : ` of ${exact(steps)}`}`;
  switch (state) {
    case 'finished': return 'finished';
    case 'running': return `running, ${place}${secondsLeft === null ? '' : `, ${duration(secondsLeft)} left`}`;
    case 'unknown': return 'no status';
    default: return `${state} at ${place}`;
  }
}

/** The words with a sign, how far a run is that has not finished, and its error in full. */
export function statusElement(status: Status): HTMLElement {
  const {state, step, steps, error} = status;
  const sign = h('i', {'aria-hidden': 'true'}, kSigns[state]);
  const parts: HTMLElement[] = [h('span', {class: 'words'}, sign, statusWords(status))];
  if (state === 'running' && steps) parts.push(h('progress', {max: steps, value: step, 'aria-label': 'steps done'}));
  if (error) parts.push(h('span', {class: 'error'}, error));
  return h('div', {class: `status ${state}`}, ...parts);
}

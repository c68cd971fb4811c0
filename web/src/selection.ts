// Which runs the charts show, and which one is marked; kept when newer data arrives.
import type {Run} from './data.ts';

const off = new Set<string>(); // names of runs that are switched off
let filter = '';
let marked: string | null = null;
const watchers = new Set<() => void>();
const markWatchers = new Set<() => void>();

export const presetOf = (run: Run) => run.settings.find(([key]) => key === 'preset')?.[1] ?? '';

/** Whether the filter's text is in the run's name, preset or state. */
export function matches(run: Run): boolean {
  return `${run.name} ${presetOf(run)} ${run.status.state}`.toLowerCase().includes(filter.toLowerCase());
}

export const isOn = (run: Run) => !off.has(run.name);
export const isShown = (run: Run) => isOn(run) && matches(run);

function change(): void {
  for (const watcher of watchers) watcher();
}

export function setFilter(text: string): void {
  filter = text;
  change();
}

export const currentFilter = () => filter;

export function switchRuns(runs: Run[], on: boolean): void {
  for (const {name} of runs) {
    if (on) off.delete(name);
    else off.add(name);
  }
  change();
}

/** Calls `watcher` when other runs are shown. */
export function onSelection(watcher: () => void): void {
  watchers.add(watcher);
}

/** Marks a run in all charts; null: none. */
export function markRun(name: string | null): void {
  if (name === marked) return;
  marked = name;
  for (const watcher of markWatchers) watcher();
}

export const markedRun = () => marked;

/** Returns what ends the watch. */
export function onMark(watcher: () => void): () => void {
  markWatchers.add(watcher);
  return () => markWatchers.delete(watcher);
}

/** Said where no run is shown. */
export function noRunText(): string {
  return filter ? `No run is shown: none that is switched on matches “${filter}”.`
    : 'No run is shown: all are switched off in the table of runs.';
}

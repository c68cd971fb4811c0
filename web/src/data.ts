// The data of the page, as lab/report/report_json.cpp writes it. A missing or non-finite number is null.

export type Value = number | null;

interface StepCurve {
  step: number[];
  value: Value[];
}

export interface Curve extends StepCurve {
  tokens: number[];
  seconds: Value[];
}

export interface Fit {
  L0: number;
  L1: number;
  mseRel: number;
  violations: number;
  samples: number;
  leftOut: number; // samples at the start that the robust rule left out
  doubt: string; // why the constants mean little; '': they can be trusted
}

export interface Layer {
  name: string;
  group: string;
  norm: string;
  dualMethod: string;
  block: number; // -1: outside the blocks
  type: string;
  fit: Fit | null;
  unfitted: string;
  unmoved: number;
  step: number[];
  smoothness: Value[];
  gradient: Value[];
}

export interface GroupRadius {
  group: string;
  layers: number;
  L0: number;
  L1: number;
  gradient: number;
  predicted: number;
  used: Value;
  doubt: string; // as of a fit
}

/** The median over the layers of a group at each sampled step. */
export interface GroupHistory {
  group: string;
  alignment: StepCurve;
  used: StepCurve;
  predicted: StepCurve;
}

interface Facts {
  version?: string;
  machine?: string;
  threads?: number;
  device?: string;
  precision?: string;
  data?: string;
  routing?: string;
}

export interface Status {
  // killed: says that it runs, but no process holds it. unknown: a source without a status.
  state: 'running' | 'finished' | 'interrupted' | 'failed' | 'killed' | 'unknown';
  step: number; // steps taken
  steps: number | null; // of the whole run
  error: string; // why it failed
  secondsLeft: number | null; // of a running one
}

export interface Run {
  name: string;
  path: string;
  facts: Facts | null;
  status: Status;
  settings: [string, string][]; // the config with its defaults resolved, in its order
  estimator: string;
  notes: string[];
  log: {loss: Curve; val: Curve; optimizer: Curve; radii: Record<string, Curve>};
  layers: Layer[];
  radii: GroupRadius[];
  histories: GroupHistory[];
}

export interface SweepCell {
  radii: number[];
  val: Value;
  loss: Value;
  failed: string; // why it has no validation loss; '': it has one
  run: Run | null; // without layers; null: its folder is gone
}

export interface Sweep {
  name: string;
  groups: string[];
  best: number | null; // index of the cell with the lowest validation loss
  cells: SweepCell[];
}

export interface Report {
  version: string;
  fit: {lambda: number; l0Zero: boolean; skipFirst: number | null}; // null: outliers at the start are left out
  runs: Run[];
  sweeps: Sweep[];
  skipped: string[]; // sentences about what a folder of runs holds beside them
}

/** The data embedded in the page; null on a live page, which fetches its data. */
export function readReport(): Report | null {
  return JSON.parse(document.getElementById('data')!.textContent!) as Report | null;
}

/** The runs in which smoothness was measured. */
export function measured(report: Report): Run[] {
  return report.runs.filter((run) => run.layers.length > 0);
}

/** The fit's estimate of Lhat, L0 + L1 |g|*. */
export const estimate = (fit: Fit, gradient: number) => fit.L0 + fit.L1 * gradient;

/** The same at each sample. */
export function fitted({fit, gradient}: Layer): Value[] {
  return gradient.map((g) => (fit === null || g === null ? null : estimate(fit, g)));
}

/** "B.4 attn.c_q", or "24: B.4 attn.c_q" for a layer named by a number. */
export function title(layer: Layer): string {
  const place = layer.block < 0 ? layer.type : `B.${layer.block} ${layer.type}`;
  return /^\d+$/.test(layer.name) && place !== layer.name ? `${layer.name}: ${place}` : place;
}

// Colours and dashes of runs and groups, the same on the whole page; lab/report/palette.cpp has the same ones for figures.
//
// The ten colours (--run-0 to --run-9 in theme.css) have a dark and a light version. Any two stay apart for readers who
// are colour-blind: at least 0.068 in OKLab under simulated deuteranopia, protanopia and tritanopia.

const kColors = 10;

// Every ten runs have another dash: 50 runs differ.
const kDashes: number[][] = [[], [7, 4], [2, 3], [9, 3, 2, 3], [14, 4]];

/** A CSS colour; canvases resolve it with paint() of theme.ts. */
export function runColor(index: number): string {
  return `var(--run-${index % kColors})`;
}

/** The dash of a run's lines in pixels; empty: a solid line. */
export function runDash(index: number): number[] {
  return kDashes[Math.floor(index / kColors) % kDashes.length];
}

const kGroups = ['hidden', 'embedding', 'head', 'conv', 'vector', 'scalar', 'adamw'];

/** The same colour for a group of layers everywhere; a group of another name has the colour of its letters' sum. */
export function groupColor(group: string): string {
  const known = kGroups.indexOf(group);
  return runColor(known >= 0 ? known : [...group].reduce((sum, letter) => sum + letter.charCodeAt(0), 0));
}

/** `index` of `count` on a ramp from blue over green to orange: depth in a network. */
export function rampColor(index: number, count: number): string {
  const share = count > 1 ? index / (count - 1) : 0;
  return `hsl(${Math.round(265 - 235 * share)} 62% var(--ramp-light))`;
}

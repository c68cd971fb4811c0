// Dark or light: the system's setting until the button is pressed. Printing is always light.
import {h} from './element.ts';

const watchers = new Set<() => void>();

/** Calls `watcher` when the colours have changed: canvases must be redrawn. */
export function onThemeChange(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const systemDark = matchMedia('(prefers-color-scheme: dark)');
let chosen: 'dark' | 'light' | null = null;

function show(theme: 'dark' | 'light'): void {
  document.documentElement.dataset.theme = theme;
  for (const watcher of watchers) watcher();
}

function current(): 'dark' | 'light' {
  return chosen ?? (systemDark.matches ? 'dark' : 'light');
}

export function themeButton(): HTMLElement {
  document.documentElement.dataset.theme = current();
  systemDark.addEventListener('change', () => show(current()));
  addEventListener('beforeprint', () => show('light'));
  addEventListener('afterprint', () => show(current()));
  return h('button', {
    type: 'button', id: 'theme', 'aria-label': 'Switch between dark and light',
    click: () => {
      chosen = current() === 'dark' ? 'light' : 'dark';
      show(chosen);
    },
  }, '◐');
}

// Distinct for colour-blind readers, and readable on dark and light (after Okabe and Ito).
const kRunColors = ['#0a7fc4', '#e07b00', '#0f9f74', '#c85fa0', '#8a6fd1', '#b39100', '#d0493a', '#3fa7b8'];

export function runColor(index: number): string {
  return kRunColors[index % kRunColors.length];
}

const kGroups = ['hidden', 'embedding', 'head', 'conv', 'vector', 'scalar'];

/** The same colour for a group of layers in every chart. */
export function groupColor(group: string): string {
  const index = kGroups.indexOf(group);
  return runColor(index < 0 ? 0 : index);
}

/** `index` of `count` on a ramp from blue over green to orange: depth in a network. */
export function rampColor(index: number, count: number): string {
  const share = count > 1 ? index / (count - 1) : 0;
  return `hsl(${Math.round(265 - 235 * share)} 62% 50%)`;
}

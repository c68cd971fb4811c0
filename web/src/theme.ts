// Dark or light: the system's setting until the button is pressed. Printing is always light.
import {h} from './element.ts';

const watchers = new Set<() => void>();
const resolved = new Map<string, string>(); // variables of the theme that is shown

/** Calls `watcher` when the colours have changed: canvases must be redrawn. */
export function onThemeChange(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** The value of the CSS variable --`name`. */
export function color(name: string): string {
  let value = resolved.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    resolved.set(name, value);
  }
  return value;
}

/** `css` with the values of its variables, for canvases. */
export function paint(css: string): string {
  return css.replace(/var\(--([\w-]+)\)/g, (_, name: string) => color(name));
}

const systemDark = matchMedia('(prefers-color-scheme: dark)');
let chosen: 'dark' | 'light' | null = null;

function show(theme: 'dark' | 'light'): void {
  document.documentElement.dataset.theme = theme;
  resolved.clear();
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

// Small constructors for elements: h('p', {class: 'note'}, 'text').

type Child = Node | string;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void)>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

export function section(id: string, heading: string, about: string, ...children: Child[]): HTMLElement {
  return h('section', {id, 'aria-labelledby': `${id}-heading`},
    h('h2', {id: `${id}-heading`}, heading), h('p', {class: 'about'}, about), ...children);
}

/** A labelled drop-down; options are [value, text]. */
export function select(label: string, options: [string, string][], changed: (value: string) => void): HTMLLabelElement {
  const list = h('select', {change: () => changed(list.value)},
    ...options.map(([value, text]) => h('option', {value}, text)));
  return h('label', {}, `${label} `, list);
}

/** A drop-down of runs; empty when there is only one. */
export function selectRun(runs: {name: string}[], changed: (index: number) => void): HTMLElement[] {
  if (runs.length < 2) return [];
  return [select('run', runs.map((run, i) => [String(i), run.name]), (value) => changed(Number(value)))];
}

export function table(headings: string[], rows: Child[][]): HTMLElement {
  return h('div', {class: 'scroll'}, h('table', {},
    h('thead', {}, h('tr', {}, ...headings.map((text, i) =>
      h('th', {scope: 'col', class: rows.length > 0 && isText(rows[0][i]) ? 'text' : ''}, text)))),
    h('tbody', {}, ...rows.map((row) => h('tr', {}, ...row.map((cell, i) =>
      i === 0 ? h('th', {scope: 'row'}, cell) : h('td', {class: isText(cell) ? 'text' : ''}, cell)))))));
}

// Text is aligned left, numbers right.
function isText(cell: Child): boolean {
  return typeof cell === 'string' && /^[^\d–-]/.test(cell);
}

// Small constructors for elements: h('p', {class: 'note'}, 'text').

export type Child = Node | string;
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

export function svg(tag: string, attributes: Record<string, string>, ...children: SVGElement[]): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag) as SVGElement;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Hidden until there is data for it. */
export function section(id: string, heading: string, about: Child, ...children: Child[]): HTMLElement {
  return h('section', {id, hidden: true, 'aria-labelledby': `${id}-heading`},
    h('h2', {id: `${id}-heading`}, heading), h('p', {class: 'about'}, about), ...children);
}

/** Calls `rebuild`, after which the element in `parent` with the same data-focus as before has the focus. */
export function keepFocus(parent: HTMLElement, rebuild: () => void): void {
  const focused = parent.contains(document.activeElement)
    ? document.activeElement!.closest('[data-focus]')?.getAttribute('data-focus') : null;
  rebuild();
  if (focused) parent.querySelector<HTMLElement>(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

/** A labelled drop-down; options are [value, text]. */
export function select(label: string, options: [string, string][], changed: (value: string) => void,
  chosen = ''): HTMLLabelElement {
  const list = h('select', {change: () => changed(list.value)},
    ...options.map(([value, text]) => h('option', {value, selected: value === chosen}, text)));
  return h('label', {}, label, list);
}

/** A labelled slider that shows its value. */
export function slider(label: string, least: number, most: number, step: number,
  changed: (value: number) => void): HTMLLabelElement {
  const value = h('output', {}, String(least));
  const input = h('input', {type: 'range', min: least, max: most, step, value: least, input: () => {
    value.textContent = input.value;
    changed(Number(input.value));
  }});
  return h('label', {}, label, input, value);
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
  return typeof cell === 'string' ? /^[^\d–-]/.test(cell) : (cell as Element).matches('.group, .doubt');
}

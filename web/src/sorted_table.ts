// A table that its headings sort, by mouse and by keys.
import {h, keepFocus, type Child} from './element.ts';

export interface Column<Row> {
  id: string;
  heading: string;
  value: (row: Row) => number | string | null; // what it is sorted by; null is always last
  cell: (row: Row) => Child;
  text?: boolean; // aligned left
  largestFirst?: boolean; // at the first click
}

const collator = new Intl.Collator('en', {numeric: true});

export class SortedTable<Row> {
  readonly element: HTMLElement;
  private readonly body = h('tbody');
  private readonly heads: HTMLElement[];
  private by: Column<Row> | null = null; // null: the order of the rows
  private down = false;
  private rows: Row[] = [];

  /** `mark` may add attributes to the element of a row, `empty` is said where there is none. */
  constructor(private readonly columns: Column<Row>[], private readonly mark: (element: HTMLElement, row: Row) => void,
    private readonly empty: () => string) {
    this.heads = columns.map((column) => h('th', {scope: 'col', class: column.text ? 'text' : ''},
      h('button', {type: 'button', 'data-sort': column.id, click: () => this.sort(column)}, column.heading,
        h('i', {class: 'arrow', 'aria-hidden': 'true'}))));
    this.element = h('div', {class: 'scroll many'},
      h('table', {class: 'sorted'}, h('thead', {}, h('tr', {}, ...this.heads)), this.body));
  }

  show(rows: Row[]): void {
    this.rows = rows;
    this.draw();
  }

  // A third click brings the original order back.
  private sort(column: Column<Row>): void {
    const first = column.largestFirst ?? false;
    if (this.by !== column) [this.by, this.down] = [column, first];
    else if (this.down === first) this.down = !first;
    else this.by = null;
    this.heads.forEach((head, i) => {
      if (this.columns[i] === this.by) head.setAttribute('aria-sort', this.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    this.draw();
  }

  private ordered(): Row[] {
    const by = this.by;
    if (!by) return this.rows;
    const keyed = this.rows.map((row) => ({row, key: by.value(row)}));
    const sign = this.down ? -1 : 1;
    return keyed.sort(({key: a}, {key: b}) => {
      if (a === null || b === null) return Number(a === null) - Number(b === null);
      return sign * (typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(String(a), String(b)));
    }).map(({row}) => row);
  }

  private draw(): void {
    const rows = this.ordered().map((row) => {
      const element = h('tr', {}, ...this.columns.map((column) =>
        h('td', {class: column.text ? 'text' : ''}, column.cell(row))));
      this.mark(element, row);
      return element;
    });
    keepFocus(this.body, () => this.body.replaceChildren(...(rows.length ? rows
      : [h('tr', {}, h('td', {class: 'text empty', colspan: this.columns.length}, this.empty()))])));
  }
}

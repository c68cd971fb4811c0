// A section of the page: built once, so that the reader's choices stay, and shown anew with newer data.
import type {Report} from './data.ts';
import {keepFocus, section, type Child} from './element.ts';

export interface Section {
  element: HTMLElement; // hidden when the report has no data for it
  update(report: Report): void;
}

/** A section without choices of the reader: its content is made of every report; null hides it. */
export function plainSection(id: string, heading: string, about: Child,
  content: (report: Report) => Child[] | null): Section {
  const element = section(id, heading, about);
  const first = element.childElementCount;
  return {element, update: (report) => {
    const made = content(report);
    element.hidden = made === null;
    keepFocus(element, () => {
      while (element.childElementCount > first) element.lastElementChild!.remove();
      element.append(...(made ?? []));
    });
  }};
}

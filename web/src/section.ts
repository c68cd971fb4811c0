// A section of the page: built once, so that the reader's choices stay, and redrawn with newer data.
import type {Report} from './data.ts';

export interface Section {
  element: HTMLElement;
  update(report: Report): void;
}

/** Makes a section, or nothing when the report has no data for it. An element alone is rebuilt for every report. */
export type SectionMaker = (report: Report) => Section | HTMLElement | null;

export function makeSection(make: SectionMaker, first: Report): Section | null {
  const made = make(first);
  if (!(made instanceof HTMLElement)) return made;
  const section = {element: made, update(report: Report) {
    const next = make(report);
    if (!(next instanceof HTMLElement)) return;
    section.element.replaceWith(next);
    section.element = next;
  }};
  return section;
}

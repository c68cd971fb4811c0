// A section of the page: built once, so that the reader's choices stay, and redrawn with newer data.
import type {Report} from './data.ts';

export interface Section {
  element: HTMLElement;
  update(report: Report): void;
}

/** Makes a section, or nothing when the report has no data for it. */
export type SectionMaker = (report: Report) => Section | null;

/** A section without controls, rebuilt for every report. */
export function rebuilt(make: (report: Report) => HTMLElement | null): SectionMaker {
  return (first) => {
    const made = make(first);
    if (!made) return null;
    const section: Section = {
      element: made,
      update(report) {
        const next = make(report);
        if (!next) return;
        section.element.replaceWith(next);
        section.element = next;
      },
    };
    return section;
  };
}

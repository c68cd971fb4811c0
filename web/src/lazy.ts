// Draws what the reader is about to see: a page of 50 runs opens at once, and live data redraws visible charts only.

const near = new Set<Element>();
const pending = new Map<Element, () => void>();

function draw(place: Element): void {
  const drawing = pending.get(place);
  pending.delete(place);
  drawing?.();
}

const observer = new IntersectionObserver((entries) => {
  for (const {target, isIntersecting} of entries) {
    if (isIntersecting) {
      near.add(target);
      draw(target);
    } else {
      near.delete(target);
    }
  }
}, {rootMargin: '400px'});

addEventListener('beforeprint', () => [...pending.keys()].forEach(draw));

/** An empty place of a chart; `id` is the chart's, for tests. */
export function makePlace(id: string, height: number): HTMLElement {
  const place = document.createElement('div');
  place.dataset.place = id;
  place.style.minHeight = `${height}px`;
  return place;
}

/** Calls `drawing` now or as soon as `place` is near the window; a later call replaces an earlier one. */
export function whenNear(place: HTMLElement, drawing: () => void): void {
  pending.set(place, drawing);
  observer.observe(place);
  if (near.has(place)) draw(place);
}

/** Must be called for a place that leaves the page. */
export function forgetPlace(place: HTMLElement): void {
  observer.unobserve(place);
  near.delete(place);
  pending.delete(place);
}

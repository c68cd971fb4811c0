// The name of a group of layers with the group's colour.
import {h} from './element.ts';
import {groupColor} from './palette.ts';

export function groupDot(group: string): HTMLElement {
  const dot = h('i', {class: 'dot', 'aria-hidden': 'true'});
  dot.style.background = groupColor(group);
  return dot;
}

export const groupName = (group: string) => group || '(all)';

export function groupMark(group: string): HTMLElement {
  return h('span', {class: 'group'}, groupDot(group), groupName(group));
}

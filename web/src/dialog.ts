// A dialog with a title, and charts that are removed when it closes.
import {removeChart} from './chart.ts';
import {h} from './element.ts';

/** `id` names the dialog; a click beside it closes it. */
export function makeDialog(id: string): HTMLDialogElement {
  const dialog = h('dialog', {id, 'aria-labelledby': `${id}-title`});
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener('close', () => clearDialog(dialog));
  return dialog;
}

export function clearDialog(dialog: HTMLDialogElement): void {
  for (const box of dialog.querySelectorAll('.chart-box')) removeChart(box.parentElement!);
  dialog.replaceChildren();
}

export function dialogHeader(dialog: HTMLDialogElement, title: string, ...buttons: HTMLElement[]): HTMLElement {
  return h('header', {}, h('h2', {id: `${dialog.id}-title`}, title), ...buttons,
    h('button', {type: 'button', 'aria-label': 'Close', click: () => dialog.close()}, '✕'));
}

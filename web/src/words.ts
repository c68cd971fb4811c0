// What the words of the paper mean, beside the charts and tables that use them.
import {h} from './element.ts';

const kWords = {
  'Lhat': 'smoothness, measured: how much a layer’s gradient changed over a step, divided by the length of the step',
  '|g|*': 'size of the layer’s gradient, in the dual of the layer’s norm',
  'L0, L1': 'constants of the line Lhat ≈ L0 + L1 |g|*, fitted to the samples of a layer',
  'relative error': 'mean of ((Lhat − line) / Lhat)², the MSE: 0 is a perfect fit; near 1 or above it the constants say ' +
    'nothing',
  'above': 'share of the samples above the line, which is no bound for them',
  'B.0': 'block 0 of the network, the first one; the name after it is the type of layer',
  'radius': 'length of a layer’s step, in the layer’s norm',
  'predicted': 'the radius |g|* / (L0 + L1 |g|*) of the paper’s theorem 1',
  'alignment': 'how well a step points against the gradient: 1 is steepest descent',
} as const;

type Word = keyof typeof kWords;

/** The words with their meanings, visible. */
export function wordList(...words: Word[]): HTMLElement {
  return h('dl', {class: 'glossary'}, ...words.map((word) =>
    h('div', {}, h('dt', {}, word), h('dd', {}, kWords[word]))));
}

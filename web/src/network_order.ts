// The order of layers in their network: embeddings, then the blocks by number, then the head.
import type {Layer} from './data.ts';

/** Files list the layers of a block in the network's order, but a tied embedding may come last. */
export function networkOrder(layers: Layer[]): Layer[] {
  const firstBlock = layers.findIndex((layer) => layer.block >= 0);
  const depth = (layer: Layer, at: number) => {
    if (layer.block >= 0) return layer.block;
    return layer.group === 'embedding' || at < firstBlock ? -1 : Infinity;
  };
  return layers.map((layer, at) => ({layer, at, depth: depth(layer, at)}))
    .sort((a, b) => (a.depth === b.depth ? a.at - b.at : a.depth - b.depth)).map(({layer}) => layer);
}

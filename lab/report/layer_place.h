// The position of a layer in its network, derived from its name: the block and the type of layer.
//
//   blocks.3.attn.q.weight   ->  block 3, type attn.q
//   transformer.wte.weight   ->  no block, type transformer.wte
//
// The authors' logs number the layers instead. Their NanoGPT-124M has 73: six in each of twelve blocks, then the tied
// embedding.

#pragma once

#include <cstddef>
#include <string>

namespace gluon::lab {

struct LayerPlace {
  int block = -1;    // -1: outside the blocks
  std::string type;  // the name without block and ".weight"
};

LayerPlace place_of(const std::string& layer);

/// For the layers of an authors' log, whose names are numbers; `layers` is their count.
LayerPlace place_in_paper_log(const std::string& layer, std::size_t layers);

}  // namespace gluon::lab

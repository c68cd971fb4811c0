// Where a layer stands in its network, read off its name: which block, and what it does there.
//
//   blocks.3.attn.q.weight   ->  block 3, type attn.q
//   transformer.wte.weight   ->  no block, type transformer.wte
//
// The authors' logs number the layers instead. Their NanoGPT-124M has 73: six in each of twelve blocks, then the tied
// embedding (shared/data says so of the published file).

#pragma once

#include <cstddef>
#include <string>

namespace gluon::lab {

struct LayerPlace {
  int block = -1;    // -1: outside of the blocks
  std::string type;  // the name without block and ".weight"
};

LayerPlace place_of(const std::string& layer);

/// For the layers of an authors' log: their names are numbers, `layers` is how many there are.
LayerPlace place_in_paper_log(const std::string& layer, std::size_t layers);

}  // namespace gluon::lab

#include "lab/report/layer_place.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <string_view>

namespace gluon::lab {
namespace {

// Also checks that it fits into an int.
bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 7 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

constexpr std::size_t kPaperLayers = 73;
constexpr std::array<const char*, 6> kPaperTypes = {"attn.c_q",    "attn.c_k", "attn.c_v",
                                                    "attn.c_proj", "mlp.c_fc", "mlp.c_proj"};

}  // namespace

LayerPlace place_of(const std::string& layer) {
  LayerPlace place;
  std::istringstream parts(layer);
  for (std::string part; std::getline(parts, part, '.');) {
    if (is_number(part) && place.block < 0) {
      place.block = std::stoi(part);
      place.type.clear();  // "blocks", "h", "layers": the same for all
    } else {
      place.type += (place.type.empty() ? "" : ".") + part;
    }
  }
  constexpr std::string_view kWeight = ".weight";
  if (place.type.ends_with(kWeight)) place.type.resize(place.type.size() - kWeight.size());
  if (place.type.empty()) return {-1, layer};
  return place;
}

LayerPlace place_in_paper_log(const std::string& layer, std::size_t layers) {
  if (layers != kPaperLayers || !is_number(layer)) return place_of(layer);
  const auto index = static_cast<std::size_t>(std::stoi(layer));
  if (index >= kPaperTypes.size() * 12) return {-1, "wte"};
  return {static_cast<int>(index / kPaperTypes.size()), kPaperTypes[index % kPaperTypes.size()]};
}

}  // namespace gluon::lab

#include "gluon/core/check.h"
#include "gluon/distributed/rendezvous.h"

namespace gluon {

CollectivePtr make_gloo(const Ranks&, const Rendezvous&) {
  throw InputError(
      "collective: this build has no gloo: it needs a LibTorch with Gloo and Gloo's headers (libgloo-dev)");
}

}  // namespace gluon

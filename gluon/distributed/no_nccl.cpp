#include "gluon/core/check.h"
#include "gluon/distributed/rendezvous.h"

namespace gluon {

CollectivePtr make_nccl(const Ranks&, const Rendezvous&) {
  throw InputError("collective: this build has no nccl: it needs a LibTorch with CUDA and NCCL");
}

}  // namespace gluon

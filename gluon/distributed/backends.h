// The backends of make_collective(). A build without one compiles the file that throws instead.

#pragma once

#include "gluon/distributed/rendezvous.h"

namespace gluon {

CollectivePtr make_gloo(const Ranks& ranks, const Rendezvous& rendezvous);
CollectivePtr make_nccl(const Ranks& ranks, const Rendezvous& rendezvous);

}  // namespace gluon

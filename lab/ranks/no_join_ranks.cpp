#include "lab/ranks/join_ranks.h"

namespace gluon::lab {

// A build without c10d has no backend but "single".
CollectivePtr join_ranks(std::string_view backend, const Ranks& ranks) { return make_collective(backend, ranks); }

}  // namespace gluon::lab

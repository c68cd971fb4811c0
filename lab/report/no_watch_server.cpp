#include "gluon/core/check.h"
#include "lab/report/watch_server.h"

namespace gluon::lab {

WatchServer serve(WatchAnswers&, const WatchOptions&) {
  throw InputError("watch: this program was built without cpp-httplib; install libcpp-httplib-dev and build again");
}

}  // namespace gluon::lab

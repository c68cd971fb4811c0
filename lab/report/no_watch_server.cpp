#include "gluon/core/check.h"
#include "lab/report/watch_server.h"

namespace gluon::lab {

struct WatchServer::Listener {};

WatchServer::WatchServer(WatchAnswers&, const WatchOptions&) {
  throw InputError("watch: this program was built without cpp-httplib; install libcpp-httplib-dev and build again");
}

WatchServer::~WatchServer() = default;

int WatchServer::port() const { return 0; }

}  // namespace gluon::lab

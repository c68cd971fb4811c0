#include "gluon/core/check.h"
#include "lab/report/page.h"

namespace gluon::lab {

std::string_view page_template() {
  throw InputError(
      "report: this program was built without the page's charting library; "
      "run scripts/setup.sh and build again (needs npm), or use --text");
}

}  // namespace gluon::lab

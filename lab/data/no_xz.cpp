#include "gluon/core/check.h"
#include "lab/data/input_file.h"

namespace gluon::lab {

std::string unpacked_xz(std::string_view, const std::filesystem::path& path, uint64_t) {
  throw InputError(join("file '", path.string(), "': this program was built without liblzma; unpack the file first"));
}

}  // namespace gluon::lab

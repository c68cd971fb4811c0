#include "gluon/smoothness/trajectory.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

TEST(Trajectory, ReadsRunsCsvFilesAndPaperLogs) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(read_trajectory(folder.path()),
                     "holds no smoothness.csv; gluon train writes one with --smoothness-every N");
  const std::string csv =
      "step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,"
      "alignment,radius\n"
      "1,a,hidden,spectral,exact,full,1,1,1,1,1,1,1\n"
      "1,b,hidden,spectral,exact,full,1,1,1,1,1,1,1\n";
  folder.write("smoothness.csv", csv);
  EXPECT_EQ(read_trajectory(folder.path()).layers.size(), 2);
  // The content counts, not the name.
  EXPECT_EQ(read_trajectory(folder.write("samples.txt", csv)).layers.size(), 2);
  EXPECT_EQ(read_trajectory(folder.write("log", "step:1 (7) L_estimated: 1 norm_grad: 2\n")).layers[0].layer, "7");
  EXPECT_INPUT_ERROR(read_trajectory(folder.write("a.txt", "step,layer,loss\n")), "has no column group, norm");
  EXPECT_INPUT_ERROR(read_trajectory(folder.write("a.csv", "x,y\n1,2\n")), "has no column step, layer");
  EXPECT_INPUT_ERROR(read_trajectory(folder.write("b.txt", "hello\n")), "b.txt holds no samples");
  EXPECT_INPUT_ERROR(read_trajectory(folder.path() / "none"),
                     "none does not exist; expected a run directory, a smoothness.csv or a log");
}

// A file that even root cannot open.
std::filesystem::path unreadable_file(const TemporaryFolder& folder) {
  const std::filesystem::path path = folder.path() / "socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = path.string();
  std::copy_n(name.begin(), std::min(name.size(), sizeof address.sun_path - 1), address.sun_path);
  const int file = socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_EQ(bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << name;
  close(file);
  return path;
}

TEST(Trajectory, BadInput) {
  const TemporaryFolder folder;
  const auto path = unreadable_file(folder);
  EXPECT_INPUT_ERROR(read_trajectory(path), "smoothness: cannot read " + path.string());
  std::filesystem::create_directory(folder.path() / "smoothness.csv");
  EXPECT_INPUT_ERROR(read_trajectory(folder.path()),
                     "smoothness: cannot read " + (folder.path() / "smoothness.csv").string());
}

}  // namespace
}  // namespace gluon

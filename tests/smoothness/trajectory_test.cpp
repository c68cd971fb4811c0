#include "gluon/smoothness/trajectory.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "gluon/core/atomic_file.h"
#include "tests/expect_error.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

const std::string kHeader =
    "step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,"
    "alignment,radius\n";
const std::string kRow = "1,a,hidden,spectral,exact,full,1,1,1,1,1,1,1\n";

std::string content(const std::filesystem::path& path) { return read_text(path, "test"); }

const LayerTrajectory kQuery{
    .layer = "attn.q", .group = "hidden", .norm = "scaled(2,spectral)", .dual_method = "exact"};
const LayerTrajectory kOdd{.layer = "say \"a,b\"", .group = "", .norm = "max_entry", .dual_method = "exact"};

const Trajectory kMeasured{Estimator::kSameBatch, {kQuery, kOdd}};

Trajectory measured_by(Estimator estimator) { return {estimator, kMeasured.layers}; }

Sample sample(int64_t step) {
  return {.step = step, .gradient_change = 0.1, .displacement = 1e-30, .smoothness = 1e29, .gradient = 1.0 / 3};
}

// Steps 1..3 of both layers.
std::filesystem::path written(const TemporaryFolder& folder) {
  const auto path = folder.path() / "smoothness.csv";
  TrajectoryCsvWriter writer(path, kMeasured);
  for (const int64_t step : {1, 2, 3}) {
    writer.append(kQuery, sample(step));
    writer.append(kOdd, sample(step));
    writer.flush();
  }
  return path;
}

TEST(TrajectoryCsv, EstimatorNamesParseBack) {
  for (const char* name : {"consecutive", "full", "same_batch", "unknown"}) {
    EXPECT_EQ(estimator_name(parse_estimator(name)), name);
  }
  EXPECT_INPUT_ERROR(parse_estimator("exact"),
                     "unknown name 'exact'; allowed are consecutive, full, same_batch, unknown");
}

TEST(TrajectoryCsv, WritesTheDocumentedForm) {
  const TemporaryFolder folder;
  const std::string text = content(written(folder));
  EXPECT_TRUE(text.starts_with(
      kHeader + "1,attn.q,hidden,\"scaled(2,spectral)\",exact,same_batch,0.1,1e-30,1e+29,0.3333333333333333,,,\n" +
      "1,\"say \"\"a,b\"\"\",,max_entry,exact,same_batch,0.1,1e-30,1e+29,0.3333333333333333,,,\n"))
      << text;
}

TEST(TrajectoryCsv, RoundTrip) {
  const TemporaryFolder folder;
  const Trajectory trajectory = read_trajectory(written(folder));
  EXPECT_EQ(trajectory.estimator, Estimator::kSameBatch);
  ASSERT_EQ(trajectory.layers.size(), 2);
  for (const auto& [read, original] : {std::pair(trajectory.layers[0], kQuery), {trajectory.layers[1], kOdd}}) {
    EXPECT_EQ(read.layer, original.layer);
    EXPECT_EQ(read.group, original.group);
    EXPECT_EQ(read.norm, original.norm);
    EXPECT_EQ(read.dual_method, original.dual_method);
    ASSERT_EQ(read.samples.size(), 3);
    EXPECT_EQ(read.samples[2].step, 3);
    for (const auto value : kSampleValues) {
      const double got = read.samples[2].*value, expected = sample(3).*value;
      EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected))) << got << " " << expected;
    }
  }
}

TEST(TrajectoryCsv, ResumeRemovesLaterRowsAndHalfALine) {
  const TemporaryFolder folder;
  const auto path = written(folder);
  const std::string whole = content(path);
  std::ofstream(path, std::ios::app) << "4,attn.q,hidden,\"scaled(2,sp";
  {
    TrajectoryCsvWriter writer(path, kMeasured, 2);
    writer.append(kQuery, sample(3));
    writer.append(kOdd, sample(3));
    writer.flush();
  }
  EXPECT_EQ(content(path), whole);
  std::ofstream(path, std::ios::app) << "4,attn.q,hidden,\"scaled(2,sp";
  { TrajectoryCsvWriter writer(path, kMeasured); }
  EXPECT_EQ(content(path), whole);
  { TrajectoryCsvWriter writer(path, measured_by(Estimator::kFull), 0); }
  EXPECT_EQ(content(path), kHeader);
}

TEST(TrajectoryCsv, ResumesAfterAKillAtAnyByte) {
  const TemporaryFolder folder;
  const std::string whole = content(written(folder));
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    const auto path = folder.write("cut.csv", std::string_view(whole).substr(0, length));
    const auto rows = std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length), '\n') - 1;
    TrajectoryCsvWriter writer(path, kMeasured);
    writer.append(kQuery, sample(9));
    writer.flush();
    std::size_t read = 0;
    for (const auto& layer : read_trajectory(path).layers) read += layer.samples.size();
    EXPECT_EQ(static_cast<std::ptrdiff_t>(read), std::max<std::ptrdiff_t>(rows, 0) + 1) << "cut at " << length;
  }
}

// A killed writer may leave "0.2" of "0.25", which is also a number.
TEST(TrajectoryCsv, LastLineWithoutABreakIsIgnored) {
  const TemporaryFolder folder;
  const std::string rows = kHeader + kRow + "2,a,hidden,spectral,exact,full,1,1,1,1,1,1,0.25\n";
  for (const std::size_t cut : {1, 2, 3, 4, 5}) {
    const auto path = folder.write("cut.csv", std::string_view(rows).substr(0, rows.size() - cut));
    EXPECT_EQ(read_trajectory(path).layers[0].samples.size(), 1U) << "cut by " << cut;
  }
  const auto path = folder.write("cut.csv", rows.substr(0, rows.find("1,a") + 20));
  EXPECT_INPUT_ERROR(read_trajectory(path), "cut.csv holds no samples");
}

TEST(TrajectoryCsv, ResumeRejectsAnotherMeasurementAndKeepsTheFile) {
  const TemporaryFolder folder;
  const auto path = written(folder);
  std::ofstream(path, std::ios::app) << "4,attn.q,hid";
  const std::string before = content(path);
  const auto resume = [&](std::string LayerTrajectory::*field, const std::string& value) {
    Trajectory layers = kMeasured;
    layers.layers[0].*field = value;
    TrajectoryCsvWriter(path, layers, 2);
  };
  EXPECT_INPUT_ERROR(resume(&LayerTrajectory::norm, "euclidean"),
                     "smoothness.csv has layer 'attn.q' with norm 'scaled(2,spectral)', this run uses 'euclidean'; "
                     "measure as before or move the file away");
  EXPECT_INPUT_ERROR(resume(&LayerTrajectory::dual_method, "polar_express:8"),
                     "has layer 'attn.q' with dual_method 'exact', this run uses 'polar_express:8'; measure as before");
  EXPECT_INPUT_ERROR(resume(&LayerTrajectory::group, "head"),
                     "has layer 'attn.q' with group 'hidden', this run uses 'head'; measure as before");
  EXPECT_INPUT_ERROR(TrajectoryCsvWriter(path, measured_by(Estimator::kConsecutive), 2),
                     "smoothness.csv holds samples of the estimator 'same_batch', this run uses 'consecutive'; "
                     "measure as before");
  EXPECT_EQ(content(path), before);
  // Other layers and removed rows are not compared.
  EXPECT_NO_THROW(resume(&LayerTrajectory::layer, "attn.k"));
  Trajectory other = measured_by(Estimator::kFull);
  for (LayerTrajectory& layer : other.layers) layer.norm = "euclidean";
  { TrajectoryCsvWriter writer(path, other, 0); }
  EXPECT_EQ(content(path), kHeader);
}

TEST(TrajectoryCsv, ReadsOtherColumnOrdersAndLineBreaks) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "other.csv",
      "\xEF\xBB\xBFnote,radius,alignment,momentum,gradient,smoothness,displacement,gradient_change,estimator,"
      "dual_method,norm,group,layer,step\r\n"
      "x,7,6,5,4,3,2,1,full,exact,euclidean,hidden,a,50\r\n"
      "\r\n"
      "\"y, z\",7,6,5,4,nan,inf,1,full,exact,euclidean,hidden,a,100\r\n");
  const Trajectory trajectory = read_trajectory(path);
  ASSERT_EQ(trajectory.layers.size(), 1);
  ASSERT_EQ(trajectory.layers[0].samples.size(), 2);
  const Sample& first = trajectory.layers[0].samples[0];
  EXPECT_EQ(first.step, 50);
  EXPECT_EQ(first.gradient_change, 1);
  EXPECT_EQ(first.radius, 7);
  EXPECT_TRUE(std::isnan(trajectory.layers[0].samples[1].smoothness));
  EXPECT_TRUE(std::isinf(trajectory.layers[0].samples[1].displacement));
}

TEST(TrajectoryCsv, ReadsLayersInAnyOrder) {
  const TemporaryFolder folder;
  std::string text = kHeader;
  for (const char* layer : {"a", "b", "c", "c", "a", "b", "b", "a", "c", "d"}) {
    text += std::string("1,") + layer + ",hidden,spectral,exact,full,1,1,1,1,1,1,1\n";
  }
  const Trajectory trajectory = read_trajectory(folder.write("mixed.csv", text));
  ASSERT_EQ(trajectory.layers.size(), 4);
  const std::vector<std::size_t> counts = {3, 3, 3, 1};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(trajectory.layers[i].samples.size(), counts[i]);
}

TEST(TrajectoryCsv, BadFiles) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"step,layer,group,norm,dual_method,estimator,momentum,alignment,radius,gradient\n",
       "has no column gradient_change, displacement, smoothness"},
      {"step," + kHeader, "column step appears more than once"},
      {"\"step," + kHeader, "line 1: unbalanced quotes"},
      {kHeader, "bad.csv holds no samples"},
      {"", "has no column step, layer"},
      {"x,y\n1,2\n", "has no column step, layer"},
      {kHeader + kRow + "2,a,hidden,spectral,exact,full,1,1,1O,1,1,1,1\n",
       "bad.csv line 3: smoothness must be a number or empty, got '1O'"},
      {kHeader + kRow + "x,a,hidden,spectral,exact,full,1,1,1,1,1,1,1\n",
       "line 3: step must be a whole number, got 'x'"},
      {kHeader + "1,a,hidden\n" + kRow, "line 2: expected 13 cells as in the header, got 3"},
      {kHeader + "1,,hidden,spectral,exact,full,1,1,1,1,1,1,1\n", "line 2: layer must be a name, got an empty cell"},
      {kHeader + kRow + "2,a,hidden,spectral,exact,consecutive,1,1,1,1,1,1,1\n",
       "line 3: estimator 'consecutive' after 'full'; one file holds one estimator"},
      {kHeader + "2,a,hidden,spectral,exact,none,1,1,1,1,1,1,1\n",
       "line 2: estimator: unknown name 'none'; allowed are consecutive, full, same_batch, unknown"},
      {kHeader + kRow + "2,a,hidden,euclidean,exact,full,1,1,1,1,1,1,1\n",
       "line 3: layer 'a' changes its norm from 'spectral' to 'euclidean'"},
      {kHeader + kRow + "2,a,head,spectral,exact,full,1,1,1,1,1,1,1\n",
       "line 3: layer 'a' changes its group from 'hidden' to 'head'"},
      {kHeader + kRow + "2,a,hidden,spectral,svd,full,1,1,1,1,1,1,1\n",
       "line 3: layer 'a' changes its dual_method from 'exact' to 'svd'"}};
  for (const auto& [text, message] : cases) {
    EXPECT_INPUT_ERROR(read_trajectory(folder.write("bad.csv", text)), message);
  }
}

TEST(TrajectoryCsv, BadWrites) {
  const TemporaryFolder folder;
  const auto path = written(folder);
  const auto open = [](const std::filesystem::path& file) { TrajectoryCsvWriter(file, kMeasured); };
  EXPECT_INPUT_ERROR(open(folder.path() / "none" / "a.csv"), "smoothness: cannot write");
  EXPECT_INPUT_ERROR(open(folder.path()), "smoothness: cannot read " + folder.path().string());
  EXPECT_INPUT_ERROR(open(folder.write("log.csv", "step,loss\n1,2\n")), "log.csv has other columns than step,layer");
  EXPECT_INPUT_ERROR(open(folder.write("bad.csv", kHeader + "x,y\n")),
                     "bad.csv line 2: expected 13 cells as in the header, got 2");
  const auto foreign = folder.write("foreign.csv", "no line break");
  EXPECT_INPUT_ERROR(open(foreign), "foreign.csv has other columns than step,layer");
  EXPECT_EQ(content(foreign), "no line break");
  TrajectoryCsvWriter writer(path, kMeasured);
  EXPECT_INPUT_ERROR(writer.append({.layer = "a\nb"}, sample(4)), "names must not contain line breaks, got 'a\nb'");
}

TEST(PaperLog, ReadsSamplesAndSkipsOtherLines) {
  const TemporaryFolder folder;
  const auto path = folder.write("log.txt",
                                 "print0(f\"step:{step} ({i}) L_estimated: {x} norm_grad: {y}\")\n"
                                 "step:0/5001 val_loss:16.0102 train_time:292ms step_avg:nanms\n"
                                 "step:50/5001 (10) L_estimated: 2.5 norm_grad: 0.25\n"
                                 "step:50/5001 (2) L_estimated: 1e-3 norm_grad: 4\r\n"
                                 "step:100/5001 (10) L_estimated: nan norm_grad: 0.5\n");
  const Trajectory trajectory = read_trajectory(path);
  EXPECT_EQ(trajectory.estimator, Estimator::kUnknown);
  ASSERT_EQ(trajectory.layers.size(), 2);
  EXPECT_EQ(trajectory.layers[0].layer, "10");
  EXPECT_EQ(trajectory.layers[0].group, "");
  ASSERT_EQ(trajectory.layers[0].samples.size(), 2);
  EXPECT_EQ(trajectory.layers[0].samples[0].step, 50);
  EXPECT_EQ(trajectory.layers[0].samples[0].smoothness, 2.5);
  EXPECT_EQ(trajectory.layers[0].samples[0].gradient, 0.25);
  EXPECT_TRUE(std::isnan(trajectory.layers[0].samples[0].displacement));
  EXPECT_TRUE(std::isnan(trajectory.layers[0].samples[1].smoothness));
  EXPECT_EQ(trajectory.layers[1].layer, "2");
  EXPECT_EQ(trajectory.layers[1].samples[0].smoothness, 1e-3);
}

// A killed process may leave "8.9" of "8.9521", which is also a number.
TEST(PaperLog, ReadsTheCnnFormAndSkipsALastLineWithoutLineBreak) {
  const TemporaryFolder folder;
  const std::string line = "step:1 (0) L_estimated: 4237.2480 norm_grad: 8.9521";
  for (const std::size_t cut : {0, 2, 12}) {
    const std::string text = line + "\n" + line.substr(0, line.size() - cut);
    const Trajectory trajectory = read_trajectory(folder.write("log.txt", text));
    ASSERT_EQ(trajectory.layers.size(), 1);
    ASSERT_EQ(trajectory.layers[0].samples.size(), 1U) << text;
    EXPECT_EQ(trajectory.layers[0].samples[0].smoothness, 4237.248);
  }
  EXPECT_INPUT_ERROR(read_trajectory(folder.write("log.txt", line)), "log.txt holds no samples");
}

// Two fractions of an epoch may be equal after rounding, and whole epochs may come without a fraction.
TEST(PaperLog, FractionsOfAnEpochBecomeStepsInTheirOrder) {
  const TemporaryFolder folder;
  const Trajectory trajectory = read_trajectory(folder.write("log.txt",
                                                             "step:0.08 (0) L_estimated: 5 norm_grad: 1\n"
                                                             "step:0.08 (1) L_estimated: 6 norm_grad: 2\n"
                                                             "step:0.08 (0) L_estimated: 7 norm_grad: 3\n"
                                                             "epoch 1 of 8\n"
                                                             "step:1 (0) L_estimated: 8 norm_grad: 4\n"
                                                             "step:1. (1) L_estimated: 9 norm_grad: 5\n"));
  ASSERT_EQ(trajectory.layers.size(), 2);
  const auto& first = trajectory.layers[0].samples;
  const auto& second = trajectory.layers[1].samples;
  ASSERT_EQ(first.size(), 3);
  ASSERT_EQ(second.size(), 2);
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].step, static_cast<int64_t>(i) + 1);
  EXPECT_EQ(first[2].smoothness, 8);
  EXPECT_EQ(second[1].step, 2);
  EXPECT_EQ(second[1].gradient, 5);
}

TEST(PaperLog, ReadsTheAuthorsLogs) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "paper-logs");
  const Trajectory nanogpt = read_trajectory(folder / "nanogpt-unscion.txt");
  ASSERT_EQ(nanogpt.layers.size(), 73);
  for (std::size_t i = 0; i < nanogpt.layers.size(); ++i) {
    EXPECT_EQ(nanogpt.layers[i].layer, std::to_string(i));
    EXPECT_EQ(nanogpt.layers[i].samples.size(), 99);
  }
  EXPECT_EQ(nanogpt.layers[24].samples[0].smoothness, 2.0423);
  EXPECT_EQ(nanogpt.layers[24].samples[0].gradient, 0.0258);
  const Trajectory cnn = read_trajectory(folder / "cnn-fullbatch.txt");
  ASSERT_EQ(cnn.layers.size(), 14);
  EXPECT_EQ(cnn.layers[13].samples.size(), 79);
  EXPECT_EQ(cnn.layers[13].samples.back().step, 79);
}

TEST(PaperLog, BadFiles) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"step:0/10 val_loss:3\n", "bad.txt holds no samples, lines such as 'step:50/5001 (0) L_estimated:"},
      {"step:1 (0) L_estimated: 1 norm_grad: 2\nstep:2 (0) L_estimated: x norm_grad: 2\n",
       "bad.txt line 2: expected L_estimated: NUMBER norm_grad: NUMBER, got 'step:2 (0)"},
      {"step:1 (0) L_estimated: 1 norm_grad: \n", "bad.txt line 1: expected L_estimated: NUMBER norm_grad: NUMBER"},
      {"step: (0) L_estimated: 1 norm_grad: 2\n", "bad.txt line 1: expected step:STEP (LAYER) L_estimated: ..., got"},
      {"step:0.1.2 (0) L_estimated: 1 norm_grad: 2\n", "bad.txt line 1: expected step:STEP (LAYER) L_estimated: ..."},
      {"step:.5 (0) L_estimated: 1 norm_grad: 2\n", "bad.txt line 1: expected step:STEP (LAYER) L_estimated: ..."},
      {"step:1 (0) L_estimated: 1 norm_grad: 2\nstep:1.5e3 (0) L_estimated: 1 norm_grad: 2\n",
       "bad.txt line 2: expected step:STEP (LAYER) L_estimated: ..., got 'step:1.5e3 (0)"},
      {"hello\n", "bad.txt holds no samples"},
      {"step,layer,loss\n", "has no column group, norm"}};
  for (const auto& [text, message] : cases) {
    EXPECT_INPUT_ERROR(read_trajectory(folder.write("bad.txt", text)), message);
  }
}

TEST(Trajectory, ReadsRunsCsvFilesAndPaperLogs) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(read_trajectory(folder.path()),
                     "holds no smoothness.csv; gluon train writes one with --smoothness-every N");
  const std::string csv = kHeader + kRow + "1,b,hidden,spectral,exact,full,1,1,1,1,1,1,1\n";
  folder.write("smoothness.csv", csv);
  EXPECT_EQ(read_trajectory(folder.path()).layers.size(), 2);
  // The content counts, not the name.
  EXPECT_EQ(read_trajectory(folder.write("samples.txt", csv)).layers.size(), 2);
  for (const std::string start : {"", "step\n", "\"step,layer\n"}) {
    const auto log = folder.write("log", start + "step:1 (7) L_estimated: 1 norm_grad: 2\n");
    EXPECT_EQ(read_trajectory(log).layers[0].layer, "7");
  }
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

TEST(Trajectory, FilesThatCannotBeOpened) {
  const TemporaryFolder folder;
  const auto path = unreadable_file(folder);
  EXPECT_INPUT_ERROR(read_trajectory(path), "smoothness: cannot read " + path.string());
  std::filesystem::create_directory(folder.path() / "smoothness.csv");
  EXPECT_INPUT_ERROR(read_trajectory(folder.path()),
                     "smoothness: cannot read " + (folder.path() / "smoothness.csv").string());
}

}  // namespace
}  // namespace gluon

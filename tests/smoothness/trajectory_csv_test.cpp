#include "gluon/smoothness/trajectory_csv.h"

#include <cmath>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

const std::string kHeader =
    "step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,"
    "alignment,radius\n";

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

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
  const Trajectory trajectory = read_trajectory_csv(written(folder));
  EXPECT_EQ(trajectory.estimator, Estimator::kSameBatch);
  ASSERT_EQ(trajectory.layers.size(), 2);
  for (const auto& [read, original] : {std::pair(trajectory.layers[0], kQuery), {trajectory.layers[1], kOdd}}) {
    EXPECT_EQ(read.layer, original.layer);
    EXPECT_EQ(read.group, original.group);
    EXPECT_EQ(read.norm, original.norm);
    EXPECT_EQ(read.dual_method, original.dual_method);
    ASSERT_EQ(read.samples.size(), 3);
    EXPECT_EQ(read.samples[2].step, 3);
    EXPECT_EQ(read.samples[2].gradient_change, 0.1);
    EXPECT_EQ(read.samples[2].displacement, 1e-30);
    EXPECT_EQ(read.samples[2].smoothness, 1e29);
    EXPECT_EQ(read.samples[2].gradient, 1.0 / 3);
    EXPECT_TRUE(std::isnan(read.samples[2].momentum));
    EXPECT_TRUE(std::isnan(read.samples[2].alignment));
    EXPECT_TRUE(std::isnan(read.samples[2].radius));
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
    for (const auto& layer : read_trajectory_csv(path).layers) read += layer.samples.size();
    EXPECT_EQ(static_cast<std::ptrdiff_t>(read), std::max<std::ptrdiff_t>(rows, 0) + 1) << "cut at " << length;
  }
}

// A killed writer may leave "0.2" of "0.25", which is also a number.
TEST(TrajectoryCsv, LastLineWithoutABreakIsIgnored) {
  const TemporaryFolder folder;
  const std::string rows = kHeader + "1,a,hidden,spectral,exact,full,1,1,1,1,1,1,0.25\n" +
                           "2,a,hidden,spectral,exact,full,1,1,1,1,1,1,0.25\n";
  for (const std::size_t cut : {1, 2, 3, 4, 5}) {
    const auto path = folder.write("cut.csv", std::string_view(rows).substr(0, rows.size() - cut));
    EXPECT_EQ(read_trajectory_csv(path).layers[0].samples.size(), 1U) << "cut by " << cut;
  }
  const auto path = folder.write("cut.csv", rows.substr(0, rows.find("1,a") + 20));
  EXPECT_INPUT_ERROR(read_trajectory_csv(path), "cut.csv holds no samples");
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
  EXPECT_INPUT_ERROR(
      resume(&LayerTrajectory::norm, "euclidean"),
      "smoothness.csv has layer 'attn.q' with norm 'scaled(2,spectral)', this run uses 'euclidean'; measure "
      "as before or move the file away");
  EXPECT_INPUT_ERROR(resume(&LayerTrajectory::dual_method, "polar_express:8"),
                     "smoothness.csv has layer 'attn.q' with dual_method 'exact', this run uses "
                     "'polar_express:8'; measure as before");
  EXPECT_INPUT_ERROR(resume(&LayerTrajectory::group, "head"),
                     "smoothness.csv has layer 'attn.q' with group 'hidden', this run uses 'head'; "
                     "measure as before");
  EXPECT_INPUT_ERROR(TrajectoryCsvWriter(path, measured_by(Estimator::kConsecutive), 2),
                     "smoothness.csv holds samples of the estimator 'same_batch', this run uses "
                     "'consecutive'; measure as before");
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
  const Trajectory trajectory = read_trajectory_csv(path);
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
  const Trajectory trajectory = read_trajectory_csv(folder.write("mixed.csv", text));
  ASSERT_EQ(trajectory.layers.size(), 4);
  const std::vector<std::size_t> counts = {3, 3, 3, 1};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(trajectory.layers[i].samples.size(), counts[i]);
}

TEST(TrajectoryCsv, BadFiles) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) { read_trajectory_csv(folder.write("bad.csv", text)); };
  const std::string row = "1,a,hidden,spectral,exact,full,1,1,1,1,1,1,1\n";
  EXPECT_INPUT_ERROR(read_trajectory_csv(folder.path() / "none.csv"),
                     "smoothness: cannot read " + (folder.path() / "none.csv").string());
  EXPECT_INPUT_ERROR(read_trajectory_csv(folder.path()), "smoothness: cannot read " + folder.path().string());
  EXPECT_INPUT_ERROR(read("step,layer,group,norm,dual_method,estimator,momentum,alignment,radius,gradient\n"),
                     "has no column gradient_change, displacement, smoothness");
  EXPECT_INPUT_ERROR(read("step," + kHeader), "column step appears more than once");
  EXPECT_INPUT_ERROR(read("\"step," + kHeader), "line 1: unbalanced quotes");
  EXPECT_INPUT_ERROR(read(kHeader), "bad.csv holds no samples");
  EXPECT_INPUT_ERROR(read(""), "has no column step, layer");
  EXPECT_INPUT_ERROR(read(kHeader + row + "2,a,hidden,spectral,exact,full,1,1,1O,1,1,1,1\n"),
                     "bad.csv line 3: smoothness must be a number or empty, got '1O'");
  EXPECT_INPUT_ERROR(read(kHeader + row + "x,a,hidden,spectral,exact,full,1,1,1,1,1,1,1\n"),
                     "line 3: step must be a whole number, got 'x'");
  EXPECT_INPUT_ERROR(read(kHeader + "1,a,hidden\n" + row), "line 2: expected 13 cells as in the header, got 3");
  EXPECT_INPUT_ERROR(read(kHeader + "1,,hidden,spectral,exact,full,1,1,1,1,1,1,1\n"),
                     "line 2: layer must be a name, got an empty cell");
  EXPECT_INPUT_ERROR(read(kHeader + row + "2,a,hidden,spectral,exact,consecutive,1,1,1,1,1,1,1\n"),
                     "line 3: estimator 'consecutive' after 'full'; one file holds one estimator");
  EXPECT_INPUT_ERROR(read(kHeader + "2,a,hidden,spectral,exact,none,1,1,1,1,1,1,1\n"),
                     "line 2: estimator: unknown name 'none'; allowed are");
  EXPECT_INPUT_ERROR(read(kHeader + row + "2,a,hidden,euclidean,exact,full,1,1,1,1,1,1,1\n"),
                     "line 3: layer 'a' changes its norm from 'spectral' to 'euclidean'");
  EXPECT_INPUT_ERROR(read(kHeader + row + "2,a,head,spectral,exact,full,1,1,1,1,1,1,1\n"),
                     "line 3: layer 'a' changes its group from 'hidden' to 'head'");
  EXPECT_INPUT_ERROR(read(kHeader + row + "2,a,hidden,spectral,svd,full,1,1,1,1,1,1,1\n"),
                     "line 3: layer 'a' changes its dual_method from 'exact' to 'svd'");
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

}  // namespace
}  // namespace gluon

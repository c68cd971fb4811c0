// The paper's experiments, one file each: what is trained, what the paper found, and when ours agrees with it.
//
//   gluon reproduce list             their names
//   gluon reproduce NAME --small     one of them on a laptop
//
// A study describes its runs as changes of Workbench::language() or images(), and returns tables, figures and findings.

#pragma once

#include <span>
#include <string_view>

#include "lab/reproduce/study.h"
#include "lab/reproduce/workbench.h"

namespace gluon::experiments {

lab::StudyResult authors_logs(lab::Workbench& bench);
lab::StudyResult nanogpt_smoothness(lab::Workbench& bench);
lab::StudyResult estimator(lab::Workbench& bench);
lab::StudyResult norms(lab::Workbench& bench);
lab::StudyResult adamw_transfer(lab::Workbench& bench);
lab::StudyResult scaling_factors(lab::Workbench& bench);
lab::StudyResult cnn_full_batch(lab::Workbench& bench);
lab::StudyResult cnn_stochastic(lab::Workbench& bench);
lab::StudyResult cnn_accuracy(lab::Workbench& bench);
lab::StudyResult theorem3(lab::Workbench& bench);
lab::StudyResult radius_transfer(lab::Workbench& bench);

/// In the order of the paper.
std::span<const lab::Study> studies();

}  // namespace gluon::experiments

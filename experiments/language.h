// What the experiments with language models have in common.

#pragma once

#include <string>

#include "gluon/fit/fit.h"
#include "lab/reproduce/workbench.h"

namespace gluon::experiments {

/// unScion at the paper's radii, which records smoothness.
lab::TrainConfig measured(lab::Workbench& bench, Estimator mode);

/// AdamW without decay, as in the authors' script; the caller chooses the rate.
lab::TrainConfig adamw_baseline(lab::Workbench& bench);

/// The median L1 over the layers of a group.
double group_l1(const TrajectoryFit& fits, const std::string& group);

/// What the paper trained, and what `config`, one of its runs, trains here.
std::string scale_note(const lab::Workbench& bench, const lab::TrainConfig& config);

}  // namespace gluon::experiments

// Gluon: layer-wise LMO optimizers. This header includes the stages in the order of the flow:
//
//   gradient -> momentum -> LMO direction -> radius -> update -> smoothness sample -> fit
//
// gluon/update/torch_optimizer.h (Gluon as a torch::optim::Optimizer) and gluon/testing/norm_identities.h (checks for a
// norm of your own) are included where they are needed.

#pragma once

// The order of the flow, not of the alphabet:
// clang-format off
#include "gluon/core/check.h"
#include "gluon/core/layer.h"
#include "gluon/core/batch_step.h"
#include "gluon/momentum/momentum.h"
#include "gluon/lmo/norm.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"
#include "gluon/normalize/normalize.h"
#include "gluon/radius/decay.h"
#include "gluon/radius/radius.h"
#include "gluon/radius/schedule.h"
#include "gluon/geometry/geometry.h"
#include "gluon/geometry/presets.h"
#include "gluon/distributed/collective.h"
#include "gluon/update/layers_of.h"
#include "gluon/update/initialize.h"
#include "gluon/update/optimizer.h"
#include "gluon/update/qk_clip.h"
#include "gluon/checkpoint/checkpoint.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/smoothness/trajectory.h"
#include "gluon/fit/fit.h"
#include "gluon/fit/radii.h"
#include "gluon/theory/theorems.h"
#include "gluon/version.h"

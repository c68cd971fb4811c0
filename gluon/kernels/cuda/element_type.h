// ElementType: the type of the entries behind an untyped pointer. The optimizer's kernels take several precisions and
// always compute in float32.

#pragma once

namespace gluon::cuda {

enum class ElementType { kFloat32, kFloat16, kBFloat16 };

}  // namespace gluon::cuda

// ElementType: what the entries behind an untyped pointer are. The stacks and tables of the optimizer's kernels come
// in several precisions; the arithmetic on them is float32 always.

#pragma once

namespace gluon::cuda {

enum class ElementType { kFloat32, kFloat16, kBFloat16 };

}  // namespace gluon::cuda

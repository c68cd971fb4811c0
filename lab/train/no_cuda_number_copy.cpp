#include "lab/train/number_copy.h"

namespace gluon::lab {

struct NumberCopy::Arrival {};
NumberCopy::NumberCopy(const torch::Tensor& number) : host_(number.clone()) {}
double NumberCopy::value() const { return host_.item<double>(); }

}  // namespace gluon::lab

// PythonNorm: a norm written in Python, an object with a name and the functions norm, dual_norm and lmo of a stack
// (b, m, n). Rules hold it like any other norm.

#pragma once

#include <memory>
#include <string>

#include "bindings.h"
#include "gluon/lmo/norm.h"

namespace gluon::python {

class PythonNorm : public Norm {
 public:
  /// Throws InputError that names what the object lacks.
  explicit PythonNorm(py::object object);
  ~PythonNorm() override;
  PythonNorm(const PythonNorm&) = delete;
  PythonNorm& operator=(const PythonNorm&) = delete;

  std::string name() const override { return name_; }
  const py::object& object() const { return object_; }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override;
  at::Tensor compute_dual_norm(const at::Tensor& g) const override;
  at::Tensor compute_lmo(const at::Tensor& g) const override;

 private:
  at::Tensor call(const char* function, const at::Tensor& x, at::IntArrayRef sizes) const;

  py::object object_;
  std::string name_;
};

}  // namespace gluon::python

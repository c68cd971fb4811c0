// gluon/distributed: a process group of torch.distributed as the ranks that share the layers.
//
// Exchanges call Python's functions instead of c10d's, because these are the same from torch 1.13 to 2.x and for every
// backend.

#include <ATen/ATen.h>

#include "bindings.h"
#include "gluon/core/check.h"
#include "gluon/distributed/collective.h"

namespace gluon::python {
namespace {

// A Python object that may be released by a thread without the GIL.
using Held = std::shared_ptr<py::object>;

Held hold(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

// Steps run without the GIL. Exceptions of Python become RankLost; KeyboardInterrupt and SystemExit stay.
template <typename Body> auto in_python(int rank, int size, Body body) {
  const py::gil_scoped_acquire gil;
  try {
    return body();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const std::string kind = py::str(error.type().attr("__name__")), text = py::str(error.value());
    throw RankLost(
        join("rank ", rank, " of ", size, ": an exchange with the other ranks failed (", kind, ": ", text, ")"));
  }
}

class TorchExchange : public Exchange {
 public:
  // What arrives in `staged` belongs into `tensor`, often the same; `also` takes part in the exchange.
  TorchExchange(int rank, int size, py::object work, at::Tensor tensor, at::Tensor staged, at::Tensor also = {})
      : rank_(rank),
        size_(size),
        work_(hold(std::move(work))),
        tensor_(std::move(tensor)),
        staged_(std::move(staged)),
        also_(std::move(also)) {}

  void wait() override {
    in_python(rank_, size_, [&] { work_->attr("wait")(); });
    if (!staged_.is_same(tensor_)) tensor_.copy_(staged_);
  }

 private:
  int rank_, size_;
  Held work_;
  at::Tensor tensor_, staged_, also_;  // alive until the exchange ends
};

class TorchCollective : public Collective {
 public:
  // `ranks` are the members' global ranks, which torch.distributed expects as roots. `staging` is the device that CPU
  // tensors are copied to when the backend does not accept them.
  TorchCollective(py::object group, int rank, std::vector<int> ranks, std::optional<at::Device> staging)
      : distributed_(hold(py::module_::import("torch.distributed"))),
        group_(hold(std::move(group))),
        rank_(rank),
        ranks_(std::move(ranks)),
        staging_(staging) {}

  std::string_view name() const override { return "torch.distributed"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }

  ExchangePtr all_reduce(at::Tensor tensor) override { return start("all_reduce", std::move(tensor)); }
  ExchangePtr reduce(at::Tensor tensor, int root) override { return start("reduce", std::move(tensor), "dst", root); }
  ExchangePtr broadcast(at::Tensor tensor, int root) override {
    return start("broadcast", std::move(tensor), "src", root);
  }

  // `sent` holds what each rank is to get, in rank order, and `received` is filled with what each rank sent to this one;
  // the counts are numbers of entries.
  ExchangePtr all_to_all(at::Tensor received, const std::vector<int64_t>& received_counts, at::Tensor sent,
                         const std::vector<int64_t>& sent_counts) {
    at::Tensor arriving = staged(received), leaving = staged(sent);
    return in_python(rank_, size(), [&]() -> ExchangePtr {
      py::object work =
          distributed_->attr("all_to_all_single")(arriving, leaving, received_counts, sent_counts, **in_group());
      return std::make_unique<TorchExchange>(rank_, size(), std::move(work), received, arriving, leaving);
    });
  }

 private:
  at::Tensor staged(const at::Tensor& tensor) const {
    return staging_ && tensor.is_cpu() ? tensor.to(*staging_, tensor.scalar_type(), false, true) : tensor;
  }

  py::dict in_group() const {
    py::dict arguments;
    arguments["group"] = *group_;
    arguments["async_op"] = true;
    return arguments;
  }

  ExchangePtr start(const char* function, at::Tensor tensor, const char* role = nullptr, int root = 0) {
    if (tensor.numel() == 0) return make_collective("single", {})->all_reduce(tensor);  // nothing to send
    at::Tensor sent = staged(tensor);
    return in_python(rank_, size(), [&]() -> ExchangePtr {
      py::dict arguments = in_group();
      if (role != nullptr) arguments[role] = ranks_[static_cast<std::size_t>(root)];
      py::object work = distributed_->attr(function)(sent, **arguments);
      return std::make_unique<TorchExchange>(rank_, size(), std::move(work), tensor, sent);
    });
  }

  Held distributed_, group_;
  int rank_;
  std::vector<int> ranks_;
  std::optional<at::Device> staging_;
};

}  // namespace

void bind_distributed(py::module_& module) {
  py::register_exception<RankLost>(module, "RankLost", PyExc_RuntimeError);
  py::class_<Exchange>(module, "Exchange").def("wait", &Exchange::wait, py::call_guard<py::gil_scoped_release>());
  py::class_<Collective, std::shared_ptr<Collective>>(module, "_Collective");
  py::class_<TorchCollective, Collective, std::shared_ptr<TorchCollective>>(module, "Collective")
      .def(py::init([](py::object group, int rank, std::vector<int> ranks, std::optional<at::Device> staging) {
             return std::make_shared<TorchCollective>(std::move(group), rank, std::move(ranks), staging);
           }),
           py::arg("group"), py::arg("rank"), py::arg("ranks"), py::arg("staging") = py::none())
      .def_property_readonly("rank", &Collective::rank)
      .def_property_readonly("size", &Collective::size)
      .def(
          "sum", [](Collective& collective, const at::Tensor& tensor) { collective.all_reduce(tensor)->wait(); },
          py::arg("tensor"), py::call_guard<py::gil_scoped_release>())
      .def("all_to_all", &TorchCollective::all_to_all, py::arg("received"), py::arg("received_counts"), py::arg("sent"),
           py::arg("sent_counts"));
  module.def(
      "check_agreement",
      [](Collective& collective, const std::string& what, const std::string& text) {
        check_agreement(collective, {{what, text}});
      },
      py::arg("collective"), py::arg("what"), py::arg("text"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace gluon::python

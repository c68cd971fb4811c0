#include "gluon/distributed/collective.h"

#include <ATen/ATen.h>

#include "gluon/check.h"
#include "gluon/distributed/backends.h"

namespace gluon {
namespace {

struct Done : Exchange {
  void wait() override {}
};

class Single : public Collective {
 public:
  std::string_view name() const override { return "single"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  ExchangePtr all_reduce(at::Tensor) override { return std::make_unique<Done>(); }
  ExchangePtr reduce(at::Tensor, int) override { return std::make_unique<Done>(); }
  ExchangePtr broadcast(at::Tensor, int) override { return std::make_unique<Done>(); }
};

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));
  return bytes;
}

}  // namespace

CollectivePtr make_collective(std::string_view backend, const Ranks& ranks) {
  ranks.validate();
  if (backend == "single") {
    GLUON_CHECK(ranks.size == 1, "collective: 'single' is for one rank, got ", ranks.size);
    return std::make_shared<Single>();
  }
  if (backend == "gloo") return make_gloo(ranks);
  if (backend == "nccl") return make_nccl(ranks);
  throw InputError(join("collective: unknown backend '", backend, "'; allowed are single, gloo, nccl"));
}

std::string broadcast_text(Collective& collective, const std::string& text, int root) {
  at::Tensor size = at::scalar_tensor(static_cast<int64_t>(text.size()), at::kLong);
  collective.broadcast(size, root)->wait();
  at::Tensor bytes =
      collective.rank() == root ? bytes_of(text) : at::empty({size.item<int64_t>()}, at::kByte);
  collective.broadcast(bytes, root)->wait();
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

void check_agreement(Collective& collective, std::string_view what, const std::string& text) {
  std::string complaint;
  for (int root = 0; root < collective.size(); ++root) {
    const std::string theirs = broadcast_text(collective, text, root);
    if (theirs == text || !complaint.empty()) continue;
    complaint = join("ranks differ in their ", what, ": rank ", root, " has '", theirs, "', rank ",
                     collective.rank(), " has '", text, "'");
  }
  at::Tensor complaints = at::scalar_tensor(complaint.empty() ? 0 : 1, at::kLong);
  collective.all_reduce(complaints)->wait();
  if (complaints.item<int64_t>() == 0) return;
  throw InputError(complaint.empty() ? join("ranks differ in their ", what) : complaint);
}

}  // namespace gluon

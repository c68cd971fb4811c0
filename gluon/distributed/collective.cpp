#include "gluon/distributed/collective.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gluon/core/check.h"
#include "gluon/distributed/rendezvous.h"

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

using Parts = std::map<std::string, std::string>;

std::string packed(const Parts& parts) {
  std::string bytes;
  nlohmann::json::to_cbor(parts, bytes);
  return bytes;
}

Parts unpacked(const std::string& bytes) { return nlohmann::json::from_cbor(bytes); }

// The part of a long text around its first difference.
std::string excerpt(const std::string& text, std::size_t difference) {
  constexpr std::size_t kBefore = 20, kLength = 100;
  if (text.size() <= kLength) return text;
  const std::size_t begin = difference > kBefore ? difference - kBefore : 0;
  return join(begin > 0 ? "..." : "", text.substr(begin, kLength), begin + kLength < text.size() ? "..." : "");
}

std::string describe_difference(Parts first, Parts theirs, int rank) {
  for (const auto& [name, value] : theirs) first.try_emplace(name, "nothing");
  for (const auto& [name, value] : first) {
    const std::string& other = theirs.try_emplace(name, "nothing").first->second;
    if (value == other) continue;
    const auto place = std::mismatch(value.begin(), value.end(), other.begin(), other.end()).first - value.begin();
    const auto difference = static_cast<std::size_t>(place);
    return join("ranks differ in their ", name, ": rank 0 has '", excerpt(value, difference), "', rank ", rank,
                " has '", excerpt(other, difference), "'");
  }
  return join("rank ", rank, " differs from rank 0");
}

}  // namespace

CollectivePtr make_collective(std::string_view backend, const Ranks& ranks) {
  return make_collective(backend, ranks, Rendezvous());
}

CollectivePtr make_collective(std::string_view backend, const Ranks& ranks, const Rendezvous& rendezvous) {
  ranks.validate();
  if (backend == "single") {
    GLUON_CHECK(ranks.size == 1, "collective: 'single' is for one rank, got ", ranks.size);
    return std::make_shared<Single>();
  }
  if (backend == "gloo") return make_gloo(ranks, rendezvous);
  if (backend == "nccl") return make_nccl(ranks, rendezvous);
  throw InputError(join("collective: unknown backend '", backend, "'; allowed are single, gloo, nccl"));
}

std::vector<double> sum(Collective& collective, const std::vector<double>& numbers) {
  at::Tensor tensor = at::tensor(numbers, at::kDouble);
  collective.all_reduce(tensor)->wait();
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

std::vector<double> gather(Collective& collective, const std::vector<double>& numbers) {
  std::vector<double> counts(static_cast<std::size_t>(collective.size()), 0), all;
  counts[static_cast<std::size_t>(collective.rank())] = static_cast<double>(numbers.size());
  for (int root = 0; const double count : sum(collective, counts)) {
    at::Tensor theirs = root == collective.rank() ? at::tensor(numbers, at::kDouble)
                                                  : at::empty({static_cast<int64_t>(count)}, at::kDouble);
    if (count > 0) collective.broadcast(theirs, root)->wait();
    all.insert(all.end(), theirs.data_ptr<double>(), theirs.data_ptr<double>() + theirs.numel());
    ++root;
  }
  return all;
}

std::string broadcast_text(Collective& collective, const std::string& text, int root) {
  at::Tensor size = at::scalar_tensor(static_cast<int64_t>(text.size()), at::kLong);
  collective.broadcast(size, root)->wait();
  at::Tensor bytes = collective.rank() == root ? bytes_of(text) : at::empty({size.item<int64_t>()}, at::kByte);
  collective.broadcast(bytes, root)->wait();
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

void check_agreement(Collective& collective, const std::map<std::string, std::string>& parts) {
  const std::string text = packed(parts);
  const std::string first = broadcast_text(collective, text, 0);
  at::Tensor differ = at::zeros({collective.size()}, at::kLong);
  if (first != text) differ[collective.rank()] = 1;
  collective.all_reduce(differ)->wait();
  const at::Tensor ranks = differ.nonzero();
  if (ranks.size(0) == 0) return;
  const int other = ranks[0].item<int>();
  throw InputError(describe_difference(unpacked(first), unpacked(broadcast_text(collective, text, other)), other));
}

}  // namespace gluon

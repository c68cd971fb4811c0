#include "gluon/distributed/ranks.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>

#include "gluon/core/check.h"

namespace gluon {
namespace {

struct Setting {
  const char* name;
  std::string_view value;
};

// The first of these variables that is set and not empty.
std::optional<Setting> first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return Setting{name, value};
  }
  return {};
}

int number(const Setting& setting) {
  int value = 0;
  const char* end = setting.value.data() + setting.value.size();
  const auto [stop, error] = std::from_chars(setting.value.data(), end, value);
  GLUON_CHECK(error == std::errc() && stop == end, "environment: ", setting.name, " must be a whole number, got '",
              setting.value, "'");
  return value;
}

// The variables of one launcher. They are never mixed: one launcher may have started another.
struct Launcher {
  const char* rank;
  const char* size;
  const char* local;
  bool given = false;
};

const Launcher* find_launcher() {
  static constexpr Launcher kLaunchers[] = {
      {"RANK", "WORLD_SIZE", "LOCAL_RANK", true},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
      // Batch scripts have SLURM_PROCID, too, although they are one process.
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};
  for (const Launcher& launcher : kLaunchers) {
    const bool slurm = &launcher == std::end(kLaunchers) - 1;
    if (first_set({launcher.size}) || (!slurm && first_set({launcher.rank}))) return &launcher;
  }
  return nullptr;
}

// As far as the launcher's variables say.
bool on_several_machines(int size) {
  const auto here = first_set({"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  if (here) return number(*here) < size;
  const auto machines = first_set({"SLURM_STEP_NUM_NODES"});
  return machines && number(*machines) > 1;
}

// torchrun's own store survives when it restarts the ranks, with the keys of the ranks before.
std::string torchrun_store_prefix() {
  const auto serves = first_set({"TORCHELASTIC_USE_AGENT_STORE"});
  if (!serves || serves->value != "True") return {};
  const auto restarts = first_set({"TORCHELASTIC_RESTART_COUNT"});
  return join("gluon/", restarts ? restarts->value : "0");
}

}  // namespace

Ranks Ranks::from_environment() {
  Ranks ranks;
  const Launcher* const launcher = find_launcher();
  if (launcher == nullptr) return ranks;
  const auto rank = first_set({launcher->rank}), size = first_set({launcher->size}),
             local = first_set({launcher->local});
  GLUON_CHECK(rank && size, "environment: ", rank ? launcher->rank : launcher->size, " is set, ",
              rank ? launcher->size : launcher->rank, " is not: ranks need both");
  ranks.given = launcher->given;
  ranks.rank = number(*rank);
  ranks.size = number(*size);
  ranks.local_rank = local ? number(*local) : ranks.rank;
  if (const auto address = first_set({"MASTER_ADDR"})) {
    ranks.master_address = address->value;
  } else {
    GLUON_CHECK(!on_several_machines(ranks.size),
                "environment: MASTER_ADDR is not set: ranks on several machines need the address of rank 0");
  }
  if (const auto port = first_set({"MASTER_PORT"})) {
    const int value = number(*port);
    GLUON_CHECK(value > 0 && value < 65536, "environment: MASTER_PORT must be in 1..65535, got ", value);
    ranks.master_port = static_cast<uint16_t>(value);
  }
  if (const auto secret = first_set({"GLUON_SECRET"})) ranks.secret = secret->value;
  if (launcher->given) ranks.store_prefix = torchrun_store_prefix();
  ranks.validate();
  return ranks;
}

void Ranks::validate() const {
  GLUON_CHECK(size >= 1, "ranks: the size must be >= 1, got ", size);
  GLUON_CHECK(rank >= 0 && rank < size, "ranks: the rank must be in 0..", size - 1, ", got ", rank);
  GLUON_CHECK(local_rank >= 0, "ranks: the local rank must be >= 0, got ", local_rank);
  constexpr std::size_t kSecretLength = 16;
  GLUON_CHECK(secret.empty() || secret.size() >= kSecretLength, "ranks: GLUON_SECRET must have at least ",
              kSecretLength, " characters, got ", secret.size());
  GLUON_CHECK(timeout.count() > 0, "ranks: the timeout must be > 0, got ", timeout.count(), " ms");
}

}  // namespace gluon

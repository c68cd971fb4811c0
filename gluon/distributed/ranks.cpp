#include "gluon/distributed/ranks.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "gluon/check.h"

namespace gluon {
namespace {

struct Setting {
  const char* name;
  std::string_view value;
};

// The first of these variables that is set.
std::optional<Setting> first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      return Setting{name, value};
  }
  return {};
}

int number(const Setting& setting) {
  int value = 0;
  const char* end = setting.value.data() + setting.value.size();
  const auto [stop, error] = std::from_chars(setting.value.data(), end, value);
  GLUON_CHECK(error == std::errc() && stop == end, "environment: ", setting.name,
              " must be a whole number, got '", setting.value, "'");
  return value;
}

// As far as the launcher tells.
bool on_several_machines(int size) {
  const auto here = first_set({"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  if (here) return number(*here) < size;
  const auto machines = first_set({"SLURM_STEP_NUM_NODES"});
  return machines && number(*machines) > 1;
}

}  // namespace

Ranks Ranks::from_environment() {
  // SLURM_NTASKS is set in batch scripts, too, where nobody started more than one process.
  const auto rank = first_set({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"});
  const auto size = first_set({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
  const auto local =
      first_set({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
  Ranks ranks;
  if (!size && (!rank || rank->name == std::string_view("SLURM_PROCID"))) return ranks;
  GLUON_CHECK(rank && size, "environment: ", rank ? rank->name : size->name, " is set, ",
              rank ? "WORLD_SIZE" : "RANK", " is not: ranks need both");
  ranks.given = rank->name == std::string_view("RANK");
  ranks.rank = number(*rank);
  ranks.size = number(*size);
  ranks.local_rank = local ? number(*local) : ranks.rank;
  if (const auto address = first_set({"MASTER_ADDR"})) {
    ranks.master_address = address->value;
  } else {
    GLUON_CHECK(
        !on_several_machines(ranks.size),
        "environment: MASTER_ADDR is not set: ranks on several machines need the address of rank 0's");
  }
  if (const auto port = first_set({"MASTER_PORT"})) {
    const int value = number(*port);
    GLUON_CHECK(value > 0 && value < 65536, "environment: MASTER_PORT must be in 1..65535, got ", value);
    ranks.master_port = static_cast<uint16_t>(value);
  }
  ranks.validate();
  return ranks;
}

void Ranks::validate() const {
  GLUON_CHECK(size >= 1, "ranks: their number must be >= 1, got ", size);
  GLUON_CHECK(rank >= 0 && rank < size, "ranks: the rank must be in 0..", size - 1, ", got ", rank);
  GLUON_CHECK(local_rank >= 0, "ranks: the local rank must be >= 0, got ", local_rank);
  GLUON_CHECK(timeout.count() > 0, "ranks: the timeout must be > 0, got ", timeout.count(), " ms");
}

}  // namespace gluon

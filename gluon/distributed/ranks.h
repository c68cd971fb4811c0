// Ranks: which of how many processes this is, and where they meet. torchrun, mpirun and srun set it in the environment.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gluon {

struct Ranks {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // on this machine: selects the GPU
  bool given = false;  // RANK and WORLD_SIZE are set: even a single rank is then a group of its own
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 29500;
  /// Not empty: the launcher serves a store at master_port. Ranks use it with this prefix instead of serving their own.
  std::string store_prefix;
  /// What ranks must know to join. Needed when they are on several machines; on this one it may be empty.
  std::string secret;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of joining and of every exchange

  /// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and GLUON_SECRET, and what torchrun adds to them.
  /// Without RANK and WORLD_SIZE, rank and size are those of Open MPI, MPICH or srun; without any of them there is one
  /// rank. Throws InputError that names the variable.
  static Ranks from_environment();

  /// Throws InputError that names the field.
  void validate() const;
};

}  // namespace gluon

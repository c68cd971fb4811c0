// Ranks: which of how many processes this is, and where they meet; as torchrun, mpirun and srun tell it.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gluon {

struct Ranks {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // on this machine: the GPU to take
  bool given = false;  // by RANK and WORLD_SIZE: one rank then meets, too, with itself
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 29500;
  /// Not empty: the launcher has a store of its own at master_port, where rank 0 leaves the port of ours by this name.
  std::string port_key;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of every meeting and every exchange

  /// RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and what torchrun adds to them; where they are not set,
  /// what Open MPI, MPICH or srun say of rank and size; one rank without any of them. Throws InputError on values that
  /// do not fit each other, naming them.
  static Ranks from_environment();

  /// Throws InputError naming the field.
  void validate() const;
};

/// A port of the loopback that is free now, for ranks of this machine. Throws InputError when there is none.
uint16_t free_port();

}  // namespace gluon

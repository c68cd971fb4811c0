// A port for ranks of this machine.

#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gluon/core/check.h"

namespace gluon::lab {

/// A loopback port that is free now. Throws InputError when there is none.
inline uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(socket, plain, size) == 0 && ::getsockname(socket, plain, &size) == 0;
  const int error = errno;
  ::close(socket);
  GLUON_CHECK(bound, "ranks: no free port on the loopback: ", std::strerror(error));
  return ntohs(address.sin_port);
}

}  // namespace gluon::lab

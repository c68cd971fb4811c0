// RankStore: the c10d store that rank 0 serves. c10d's own TCPStore listens on all interfaces, asks nobody who he is, and
// waits for the rest of any request that has begun. Here both sides prove first that they know the run's secret:
//
//   rank 0 -> rank   "gluon-1\n", nonce a                             (16 bytes)
//   rank   -> rank 0 nonce b, HMAC(secret, "rank" a b)
//   rank 0 -> rank   HMAC(secret, "store" a b), or "!" for another secret
//   then requests    size, kind, key, value   and answers    size, whether the key was there, value
//
// Nothing is encrypted. A stranger gets a nonce, and is sent away after 5 seconds or 4 KiB.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <mutex>
#include <string>

#include "gluon/core/poll_server.h"

namespace gluon {

/// Serves the store until it is destroyed. Throws std::system_error when it cannot listen there.
std::unique_ptr<PollServer> serve_store(const std::string& host, uint16_t port, const std::string& secret);

class RankStore : public c10d::Store {
 public:
  struct Options {
    std::string host;
    uint16_t port = 0;
    std::string secret;
    std::chrono::milliseconds timeout{};           // of connecting and of every request
    std::shared_ptr<PollServer> server = nullptr;  // lives as long as this store
  };

  /// Connects, and tries again until the timeout. Throws InputError when the other side has another secret, and
  /// std::runtime_error when nobody answers, or nobody who serves a store.
  explicit RankStore(Options options);
  ~RankStore() override;

  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  c10::intrusive_ptr<c10d::Store> clone();  // overrides what later versions of c10d declare

 private:
  struct Answer {
    bool found = false;
    std::string value;
  };

  Answer request(char kind, const std::string& key, const std::string& value = {});

  Options options_;
  std::mutex mutex_;
  int socket_ = -1;
};

}  // namespace gluon

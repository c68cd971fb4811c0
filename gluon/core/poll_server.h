// PollServer: answers many TCP connections from one thread, none of which can hold up another.
//
//   accept -> receiving -> (working) -> sending -> draining -> closed
//                  \-> trusted: stays until the other side leaves
//
// Nothing blocks. A connection that is not trusted may send a bounded number of bytes within a bounded time, and when
// all places are taken the oldest of these makes room for the newest. What the bytes mean is up to the handlers, which
// run in the server's thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

namespace gluon {

class PollServer {
 public:
  using Clock = std::chrono::steady_clock;

  class Connection {
   public:
    uint64_t id() const { return id_; }
    const std::string& received() const { return received_; }
    void consume(std::size_t bytes) { received_.erase(0, bytes); }
    void send(std::shared_ptr<const std::string> bytes) { unsent_.push_back(std::move(bytes)); }
    void send(std::string bytes) { send(std::make_shared<const std::string>(std::move(bytes))); }

    /// From now on it has no deadline, no limit on its bytes, and a place of its own.
    void trust() { state_ = State::kTrusted; }
    /// Reads nothing more until finish(), which another thread brings about with PollServer::later().
    void work() { state_ = State::kWorking; }
    /// Closes it when all is sent.
    void finish() { finishing_ = true; }

    std::string note;  // for the handlers

   private:
    friend class PollServer;
    enum class State { kReceiving, kWorking, kTrusted, kSending, kDraining };

    uint64_t id_ = 0;
    int socket_ = -1;
    State state_ = State::kReceiving;
    bool finishing_ = false;
    Clock::time_point deadline_;
    std::string received_;
    std::deque<std::shared_ptr<const std::string>> unsent_;
    std::size_t sent_ = 0;  // bytes of the first of them
  };

  using Handler = std::function<void(Connection&)>;

  struct Options {
    std::string host;   // a name or an address; empty: all addresses of this machine
    uint16_t port = 0;  // 0: any free port
    std::size_t places = 1000;
    std::size_t most_bytes = 16384;                // that wait to be understood
    std::chrono::milliseconds receive_time{5000};  // for all that a connection must send to be trusted or answered
    std::chrono::milliseconds send_time{60000};    // for it to take the answer
    Handler on_open;                               // may be null
    Handler on_bytes;                              // after more was received; an exception closes the connection
  };

  /// Throws std::system_error when it cannot listen on the address.
  explicit PollServer(Options options);
  ~PollServer();
  PollServer(const PollServer&) = delete;
  PollServer& operator=(const PollServer&) = delete;

  uint16_t port() const;

  /// Calls `action` in the server's thread unless the connection is gone by then. For any thread.
  void later(uint64_t connection, Handler action);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace gluon

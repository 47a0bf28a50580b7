// Memory of this process, lent to the store's ordinary objects: a node without a program of its
// own.
//
//   start   folder, node, Unix socket (clients of this host), TCP (of others), agent;
//           returns once the Master knows the node
//   end     agent, servers, node, folder; the memory goes, and with it the objects whose only
//           replica was here
//
// The folder is a temporary one: nothing of a lender outlives it. Threads: Start and the destructor
// from one thread; the lender has its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace mooncake::cluster {

struct MemoryLenderOptions {
  std::string master_address;  // host:port
  std::string node_id;         // what placements name it by
  uint64_t capacity_bytes = 0;
  // host:port to serve clients of other hosts on, port 0 being assigned by the system, and the host
  // that they are told where it is not that one; empty: they are not served.
  std::string listen = {};
  std::string advertise = {};
  int64_t register_timeout_ms = 10'000;
};

class MemoryLender {
 public:
  // UNAVAILABLE: no Master answers there in time. INVALID_ARGUMENT: the Master refuses the node.
  static Result<std::unique_ptr<MemoryLender>> Start(const MemoryLenderOptions& options);
  ~MemoryLender();
  MemoryLender(const MemoryLender&) = delete;
  MemoryLender& operator=(const MemoryLender&) = delete;

  const std::string& node_id() const;

 private:
  class Body;
  explicit MemoryLender(std::unique_ptr<Body> body);
  const std::unique_ptr<Body> body_;
};

}  // namespace mooncake::cluster

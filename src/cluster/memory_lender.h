// Memory of this process, lent to the store's ordinary objects: a node without a program of its
// own.
//
//   start   folder, node, Unix socket (clients of this host), TCP (of others), agent;
//           returns once the Master knows the node
//   end     agent; the Master is told; servers, node, folder; the memory goes, and with it the
//           objects whose only replica was here
//
// The folder is a temporary one: nothing of a lender outlives it. Threads: Start and the destructor
// from one thread; the lender has its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "rpc/credentials.h"

namespace mooncake::cluster {

struct MemoryLenderOptions {
  std::string master_address;  // host:port
  std::string node_id;         // what placements name it by
  uint64_t capacity_bytes = 0;
  // The name or address by which clients of other hosts reach this one: they are served over TCP
  // (rpc/node_server.h says what that protects). Empty: clients of this host alone.
  std::string tcp_host;
  int64_t register_timeout_ms = 10'000;
  // A node's: it holds bytes of every tenant. What is not given comes from the environment.
  rpc::CredentialSource credentials;
};

class MemoryLender {
 public:
  // UNAVAILABLE: no Master answers there in time. INVALID_ARGUMENT: the Master refuses the node.
  // PERMISSION_DENIED: it refuses the token.
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

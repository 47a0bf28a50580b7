// What TCP says of an address, for libraries that bind and connect by themselves and do not tell.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "env/deadline.h"
#include "env/unique_fd.h"

namespace mooncake::env {

// Binds and lets go again. UNAVAILABLE with the cause ("Address already in use") when that fails.
// `host` may be a name, or an IPv6 address in brackets; `port` is a number as text.
Status ProbeTcpListen(const std::string& host, const std::string& port);

// One connection, for a few small messages. No call on it outlasts the deadline it was made with.
class TcpProbe {
 public:
  // UNAVAILABLE with the cause.
  static Result<TcpProbe> Connect(const std::string& host, const std::string& port,
                                  Deadline deadline);

  Status Send(std::string_view bytes);
  // What has come next; empty: the other side closed the connection. UNAVAILABLE: nothing in time.
  Result<std::string> Receive();

 private:
  TcpProbe(UniqueFd fd, Deadline deadline) : fd_(std::move(fd)), deadline_(deadline) {}

  UniqueFd fd_;
  Deadline deadline_;
};

}  // namespace mooncake::env

// Wakes every blocking call that watches it, once and for good: how a server stops its threads.
//
// Threads: Interrupt may be called from any thread, any number of times (it is also safe in a
// signal handler). The Interrupter must outlive the sockets that watch it.
#pragma once

#include "base/status.h"
#include "env/unique_fd.h"

namespace mooncake::env {

class Interrupter {
 public:
  static Result<Interrupter> Create();

  void Interrupt() const;
  bool interrupted() const;
  // Readable for ever once interrupted.
  int fd() const { return fd_.get(); }

 private:
  explicit Interrupter(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace mooncake::env

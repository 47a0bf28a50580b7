// The ids of a client's commands: one sequence number each, and below which every outcome was seen.
//
// Threads: every method from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "env/sync.h"
#include "mooncake/v1/master.pb.h"

namespace mooncake::client {

class CommandIds {
 public:
  explicit CommandIds(std::string client_id) : client_id_(std::move(client_id)) {}

  // One command in flight: its outcome counts as seen when this is destroyed.
  class Command {
   public:
    Command(CommandIds* ids, v1::CommandId id) : ids_(ids), id_(std::move(id)) {}
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;
    ~Command() { ids_->Finish(id_.sequence()); }
    const v1::CommandId& id() const { return id_; }

   private:
    CommandIds* ids_;
    v1::CommandId id_;
  };

  Command Begin() {
    std::lock_guard lock(mutex_);
    v1::CommandId id;
    id.set_client_id(client_id_);
    id.set_sequence(next_);
    open_.insert(next_++);
    id.set_acked_below(*open_.begin());
    return Command(this, std::move(id));
  }

  const std::string& client_id() const { return client_id_; }

 private:
  void Finish(uint64_t sequence) {
    std::lock_guard lock(mutex_);
    open_.erase(sequence);
  }

  const std::string client_id_;
  env::Mutex mutex_;
  uint64_t next_ = 1;
  std::set<uint64_t> open_;
};

}  // namespace mooncake::client

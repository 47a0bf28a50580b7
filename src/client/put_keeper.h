// Tells the Master that this client lives, while it has puts that take long.
//
// A put whose client has been silent for 30 s is given up by the Master. Nothing is sent for puts
// that end within a third of that, so that a put costs no call of its own.
//
// Threads: every method from any thread. Holds must end before the keeper does.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "env/sync.h"
#include "rpc/master_api.h"

namespace mooncake::client {

// How long the Master bears with a silent client (put_start_discard_timeout_sec of the ordinary
// Store's face).
inline constexpr int64_t kPutSilenceMs = 30'000;

class PutKeeper {
 public:
  PutKeeper(std::shared_ptr<rpc::MasterApi> master, std::string client_id,
            int64_t interval_ms = kPutSilenceMs / 3);
  ~PutKeeper();
  PutKeeper(const PutKeeper&) = delete;
  PutKeeper& operator=(const PutKeeper&) = delete;

  // From just before a put starts until it is ended or revoked.
  class Hold {
   public:
    explicit Hold(PutKeeper& keeper) : keeper_(keeper), begun_(keeper.Begin()) {}
    ~Hold() { keeper_.End(begun_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    PutKeeper& keeper_;
    const std::multiset<int64_t>::iterator begun_;
  };

 private:
  std::multiset<int64_t>::iterator Begin();
  void End(std::multiset<int64_t>::iterator begun);
  void Run();

  const std::shared_ptr<rpc::MasterApi> master_;
  const std::string client_id_;
  const int64_t interval_ms_;

  env::Mutex mutex_;
  env::CondVar changed_;
  std::multiset<int64_t> begun_ms_;  // of the puts that are under way
  bool stopping_ = false;
  env::Thread thread_;
};

}  // namespace mooncake::client

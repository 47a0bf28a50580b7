// CommandTable: the one outcome of every command, by client and sequence, so that a retry gets the
// first answer.
//
// Part of the replicated state: changed only by Apply and Forget, equally when live and in replay.
// An outcome is forgotten when its client says that it has seen it (acked_below), or a day of
// logged time after it was decided. Single-threaded (the sequencer owns it).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/digest.h"
#include "base/status.h"
#include "model/state_digest.h"

namespace mooncake::master {

struct CommandOutcome {
  std::string client_id;
  uint64_t sequence = 0;
  uint64_t acked_below = 0;
  Sha256Digest request_sha256{};
  std::string reply;  // the serialized reply, its status included
};

class CommandTable {
 public:
  static constexpr int64_t kForgetAfterMs = 24ll * 3600 * 1000;
  // Unacknowledged outcomes that one client may leave here.
  static constexpr size_t kOutcomesPerClientMax = 4096;

  // The reply given before; nullptr: a new command, to be decided. INVALID_ARGUMENT: the id was
  // used for another request, or its outcome was acknowledged and forgotten. EXHAUSTED: the client
  // acknowledges nothing (`acked_below` is what this request acknowledges).
  Result<const std::string*> Find(std::string_view client_id, uint64_t sequence,
                                  uint64_t acked_below, const Sha256Digest& request_sha256) const;

  // CORRUPT (and nothing changes): the id has an outcome already.
  [[nodiscard]] Status Apply(CommandOutcome outcome, int64_t logged_ms);

  // Clients whose last command is older than kForgetAfterMs go.
  void Forget(int64_t logged_ms);

  // The records of a snapshot's section "commands", and back: one a client. CORRUPT: the record is
  // none, or its client is there already.
  void SaveSnapshot(const std::function<void(std::string_view)>& add) const;
  Status LoadSnapshot(std::string_view record);

  size_t outcome_count() const { return outcome_count_; }
  void AddTo(model::StateDigest* digest) const;

 private:
  struct Outcome {
    int64_t logged_ms = 0;
    Sha256Digest request_sha256{};
    std::string reply;
  };
  struct Client {
    uint64_t acked_below = 0;
    int64_t last_ms = 0;  // of its last command
    std::map<uint64_t, Outcome> outcomes;
  };

  // Takes the first outcomes away while they are below `sequence` or older than `before_ms`.
  void ForgetOutcomes(Client& client, uint64_t sequence, int64_t before_ms);

  std::map<std::string, Client, std::less<>> clients_;
  std::set<std::pair<int64_t, std::string>> by_last_ms_;
  size_t outcome_count_ = 0;
};

}  // namespace mooncake::master

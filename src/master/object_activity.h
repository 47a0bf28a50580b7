// ObjectActivity: what the Master knows of ordinary objects besides what is logged: who writes now,
// what was counted, chance. Volatile: after a restart it begins anew.
//
// Never decides anything. Times are the logged clock's. Single-threaded (the sequencer owns it).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "model/identity.h"

namespace mooncake::master {

struct TenantCounters {
  uint64_t puts = 0;
  uint64_t lookups = 0;
  uint64_t lookups_found = 0;
  uint64_t evicted_objects = 0;
  uint64_t evicted_bytes = 0;
  uint64_t refused_puts = 0;
  uint64_t managed_skipped = 0;
};

class ObjectActivity {
 public:
  // Serving began: whoever writes gets a full time of grace, leases from before are honoured for
  // one lease's length.
  void Begin(int64_t now_ms, int64_t lease_ms, model::ObjectId first_id) {
    *this = ObjectActivity();
    began_ms_ = now_ms;
    first_id_ = first_id;
    grace_until_ms_ = now_ms + lease_ms;
  }
  int64_t began_ms() const { return began_ms_; }
  // Of the objects that are put from now on.
  model::ObjectId first_id() const { return first_id_; }
  int64_t grace_until_ms() const { return grace_until_ms_; }

  void Heard(const std::string& client_id, int64_t now_ms) { heard_ms_[client_id] = now_ms; }
  // How long the client has been silent; since the beginning when it was never heard.
  int64_t SilentMs(const std::string& client_id, int64_t now_ms) const {
    const auto at = heard_ms_.find(client_id);
    return now_ms - (at == heard_ms_.end() ? began_ms_ : at->second);
  }
  // Clients that were last heard before then write nothing any more.
  void ForgetSilent(int64_t before_ms) {
    std::erase_if(heard_ms_, [before_ms](const auto& entry) { return entry.second < before_ms; });
  }

  TenantCounters& counters(std::string_view tenant_id) {
    const auto at = counters_.find(tenant_id);
    return at != counters_.end() ? at->second : counters_[std::string(tenant_id)];
  }

  // Of a slab that is empty: since when it was seen so.
  int64_t EmptySince(model::ArenaId slab_id, int64_t now_ms) {
    return empty_since_ms_.try_emplace(slab_id, now_ms).first->second;
  }
  void NotEmpty(model::ArenaId slab_id) { empty_since_ms_.erase(slab_id); }

  // A number below `bound`, which is not 0 (xorshift64*; for choosing samples, nothing else).
  uint64_t Roll(uint64_t bound) {
    dice_ ^= dice_ >> 12;
    dice_ ^= dice_ << 25;
    dice_ ^= dice_ >> 27;
    return dice_ * 0x2545f4914f6cdd1dull % bound;
  }

  // Whether it is time again for what is done every so often.
  bool Due(int64_t now_ms, int64_t every_ms) {
    if (now_ms < next_round_ms_) return false;
    next_round_ms_ = now_ms + every_ms;
    return true;
  }

 private:
  int64_t began_ms_ = 0;
  model::ObjectId first_id_;
  int64_t grace_until_ms_ = 0;
  int64_t next_round_ms_ = 0;
  uint64_t dice_ = 0x9e3779b97f4a7c15ull;
  std::map<std::string, int64_t, std::less<>> heard_ms_;
  std::map<std::string, TenantCounters, std::less<>> counters_;
  std::map<model::ArenaId, int64_t> empty_since_ms_;
};

}  // namespace mooncake::master

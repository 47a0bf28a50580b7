#include "client/session.h"

#include <algorithm>

#include "env/clock.h"
#include "env/sync.h"

namespace mooncake::client {
namespace {

constexpr int64_t kPauseMsMin = 10;
constexpr int64_t kPauseMsMax = 500;
// A log that cannot be written rarely heals; the Master has tried already.
constexpr int kDurabilityAttempts = 3;

}  // namespace

Status Repeat(const CallLimits& limits, const std::function<Status()>& attempt) {
  const env::Clock& clock = env::SystemClock::Instance();
  const int64_t deadline_ms = clock.MonotonicMs() + limits.retry_ms;
  int64_t pause_ms = kPauseMsMin;
  int durability_failures = 0;
  while (true) {
    if (limits.cancel.stop_requested()) return Cancelled("cancelled by the caller");
    Status status = attempt();
    if (status.code() == Code::kDurabilityFailed) {
      if (++durability_failures >= kDurabilityAttempts) return status;
    } else if (status.code() != Code::kUnavailable && status.code() != Code::kOutcomeUnknown) {
      return status;
    }
    const int64_t left_ms = deadline_ms - clock.MonotonicMs();
    if (left_ms <= 0) return status;
    if (!env::PauseMs(std::min(pause_ms, left_ms), limits.cancel)) return status;
    pause_ms = std::min(pause_ms * 2, kPauseMsMax);
  }
}

Result<std::shared_ptr<rpc::NodeChannel>> NodeChannels::Get(const v1::NodeAddress& address,
                                                            const rpc::CallBounds& bounds) {
  {
    std::lock_guard lock(mutex_);
    const auto found = by_node_id_.find(address.node_id());
    if (found != by_node_id_.end() && found->second.instance_id == address.instance_id()) {
      return found->second.channel;
    }
  }
  // Outside the lock: a node that does not answer holds up nobody else.
  MC_ASSIGN_OR_RETURN(std::shared_ptr<rpc::NodeChannel> channel,
                      connector_->Connect(address, bounds));
  std::lock_guard lock(mutex_);
  by_node_id_[address.node_id()] = Entry{address.instance_id(), channel};
  return channel;
}

}  // namespace mooncake::client

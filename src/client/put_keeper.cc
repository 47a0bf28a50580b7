#include "client/put_keeper.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "env/clock.h"
#include "rpc/status_proto.h"

namespace mooncake::client {
namespace {

// A Master that cannot be reached is asked again this soon.
constexpr int64_t kAgainMs = 500;

int64_t NowMs() { return env::SystemClock::Instance().MonotonicMs(); }

}  // namespace

PutKeeper::PutKeeper(std::shared_ptr<rpc::MasterApi> master, std::string client_id,
                     int64_t interval_ms)
    : master_(std::move(master)),
      client_id_(std::move(client_id)),
      interval_ms_(interval_ms),
      thread_([this] { Run(); }) {}

PutKeeper::~PutKeeper() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::multiset<int64_t>::iterator PutKeeper::Begin() {
  std::lock_guard lock(mutex_);
  // The thread sleeps for as long as there is nothing.
  if (begun_ms_.empty()) changed_.notify_all();
  return begun_ms_.insert(NowMs());
}

void PutKeeper::End(std::multiset<int64_t>::iterator begun) {
  std::lock_guard lock(mutex_);
  begun_ms_.erase(begun);
}

void PutKeeper::Run() {
  v1::KeepPutsRequest request;
  request.set_client_id(client_id_);
  std::unique_lock lock(mutex_);
  int64_t next_ms = 0;
  while (!stopping_) {
    if (begun_ms_.empty()) {
      changed_.wait(lock);
      continue;
    }
    // Woken at the latest when the oldest put has gone on for one interval.
    const int64_t due_ms = std::max(*begun_ms_.begin() + interval_ms_, next_ms);
    if (const int64_t now_ms = NowMs(); now_ms < due_ms) {
      changed_.wait_for(lock, std::chrono::milliseconds(due_ms - now_ms));
      continue;
    }
    lock.unlock();
    const Status status = rpc::StatusFromProto(master_->KeepPuts(request).status());
    if (!status.ok()) Log().warn("client {}: keeping puts: {}", client_id_, status.ToString());
    lock.lock();
    next_ms = NowMs() + (status.ok() ? interval_ms_ : std::min(kAgainMs, interval_ms_));
  }
}

}  // namespace mooncake::client

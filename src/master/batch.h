// Batch: the events of one record of the log, applied to the live state as they are decided.
//
// Nothing that a batch did may be told to anybody before its record is durable, but for relaxed
// events (of ordinary objects): a batch of those alone may be told at once and written a little
// later. When writing fails, the state that it touched is dropped and read from the log again.
// Single-threaded (the sequencer makes one at a time).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "master/replicated_state.h"
#include "mooncake/v1/log.pb.h"
#include "weights/deadlines.h"

namespace mooncake::master {

class Batch {
 public:
  // Everything in the batch happens at `now_ms` of the logged clock.
  Batch(ReplicatedState& state, weights::Deadlines& deadlines, int64_t now_ms)
      : state_(state), deadlines_(deadlines), now_ms_(now_ms) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  int64_t now_ms() const { return now_ms_; }

  void Emit(const objects::Event& event);
  void Emit(const weights::Event& event);
  void Emit(const pool::Event& event);
  // Whoever asked for it gives up durability for speed.
  void EmitRelaxed(const pool::Event& event);
  void Emit(CommandOutcome outcome);
  template <class Event>
  void Emit(const std::vector<Event>& events) {
    for (const Event& event : events) Emit(event);
  }

  bool empty() const { return log_.events_size() == 0; }
  // Something in it must not be told before it is durable.
  bool must_be_durable() const { return must_be_durable_; }
  size_t bytes() const { return bytes_; }
  // An event did not fit the state: a fault of the program. The batch must not be logged.
  const Status& failure() const { return failure_; }

  // The record's payload.
  std::string Serialize() const { return log_.SerializeAsString(); }

 private:
  void Begin();
  void Add(v1::LogEvent event, const Status& applied);

  ReplicatedState& state_;
  weights::Deadlines& deadlines_;
  const int64_t now_ms_;
  v1::LogBatch log_;
  size_t bytes_ = 0;
  bool must_be_durable_ = false;
  Status failure_;
};

}  // namespace mooncake::master

#include "master/batch.h"

#include <fmt/format.h>

#include <utility>

#include "objects/event_codec.h"
#include "pool/event_codec.h"
#include "weights/event_codec.h"

namespace mooncake::master {

void Batch::Emit(const objects::Event& event) {
  Begin();
  must_be_durable_ = true;
  Add(objects::EncodeEvent(event), state_.objects.Apply(event));
}

void Batch::Emit(const weights::Event& event) {
  Begin();
  must_be_durable_ = true;
  Add(weights::EncodeEvent(event), state_.weights.Apply(event, now_ms_));
  if (failure_.ok()) deadlines_.Observe(state_.weights, event, now_ms_);
}

void Batch::Emit(const pool::Event& event) {
  EmitRelaxed(event);
  must_be_durable_ = true;
}

void Batch::EmitRelaxed(const pool::Event& event) {
  Begin();
  Add(pool::EncodeEvent(event), state_.pool.Apply(event, now_ms_));
}

void Batch::Emit(CommandOutcome outcome) {
  Begin();
  must_be_durable_ = true;
  v1::LogEvent logged = EncodeOutcome(outcome);
  Add(std::move(logged), state_.commands.Apply(std::move(outcome), now_ms_));
}

void Batch::Begin() {
  if (!empty()) return;
  log_.set_time_ms(now_ms_);
  // Replay begins every record so.
  state_.commands.Forget(now_ms_);
}

void Batch::Add(v1::LogEvent event, const Status& applied) {
  if (!applied.ok() && failure_.ok()) {
    failure_ = Internal(fmt::format("an event of kind {} was decided that does not fit: {}",
                                    event.kind(), applied.ToString()));
  }
  bytes_ += event.body().size();
  *log_.add_events() = std::move(event);
}

}  // namespace mooncake::master

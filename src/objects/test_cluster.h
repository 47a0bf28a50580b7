// For this folder's tests: a catalogue that logs what it applies, checks its invariants after every
// event, and can be compared with a replay of its encoded log.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "objects/catalog.h"
#include "objects/event_codec.h"
#include "objects/reconcile.h"
#include "objects/reservation.h"

namespace mooncake::objects {

class TestCluster {
 public:
  const Catalog& catalog() const { return catalog_; }

  void Apply(const Event& event) {
    const Status status = catalog_.Apply(event);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const Status invariants = catalog_.CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants.ToString();
    log_.push_back(EncodeEvent(event));
  }
  void Apply(const std::vector<Event>& events) {
    for (const Event& event : events) Apply(event);
  }

  // The event must be refused as CORRUPT, and the state must stay.
  void ExpectCorrupt(const Event& event) {
    const Sha256Digest before = catalog_.Digest();
    const Status status = catalog_.Apply(event);
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.ToString();
    EXPECT_EQ(catalog_.Digest(), before) << status.ToString();
  }

  // What a restarted Master would have.
  void ExpectReplayEqual() const {
    Catalog replayed;
    for (const v1::LogEvent& logged : log_) {
      const auto event = DecodeEvent(logged);
      ASSERT_TRUE(event.ok()) << event.status().ToString();
      const Status status = replayed.Apply(*event);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    EXPECT_EQ(replayed.Digest(), catalog_.Digest());
    EXPECT_EQ(replayed.next_arena_id(), catalog_.next_arena_id());
  }

  void Join(const std::string& node, uint64_t capacity, const std::string& instance = "i1",
            const std::string& host = "h", bool durable = false) {
    const auto events =
        DecideNodeJoin(catalog_, {node, instance, host, "/run/" + node}, capacity, durable);
    ASSERT_TRUE(events.ok()) << events.status().ToString();
    Apply(*events);
  }

  std::set<std::string> AllNodes() const {
    std::set<std::string> ids;
    for (const Node& node : catalog_.nodes()) ids.insert(node.address.node_id);
    return ids;
  }

  Result<std::vector<Event>> Plan(ImportId id,
                                  const std::vector<model::PlannedParticipant>& participants,
                                  const std::string& host = "") const {
    return PlanReservation(catalog_, {id, &participants, host, AllNodes()});
  }

  void Reserve(ImportId id, const std::vector<model::PlannedParticipant>& participants) {
    const auto events = Plan(id, participants);
    ASSERT_TRUE(events.ok()) << events.status().ToString();
    Apply(*events);
  }

 private:
  Catalog catalog_;
  std::vector<v1::LogEvent> log_;
};

}  // namespace mooncake::objects

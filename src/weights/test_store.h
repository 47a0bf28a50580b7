// For this folder's tests: a catalogue that logs what it applies, checks its invariants after every
// event, and can be compared with a replay of its encoded log; and shorthands for the usual
// commands.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "weights/catalog.h"
#include "weights/decide.h"
#include "weights/event_codec.h"

namespace mooncake::weights {

inline model::WeightIdentity IdentityOf(const std::string& resource, uint64_t generation = 1) {
  return {"default", "rl", resource, "r1", model::WeightGeneration(generation)};
}

inline model::MetadataObject DigestsOf(const std::string& participant, const std::string& content,
                                       const std::string& node = "n1") {
  return {model::DigestsName(participant), 100, Sha256Of(content), node};
}

class TestStore {
 public:
  const Catalog& catalog() const { return catalog_; }
  int64_t now_ms = 1000;

  void Apply(const Event& event) {
    const Status status = catalog_.Apply(event, now_ms);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const Status invariants = catalog_.CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants.ToString();
    log_.emplace_back(now_ms, EncodeEvent(event));
  }
  void Apply(const std::vector<Event>& events) {
    for (const Event& event : events) Apply(event);
  }

  void ExpectCorrupt(const Event& event) {
    const Sha256Digest before = catalog_.Digest();
    const Status status = catalog_.Apply(event, now_ms);
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.ToString();
    EXPECT_EQ(catalog_.Digest(), before) << status.ToString();
  }

  void ExpectReplayEqual() const {
    Catalog replayed;
    for (const auto& [logged_ms, logged] : log_) {
      const auto event = DecodeEvent(logged);
      ASSERT_TRUE(event.ok()) << event.status().ToString();
      const Status status = replayed.Apply(*event, logged_ms);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    EXPECT_EQ(replayed.Digest(), catalog_.Digest());
    EXPECT_EQ(replayed.next_import_id(), catalog_.next_import_id());
    EXPECT_EQ(replayed.next_lease_id(), catalog_.next_lease_id());
    EXPECT_TRUE(replayed.CheckInvariants().ok());
  }

  BeginFacts begin_facts{{model::Residency::kMixed, 0.5, model::MigrationMode::kAuto},
                         false,
                         "2026-08-01T00:00:00Z",
                         {"n1", "n2"}};

  BeginImport BeginCommand(const model::WeightIdentity& identity, const std::string& client,
                           std::vector<std::string> claim, const std::string& plan = "plan") const {
    BeginImport command;
    command.client_id = client;
    command.identity = identity;
    command.placement_id = "sha256:placement";
    command.plan_sha256 = Sha256Of(plan);
    command.participants = {"p0", "p1"};
    command.claim = std::move(claim);
    command.ttl_ms = 10'000;
    return command;
  }

  Result<BeginDecision> Begin(const BeginImport& command) {
    auto decision = DecideBeginImport(catalog_, command, begin_facts);
    if (decision.ok()) Apply(decision->events);
    return decision;
  }

  Result<ReceiptDecision> Receipt(const SubmitReceipt& command) {
    auto decision = DecideReceipt(catalog_, command);
    if (decision.ok()) Apply(decision->events);
    return decision;
  }

  // What a well-behaved publisher says, and what the object catalogue says of it.
  static CommitImport CommitCommand(ImportId id) {
    CommitImport command;
    command.import_id = id;
    command.manifest = {"manifest", 500, Sha256Of("manifest"), "n1"};
    command.affinity = {"affinity", 60, Sha256Of("affinity"), "n2"};
    command.payload_count = 3;
    command.logical_payload_bytes = 4096;
    command.payload_keys_sha256 = Sha256Of("keys");
    command.affinity_count = 2;
    return command;
  }
  static CommitFacts GoodFacts() {
    CommitFacts facts;
    facts.group = {3, 4096, Sha256Of("keys"), 2, 60, Sha256Of("affinity")};
    return facts;
  }

  Status Commit(const CommitImport& command, const CommitFacts& facts = GoodFacts()) {
    auto events = DecideCommit(catalog_, command, facts);
    if (!events.ok()) return events.status();
    Apply(*events);
    return OkStatus();
  }

  // The whole way to READY by one client.
  ImportId Publish(const model::WeightIdentity& identity, const std::string& client = "c1") {
    const auto begun = Begin(BeginCommand(identity, client, {"p0", "p1"}));
    EXPECT_TRUE(begun.ok()) << begun.status().ToString();
    for (const char* participant : {"p0", "p1"}) {
      EXPECT_TRUE(Receipt({client, begun->import_id, participant,
                           DigestsOf(participant, participant), false})
                      .ok());
    }
    const Status committed = Commit(CommitCommand(begun->import_id));
    EXPECT_TRUE(committed.ok()) << committed.ToString();
    return begun->import_id;
  }

  LeaseId Open(const model::WeightIdentity& identity, const std::string& holder = "host:1") {
    const auto decision = DecideOpen(catalog_, {identity, 5000, holder});
    EXPECT_TRUE(decision.ok()) << decision.status().ToString();
    Apply(decision->events);
    return decision->lease_id;
  }

  model::RevisionMetadata Metadata(const model::WeightIdentity& identity) const {
    return catalog_.MetadataOf(*catalog_.Find(identity));
  }

 private:
  Catalog catalog_;
  std::vector<std::pair<int64_t, v1::LogEvent>> log_;
};

}  // namespace mooncake::weights

// Random histories of commands, checked against a small oracle of what users may see; live state
// equals the replay of its encoded log; the catalogue's invariants hold after every event.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "weights/deadlines.h"
#include "weights/test_store.h"

namespace mooncake::weights {
namespace {

using model::Availability;

class RandomHistory {
 public:
  explicit RandomHistory(uint64_t seed) : rng_(seed) {}

  void Step() {
    store_.now_ms += static_cast<int64_t>(Below(200));
    switch (Below(13)) {
      case 0:
      case 1:
        Begin();
        break;
      case 2:
      case 3:
        Receipt();
        break;
      case 4:
        Commit();
        break;
      case 5:
        Abort();
        break;
      case 6:
        Open();
        break;
      case 7:
        Release();
        break;
      case 8:
        Members();
        break;
      case 9:
        Remove();
        break;
      case 10:
        GroupEmpty();
        break;
      case 11:
        Expire();
        break;
      case 12:
        Restart();
        break;
    }
    CheckSeen();
  }

  void ExpectReplayEqual() const { store_.ExpectReplayEqual(); }

  // That the histories reach every state at all.
  std::set<Availability> reached;
  uint64_t conflicts = 0;

 private:
  // What was acknowledged of an identity: once READY, its content never changes and it never
  // vanishes without a tombstone.
  struct Published {
    Sha256Digest root;
    bool removed = false;
  };

  uint64_t Below(uint64_t n) { return rng_() % n; }
  model::WeightIdentity PickIdentity() { return IdentityOf("m" + std::to_string(Below(4))); }
  std::string PickClient() { return "c" + std::to_string(Below(3)); }
  std::string PickParticipant() { return "p" + std::to_string(Below(2)); }
  std::string PickContent() { return Below(4) == 0 ? "B" : "A"; }
  // Mostly one of the last few: the others are over.
  ImportId PickImport() {
    const uint64_t next = store_.catalog().next_import_id().value;
    if (next > 4 && Below(8) != 0) return ImportId(next - 1 - Below(4));
    return ImportId(Below(next + 1));
  }
  LeaseId PickLease() { return LeaseId(Below(store_.catalog().next_lease_id().value + 1)); }

  void Apply(const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (const auto* begun = std::get_if<ImportBegun>(&event)) {
        EXPECT_TRUE(import_ids_.insert(begun->import_id).second) << "an id given twice";
      }
      if (const auto* acquired = std::get_if<LeaseAcquired>(&event)) {
        EXPECT_TRUE(lease_ids_.insert(acquired->lease_id).second) << "an id given twice";
      }
      store_.Apply(event);
      deadlines_.Observe(store_.catalog(), event, store_.now_ms);
    }
  }

  template <class Decision>
  void ApplyOrKeep(const Decision& decision) {
    if (decision.ok()) {
      if constexpr (requires { decision->events; }) {
        Apply(decision->events);
      } else {
        Apply(*decision);
      }
    } else if (decision.status().code() == Code::kConflict) {
      ++conflicts;
    }
  }

  void Begin() {
    BeginImport command =
        store_.BeginCommand(PickIdentity(), PickClient(), {}, Below(5) == 0 ? "other" : "plan");
    for (const char* p : {"p0", "p1"}) {
      if (Below(2) == 0) command.claim.push_back(p);
    }
    if (Below(4) == 0) command.participants.clear();
    command.ttl_ms = 500 + Below(20'000);
    ApplyOrKeep(DecideBeginImport(store_.catalog(), command, store_.begin_facts));
  }

  void Receipt() {
    const std::string p = PickParticipant();
    ApplyOrKeep(DecideReceipt(store_.catalog(), {PickClient(), PickImport(), p,
                                                 DigestsOf(p, PickContent()), Below(3) == 0}));
  }

  void Commit() {
    const ImportId id = PickImport();
    CommitImport command = TestStore::CommitCommand(id);
    if (Below(6) == 0) command.payload_count = 99;
    CommitFacts facts = TestStore::GoodFacts();
    if (Below(6) == 0) facts.members = {false, "node n1 is not reporting"};
    const auto events = DecideCommit(store_.catalog(), command, facts);
    ApplyOrKeep(events);
    if (!events.ok() || events->empty()) return;
    // READY needs every receipt.
    const Revision& revision = *store_.catalog().FindImport(id);
    std::vector<model::MetadataObject> digests;
    for (const Participant& participant : revision.participants) {
      EXPECT_EQ(participant.state, model::ParticipantState::kReceived);
      digests.push_back(participant.digests);
    }
    const auto [entry, is_new] =
        published_.try_emplace(revision.identity, Published{model::DigestsRoot(digests), false});
    EXPECT_TRUE(is_new) << "an identity was published twice";
  }

  void Abort() {
    ApplyOrKeep(
        DecideAbort(store_.catalog(), {PickClient(), PickImport(), "cancelled",
                                       Below(2) == 0 ? Code::kCancelled : Code::kConflict}));
  }
  void Open() {
    ApplyOrKeep(DecideOpen(store_.catalog(), {PickIdentity(), 100 + Below(1000), "h"}));
  }
  void Release() { ApplyOrKeep(DecideReleaseLease(store_.catalog(), PickLease())); }

  void Members() {
    const bool readable = Below(2) == 0;
    Apply(DecideMembers(store_.catalog(), PickImport(),
                        {readable, readable ? "" : "node n" + std::to_string(Below(2))}));
  }

  void Remove() {
    RemoveWeight command{PickIdentity(), std::nullopt};
    if (Below(2) == 0) command.expected_metadata_generation = model::MetadataGeneration(Below(5));
    const auto events = DecideRemove(store_.catalog(), command);
    ApplyOrKeep(events);
    if (events.ok() && !events->empty()) published_.at(command.identity).removed = true;
  }

  void GroupEmpty() { Apply(DecideGroupEmpty(store_.catalog(), PickImport())); }

  void Expire() {
    Apply(DecideExpireLeases(store_.catalog(), deadlines_.ExpiredLeases(store_.now_ms, 3)));
    for (const auto& expired : deadlines_.ExpiredImports(store_.now_ms, 2)) {
      Apply(DecideExpireImport(store_.catalog(), expired.import_id, expired.reason));
    }
    // Renewals of what is left.
    for (const auto& [id, lease] : store_.catalog().leases()) {
      if (Below(2) == 0) (void)deadlines_.RenewLease(store_.catalog(), id, store_.now_ms);
    }
    for (const ImportId id : store_.catalog().open_imports()) {
      (void)deadlines_.KeepImport(store_.catalog(), id, PickClient(), store_.now_ms);
    }
  }

  void Restart() {
    if (Below(10) == 0) deadlines_.Restart(store_.catalog(), store_.now_ms);
  }

  void CheckSeen() {
    for (const auto& [id, revision] : store_.catalog().revisions()) {
      reached.insert(revision.availability);
    }
    for (const auto& [identity, published] : published_) {
      const Revision* revision = store_.catalog().Find(identity);
      ASSERT_NE(revision, nullptr) << "an acknowledged revision vanished";
      EXPECT_EQ(revision->digests_root_sha256, published.root) << "its content changed";
      const bool gone = revision->availability == Availability::kDeleting ||
                        revision->availability == Availability::kDeleted;
      EXPECT_EQ(gone, published.removed);
    }
    std::set<model::WeightIdentity> listed;
    const auto page = store_.catalog().List({"default", "", "", {}, 0, ""});
    ASSERT_TRUE(page.ok()) << page.status().ToString();
    for (const Revision* revision : page->revisions) listed.insert(revision->identity);
    std::set<model::WeightIdentity> expected;
    for (const auto& [identity, published] : published_) {
      if (!published.removed) expected.insert(identity);
    }
    EXPECT_EQ(listed, expected) << "discoverable is exactly what was committed and not removed";
  }

  std::mt19937_64 rng_;
  TestStore store_;
  Deadlines deadlines_;
  std::map<model::WeightIdentity, Published> published_;
  std::set<ImportId> import_ids_;
  std::set<LeaseId> lease_ids_;
};

TEST(History, RandomCommandsKeepTheInvariantsAndReplayEqual) {
  std::set<Availability> reached;
  uint64_t conflicts = 0;
  uint64_t published = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomHistory history(seed);
    for (int step = 0; step < 400; ++step) {
      history.Step();
      if (step % 100 == 99) history.ExpectReplayEqual();
      if (::testing::Test::HasFailure()) return;
    }
    reached.insert(history.reached.begin(), history.reached.end());
    published += history.reached.contains(Availability::kReady) ? 1 : 0;
    conflicts += history.conflicts;
  }
  EXPECT_EQ(reached.size(), 5u) << "every availability is reached";
  EXPECT_GT(published, 10u) << "histories with a READY revision";
  EXPECT_GT(conflicts, 100u) << "publishers do collide";
}

}  // namespace
}  // namespace mooncake::weights

// Publishing: begin, claims, receipts, commit, abort; every refusal, and races of two publishers.

#include <gtest/gtest.h>

#include "weights/test_store.h"

namespace mooncake::weights {
namespace {

using model::Availability;
using model::ImportState;
using model::Residency;

const model::WeightIdentity kIdentity = IdentityOf("m");
const std::string kName = "tenant default: weights/rl/m/r1/1";

TEST(Import, PublishesReadyAndHotAtOnce) {
  TestStore store;
  const auto begun = store.Begin(store.BeginCommand(kIdentity, "c1", {"p0", "p1"}));
  ASSERT_TRUE(begun.ok()) << begun.status().ToString();
  EXPECT_TRUE(begun->created);
  EXPECT_EQ(begun->state, ImportState::kOpen);
  const ImportId id = begun->import_id;
  EXPECT_EQ(id, ImportId(1));
  EXPECT_EQ(*store.catalog().StateOfImport(id), ImportState::kOpen);
  // Not discoverable.
  EXPECT_EQ(Query(store.catalog(), kIdentity).status().ToString(),
            "NOT_READY: " + kName + ": the revision is still being imported");
  EXPECT_EQ(DecideOpen(store.catalog(), {kIdentity, 1000, ""}).status().code(), Code::kNotReady);
  EXPECT_TRUE(store.catalog().List({"default", "", "", {}, 0, ""})->revisions.empty());

  const auto first = store.Receipt({"c1", id, "p0", DigestsOf("p0", "A"), false});
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->complete);
  EXPECT_FALSE(NeedsCommitFacts(store.catalog(), id));
  EXPECT_EQ(store.Commit(TestStore::CommitCommand(id)).ToString(),
            "NOT_READY: import 1: a participant's receipt is missing (1 of 2 are in; p1 is "
            "CLAIMED)");
  const auto second = store.Receipt({"c1", id, "p1", DigestsOf("p1", "B", "n2"), false});
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->complete);
  EXPECT_TRUE(NeedsCommitFacts(store.catalog(), id));
  ASSERT_TRUE(store.Commit(TestStore::CommitCommand(id)).ok());
  EXPECT_FALSE(NeedsCommitFacts(store.catalog(), id));

  const model::RevisionMetadata metadata = store.Metadata(kIdentity);
  EXPECT_EQ(metadata.availability, Availability::kReady);
  EXPECT_EQ(metadata.observed_residency, Residency::kHot);
  EXPECT_EQ(metadata.observed_hot_ratio, 1.0);
  EXPECT_EQ(metadata.metadata_generation, model::MetadataGeneration(2));
  EXPECT_EQ(metadata.group_id, "weights/rl/m/r1/1");
  EXPECT_EQ(metadata.manifest_key, "weights/rl/m/r1/1/manifest");
  EXPECT_EQ(metadata.manifest_sha256, Sha256Of("manifest"));
  EXPECT_EQ(metadata.affinity_sha256, Sha256Of("affinity"));
  EXPECT_EQ(metadata.payload_keys_sha256, Sha256Of("keys"));
  EXPECT_EQ(metadata.payload_count, 3u);
  EXPECT_EQ(metadata.logical_payload_bytes, 4096u);
  EXPECT_EQ(metadata.affinity_count, 2u);
  EXPECT_EQ(metadata.digests_root_sha256,
            model::DigestsRoot({DigestsOf("p0", "A"), DigestsOf("p1", "B")}));
  EXPECT_EQ(metadata.created_at, "2026-08-01T00:00:00Z");
  EXPECT_EQ(metadata.placement_id, "sha256:placement");
  EXPECT_EQ(metadata.policy.preferred_residency, Residency::kHot);
  EXPECT_EQ(metadata.state_reason,
            "the default policy MIXED resolved to HOT: the cluster has no cold tier");
  EXPECT_EQ(*store.catalog().StateOfImport(id), ImportState::kCommitted);
  EXPECT_EQ(Query(store.catalog(), kIdentity).value()->import_id, id);

  // A second equal commit is already done; nothing is logged.
  EXPECT_TRUE(DecideCommit(store.catalog(), TestStore::CommitCommand(id), {})->empty());
  store.ExpectReplayEqual();
}

TEST(Import, BadArgumentsNameTheField) {
  TestStore store;
  const auto message = [&](auto change) {
    BeginImport command = store.BeginCommand(kIdentity, "c1", {"p0"});
    change(command);
    const auto decision = store.Begin(command);
    return decision.ok() ? "OK" : decision.status().ToString();
  };
  EXPECT_EQ(message([](auto& c) { c.client_id = ""; }),
            "INVALID_ARGUMENT: client_id must not be empty");
  EXPECT_EQ(message([](auto& c) { c.identity.resource_id = ""; }),
            "INVALID_ARGUMENT: resource_id must not be empty");
  EXPECT_EQ(message([](auto& c) { c.placement_id = "\xff"; }),
            "INVALID_ARGUMENT: placement_id is not valid UTF-8");
  EXPECT_EQ(message([](auto& c) { c.ttl_ms = 0; }),
            "INVALID_ARGUMENT: ttl_ms must be 1 to 86400000, got 0");
  EXPECT_EQ(message([](auto& c) { c.ttl_ms = kTtlMsMax + 1; }),
            "INVALID_ARGUMENT: ttl_ms must be 1 to 86400000, got 86400001");
  EXPECT_EQ(message([](auto& c) {
              c.participants = {"p0", "p0"};
            }),
            "INVALID_ARGUMENT: participant p0 is named twice");
  EXPECT_EQ(message([](auto& c) {
              c.participants = {"p0", ""};
            }),
            "INVALID_ARGUMENT: participant_id must not be empty");
  EXPECT_EQ(message([](auto& c) { c.claim = {"p7"}; }),
            "INVALID_ARGUMENT: claimed participant p7 is none of the 2 of the plan");
  EXPECT_EQ(message([](auto& c) {
              c.policy = model::StoragePolicy{Residency::kHot, 1, model::MigrationMode::kAuto};
            }),
            "INVALID_ARGUMENT: mixed_hot_ratio must lie between 0 and 1, both excluded, got 1");
  EXPECT_EQ(message([](auto& c) { c.policy = model::StoragePolicy{}; }),
            "POLICY_UNSATISFIABLE: preferred_residency MIXED needs a cold tier, and the cluster "
            "has none");
  EXPECT_EQ(
      message([](auto& c) { c.participants.clear(); }),
      "NOT_FOUND: " + kName + ": no import to join; begin it with its participants and payloads");
  store.begin_facts.metadata_node_ids.clear();
  EXPECT_EQ(message([](auto&) {}), "UNAVAILABLE: no store node is reporting to the Master");
  EXPECT_TRUE(store.catalog().revisions().empty());
  EXPECT_EQ(store.catalog().next_import_id(), ImportId(1));
}

TEST(Import, RanksJoinAndClaimOnce) {
  TestStore store;
  const ImportId id = store.Begin(store.BeginCommand(kIdentity, "c0", {"p0"}))->import_id;
  BeginImport join = store.BeginCommand(kIdentity, "c1", {"p1", "p0", "p1"});
  join.participants.clear();
  const auto joined = store.Begin(join);
  ASSERT_TRUE(joined.ok());
  EXPECT_FALSE(joined->created);
  EXPECT_EQ(joined->import_id, id);
  EXPECT_EQ(joined->events, (std::vector<Event>{Claimed{id, 1, "c1", 10'000}}));
  const Revision& revision = *store.catalog().FindImport(id);
  EXPECT_EQ(ViewClaim(revision.participants[0], "c0"), ClaimView::kYours);
  EXPECT_EQ(ViewClaim(revision.participants[0], "c1"), ClaimView::kOthers);
  EXPECT_EQ(ViewClaim(revision.participants[1], "c1"), ClaimView::kYours);
  // Joining again changes nothing.
  EXPECT_TRUE(store.Begin(join)->events.empty());
  // The same plan cannot have other participants.
  BeginImport odd = store.BeginCommand(kIdentity, "c2", {});
  odd.participants = {"p0", "p2"};
  EXPECT_EQ(store.Begin(odd).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ViewClaim({}, "c"), ClaimView::kUnclaimed);
}

TEST(Import, ReceiptsAreCheckedAndIdempotent) {
  TestStore store;
  const ImportId id = store.Begin(store.BeginCommand(kIdentity, "c0", {"p0"}))->import_id;
  const auto message = [&](const SubmitReceipt& command) {
    const auto decision = store.Receipt(command);
    return decision.ok() ? "OK" : decision.status().ToString();
  };
  EXPECT_EQ(message({"c0", ImportId(9), "p0", DigestsOf("p0", "A"), false}),
            "NOT_FOUND: no import 9");
  EXPECT_EQ(message({"c0", ImportId(0), "p0", DigestsOf("p0", "A"), false}),
            "NOT_FOUND: no import 0");
  EXPECT_EQ(message({"c0", id, "p9", DigestsOf("p9", "A"), false}),
            "INVALID_ARGUMENT: import 1, participant p9 is none of the 2 of the plan");
  EXPECT_EQ(message({"c0", id, "p0", DigestsOf("p1", "A"), false}),
            "INVALID_ARGUMENT: the digests object of participant p0 must be named digests/p0, got "
            "'digests/p1'");
  EXPECT_EQ(message({"c0", id, "p0", DigestsOf("p0", "A", "n3"), false}),
            "INVALID_ARGUMENT: digests/p0 must lie on a METADATA node of import 1, got 'n3'");
  model::MetadataObject empty = DigestsOf("p0", "A");
  empty.bytes = 0;
  EXPECT_EQ(message({"c0", id, "p0", empty, false}), "INVALID_ARGUMENT: digests/p0 has no bytes");
  EXPECT_EQ(message({"c1", id, "p0", DigestsOf("p0", "A"), false}),
            "CONFLICT: import 1, participant p0: another client writes the participant");
  EXPECT_EQ(message({"c1", id, "p1", DigestsOf("p1", "A"), false}),
            "INVALID_ARGUMENT: import 1, participant p1: nobody has claimed the participant");
  EXPECT_EQ(message({"c1", id, "p0", DigestsOf("p0", "A"), true}),
            "NOT_READY: import 1, participant p0: the participant's receipt is not in yet");
  EXPECT_EQ(message({"c0", id, "p0", DigestsOf("p0", "A"), false}), "OK");
  EXPECT_TRUE(store.Receipt({"c0", id, "p0", DigestsOf("p0", "A"), false})->events.empty());
  EXPECT_EQ(message({"c0", id, "p0", DigestsOf("p0", "B"), false}),
            "CONFLICT: import 1, participant p0: the participant was written with other bytes "
            "(recorded " +
                ToHex(Sha256Of("A")) + ", got " + ToHex(Sha256Of("B")) + ")");
}

TEST(Import, CommitAgreesWithTheMastersObjects) {
  TestStore store;
  const ImportId id = store.Begin(store.BeginCommand(kIdentity, "c1", {"p0", "p1"}))->import_id;
  for (const char* p : {"p0", "p1"}) {
    ASSERT_TRUE(store.Receipt({"c1", id, p, DigestsOf(p, p), false}).ok());
  }
  const auto message = [&](auto change) {
    CommitImport command = TestStore::CommitCommand(id);
    CommitFacts facts = TestStore::GoodFacts();
    change(command, facts);
    return DecideCommit(store.catalog(), command, facts).status().ToString();
  };
  const std::string masters = ": the Master's objects have ";
  EXPECT_EQ(message([](auto& c, auto&) { c.payload_count = 4; }),
            "INVALID_ARGUMENT: payload_count" + masters + "3, the commit says 4");
  EXPECT_EQ(message([](auto& c, auto&) { c.logical_payload_bytes = 1; }),
            "INVALID_ARGUMENT: logical_payload_bytes" + masters + "4096, the commit says 1");
  EXPECT_EQ(message([](auto& c, auto&) { c.payload_keys_sha256 = Sha256Of("x"); }),
            "INVALID_ARGUMENT: payload_keys_sha256" + masters + ToHex(Sha256Of("keys")) +
                ", the commit says " + ToHex(Sha256Of("x")));
  EXPECT_EQ(message([](auto& c, auto&) { c.affinity_count = 1; }),
            "INVALID_ARGUMENT: affinity_count" + masters + "2, the commit says 1");
  EXPECT_EQ(message([](auto& c, auto&) { c.affinity.bytes = 61; }),
            "INVALID_ARGUMENT: affinity.bytes" + masters + "60, the commit says 61");
  EXPECT_EQ(message([](auto& c, auto&) { c.affinity.sha256 = Sha256Of("y"); }),
            "INVALID_ARGUMENT: affinity.sha256" + masters + ToHex(Sha256Of("affinity")) +
                ", the commit says " + ToHex(Sha256Of("y")));
  EXPECT_EQ(message([](auto& c, auto&) { c.manifest.name = "payload/x"; }),
            "INVALID_ARGUMENT: the METADATA object must be named manifest, got 'payload/x'");
  EXPECT_EQ(message([](auto& c, auto&) { c.affinity.name = "manifest"; }),
            "INVALID_ARGUMENT: the METADATA object must be named affinity, got 'manifest'");
  EXPECT_EQ(message([](auto& c, auto&) { c.manifest.bytes = 0; }),
            "INVALID_ARGUMENT: manifest has no bytes");
  EXPECT_EQ(message([](auto& c, auto&) { c.manifest.node_id = "n7"; }),
            "INVALID_ARGUMENT: manifest must lie on a METADATA node of import 1, got 'n7'");
  EXPECT_EQ(message([](auto&, auto& f) {
              f.members = {false, "node n1 is not reporting"};
            }),
            "UNAVAILABLE: import 1: READY promises a readable replica of every member (node n1 is "
            "not reporting)");
  EXPECT_EQ(store.catalog().Find(kIdentity)->availability, Availability::kImporting);

  ASSERT_TRUE(store.Commit(TestStore::CommitCommand(id)).ok());
  // All these facts are immutable now.
  const std::string conflict = "CONFLICT: import 1: the revision was committed with other facts (";
  EXPECT_EQ(message([](auto& c, auto&) { c.payload_count = 4; }),
            conflict + "payload_count: recorded 3, got 4)");
  EXPECT_EQ(message([](auto& c, auto&) { c.logical_payload_bytes = 1; }),
            conflict + "logical_payload_bytes: recorded 4096, got 1)");
  EXPECT_EQ(message([](auto& c, auto&) { c.affinity_count = 1; }),
            conflict + "affinity_count: recorded 2, got 1)");
  for (const auto& text : {message([](auto&c, auto&) { c.manifest.sha256 = Sha256Of("x"); }),
                           message([](auto&c, auto&) { c.affinity.sha256 = Sha256Of("x"); }),
                           message([](auto&c, auto&) { c.payload_keys_sha256 = Sha256Of("x"); })}) {
    EXPECT_TRUE(text.starts_with(conflict)) << text;
    EXPECT_NE(text.find("got " + ToHex(Sha256Of("x"))), std::string::npos) << text;
  }
  EXPECT_EQ(message([](auto&, auto&) {}), "OK");
}

TEST(Import, AnAbortLeavesNothingAndTheIdentityIsFreeAgain) {
  TestStore store;
  const ImportId id = store.Begin(store.BeginCommand(kIdentity, "c1", {"p0"}))->import_id;
  EXPECT_EQ(DecideAbort(store.catalog(), {"c2", id, "x"}).status().ToString(),
            "CONFLICT: import 1: client c2 has claimed none of its participants");
  EXPECT_EQ(DecideAbort(store.catalog(), {"", id, "x"}).status().code(), Code::kConflict);
  EXPECT_EQ(DecideAbort(store.catalog(), {"c1", ImportId(5), "x"}).status().code(),
            Code::kNotFound);
  store.Apply(*DecideAbort(store.catalog(), {"c1", id, "cancelled"}));
  EXPECT_EQ(store.catalog().Find(kIdentity), nullptr);
  EXPECT_EQ(*store.catalog().StateOfImport(id), ImportState::kAborted);
  EXPECT_EQ(store.catalog().AbortReason(id), "cancelled");
  EXPECT_EQ(Query(store.catalog(), kIdentity).status().ToString(),
            "NOT_FOUND: " + kName + ": no such revision");
  EXPECT_TRUE(DecideAbort(store.catalog(), {"c1", id, "again"})->empty());
  EXPECT_EQ(store.Receipt({"c1", id, "p0", DigestsOf("p0", "A"), false}).status().ToString(),
            "NOT_FOUND: import 1, participant p0: the import was aborted or never begun "
            "(cancelled)");
  EXPECT_EQ(store.Commit(TestStore::CommitCommand(id)).ToString(),
            "NOT_FOUND: import 1: the import was aborted or never begun (cancelled)");
  // Ids are never given again.
  EXPECT_EQ(store.Publish(kIdentity), ImportId(2));
  EXPECT_EQ(DecideAbort(store.catalog(), {"c1", ImportId(2), "late"}).status().ToString(),
            "CONFLICT: import 2: the import is committed");
  EXPECT_TRUE(DecideExpireImport(store.catalog(), ImportId(2), "late").empty());
  EXPECT_TRUE(DecideExpireImport(store.catalog(), id, "late").empty());
  store.ExpectReplayEqual();
}

TEST(Import, AnAbortTellsItsWritersAsWhat) {
  TestStore store;
  const ImportId id = store.Begin(store.BeginCommand(kIdentity, "c1", {"p0"}))->import_id;
  EXPECT_EQ(DecideAbort(store.catalog(), {"c1", id, "x", Code::kCorrupt}).status().ToString(),
            "INVALID_ARGUMENT: import 1 can be aborted as CANCELLED or CONFLICT, got CORRUPT");
  store.Apply(*DecideAbort(store.catalog(), {"c1", id, "replicas differ", Code::kConflict}));
  ASSERT_NE(store.catalog().FindAbort(id), nullptr);
  EXPECT_EQ(store.catalog().FindAbort(id)->code, Code::kConflict);
  // The first one to abort says it.
  EXPECT_TRUE(DecideAbort(store.catalog(), {"c1", id, "again"})->empty());
  const ImportId next = store.Begin(store.BeginCommand(kIdentity, "c1", {"p0"}))->import_id;
  store.Apply(DecideExpireImport(store.catalog(), next, "its writer is silent"));
  EXPECT_EQ(store.catalog().FindAbort(next)->code, Code::kCancelled);
  EXPECT_EQ(store.catalog().FindAbort(ImportId(9)), nullptr);
  store.ExpectReplayEqual();
}

TEST(Import, AbortReasonsAreKeptForTheLastFewOnlyAndMadeLoggable) {
  TestStore store;
  const ImportId first = store.Begin(store.BeginCommand(kIdentity, "c", {"p0"}))->import_id;
  store.Apply(DecideExpireImport(store.catalog(), first, "bad \xff text"));
  EXPECT_EQ(store.catalog().AbortReason(first), "bad%20%FF%20text");
  std::string long_reason(1023, 'a');
  long_reason += "é";
  for (size_t i = 0; i < Catalog::kAbortReasonsKept; ++i) {
    const ImportId id = store.Begin(store.BeginCommand(kIdentity, "c", {"p0"}))->import_id;
    store.Apply(DecideExpireImport(store.catalog(), id, long_reason));
    EXPECT_EQ(store.catalog().AbortReason(id), std::string(1023, 'a'));
  }
  EXPECT_EQ(store.catalog().AbortReason(first), "");
  EXPECT_EQ(*store.catalog().StateOfImport(first), ImportState::kAborted);
  store.ExpectReplayEqual();
}

// Two publishers of one identity with different content, interleaved: one wins, never a blend.
TEST(Import, TwoPublishersWithOtherPlans) {
  TestStore store;
  const ImportId id =
      store.Begin(store.BeginCommand(kIdentity, "c1", {"p0", "p1"}, "plan A"))->import_id;
  const auto other = store.Begin(store.BeginCommand(kIdentity, "c2", {"p0", "p1"}, "plan B"));
  EXPECT_EQ(other.status().ToString(),
            "CONFLICT: " + kName +
                ": another plan is being imported under this identity (plan "
                "recorded " +
                ToHex(Sha256Of("plan A")) + ", got " + ToHex(Sha256Of("plan B")) + ")");
  for (const char* p : {"p0", "p1"}) {
    ASSERT_TRUE(store.Receipt({"c1", id, p, DigestsOf(p, p), false}).ok());
  }
  ASSERT_TRUE(store.Commit(TestStore::CommitCommand(id)).ok());
  const auto late = store.Begin(store.BeginCommand(kIdentity, "c2", {"p0", "p1"}, "plan B"));
  EXPECT_EQ(late.status().code(), Code::kConflict);
  EXPECT_NE(late.status().message().find("was published with another plan"), std::string::npos);
  EXPECT_EQ(DecideAbort(store.catalog(), {"c2", id, "x"}).status().code(), Code::kConflict);
}

TEST(Import, TwoPublishersWithOnePlanAndOtherBytes) {
  TestStore store;
  const ImportId id = store.Begin(store.BeginCommand(kIdentity, "c1", {"p0"}))->import_id;
  // The second claims what is left and compares the rest.
  ASSERT_EQ(store.Begin(store.BeginCommand(kIdentity, "c2", {"p0", "p1"}))->import_id, id);
  ASSERT_TRUE(store.Receipt({"c1", id, "p0", DigestsOf("p0", "A"), false}).ok());
  EXPECT_EQ(store.Receipt({"c2", id, "p0", DigestsOf("p0", "other"), true}).status().code(),
            Code::kConflict);
  const auto equal = store.Receipt({"c2", id, "p0", DigestsOf("p0", "A", ""), true});
  ASSERT_TRUE(equal.ok()) << "a comparison needs no node";
  EXPECT_FALSE(equal->complete);
  ASSERT_TRUE(store.Receipt({"c2", id, "p1", DigestsOf("p1", "B"), false})->complete);
  ASSERT_TRUE(store.Commit(TestStore::CommitCommand(id)).ok());

  // After commit, also from another process: equal is already done, different is a conflict.
  const auto again = store.Begin(store.BeginCommand(kIdentity, "c3", {"p0", "p1"}));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->state, ImportState::kCommitted);
  EXPECT_FALSE(again->created);
  EXPECT_TRUE(again->events.empty());
  EXPECT_EQ(ViewClaim(store.catalog().FindImport(id)->participants[0], "c3"), ClaimView::kReceived);
  for (const bool compare_only : {true, false}) {
    const auto same = store.Receipt({"c3", id, "p0", DigestsOf("p0", "A"), compare_only});
    ASSERT_TRUE(same.ok());
    EXPECT_TRUE(same->complete);
    EXPECT_TRUE(same->events.empty());
    EXPECT_EQ(
        store.Receipt({"c3", id, "p1", DigestsOf("p1", "b"), compare_only}).status().ToString(),
        "CONFLICT: import 1, participant p1: the identity was published with other bytes "
        "(recorded " +
            ToHex(Sha256Of("B")) + ", got " + ToHex(Sha256Of("b")) + ")");
  }
  EXPECT_EQ(store.Receipt({"c3", id, "p9", DigestsOf("p9", "A"), true}).status().code(),
            Code::kInvalidArgument);
  store.ExpectReplayEqual();
}

TEST(Import, ATombstoneIsNeverPublishedOnto) {
  TestStore store;
  const ImportId id = store.Publish(kIdentity);
  store.Apply(*DecideRemove(store.catalog(), {kIdentity, std::nullopt}));
  const auto refused = [&](const char* state) {
    const auto begun = store.Begin(store.BeginCommand(kIdentity, "c1", {"p0"}));
    EXPECT_EQ(begun.status().ToString(), "STALE_GENERATION: " + kName + ": the revision " + state +
                                             "; publish a higher generation");
    EXPECT_EQ(store.Receipt({"c1", id, "p0", DigestsOf("p0", "p0"), true}).status().code(),
              Code::kStaleGeneration);
    EXPECT_EQ(store.Commit(TestStore::CommitCommand(id)).code(), Code::kStaleGeneration);
    EXPECT_EQ(DecideAbort(store.catalog(), {"c1", id, ""}).status().code(), Code::kConflict);
    EXPECT_EQ(*store.catalog().StateOfImport(id), ImportState::kCommitted);
  };
  refused("is being deleted");
  store.Apply(DecideGroupEmpty(store.catalog(), id));
  refused("was deleted");
  store.Publish(IdentityOf("m", 2));  // a higher generation is another revision
}

}  // namespace
}  // namespace mooncake::weights

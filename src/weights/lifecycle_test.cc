// Reading, availability, removal, listing, deadlines; and what Apply refuses.

#include <gtest/gtest.h>

#include <algorithm>

#include "weights/deadlines.h"
#include "weights/test_store.h"

namespace mooncake::weights {
namespace {

using model::Availability;
using model::Residency;

const model::WeightIdentity kIdentity = IdentityOf("m");
const std::string kName = "tenant default: weights/rl/m/r1/1";

TEST(Lease, IsAcquiredReleasedAndNeverReused) {
  TestStore store;
  EXPECT_EQ(DecideOpen(store.catalog(), {kIdentity, 1000, ""}).status().ToString(),
            "NOT_FOUND: " + kName + ": no such revision");
  store.Publish(kIdentity);
  const auto generation = store.Metadata(kIdentity).metadata_generation;
  EXPECT_EQ(DecideOpen(store.catalog(), {kIdentity, 0, ""}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(DecideOpen(store.catalog(), {kIdentity, 1, std::string(257, 'x')}).status().message(),
            "holder may have at most 256 bytes, got 257");
  store.now_ms = 5555;
  const LeaseId first = store.Open(kIdentity);
  const LeaseId second = store.Open(kIdentity, "host:2");
  EXPECT_EQ(first, LeaseId(1));
  EXPECT_EQ(second, LeaseId(2));
  EXPECT_EQ(store.Metadata(kIdentity).active_lease_count, 2u);
  EXPECT_EQ(store.Metadata(kIdentity).last_access_ms, 5555);
  EXPECT_EQ(store.Metadata(kIdentity).metadata_generation, generation) << "leases never change it";
  EXPECT_EQ(store.catalog().GetLease(first).value()->acquired_ms, 5555);

  store.Apply(*DecideReleaseLease(store.catalog(), first));
  EXPECT_TRUE(DecideReleaseLease(store.catalog(), first)->empty()) << "idempotent";
  EXPECT_EQ(store.catalog().GetLease(first).status().ToString(),
            "LEASE_EXPIRED: lease 1 has ended");
  EXPECT_EQ(DecideReleaseLease(store.catalog(), LeaseId(3)).status().ToString(),
            "NOT_FOUND: no lease 3");
  EXPECT_EQ(DecideReleaseLease(store.catalog(), LeaseId(0)).status().code(), Code::kNotFound);
  store.Apply(DecideExpireLeases(store.catalog(), {first, second, second, LeaseId(9)}));
  EXPECT_TRUE(store.catalog().leases().empty());
  EXPECT_TRUE(DecideExpireLeases(store.catalog(), {second}).empty());
  EXPECT_EQ(store.Open(kIdentity), LeaseId(3));
  store.ExpectReplayEqual();
}

TEST(Availability, FollowsTheMembersAndSaysWhy) {
  TestStore store;
  const ImportId id = store.Publish(kIdentity);
  EXPECT_TRUE(DecideMembers(store.catalog(), id, {true, ""}).empty());
  const LeaseId lease = store.Open(kIdentity);
  store.Apply(DecideMembers(store.catalog(), id, {false, "node n1 is not reporting"}));
  model::RevisionMetadata metadata = store.Metadata(kIdentity);
  EXPECT_EQ(metadata.availability, Availability::kDegraded);
  EXPECT_EQ(metadata.observed_residency, Residency::kUnknown);
  EXPECT_EQ(metadata.state_reason, "node n1 is not reporting");
  EXPECT_EQ(metadata.metadata_generation, model::MetadataGeneration(3));
  EXPECT_EQ(metadata.active_lease_count, 1u) << "readers keep their leases";
  EXPECT_EQ(DecideOpen(store.catalog(), {kIdentity, 1000, ""}).status().ToString(),
            "NOT_READY: " + kName +
                ": a required member has no readable replica (node n1 is not reporting)");
  EXPECT_TRUE(DecideMembers(store.catalog(), id, {false, "node n1 is not reporting"}).empty());
  store.Apply(DecideMembers(store.catalog(), id, {false, "node n1 lost its memory"}));
  EXPECT_EQ(store.Metadata(kIdentity).state_reason, "node n1 lost its memory");
  store.Apply(*DecideReleaseLease(store.catalog(), lease));
  store.Apply(DecideMembers(store.catalog(), id, {true, ""}));
  metadata = store.Metadata(kIdentity);
  EXPECT_EQ(metadata.availability, Availability::kReady);
  EXPECT_EQ(metadata.observed_residency, Residency::kHot);
  EXPECT_EQ(metadata.metadata_generation, model::MetadataGeneration(5));
  EXPECT_TRUE(DecideMembers(store.catalog(), ImportId(99), {false, "x"}).empty());
  store.ExpectReplayEqual();
}

TEST(Removal, FencesRefusesReadersAndKeepsATombstone) {
  TestStore store;
  const auto remove = [&](std::optional<uint64_t> expected) {
    RemoveWeight command{kIdentity, std::nullopt};
    if (expected) command.expected_metadata_generation = model::MetadataGeneration(*expected);
    return DecideRemove(store.catalog(), command);
  };
  EXPECT_EQ(remove({}).status().ToString(), "NOT_FOUND: " + kName + ": no such revision");
  const ImportId open = store.Begin(store.BeginCommand(kIdentity, "c", {"p0"}))->import_id;
  EXPECT_EQ(
      remove({}).status().ToString(),
      "NOT_READY: " + kName + ": the revision is still being imported: abort the import instead");
  store.Apply(DecideExpireImport(store.catalog(), open, "x"));
  const ImportId id = store.Publish(kIdentity);
  const LeaseId lease = store.Open(kIdentity, "trainer-3:4711");
  store.Open(kIdentity, "other:1");
  EXPECT_EQ(remove({}).status().ToString(),
            "BUSY: " + kName +
                ": a reader holds it (2 active leases, the oldest is lease 1 of trainer-3:4711)");
  EXPECT_EQ(remove(7).status().ToString(),
            "STALE_GENERATION: " + kName + ": expected metadata_generation 7, it is 2");
  store.Apply(DecideExpireLeases(store.catalog(), {lease, LeaseId(2)}));
  EXPECT_EQ(remove(1).status().code(), Code::kStaleGeneration);
  store.Apply(*remove(2));
  model::RevisionMetadata metadata = store.Metadata(kIdentity);
  EXPECT_EQ(metadata.availability, Availability::kDeleting);
  EXPECT_EQ(metadata.metadata_generation, model::MetadataGeneration(3));
  EXPECT_EQ(store.catalog().deleting(), std::set{id});
  EXPECT_EQ(DecideOpen(store.catalog(), {kIdentity, 1000, ""}).status().ToString(),
            "NOT_READY: " + kName + ": the revision is being deleted");
  EXPECT_TRUE(remove(2)->empty()) << "the retry with the old generation is already done";
  EXPECT_TRUE(DecideMembers(store.catalog(), id, {false, "x"}).empty());

  store.Apply(DecideGroupEmpty(store.catalog(), id));
  EXPECT_TRUE(DecideGroupEmpty(store.catalog(), id).empty());
  metadata = store.Metadata(kIdentity);
  EXPECT_EQ(metadata.availability, Availability::kDeleted);
  EXPECT_EQ(metadata.observed_residency, Residency::kAbsent);
  EXPECT_EQ(metadata.manifest_sha256, Sha256Of("manifest")) << "immutable facts stay queryable";
  EXPECT_EQ(metadata.payload_count, 3u);
  EXPECT_TRUE(Query(store.catalog(), kIdentity).ok());
  EXPECT_TRUE(remove(2)->empty());
  EXPECT_EQ(DecideOpen(store.catalog(), {kIdentity, 1000, ""}).status().code(), Code::kNotFound);
  EXPECT_TRUE(store.catalog().deleting().empty());
  store.ExpectReplayEqual();
}

TEST(Removal, OfADegradedRevisionNeedsNoNode) {
  TestStore store;
  const ImportId id = store.Publish(kIdentity);
  store.Apply(DecideMembers(store.catalog(), id, {false, "node n1 is not reporting"}));
  const auto removed = DecideRemove(store.catalog(), {kIdentity, std::nullopt});
  ASSERT_TRUE(removed.ok());
  store.Apply(*removed);
  store.Apply(DecideGroupEmpty(store.catalog(), id));
  EXPECT_EQ(store.Metadata(kIdentity).availability, Availability::kDeleted);
}

TEST(List, PagesInIdentityOrderWithinATenant) {
  TestStore store;
  std::vector<model::WeightIdentity> expected;
  for (const char* resource : {"b", "a", "a/b", "é"}) {
    for (const uint64_t generation : {10, 9}) {
      expected.push_back(IdentityOf(resource, generation));
      store.Publish(expected.back());
    }
  }
  std::sort(expected.begin(), expected.end());
  model::WeightIdentity foreign = IdentityOf("a");
  foreign.tenant_id = "other";
  store.Publish(foreign);
  model::WeightIdentity elsewhere = IdentityOf("a", 9);
  elsewhere.name_space = "zz";
  store.Publish(elsewhere);
  ASSERT_TRUE(store.Begin(store.BeginCommand(IdentityOf("importing"), "c", {"p0"})).ok());
  const Sha256Digest before = store.catalog().Digest();

  for (const uint32_t page_size : {1u, 2u, 3u, 8u, 100u}) {
    std::vector<model::WeightIdentity> seen;
    ListQuery query{"default", "rl", "", {}, page_size, ""};
    for (int pages = 0; pages < 20; ++pages) {
      const auto page = store.catalog().List(query);
      ASSERT_TRUE(page.ok()) << page.status().ToString();
      EXPECT_LE(page->revisions.size(), page_size);
      for (const Revision* revision : page->revisions) seen.push_back(revision->identity);
      query.page_token = page->next_page_token;
      if (query.page_token.empty()) break;
    }
    EXPECT_EQ(seen, expected) << page_size;
  }
  const auto count = [&](const ListQuery& query) {
    return store.catalog().List(query)->revisions.size();
  };
  EXPECT_EQ(count({"default", "", "", {}, 0, ""}), 9u);
  EXPECT_EQ(count({"default", "", "a", {}, 0, ""}), 3u);
  EXPECT_EQ(count({"default", "rl", "a", {}, 0, ""}), 2u);
  EXPECT_EQ(count({"default", "rl", "none", {}, 0, ""}), 0u);
  EXPECT_EQ(count({"other", "", "", {}, 0, ""}), 1u);
  EXPECT_EQ(count({"default", "", "", {Availability::kImporting}, 0, ""}), 1u);
  EXPECT_EQ(store.catalog().Digest(), before) << "listing never changes anything";

  // Revisions that come between pages appear or not; the rest is seen once.
  ListQuery query{"default", "rl", "", {}, 2, ""};
  query.page_token = store.catalog().List(query)->next_page_token;
  store.Apply(*DecideRemove(store.catalog(), {expected[1], std::nullopt}));
  EXPECT_EQ(store.catalog().List(query)->revisions[0]->identity, expected[2]);

  const auto message = [&](const ListQuery& bad) {
    return store.catalog().List(bad).status().ToString();
  };
  EXPECT_EQ(message({"", "", "", {}, 0, ""}), "INVALID_ARGUMENT: tenant_id must not be empty");
  EXPECT_EQ(message({"default", "", "", {}, 1001, ""}),
            "INVALID_ARGUMENT: page_size may be at most 1000, got 1001");
  EXPECT_EQ(message({"default", "", "", {}, 2, query.page_token}),
            "INVALID_ARGUMENT: page_token is not a token of this query");
  EXPECT_EQ(message({"default", "", "", {}, 2, "x"}),
            "INVALID_ARGUMENT: page_token is not a token of this query");
  for (const char* tail : {"", "a", "a/b/c", "a/b/c/x", "a/b/c/1/2", "a/b/c/99999999999999999999",
                           "%/b/c/1", "a/b/c/1x", "a/b/c/"}) {
    ListQuery bad = query;
    bad.page_token = query.page_token.substr(0, 19) + tail;
    EXPECT_EQ(store.catalog().List(bad).status().code(), Code::kInvalidArgument) << tail;
  }
}

TEST(Catalog, EventsThatDoNotFitAreCorruptAndChangeNothing) {
  TestStore store;
  const ImportBegun begun{kIdentity, ImportId(1), "p",   Sha256Of("plan"), {"p0", "p1"}, "now", {},
                          "",        1000,        {"n1"}};
  const auto with = [&](auto change) {
    ImportBegun event = begun;
    change(event);
    return event;
  };
  store.ExpectCorrupt(with([](auto& e) { e.import_id = ImportId(0); }));
  store.ExpectCorrupt(with([](auto& e) { e.import_id = ImportId(UINT64_MAX); }));
  store.ExpectCorrupt(with([](auto& e) { e.participants.clear(); }));
  store.ExpectCorrupt(with([](auto& e) { e.participants = {"p0", "p0"}; }));
  store.ExpectCorrupt(Claimed{ImportId(1), 0, "c", 1});
  store.ExpectCorrupt(ReceiptAccepted{ImportId(1), 0, {}});
  store.ExpectCorrupt(Committed{ImportId(1)});
  store.ExpectCorrupt(Aborted{ImportId(1), ""});
  store.ExpectCorrupt(AvailabilityChanged{ImportId(1), Availability::kReady, ""});
  store.ExpectCorrupt(LeaseAcquired{LeaseId(1), ImportId(1), 1, ""});
  store.ExpectCorrupt(LeasesEnded{{LeaseId(1)}, true});
  store.ExpectCorrupt(DeletionBegun{ImportId(1)});
  store.ExpectCorrupt(Deleted{ImportId(1)});
  store.Apply(begun);
  store.ExpectCorrupt(begun);
  store.ExpectCorrupt(with([](auto& e) { e.import_id = ImportId(2); }));  // identity in use
  store.ExpectCorrupt(Claimed{ImportId(1), 2, "c", 1});
  store.ExpectCorrupt(Claimed{ImportId(1), 0, "", 1});
  store.ExpectCorrupt(ReceiptAccepted{ImportId(1), 0, {}});  // not claimed
  store.ExpectCorrupt(Committed{ImportId(1)});
  store.ExpectCorrupt(AvailabilityChanged{ImportId(1), Availability::kReady, ""});
  store.ExpectCorrupt(LeaseAcquired{LeaseId(1), ImportId(1), 1, ""});
  store.ExpectCorrupt(DeletionBegun{ImportId(1)});
  store.Apply(Claimed{ImportId(1), 0, "c", 1});
  store.ExpectCorrupt(Claimed{ImportId(1), 0, "d", 1});
  store.Apply(ReceiptAccepted{ImportId(1), 0, DigestsOf("p0", "A")});
  store.ExpectCorrupt(ReceiptAccepted{ImportId(1), 0, DigestsOf("p0", "A")});
  store.ExpectCorrupt(Committed{ImportId(1)});
  store.Apply(Claimed{ImportId(1), 1, "c", 1});
  store.Apply(ReceiptAccepted{ImportId(1), 1, DigestsOf("p1", "A")});
  store.Apply(Committed{ImportId(1)});
  store.ExpectCorrupt(Committed{ImportId(1)});
  store.ExpectCorrupt(Aborted{ImportId(1), ""});
  store.ExpectCorrupt(AvailabilityChanged{ImportId(1), Availability::kDeleted, ""});
  store.ExpectCorrupt(LeaseAcquired{LeaseId(0), ImportId(1), 1, ""});
  store.ExpectCorrupt(Deleted{ImportId(1)});
  store.Apply(LeaseAcquired{LeaseId(7), ImportId(1), 1, ""});
  store.ExpectCorrupt(LeaseAcquired{LeaseId(7), ImportId(1), 1, ""});
  store.ExpectCorrupt(LeaseAcquired{LeaseId(6), ImportId(1), 1, ""});
  store.ExpectCorrupt(LeasesEnded{{LeaseId(7), LeaseId(7)}, true});
  store.ExpectCorrupt(DeletionBegun{ImportId(1)});  // a lease is held
  EXPECT_EQ(store.catalog().next_lease_id(), LeaseId(8)) << "replay moves the counter";
  store.ExpectReplayEqual();
}

// ---- deadlines ----

struct Clocked {
  TestStore store;
  Deadlines deadlines;

  void Apply(const std::vector<Event>& events) {
    for (const Event& event : events) {
      store.Apply(event);
      deadlines.Observe(store.catalog(), event, store.now_ms);
    }
  }
  ImportId Begin(const std::string& client, std::vector<std::string> claim) {
    const auto begun =
        DecideBeginImport(store.catalog(), store.BeginCommand(kIdentity, client, std::move(claim)),
                          store.begin_facts);
    EXPECT_TRUE(begun.ok()) << begun.status().ToString();
    Apply(begun->events);
    return begun->import_id;
  }
  std::string Expired() const {
    std::string text;
    for (const auto& import : deadlines.ExpiredImports(store.now_ms, 10)) {
      text += std::to_string(import.import_id.value) + ": " + import.reason + "; ";
    }
    return text;
  }
};

TEST(Deadlines, LeasesRunOutUnlessRenewedAndStayRefused) {
  Clocked c;
  c.store.Publish(kIdentity);
  c.Apply(DecideOpen(c.store.catalog(), {kIdentity, 50, "h"})->events);
  c.Apply(DecideOpen(c.store.catalog(), {kIdentity, 100, "h"})->events);
  c.store.now_ms += 49;
  EXPECT_TRUE(c.deadlines.CheckLease(c.store.catalog(), LeaseId(1), c.store.now_ms).ok());
  EXPECT_TRUE(c.deadlines.RenewLease(c.store.catalog(), LeaseId(1), c.store.now_ms).ok());
  EXPECT_TRUE(c.deadlines.ExpiredLeases(c.store.now_ms, 10).empty());
  c.store.now_ms += 51;
  EXPECT_EQ(c.deadlines.RenewLease(c.store.catalog(), LeaseId(1), c.store.now_ms).ToString(),
            "LEASE_EXPIRED: lease 1 ran out 1 ms ago");
  EXPECT_EQ(c.deadlines.RenewLease(c.store.catalog(), LeaseId(2), c.store.now_ms).code(),
            Code::kLeaseExpired);
  EXPECT_EQ(c.deadlines.RenewLease(c.store.catalog(), LeaseId(3), c.store.now_ms).code(),
            Code::kNotFound);
  EXPECT_EQ(c.deadlines.ExpiredLeases(c.store.now_ms, 1), std::vector{LeaseId(1)});
  EXPECT_EQ(c.deadlines.ExpiredLeases(c.store.now_ms, 10), (std::vector{LeaseId(1), LeaseId(2)}));
  c.Apply(DecideExpireLeases(c.store.catalog(), c.deadlines.ExpiredLeases(c.store.now_ms, 10)));
  EXPECT_TRUE(c.deadlines.ExpiredLeases(c.store.now_ms, 10).empty());
  EXPECT_EQ(c.deadlines.CheckLease(c.store.catalog(), LeaseId(1), c.store.now_ms).ToString(),
            "LEASE_EXPIRED: lease 1 has ended");
}

TEST(Deadlines, ARestartGivesFullTtls) {
  Clocked c;
  c.store.Publish(kIdentity);
  c.Apply(DecideOpen(c.store.catalog(), {kIdentity, 50, "h"})->events);
  c.store.now_ms += 1000;
  EXPECT_EQ(c.deadlines.ExpiredLeases(c.store.now_ms, 10).size(), 1u);
  c.deadlines.Restart(c.store.catalog(), c.store.now_ms);
  EXPECT_TRUE(c.deadlines.CheckLease(c.store.catalog(), LeaseId(1), c.store.now_ms + 49).ok());
  EXPECT_FALSE(c.deadlines.CheckLease(c.store.catalog(), LeaseId(1), c.store.now_ms + 50).ok());
}

TEST(Deadlines, AnUnfinishedWriterMustRenewItself) {
  Clocked c;
  const ImportId id = c.Begin("c1", {"p0"});
  c.Begin("c2", {"p1"});
  c.store.now_ms += 9'000;
  EXPECT_TRUE(c.deadlines.KeepImport(c.store.catalog(), id, "c1", c.store.now_ms).ok());
  c.store.now_ms += 1'000;
  EXPECT_EQ(c.Expired(), "1: its writer c2 did not renew for 10000 ms; ");
  EXPECT_EQ(c.deadlines.KeepImport(c.store.catalog(), id, "c2", c.store.now_ms).ToString(),
            "LEASE_EXPIRED: import 1 was not renewed in time");
  c.deadlines.Restart(c.store.catalog(), c.store.now_ms);
  EXPECT_EQ(c.Expired(), "");
  c.store.now_ms += 10'000;
  EXPECT_EQ(c.Expired(), "1: its writer c1 did not renew for 10000 ms; ");
  c.Apply(DecideExpireImport(c.store.catalog(), id, "writer gone"));
  EXPECT_EQ(c.Expired(), "");
  EXPECT_EQ(c.deadlines.KeepImport(c.store.catalog(), id, "c1", c.store.now_ms).code(),
            Code::kNotFound);
}

TEST(Deadlines, AFinishedWriterMayGoButSomebodyMustStay) {
  Clocked c;
  const ImportId id = c.Begin("c1", {"p0"});
  c.Begin("c2", {"p1"});
  c.Apply(DecideReceipt(c.store.catalog(), {"c1", id, "p0", DigestsOf("p0", "A"), false})->events);
  for (int i = 0; i < 5; ++i) {
    c.store.now_ms += 9'000;
    ASSERT_TRUE(c.deadlines.KeepImport(c.store.catalog(), id, "c2", c.store.now_ms).ok());
    EXPECT_EQ(c.Expired(), "") << "c1 is done: its silence is no loss";
  }
  c.Apply(DecideReceipt(c.store.catalog(), {"c2", id, "p1", DigestsOf("p1", "A"), false})->events);
  // All receipts are in and nobody commits.
  c.store.now_ms += 9'999;
  EXPECT_EQ(c.Expired(), "");
  EXPECT_TRUE(c.deadlines.KeepImport(c.store.catalog(), id, "c1", c.store.now_ms).ok());
  c.store.now_ms += 10'000;
  EXPECT_EQ(c.Expired(), "1: none of its clients renewed it for 10000 ms; ");
  EXPECT_TRUE(c.deadlines.ExpiredImports(c.store.now_ms, 0).empty());
  // A commit that still makes it ends the session.
  auto committed =
      DecideCommit(c.store.catalog(), TestStore::CommitCommand(id), TestStore::GoodFacts());
  ASSERT_TRUE(committed.ok());
  c.Apply(*committed);
  EXPECT_EQ(c.Expired(), "");
}

TEST(Deadlines, AClaimerIsHeardWhenItClaimsAndRenews) {
  Clocked c;
  const ImportId id = c.Begin("c1", {"p0"});
  const auto silent = [&](std::string_view client) {
    return c.deadlines.SilentMs(id, client, c.store.now_ms);
  };
  EXPECT_EQ(silent("c1"), 0);
  EXPECT_EQ(silent("c2"), std::nullopt) << "it has claimed nothing";
  c.store.now_ms += 700;
  EXPECT_EQ(silent("c1"), 700);
  EXPECT_TRUE(c.deadlines.KeepImport(c.store.catalog(), id, "c2", c.store.now_ms).ok());
  EXPECT_EQ(silent("c1"), 700) << "another client's renewal says nothing of it";
  EXPECT_EQ(silent("c2"), std::nullopt);
  EXPECT_TRUE(c.deadlines.KeepImport(c.store.catalog(), id, "c1", c.store.now_ms).ok());
  c.store.now_ms += 30;
  EXPECT_EQ(silent("c1"), 30);
  // After its receipt too: it may still have to commit.
  c.Apply(DecideReceipt(c.store.catalog(), {"c1", id, "p0", DigestsOf("p0", "A"), false})->events);
  EXPECT_EQ(silent("c1"), 30);
  c.deadlines.Restart(c.store.catalog(), c.store.now_ms);
  EXPECT_GT(silent("c1"), 1'000'000'000) << "a restarted Master has heard nobody";
  EXPECT_TRUE(c.deadlines.KeepImport(c.store.catalog(), id, "c1", c.store.now_ms).ok());
  EXPECT_EQ(silent("c1"), 0);
  c.Apply(DecideExpireImport(c.store.catalog(), id, "over"));
  EXPECT_EQ(silent("c1"), std::nullopt);
}

TEST(Deadlines, UnclaimedSessionsExpireToo) {
  Clocked c;
  c.Begin("c1", {});
  c.store.now_ms += 10'000;
  EXPECT_EQ(c.Expired(), "1: none of its clients renewed it for 10000 ms; ");
}

}  // namespace
}  // namespace mooncake::weights

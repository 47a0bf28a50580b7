#include "weights/event_codec.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>

#include "weights/catalog.h"
#include "weights/test_store.h"

namespace mooncake::weights {
namespace {

std::vector<Event> OneOfEach() {
  return {
      ImportBegun{IdentityOf("Qwen/é", UINT64_MAX),
                  ImportId(1),
                  "sha256:p",
                  Sha256Of("plan"),
                  {"p0", "p1"},
                  "2026-08-01T00:00:00Z",
                  {model::Residency::kCold, 0.25, model::MigrationMode::kPinned},
                  "note",
                  10'000,
                  {"n1", "n2"}},
      Claimed{ImportId(1), 1, "client", 20'000},
      ReceiptAccepted{ImportId(1), 1, DigestsOf("p1", "B")},
      Committed{ImportId(1),
                {"manifest", 5, Sha256Of("m"), "n1"},
                {"affinity", 6, Sha256Of("a"), "n2"},
                Sha256Of("keys"),
                7,
                1ull << 40,
                3,
                Sha256Of("root")},
      Aborted{ImportId(1), "replicas differ", Code::kConflict, "blue"},
      AvailabilityChanged{ImportId(1), model::Availability::kDegraded, "node n1 is not reporting"},
      LeaseAcquired{LeaseId(4), ImportId(1), 5000, "host:1"},
      LeasesEnded{{LeaseId(4), LeaseId(UINT64_MAX)}, true},
      DeletionBegun{ImportId(1)},
      Deleted{ImportId(1)},
  };
}

TEST(EventCodec, RoundTripsEveryEvent) {
  const std::vector<Event> events = OneOfEach();
  EXPECT_EQ(events.size(), std::variant_size_v<Event>);
  for (const Event& event : events) {
    const v1::LogEvent logged = EncodeEvent(event);
    EXPECT_TRUE(HandlesKind(logged.kind()));
    EXPECT_EQ(logged.version(), kEventVersion);
    EXPECT_EQ(logged.oldest_reader(), kEventVersion);
    const auto decoded = DecodeEvent(logged);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(*decoded, event);
  }
}

// Logs from before there were codes have none.
TEST(EventCodec, AnAbortWithoutACodeWasCancelled) {
  v1::LogEvent logged = EncodeEvent(Aborted{ImportId(1), "cancelled"});
  v1::RevisionEvent body;
  ASSERT_TRUE(body.ParseFromString(logged.body()));
  EXPECT_EQ(body.aborted().code(), 0u);
  EXPECT_EQ(*DecodeEvent(logged), Event(Aborted{ImportId(1), "cancelled", Code::kCancelled}));
  body.mutable_aborted()->set_code(7);
  logged.set_body(body.SerializeAsString());
  EXPECT_EQ(DecodeEvent(logged).status().ToString(),
            "CORRUPT: an import is aborted with code 7: expected 0 or 4");
}

TEST(EventCodec, RefusesForeignAndNewerEvents) {
  v1::LogEvent logged = EncodeEvent(OneOfEach()[0]);
  for (const uint32_t kind : {0u, 1u, 3u, 10u, 12u, 32u, 4000u}) {
    logged.set_kind(kind);
    EXPECT_FALSE(HandlesKind(kind));
    EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kUnsupported) << kind;
  }
  logged = EncodeEvent(OneOfEach()[0]);
  logged.set_version(9);
  EXPECT_TRUE(DecodeEvent(logged).ok()) << "a newer event that old readers may read";
  logged.set_oldest_reader(2);
  EXPECT_EQ(DecodeEvent(logged).status().message(),
            "event of kind 8 needs a reader of version 2, this is 1");
}

TEST(EventCodec, RefusesBodiesThatAreNoEvent) {
  v1::LogEvent logged;
  for (const uint32_t kind : {8u, 9u, 11u}) {
    logged.set_kind(kind);
    logged.set_body("");
    EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kCorrupt) << "empty, kind " << kind;
    logged.set_body("\xff\xff\xff");
    EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kCorrupt) << kind;
  }
  const auto refused = [](auto change) {
    v1::LogEvent event = EncodeEvent(OneOfEach()[0]);
    v1::RevisionEvent body;
    EXPECT_TRUE(body.ParseFromString(event.body()));
    change(*body.mutable_import_begun());
    event.set_body(body.SerializeAsString());
    return DecodeEvent(event).status().ToString();
  };
  EXPECT_EQ(refused([](auto& b) { b.clear_policy(); }),
            "CORRUPT: expected preferred_residency from 1 to 5, got 0");
  EXPECT_EQ(refused([](auto& b) { b.mutable_policy()->set_mixed_hot_ratio(1); }),
            "CORRUPT: mixed_hot_ratio must lie between 0 and 1, both excluded, got 1");
  EXPECT_EQ(refused([](auto& b) {
              b.mutable_policy()->set_preferred_residency(static_cast<v1::Residency>(258));
            }),
            "CORRUPT: expected preferred_residency from 1 to 5, got 258");
  EXPECT_EQ(refused([](auto& b) {
              b.mutable_policy()->set_migration_mode(static_cast<v1::MigrationMode>(257));
            }),
            "CORRUPT: expected migration_mode from 1 to 3, got 257");
  EXPECT_EQ(refused([](auto& b) { b.set_plan_sha256("short"); }),
            "CORRUPT: expected 32 bytes of plan_sha256, got 5");
  v1::RevisionEvent changed;
  changed.mutable_availability_changed()->set_availability(v1::AVAILABILITY_DELETED);
  logged.set_kind(v1::EVENT_KIND_REVISION);
  logged.set_body(changed.SerializeAsString());
  EXPECT_EQ(DecodeEvent(logged).status().message(),
            "a logged change of availability is to number 5");
}

// Mutated and random bytes: refused or applied, never a crash, never a broken invariant.
TEST(EventCodec, HostileBytes) {
  constexpr uint64_t kSeed = 815;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  std::mt19937_64 rng(kSeed);
  const google::protobuf::LogSilencer quiet;  // it reports each text that is not UTF-8
  const std::vector<Event> events = OneOfEach();
  const uint32_t kinds[] = {8, 9, 11};
  uint64_t decoded_count = 0;
  Catalog catalog;
  for (int i = 0; i < 60'000; ++i) {
    v1::LogEvent logged = EncodeEvent(events[rng() % events.size()]);
    std::string& body = *logged.mutable_body();
    if (i % 10 == 0) {
      body.resize(rng() % 64);
      for (char& c : body) c = static_cast<char>(rng());
      logged.set_kind(kinds[rng() % 3]);
    } else {
      for (uint64_t flips = rng() % 4; flips > 0 && !body.empty(); --flips) {
        body[rng() % body.size()] = static_cast<char>(rng());
      }
      if (rng() % 8 == 0) body.resize(rng() % (body.size() + 1));
    }
    const auto event = DecodeEvent(logged);
    if (!event.ok()) {
      EXPECT_EQ(event.status().code(), Code::kCorrupt);
      continue;
    }
    ++decoded_count;
    const Status applied = catalog.Apply(*event, i);
    if (!applied.ok()) {
      EXPECT_EQ(applied.code(), Code::kCorrupt);
    }
    if (i % 16 == 0) {
      const Status invariants = catalog.CheckInvariants();
      ASSERT_TRUE(invariants.ok()) << invariants.ToString() << " at " << i;
    }
    if (i % 1000 == 999) catalog = Catalog();
  }
  EXPECT_GT(decoded_count, 1000u);
}

}  // namespace
}  // namespace mooncake::weights

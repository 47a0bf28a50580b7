#include "objects/event_codec.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>

#include "objects/catalog.h"

namespace mooncake::objects {
namespace {

std::vector<Event> OneOfEach() {
  return {
      NodeJoined{{"n1", "i1", "host", "/run/n1.sock"}, 1ull << 40, true},
      NodeLeft{"n1"},
      ArenaReserved{ArenaId(1), ImportId(2), "n1", "i1", 1 << 20},
      ObjectsReserved{
          ImportId(2), 3, {{"a", 10, 0, ArenaId(1), 0}, {"b", 1ull << 33, 7, ArenaId(1), 4096}}},
      MetadataStored{ImportId(2), {{"manifest", 5, Sha256Of("m"), "n1"}}},
      ObjectsRemoved{ImportId(2), {"a", "b"}},
      ArenasReleasing{{ArenaId(1), ArenaId(UINT64_MAX)}},
      GroupRemoved{ImportId(2)},
      ArenasReleased{{ArenaId(1)}},
      MetadataReleased{"n1", {ImportId(2), ImportId(5)}},
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

TEST(EventCodec, RefusesForeignAndNewerEvents) {
  v1::LogEvent logged = EncodeEvent(OneOfEach()[0]);
  for (const uint32_t kind : {0u, 4u, 8u, 12u, 32u, 4000u}) {
    logged.set_kind(kind);
    EXPECT_FALSE(HandlesKind(kind));
    EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kUnsupported) << kind;
  }
  logged = EncodeEvent(OneOfEach()[0]);
  logged.set_version(9);
  EXPECT_TRUE(DecodeEvent(logged).ok()) << "a newer event that old readers may read";
  logged.set_oldest_reader(2);
  EXPECT_EQ(DecodeEvent(logged).status().message(),
            "event of kind 3 needs a reader of version 2, this is 1");
}

TEST(EventCodec, RefusesBodiesThatAreNoEvent) {
  for (const uint32_t kind : {1u, 2u, 3u}) {
    v1::LogEvent logged;
    logged.set_kind(kind);
    logged.set_version(1);
    logged.set_oldest_reader(1);
    EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kCorrupt) << "empty, kind " << kind;
    logged.set_body("\xff\xff\xff");
    EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kCorrupt) << kind;
  }
  v1::ObjectEvent uneven;
  uneven.mutable_reserved()->add_names("a");
  v1::LogEvent logged;
  logged.set_kind(v1::EVENT_KIND_OBJECT);
  logged.set_body(uneven.SerializeAsString());
  EXPECT_EQ(DecodeEvent(logged).status().message(),
            "a logged reservation of 1 objects has columns of other lengths");
  v1::ObjectEvent short_digest;
  short_digest.mutable_metadata_stored()->add_objects()->set_name("manifest");
  logged.set_body(short_digest.SerializeAsString());
  EXPECT_EQ(DecodeEvent(logged).status().ToString(),
            "CORRUPT: expected 32 bytes of sha256 of manifest, got 0");
}

// Mutated and random bytes: refused or applied, never a crash, never a broken invariant.
TEST(EventCodec, HostileBytes) {
  constexpr uint64_t kSeed = 4711;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  std::mt19937_64 rng(kSeed);
  const google::protobuf::LogSilencer quiet;  // it reports each text that is not UTF-8
  const std::vector<Event> events = OneOfEach();
  uint64_t decoded_count = 0;
  Catalog catalog;
  for (int i = 0; i < 60'000; ++i) {
    v1::LogEvent logged = EncodeEvent(events[rng() % events.size()]);
    std::string& body = *logged.mutable_body();
    if (i % 10 == 0) {
      body.resize(rng() % 64);
      for (char& c : body) c = static_cast<char>(rng());
      logged.set_kind(1 + static_cast<uint32_t>(rng() % 3));
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
    const Status applied = catalog.Apply(*event);
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
}  // namespace mooncake::objects

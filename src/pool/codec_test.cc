#include <gtest/gtest.h>

#include "pool/event_codec.h"
#include "pool/snapshot_codec.h"
#include "pool/test_pool.h"

namespace mooncake::pool {
namespace {

std::vector<Event> OneOfEach() {
  PutsStarted started{"client",
                      7,
                      "tenant",
                      3,
                      true,
                      SoftPin::kEnable,
                      500,
                      {{ObjectId(4), std::string("\xff\x00k", 3), 10, "g", {{ArenaId(2), 64}}},
                       {ObjectId(5), "plain", 1, "", {{ArenaId(2), 256}, {ArenaId(3), 0}}}}};
  return {SlabAdded{ArenaId(2), "tenant", "node", 4096},
          SlabsGone{{ArenaId(2), ArenaId(3)}},
          started,
          PutsEnded{{ObjectId(4), ObjectId(5)}},
          ObjectsDropped{{ObjectId(4)}, DropCause::kExpired},
          ReplicaDropped{ObjectId(5), ArenaId(3)},
          TenantSet{"tenant", 100, 3},
          TenantRemoved{"tenant"}};
}

TEST(CodecTest, EveryEventComesBack) {
  for (const Event& event : OneOfEach()) {
    const v1::LogEvent logged = EncodeEvent(event);
    EXPECT_TRUE(HandlesKind(logged.kind()));
    const Result<Event> decoded = DecodeEvent(logged);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_TRUE(*decoded == event) << "kind " << logged.kind();
  }
}

TEST(CodecTest, RefusesWhatIsNoEvent) {
  v1::LogEvent logged = EncodeEvent(PutsEnded{{ObjectId(1)}});
  logged.set_oldest_reader(kEventVersion + 1);
  EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kUnsupported);
  logged = EncodeEvent(PutsEnded{{ObjectId(1)}});
  logged.set_body("\xff\xff\xff");
  EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kCorrupt);
  logged.set_body("");
  EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kCorrupt);
  logged.set_kind(v1::EVENT_KIND_REVISION);
  EXPECT_EQ(DecodeEvent(logged).status().code(), Code::kUnsupported);

  v1::PutEvent body;
  body.mutable_dropped()->set_cause(99);
  logged.set_kind(v1::EVENT_KIND_PUT);
  logged.set_body(body.SerializeAsString());
  EXPECT_EQ(DecodeEvent(logged).status().message(), "a cause of dropping must be 1 to 5, got 99");
  body.Clear();
  body.mutable_started()->add_objects()->add_slab_ids(1);
  logged.set_body(body.SerializeAsString());
  EXPECT_EQ(DecodeEvent(logged).status().message(), "an object has 1 slabs and 0 offsets");
}

TEST(CodecTest, AnEmptyCatalogueIsNoRecord) {
  int records = 0;
  SaveSnapshot(Catalog(), [&records](std::string_view) { ++records; });
  EXPECT_EQ(records, 0);
  EXPECT_TRUE(SnapshotLoader().Take().empty());
}

TEST(CodecTest, ASnapshotThatContradictsItselfIsCorrupt) {
  const auto record = [](auto&& fill) {
    v1::PoolRecord one;
    fill(one);
    return one.SerializeAsString();
  };
  const std::string counters =
      record([](auto& one) { one.mutable_counters()->set_next_object_id(9); });
  const std::string tenant = record([](auto& one) { one.mutable_tenant()->set_tenant_id("t"); });
  const std::string slab = record([](auto& one) {
    one.mutable_slab()->set_slab_id(1);
    one.mutable_slab()->set_tenant_id("t");
    one.mutable_slab()->set_node_id("n");
    one.mutable_slab()->set_bytes(4096);
  });
  const auto object = [&](uint64_t id, const std::string& client) {
    return record([&](auto& one) {
      auto& saved = *one.mutable_object();
      saved.set_tenant_id("t");
      saved.set_client_id(client);
      saved.mutable_object()->set_object_id(id);
      saved.mutable_object()->set_key("k");
      saved.mutable_object()->set_bytes(8);
      saved.mutable_object()->add_slab_ids(1);
      saved.mutable_object()->add_offsets(id * 128);
    });
  };
  const auto load = [](const std::vector<std::string>& records) {
    SnapshotLoader loader;
    for (const std::string& one : records) {
      const Status added = loader.Add(one);
      if (!added.ok()) return added.code();
    }
    return Code::kOk;
  };
  EXPECT_EQ(load({counters, tenant, slab, object(1, ""), object(2, "writer")}), Code::kOk);
  EXPECT_EQ(load({tenant}), Code::kCorrupt);
  EXPECT_EQ(load({counters, counters}), Code::kCorrupt);
  EXPECT_EQ(load({counters, tenant, tenant}), Code::kCorrupt);
  EXPECT_EQ(load({counters, slab}), Code::kCorrupt);
  EXPECT_EQ(load({counters, tenant, slab, object(1, ""), object(2, "")}), Code::kCorrupt);
  EXPECT_EQ(load({counters, tenant, slab, object(1, "writer"), object(2, "")}), Code::kCorrupt);
  EXPECT_EQ(load({counters, tenant, slab, object(2, ""), object(1, "w")}), Code::kCorrupt);
  EXPECT_EQ(load({counters, tenant, object(1, "")}), Code::kCorrupt);
  EXPECT_EQ(load({counters, std::string("\xff\xff")}), Code::kCorrupt);
}

}  // namespace
}  // namespace mooncake::pool

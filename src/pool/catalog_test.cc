#include "pool/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "pool/snapshot_codec.h"
#include "pool/test_pool.h"

namespace mooncake::pool {
namespace {

void ExpectCorrupt(const Catalog& catalog, const Event& event) {
  Catalog copy = catalog;
  EXPECT_EQ(copy.Apply(event, 1).code(), Code::kCorrupt);
}

Catalog Restored(const Catalog& catalog) {
  SnapshotLoader loader;
  SaveSnapshot(catalog, [&loader](std::string_view record) {
    const Status added = loader.Add(record);
    ASSERT_TRUE(added.ok()) << added.ToString();
  });
  return loader.Take();
}

TEST(CatalogTest, APutIsInvisibleUntilItEnds) {
  TestPool pool;
  pool.AddSlab(1);
  pool.Apply(pool.Started({pool.Object(5, "k", 100, {{1, 0}})}));
  EXPECT_EQ(pool.catalog.FindReadable("t", "k"), nullptr);
  ASSERT_NE(pool.catalog.FindUnfinished("t", "k"), nullptr);
  EXPECT_EQ(pool.catalog.FindTenant("t")->used_bytes, 64u + 128u);
  pool.Apply(PutsEnded{{ObjectId(5)}});
  ASSERT_NE(pool.catalog.FindReadable("t", "k"), nullptr);
  EXPECT_EQ(pool.catalog.FindReadable("t", "k")->ready_ms, 1000);
  EXPECT_EQ(pool.catalog.FindUnfinished("t", "k"), nullptr);
  EXPECT_EQ(pool.catalog.FindReadable("other", "k"), nullptr);
  EXPECT_EQ(pool.catalog.FindTenant("t")->object_count, 1u);
  EXPECT_EQ(pool.catalog.next_object_id(), ObjectId(6));
}

TEST(CatalogTest, AnUpsertTakesThePlaceOfTheOldObjectOnlyAtItsEnd) {
  TestPool pool;
  pool.AddSlab(1);
  const uint64_t old = pool.Put("k", 100, "", /*hard_pin=*/true, SoftPin::kEnable, 500);
  pool.Apply(pool.Started({pool.Object(9, "k", 200, {{1, 1024}})}));
  EXPECT_EQ(pool.catalog.FindReadable("t", "k")->object_id, ObjectId(old));
  pool.now_ms = 1200;
  pool.Apply(PutsEnded{{ObjectId(9)}});
  const Object* now = pool.catalog.FindReadable("t", "k");
  ASSERT_NE(now, nullptr);
  EXPECT_EQ(now->object_id, ObjectId(9));
  EXPECT_TRUE(now->hard_pin);  // sticky
  EXPECT_EQ(now->soft_pin_until_ms, 1500);
  EXPECT_EQ(pool.catalog.Find(ObjectId(old)), nullptr);
  EXPECT_EQ(pool.catalog.FindTenant("t")->used_bytes, ExtentBytes(200));
}

TEST(CatalogTest, WhatLiesInASlabGoesWithItUnlessItLiesElsewhereToo) {
  TestPool pool;
  pool.AddSlab(1, "n1");
  pool.AddSlab(2, "n2");
  pool.Apply(pool.Started({pool.Object(1, "one", 100, {{1, 0}}),
                           pool.Object(2, "both", 100, {{1, 1024}, {2, 0}}),
                           pool.Object(3, "unfinished", 100, {{1, 2048}})}));
  pool.Apply(PutsEnded{{ObjectId(1), ObjectId(2)}});
  pool.Apply(SlabsGone{{ArenaId(1)}});
  EXPECT_EQ(pool.catalog.FindReadable("t", "one"), nullptr);
  EXPECT_EQ(pool.catalog.FindUnfinished("t", "unfinished"), nullptr);
  const Object* both = pool.catalog.FindReadable("t", "both");
  ASSERT_NE(both, nullptr);
  ASSERT_EQ(both->replicas().size(), 1u);
  EXPECT_EQ(pool.catalog.slab(both->replicas()[0].slab).slab_id, ArenaId(2));
  EXPECT_TRUE(pool.catalog.CheckInvariants().ok());
  pool.Apply(ReplicaDropped{ObjectId(2), ArenaId(2)});
  EXPECT_EQ(pool.catalog.Find(ObjectId(2)), nullptr);
  EXPECT_EQ(pool.catalog.used_bytes(), 0u);
}

TEST(CatalogTest, EventsThatDoNotFitAreCorrupt) {
  TestPool pool;
  pool.AddSlab(1);
  pool.AddSlab(2, "n1", 64 * 1024, "other");
  pool.Put("k", 100);
  const Catalog& c = pool.catalog;
  ExpectCorrupt(c, SlabAdded{ArenaId(1), "t", "n1", 4096});
  ExpectCorrupt(c, SlabAdded{ArenaId(3), "t", "", 4096});
  ExpectCorrupt(c, SlabAdded{ArenaId(3), "t", "n1", 64});
  ExpectCorrupt(c, SlabsGone{{ArenaId(7)}});
  ExpectCorrupt(c, pool.Started({}));
  ExpectCorrupt(c, pool.Started({pool.Object(1, "x", 10, {{1, 1024}})}));   // id was given
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{1, 0}})}));      // overlaps
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{1, 1000}})}));   // not aligned
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{1, 65'536}})})); // outside
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{2, 0}})}));      // another's slab
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{1, 1024}, {1, 2048}})}));
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 0, {{1, 1024}})}));
  ExpectCorrupt(c, pool.Started({pool.Object(9, "", 10, {{1, 1024}})}));
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {})}));
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{1, 1024}}),
                                 pool.Object(10, "x", 10, {{1, 2048}})}));  // one key twice
  ExpectCorrupt(c, PutsEnded{{ObjectId(1)}});
  ExpectCorrupt(c, ObjectsDropped{{ObjectId(4)}, DropCause::kRemoved});
  ExpectCorrupt(c, ReplicaDropped{ObjectId(1), ArenaId(2)});
  ExpectCorrupt(c, TenantRemoved{"t"});
  ExpectCorrupt(c, TenantRemoved{"nobody"});
  EXPECT_TRUE(c.CheckInvariants().ok());
}

TEST(CatalogTest, ALeaseOnOneMemberProtectsTheGroup) {
  TestPool pool;
  pool.AddSlab(1);
  const uint64_t a = pool.Put("a", 10, "g");
  const uint64_t b = pool.Put("b", 10, "g");
  const uint64_t c = pool.Put("c", 10);
  pool.catalog.ExtendLease(*pool.catalog.Find(ObjectId(a)), 5000);
  pool.catalog.ExtendLease(*pool.catalog.Find(ObjectId(a)), 4000);
  EXPECT_EQ(pool.catalog.LeaseOf(*pool.catalog.Find(ObjectId(a))), 5000);
  EXPECT_EQ(pool.catalog.LeaseOf(*pool.catalog.Find(ObjectId(b))), 5000);
  EXPECT_EQ(pool.catalog.LeaseOf(*pool.catalog.Find(ObjectId(c))), 0);
  const Sha256Digest leased = pool.catalog.Digest();
  EXPECT_EQ(Restored(pool.catalog).Digest(), leased);  // no part of the state
}

// Random histories against maps; live, restored and replayed states are one.
TEST(CatalogTest, AgreesWithMapsOverRandomHistories) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  TestPool pool;
  std::map<std::string, uint64_t> readable;    // key -> id
  std::map<std::string, uint64_t> unfinished;  // key -> id
  std::map<uint64_t, uint64_t> sizes;
  uint64_t next_slab = 1;
  for (int i = 0; i < 3; ++i) pool.AddSlab(next_slab++, "n" + std::to_string(i % 2), 8192);
  const auto forget = [&](uint64_t id) {
    std::erase_if(readable, [id](const auto& one) { return one.second == id; });
    std::erase_if(unfinished, [id](const auto& one) { return one.second == id; });
    sizes.erase(id);
  };
  const auto any_id = [&]() -> uint64_t {
    if (sizes.empty()) return 0;
    return std::next(sizes.begin(), static_cast<long>(random() % sizes.size()))->first;
  };
  for (int step = 0; step < 4000; ++step) {
    pool.now_ms += static_cast<int64_t>(random() % 3);
    const std::string key = "key" + std::to_string(random() % 40);
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: {
        if (unfinished.contains(key) || pool.catalog.slabs().empty()) break;
        const uint64_t bytes = 1 + random() % 700;
        const auto slab = std::next(pool.catalog.slabs().begin(),
                                    static_cast<long>(random() % pool.catalog.slabs().size()));
        const auto offset = pool.catalog.slab(slab->second).space.Find(ExtentBytes(bytes));
        if (!offset) break;
        const uint64_t id = pool.catalog.next_object_id().value + random() % 3;
        const std::string group = random() % 2 == 0 ? "g" + std::to_string(random() % 3) : "";
        pool.Apply(
            pool.Started({pool.Object(id, key, bytes, {{slab->first.value, *offset}}, group)}));
        unfinished[key] = id;
        sizes[id] = bytes;
        break;
      }
      case 3:
      case 4: {
        if (!unfinished.contains(key)) break;
        const uint64_t id = unfinished[key];
        pool.Apply(PutsEnded{{ObjectId(id)}});
        if (readable.contains(key)) forget(readable[key]);
        unfinished.erase(key);
        readable[key] = id;
        break;
      }
      case 5: {
        const uint64_t id = any_id();
        if (id == 0) break;
        pool.Apply(ObjectsDropped{{ObjectId(id)}, DropCause::kEvicted});
        forget(id);
        break;
      }
      case 6: {
        if (random() % 20 != 0 || pool.catalog.slabs().empty()) break;
        const ArenaId gone = pool.catalog.slabs().begin()->first;
        for (const uint32_t slot : pool.catalog.FindSlab(gone)->members) {
          forget(pool.catalog.AtSlot(slot)->object_id.value);
        }
        pool.Apply(SlabsGone{{gone}});
        pool.AddSlab(next_slab++, "n" + std::to_string(random() % 2), 8192);
        break;
      }
      default:
        break;
    }
    uint64_t used = 0;
    for (const auto& [id, bytes] : sizes) used += ExtentBytes(bytes);
    ASSERT_EQ(pool.catalog.used_bytes(), used);
    ASSERT_EQ(pool.catalog.object_count(), sizes.size());
    const Object* found = pool.catalog.FindReadable("t", key);
    ASSERT_EQ(found == nullptr ? 0 : found->object_id.value,
              readable.contains(key) ? readable[key] : 0);
    if (step % 50 != 0) continue;
    const Status whole = pool.catalog.CheckInvariants();
    ASSERT_TRUE(whole.ok()) << whole.ToString();
    const Catalog restored = Restored(pool.catalog);
    ASSERT_TRUE(restored.CheckInvariants().ok());
    ASSERT_EQ(restored.Digest(), pool.catalog.Digest());
  }
}

}  // namespace
}  // namespace mooncake::pool

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
  ExpectCorrupt(c, pool.Started({pool.Object(1, "x", 10, {{1, 1024}})}));    // id was given
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{1, 0}})}));       // overlaps
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{1, 1000}})}));    // not aligned
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{1, 65'536}})}));  // outside
  ExpectCorrupt(c, pool.Started({pool.Object(9, "x", 10, {{2, 0}})}));       // another's slab
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
class History : public testing::Test {
 protected:
  History() {
    for (int i = 0; i < 3; ++i) pool_.AddSlab(next_slab_++, "n" + std::to_string(i % 2), 8192);
  }

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  std::string AnyKey() { return "key" + std::to_string(Below(40)); }
  void Forget(uint64_t id) {
    std::erase_if(readable_, [id](const auto& one) { return one.second == id; });
    std::erase_if(unfinished_, [id](const auto& one) { return one.second == id; });
    sizes_.erase(id);
  }

  void Start(const std::string& key) {
    if (unfinished_.contains(key)) return;
    const uint64_t bytes = 1 + Below(700);
    const auto slab = std::next(pool_.catalog.slabs().begin(),
                                static_cast<long>(Below(pool_.catalog.slabs().size())));
    const auto offset = pool_.catalog.slab(slab->second).space.Find(ExtentBytes(bytes));
    if (!offset) return;
    const uint64_t id = pool_.catalog.next_object_id().value + Below(3);
    const std::string group = Below(2) == 0 ? "g" + std::to_string(Below(3)) : "";
    pool_.Apply(
        pool_.Started({pool_.Object(id, key, bytes, {{slab->first.value, *offset}}, group)}));
    unfinished_[key] = id;
    sizes_[id] = bytes;
  }
  void End(const std::string& key) {
    if (!unfinished_.contains(key)) return;
    const uint64_t id = unfinished_[key];
    pool_.Apply(PutsEnded{{ObjectId(id)}});
    if (readable_.contains(key)) Forget(readable_[key]);
    unfinished_.erase(key);
    readable_[key] = id;
  }
  void Drop() {
    if (sizes_.empty()) return;
    const uint64_t id = std::next(sizes_.begin(), static_cast<long>(Below(sizes_.size())))->first;
    pool_.Apply(ObjectsDropped{{ObjectId(id)}, DropCause::kEvicted});
    Forget(id);
  }
  void LoseASlab() {
    const ArenaId gone = pool_.catalog.slabs().begin()->first;
    for (const uint32_t slot : pool_.catalog.FindSlab(gone)->members) {
      Forget(pool_.catalog.AtSlot(slot)->object_id.value);
    }
    pool_.Apply(SlabsGone{{gone}});
    pool_.AddSlab(next_slab_++, "n" + std::to_string(Below(2)), 8192);
  }

  void Compare(const std::string& key) {
    uint64_t used = 0;
    for (const auto& [id, bytes] : sizes_) used += ExtentBytes(bytes);
    ASSERT_EQ(pool_.catalog.used_bytes(), used);
    ASSERT_EQ(pool_.catalog.object_count(), sizes_.size());
    const Object* found = pool_.catalog.FindReadable("t", key);
    ASSERT_EQ(found == nullptr ? 0 : found->object_id.value,
              readable_.contains(key) ? readable_[key] : 0);
  }
  void CompareRestored() {
    const Status whole = pool_.catalog.CheckInvariants();
    ASSERT_TRUE(whole.ok()) << whole.ToString();
    const Catalog restored = Restored(pool_.catalog);
    ASSERT_TRUE(restored.CheckInvariants().ok());
    ASSERT_EQ(restored.Digest(), pool_.catalog.Digest());
  }

  const uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  TestPool pool_;
  std::map<std::string, uint64_t> readable_;    // key -> id
  std::map<std::string, uint64_t> unfinished_;  // key -> id
  std::map<uint64_t, uint64_t> sizes_;
  uint64_t next_slab_ = 1;
};

TEST_F(History, AgreesWithMaps) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  for (int step = 0; step < 4000; ++step) {
    pool_.now_ms += static_cast<int64_t>(Below(3));
    const std::string key = AnyKey();
    const uint64_t kind = Below(8);
    if (kind < 3) {
      Start(key);
    } else if (kind < 5) {
      End(key);
    } else if (kind == 5) {
      Drop();
    } else if (kind == 6 && Below(20) == 0) {
      LoseASlab();
    }
    Compare(key);
    if (step % 50 == 0) CompareRestored();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace mooncake::pool

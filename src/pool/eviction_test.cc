#include "pool/eviction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "pool/test_pool.h"

namespace mooncake::pool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class EvictionTest : public testing::Test {
 protected:
  EvictionRules Rules() const { return {.now_ms = pool_.now_ms, .lease_ms = 1000}; }
  Dice Chance() {
    return [this](uint64_t bound) { return random_() % bound; };
  }
  const Tenant& tenant() { return *pool_.catalog.FindTenant("t"); }
  std::vector<uint64_t> Victims(const EvictionRules& rules) {
    return Numbers(ChooseVictims(pool_.catalog, tenant(), rules, nullptr, Chance()));
  }
  std::vector<uint64_t> Row(uint64_t bytes, const EvictionRules& rules) {
    std::vector<ObjectId> progress;
    auto row = ChooseRow(pool_.catalog, tenant(), bytes, rules, nullptr, Chance(), &progress);
    EXPECT_THAT(progress, IsEmpty());
    return Numbers(row);
  }
  static std::vector<uint64_t> Numbers(const std::vector<ObjectId>& ids) {
    std::vector<uint64_t> numbers;
    for (const ObjectId id : ids) numbers.push_back(id.value);
    return numbers;
  }
  const Object& At(uint64_t id) { return *pool_.catalog.Find(ObjectId(id)); }

  TestPool pool_;
  std::mt19937_64 random_{1};
};

TEST_F(EvictionTest, TheOneUsedLongestAgoGoes) {
  pool_.AddSlab(1);
  const uint64_t old = pool_.Put("old", 10);
  pool_.now_ms += 100;
  const uint64_t young = pool_.Put("young", 10);
  EXPECT_THAT(Victims(Rules()), ElementsAre(old));
  // Used again, and the lease of that use over.
  pool_.catalog.ExtendLease(At(old), pool_.now_ms + 1 + 1000);
  pool_.now_ms += 2000;
  EXPECT_THAT(Victims(Rules()), ElementsAre(young));
}

TEST_F(EvictionTest, LeasedPinnedUnfinishedAndForeignOnesStay) {
  pool_.AddSlab(1);
  pool_.AddSlab(2, "n1", 64 * 1024, "other");
  const uint64_t leased = pool_.Put("leased", 10);
  pool_.Put("hard", 10, "", /*hard_pin=*/true);
  pool_.Apply(pool_.Started({pool_.Object(50, "unfinished", 10, {{1, 4096}})}));
  pool_.Apply(pool_.Started({pool_.Object(60, "foreign", 10, {{2, 0}})}, "other"));
  pool_.Apply(PutsEnded{{ObjectId(60)}});
  pool_.catalog.ExtendLease(At(leased), pool_.now_ms + 1);
  EXPECT_THAT(Victims(Rules()), IsEmpty());
  EXPECT_THAT(Row(64 * 1024 - 64, Rules()), IsEmpty());
  pool_.now_ms += 1;
  EXPECT_THAT(Victims(Rules()), ElementsAre(leased));
}

TEST_F(EvictionTest, SoftPinnedOnesGoLastOrNever) {
  pool_.AddSlab(1);
  const uint64_t soft = pool_.Put("soft", 10, "", false, SoftPin::kEnable, 5000);
  pool_.now_ms += 10;
  const uint64_t plain = pool_.Put("plain", 10);
  EXPECT_THAT(Victims(Rules()), ElementsAre(plain));
  pool_.Apply(ObjectsDropped{{ObjectId(plain)}, DropCause::kEvicted});
  EXPECT_THAT(Victims(Rules()), ElementsAre(soft));
  EvictionRules never = Rules();
  never.evict_soft_pinned = false;
  EXPECT_THAT(Victims(never), IsEmpty());
  never.now_ms += 5000;  // pinned no more
  EXPECT_THAT(Victims(never), ElementsAre(soft));
}

TEST_F(EvictionTest, GroupsGoAsAWholeOrStayAsAWhole) {
  pool_.AddSlab(1);
  const uint64_t a = pool_.Put("a", 10, "g");
  const uint64_t b = pool_.Put("b", 10, "g");
  pool_.Put("c", 10, "g", /*hard_pin=*/true);
  EXPECT_THAT(Victims(Rules()), UnorderedElementsAre(a, b));  // the hard-pinned one stays
  pool_.catalog.ExtendLease(At(b), pool_.now_ms + 100);
  EXPECT_THAT(Victims(Rules()), IsEmpty());
  pool_.now_ms += 100;
  EXPECT_THAT(Row(10, Rules()), testing::SizeIs(2));
}

TEST_F(EvictionTest, LeasesFromBeforeARestartAreHonoured) {
  pool_.AddSlab(1);
  const uint64_t before = pool_.Put("before", 10);
  EvictionRules rules = Rules();
  rules.grace_below = ObjectId(before + 1);
  rules.grace_until_ms = pool_.now_ms + 1000;
  EXPECT_THAT(Victims(rules), IsEmpty());
  rules.now_ms = rules.grace_until_ms;
  EXPECT_THAT(Victims(rules), ElementsAre(before));
}

TEST_F(EvictionTest, ARowIsOfTheOldestNeighbours) {
  pool_.AddSlab(1, "n1", 8 * 1024);
  std::vector<uint64_t> ids;
  for (int i = 0; i < 8; ++i) {  // eight extents of 1 KiB fill the slab
    pool_.now_ms += 10;
    ids.push_back(pool_.Put("k" + std::to_string(i), 1024 - kExtentHeaderBytes));
  }
  pool_.catalog.ExtendLease(At(ids[0]), pool_.now_ms + 50'000);
  pool_.now_ms += 2000;
  EXPECT_THAT(Row(3 * 1024, Rules()), UnorderedElementsAre(ids[1], ids[2], ids[3]));
  // 2 and 3 are used again: the next oldest three in a row are 4, 5, 6.
  pool_.catalog.ExtendLease(At(ids[3]), pool_.now_ms - 1);
  EXPECT_THAT(Row(3 * 1024, Rules()), UnorderedElementsAre(ids[4], ids[5], ids[6]));
  // A bar in the middle leaves [1..3] and [5..7].
  pool_.catalog.ExtendLease(At(ids[4]), pool_.now_ms + 50'000);
  EXPECT_THAT(Row(4 * 1024, Rules()), IsEmpty());
}

TEST_F(EvictionTest, ARowCountsTheFreeSpaceAroundIt) {
  pool_.AddSlab(1, "n1", 4 * 1024);
  const uint64_t only = pool_.Put("k", 1024 - kExtentHeaderBytes);
  EXPECT_THAT(Row(4 * 1024, Rules()), ElementsAre(only));
  EXPECT_THAT(Row(4 * 1024 + 1, Rules()), IsEmpty());
}

TEST_F(EvictionTest, AppliedVictimsAreApproximatelyTheOldest) {
  pool_.AddSlab(1, "n1", 1 << 20);
  for (int i = 0; i < 2000; ++i) {
    pool_.now_ms += 1;
    pool_.Put("k" + std::to_string(i), 64);
  }
  uint64_t sum = 0;
  for (int i = 0; i < 200; ++i) {
    const auto victims = ChooseVictims(pool_.catalog, tenant(), Rules(), nullptr, Chance());
    ASSERT_EQ(victims.size(), 1u);
    sum += victims[0].value;
    pool_.Apply(ObjectsDropped{victims, DropCause::kEvicted});
  }
  // Strict LRU has a mean of 100, chance one of 1000.
  EXPECT_LT(sum / 200, 300u);
  EXPECT_TRUE(pool_.catalog.CheckInvariants().ok());
}

}  // namespace
}  // namespace mooncake::pool

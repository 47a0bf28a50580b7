#include "pool/placement.h"

#include <gtest/gtest.h>

#include "pool/test_pool.h"

namespace mooncake::pool {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::vector<NodeRoom> ThreeNodes() {
  return {{"a", "h1", 100 * kMiB, 200 * kMiB},
          {"b", "h1", 120 * kMiB, 200 * kMiB},
          {"c", "h2", 150 * kMiB, 200 * kMiB}};
}

PlaceRequest Of(uint64_t bytes) {
  PlaceRequest request;
  request.tenant_id = "t";
  request.bytes = bytes;
  request.slab_bytes = 8 * kMiB;
  return request;
}

TEST(PlacementTest, ANewSlabIsMadeWhereMostIsFree) {
  const auto planned = PlanReplicas(Catalog(), ThreeNodes(), Of(1000));
  ASSERT_EQ(planned.size(), 1u);
  EXPECT_EQ(planned[0].node_id, "c");
  EXPECT_EQ(planned[0].slab_id, ArenaId());
  EXPECT_EQ(planned[0].slab_bytes, 8 * kMiB);
}

TEST(PlacementTest, ASlabWithRoomComesBeforeANewOne) {
  TestPool pool;
  pool.AddSlab(7, "a", 64 * 1024);
  EXPECT_EQ(PlanReplicas(pool.catalog, ThreeNodes(), Of(1000))[0].slab_id, ArenaId(7));
  // Another tenant's is none.
  PlaceRequest other = Of(1000);
  other.tenant_id = "u";
  EXPECT_EQ(PlanReplicas(pool.catalog, ThreeNodes(), other)[0].slab_id, ArenaId());
  // Nor is a full one.
  EXPECT_EQ(PlanReplicas(pool.catalog, ThreeNodes(), Of(64 * 1024))[0].slab_id, ArenaId());
}

TEST(PlacementTest, PreferredNodesThenTheGroupsThenTheHost) {
  TestPool pool;
  pool.AddSlab(7, "c", 64 * 1024);
  PlaceRequest request = Of(1000);
  request.preferred_host_id = "h1";
  EXPECT_EQ(PlanReplicas(pool.catalog, ThreeNodes(), request)[0].node_id, "b");
  request.group_node_id = "a";
  EXPECT_EQ(PlanReplicas(pool.catalog, ThreeNodes(), request)[0].node_id, "a");
  request.preferred_node_ids = {"nobody", "c", "b"};
  EXPECT_EQ(PlanReplicas(pool.catalog, ThreeNodes(), request)[0].slab_id, ArenaId(7));
  request.preferred_node_ids = {"nobody"};
  request.preferred_only = true;
  EXPECT_TRUE(PlanReplicas(pool.catalog, ThreeNodes(), request).empty());
}

TEST(PlacementTest, ReplicasLieOnNodesOfTheirOwn) {
  PlaceRequest request = Of(1000);
  request.replica_num = 2;
  auto planned = PlanReplicas(Catalog(), ThreeNodes(), request);
  ASSERT_EQ(planned.size(), 2u);
  EXPECT_NE(planned[0].node_id, planned[1].node_id);
  request.replica_num = 5;  // as many as there are nodes
  EXPECT_EQ(PlanReplicas(Catalog(), ThreeNodes(), request).size(), 3u);
}

TEST(PlacementTest, ASlabTakesASmallShareOfANodeUnlessOneObjectNeedsMore) {
  const NodeRoom small{"a", "h", 1 * kMiB, 1 * kMiB};
  EXPECT_EQ(NewSlabBytes(small, 1000, 8 * kMiB), 64u * 1024);
  EXPECT_EQ(NewSlabBytes(small, 100'000, 8 * kMiB), 102'400u);
  EXPECT_EQ(NewSlabBytes(small, 1 * kMiB, 8 * kMiB), 1 * kMiB);
  EXPECT_EQ(NewSlabBytes(small, 1 * kMiB + 1, 8 * kMiB), 0u);
  const NodeRoom nearly_full{"a", "h", 50'000, 1 * kMiB};
  EXPECT_EQ(NewSlabBytes(nearly_full, 1000, 8 * kMiB), 49'152u);
}

}  // namespace
}  // namespace mooncake::pool

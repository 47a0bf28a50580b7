#include "objects/catalog.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include "model/affinity.h"
#include "objects/test_cluster.h"

namespace mooncake::objects {
namespace {

model::MetadataObject Metadata(const std::string& name, uint64_t bytes, const std::string& node) {
  return {name, bytes, Sha256Of(name), node};
}

TEST(PayloadTable, FindsRowsAcrossBlocksAndForgetsRemovedOnes) {
  PayloadTable table;
  EXPECT_FALSE(table.Find("a").has_value());
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("payload-" + std::to_string(i * 7919));
  for (uint32_t participant = 0; participant < 10; ++participant) {
    std::vector<PayloadTable::NewRow> rows;
    for (size_t i = participant * 100; i < participant * 100 + 100; ++i) {
      PayloadTable::NewRow row;
      row.name = names[i];
      row.row.bytes = i + 1;
      row.row.participant = participant;
      rows.push_back(row);
    }
    table.Append(rows);
    EXPECT_TRUE(table.HasParticipant(participant));
    EXPECT_FALSE(table.HasParticipant(participant + 1));
    EXPECT_EQ(table.RowsOf(participant), std::pair(participant * 100, participant * 100 + 100));
    EXPECT_EQ(table.RowsOf(participant + 1), std::pair(0u, 0u));
  }
  EXPECT_EQ(table.payload_count(), 1000u);
  EXPECT_EQ(table.payload_bytes(), 1000u * 1001 / 2);
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(table.Find(names[i]), i);
    EXPECT_EQ(table.name(i), names[i]);
    EXPECT_EQ(table.row(i).bytes, i + 1);
  }
  EXPECT_FALSE(table.Find("payload-").has_value());
  table.Remove(1);
  EXPECT_EQ(table.first_live(), 0u);
  table.Remove(0);
  EXPECT_EQ(table.first_live(), 2u);
  EXPECT_FALSE(table.Find(names[1]).has_value());
  EXPECT_EQ(table.Find(names[2]), 2u);
  EXPECT_EQ(table.payload_count(), 998u);
  EXPECT_EQ(table.payload_bytes(), 1000u * 1001 / 2 - 3);
}

TEST(Catalog, SpaceFollowsArenasThroughTheirLife) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20);
  cluster.Reserve(ImportId(1), {{"p0", {{"a", 5000, 0}, {"b", 1, 1}}}, {"p1", {{"c", 4096, 1}}}});
  const Node* node = cluster.catalog().FindNode("n1");
  EXPECT_EQ(node->live_bytes, 8192u + 4096 + 4096);
  EXPECT_EQ(node->free_bytes(), (1u << 20) - 16384);
  EXPECT_EQ(cluster.catalog().payload_count(), 3u);

  cluster.Apply(MetadataStored{
      ImportId(1), {Metadata("digests/p0", 100, "n1"), Metadata("manifest", 4097, "n1")}});
  EXPECT_EQ(node->metadata_bytes, 4096u + 8192);
  EXPECT_EQ(cluster.catalog().PhysicalBytes(ImportId(1)), 16384u + 12288);
  // A repeat of a name replaces it.
  cluster.Apply(MetadataStored{ImportId(1), {Metadata("manifest", 1, "n1")}});
  EXPECT_EQ(node->metadata_bytes, 8192u);
  EXPECT_EQ(cluster.catalog().metadata_count(), 2u);

  cluster.Apply(GroupRemoved{ImportId(1)});
  EXPECT_EQ(node->live_bytes, 0u);
  EXPECT_EQ(node->releasing_bytes, 16384u);
  EXPECT_EQ(node->metadata_releasing_bytes, 8192u);
  EXPECT_EQ(node->free_bytes(), (1u << 20) - 16384 - 8192);
  EXPECT_EQ(cluster.catalog().payload_count(), 0u);
  EXPECT_EQ(cluster.catalog().PhysicalBytes(ImportId(1)), 0u);

  cluster.Apply(ArenasReleased{{ArenaId(1), ArenaId(2)}});
  EXPECT_NE(cluster.catalog().FindGroup(ImportId(1)), nullptr);
  cluster.Apply(MetadataReleased{"n1", {ImportId(1)}});
  EXPECT_EQ(cluster.catalog().FindGroup(ImportId(1)), nullptr);
  EXPECT_EQ(node->free_bytes(), 1u << 20);
  // Ids are never given again.
  EXPECT_EQ(cluster.catalog().next_arena_id(), ArenaId(3));
  cluster.ExpectReplayEqual();
}

TEST(Catalog, ANewInstanceLosesItsMemory) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20, "i1");
  cluster.Join("n2", 1 << 20, "i1");
  cluster.Reserve(ImportId(1), {{"p", {{"a", 4096, 0}}}});  // equal space: n1, the smaller id
  cluster.Reserve(ImportId(2), {{"p", {{"b", 4096, 0}}}});  // n2
  cluster.Reserve(ImportId(3), {{"p", {{"c", 4096, 0}}}});  // n1
  cluster.Apply(MetadataStored{ImportId(1), {Metadata("manifest", 10, "n1")}});
  cluster.Apply(GroupRemoved{ImportId(3)});
  ASSERT_EQ(cluster.catalog().FindNode("n1")->releasing_bytes, 4096u);

  cluster.Join("n1", 1 << 20, "i2");
  const Node* node = cluster.catalog().FindNode("n1");
  EXPECT_EQ(node->live_bytes, 0u);
  EXPECT_EQ(node->releasing_bytes, 0u);
  EXPECT_EQ(node->metadata_bytes, 4096u) << "METADATA files survive";
  EXPECT_EQ(cluster.catalog().FindGroup(ImportId(3)), nullptr)
      << "its arena went with the instance";
  EXPECT_EQ(cluster.catalog().FindArena(ArenaId(1))->state, ArenaState::kLost);
  EXPECT_EQ(cluster.catalog().FindArena(ArenaId(2))->state, ArenaState::kLive);
  EXPECT_EQ(cluster.catalog().ImportsOn("n1"), std::vector{ImportId(1)});
  EXPECT_EQ(cluster.catalog().PhysicalBytes(ImportId(1)), 4096u);

  const auto facts = ObserveMembers(cluster.catalog(), ImportId(1), {{"n1", "n2"}, {}});
  EXPECT_FALSE(facts.readable);
  EXPECT_EQ(facts.reason, "node n1 lost the memory of arena 1 when it restarted");

  // Removal of what was lost needs no node.
  cluster.Apply(GroupRemoved{ImportId(1)});
  EXPECT_EQ(cluster.catalog().FindArena(ArenaId(1)), nullptr);
  cluster.Apply(MetadataReleased{"n1", {ImportId(1)}});
  EXPECT_EQ(cluster.catalog().FindGroup(ImportId(1)), nullptr);
  cluster.ExpectReplayEqual();
}

TEST(Catalog, DurableArenasSurviveANewInstance) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20, "i1", "h", /*durable=*/true);
  cluster.Reserve(ImportId(1), {{"p", {{"a", 4096, 0}}}});
  cluster.Join("n1", 1 << 20, "i2", "h", /*durable=*/true);
  EXPECT_EQ(cluster.catalog().FindArena(ArenaId(1))->state, ArenaState::kLive);
  EXPECT_EQ(cluster.catalog().FindNode("n1")->live_bytes, 4096u);
  EXPECT_EQ(cluster.catalog().FindNode("n1")->address.instance_id, "i2");
}

TEST(Catalog, EventsThatDoNotFitAreCorruptAndChangeNothing) {
  TestCluster cluster;
  cluster.ExpectCorrupt(NodeJoined{});
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(1), ImportId(1), "n1", "i1", 4096});
  cluster.Join("n1", 1 << 20);
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(1), ImportId(1), "n1", "other", 4096});
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(0), ImportId(1), "n1", "i1", 4096});
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(UINT64_MAX), ImportId(1), "n1", "i1", 4096});
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(1), ImportId(1), "n1", "i1", 0});
  cluster.Apply(ArenaReserved{ArenaId(5), ImportId(1), "n1", "i1", 8192});
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(5), ImportId(1), "n1", "i1", 4096});
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(4), ImportId(1), "n1", "i1", 4096});
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(6), ImportId(1), "n1", "i1", UINT64_MAX});
  cluster.Apply(ArenaReserved{ArenaId(6), ImportId(2), "n1", "i1", 8192});

  const auto reserve = [](std::vector<ReservedPayload> payloads) {
    return ObjectsReserved{ImportId(1), 0, std::move(payloads)};
  };
  cluster.ExpectCorrupt(reserve({}));
  cluster.ExpectCorrupt(reserve({{"a", 0, 0, ArenaId(5), 0}}));
  cluster.ExpectCorrupt(reserve({{"a", 8193, 0, ArenaId(5), 0}}));
  cluster.ExpectCorrupt(reserve({{"a", UINT64_MAX, 0, ArenaId(5), 4096}}));
  cluster.ExpectCorrupt(reserve({{"a", 1, 0, ArenaId(5), UINT64_MAX}}));
  cluster.ExpectCorrupt(reserve({{"a", 10, 0, ArenaId(5), 0}, {"b", 10, 0, ArenaId(5), 9}}));
  cluster.ExpectCorrupt(reserve({{"a", 10, 0, ArenaId(5), 0}, {"a", 10, 0, ArenaId(5), 10}}));
  cluster.ExpectCorrupt(reserve({{"a", 10, 0, ArenaId(6), 0}}));  // another import's
  cluster.ExpectCorrupt(reserve({{"a", 10, 0, ArenaId(7), 0}}));
  cluster.ExpectCorrupt(ObjectsReserved{ImportId(3), 0, {{"a", 10, 0, ArenaId(5), 0}}});
  cluster.Apply(reserve({{"a", 10, 0, ArenaId(5), 0}, {"b", 10, 0, ArenaId(5), 10}}));
  cluster.ExpectCorrupt(reserve({{"c", 10, 0, ArenaId(5), 20}}));  // participant 0 again
  cluster.ExpectCorrupt(ObjectsReserved{ImportId(1), 1, {{"c", 10, 0, ArenaId(5), 19}}});
  cluster.ExpectCorrupt(ObjectsReserved{ImportId(1), 1, {{"a", 10, 0, ArenaId(5), 20}}});

  cluster.ExpectCorrupt(ObjectsRemoved{ImportId(1), {"a", "a"}});
  cluster.ExpectCorrupt(ObjectsRemoved{ImportId(1), {"a", "z"}});
  cluster.ExpectCorrupt(ObjectsRemoved{ImportId(9), {"a"}});
  cluster.ExpectCorrupt(ArenasReleasing{{ArenaId(5)}});  // has payloads
  cluster.ExpectCorrupt(ArenasReleasing{{ArenaId(6), ArenaId(6)}});
  cluster.ExpectCorrupt(ArenasReleasing{{ArenaId(7)}});
  cluster.ExpectCorrupt(ArenasReleased{{ArenaId(6)}});
  cluster.ExpectCorrupt(GroupRemoved{ImportId(9)});
  cluster.ExpectCorrupt(MetadataStored{ImportId(9), {Metadata("manifest", 1, "n1")}});
  cluster.ExpectCorrupt(MetadataStored{ImportId(1), {Metadata("manifest", 1, "n2")}});
  cluster.ExpectCorrupt(MetadataStored{ImportId(1), {Metadata("manifest", UINT64_MAX, "n1")}});
  cluster.ExpectCorrupt(MetadataReleased{"n1", {ImportId(1)}});
  cluster.Apply(MetadataStored{ImportId(1), {Metadata("manifest", 1, "n1")}});
  cluster.ExpectCorrupt(MetadataReleased{"n1", {ImportId(1)}});  // not removed
  cluster.Apply(GroupRemoved{ImportId(1)});
  cluster.ExpectCorrupt(GroupRemoved{ImportId(1)});
  cluster.ExpectCorrupt(ArenaReserved{ArenaId(8), ImportId(1), "n1", "i1", 4096});
  cluster.ExpectCorrupt(MetadataStored{ImportId(1), {Metadata("manifest", 1, "n1")}});
  cluster.ExpectCorrupt(ArenasReleasing{{ArenaId(5)}});
  cluster.ExpectCorrupt(MetadataReleased{"n1", {ImportId(1), ImportId(1)}});
  cluster.ExpectCorrupt(MetadataReleased{"n2", {ImportId(1)}});
  cluster.ExpectReplayEqual();
}

TEST(Catalog, FactsAreThoseOfTheAffinityFormat) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20);
  cluster.Reserve(ImportId(1),
                  {{"p0", {{"b", 10, 0}, {"a", 20, 1}}}, {"p1", {{"c", 30, 0}}}, {"p2", {}}});
  const model::GroupFacts facts = cluster.catalog().FactsOf(ImportId(1), "weights/d/m/r/1");
  EXPECT_EQ(facts.payload_count, 3u);
  EXPECT_EQ(facts.logical_payload_bytes, 60u);
  EXPECT_EQ(facts.payload_keys_sha256,
            Sha256Of("weights/d/m/r/1/payload/a\nweights/d/m/r/1/payload/b\n"
                     "weights/d/m/r/1/payload/c"));
  const std::string summary = "{\"units\":[{\"bytes\":20,\"digest\":\"" + ToHex(Sha256Of("a")) +
                              "\",\"members\":[\"a\"]},{\"bytes\":40,\"digest\":\"" +
                              ToHex(Sha256Of("b\nc")) +
                              "\",\"members\":[\"b\",\"c\"]}],\"version\":1}";
  EXPECT_EQ(facts.affinity_count, 2u);
  EXPECT_EQ(facts.affinity_bytes, summary.size());
  EXPECT_EQ(facts.affinity_sha256, Sha256Of(summary));
}

TEST(Catalog, LookupsSayWhereAPayloadLies) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20);
  cluster.Reserve(ImportId(1), {{"p0", {{"a", 5000, 0}, {"b", 7, 1}}}, {"p1", {{"c", 9, 2}}}});
  const auto b = cluster.catalog().FindPayload(ImportId(1), "b");
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(b->participant, 0u);
  EXPECT_EQ(b->unit, 1u);
  EXPECT_EQ(b->extent, (model::Extent{"n1", ArenaId(1), 8192, 7}));
  const auto of_p1 = cluster.catalog().PayloadsOf(ImportId(1), 1);
  ASSERT_EQ(of_p1.size(), 1u);
  EXPECT_EQ(of_p1[0].name, "c");
  EXPECT_EQ(of_p1[0].extent.arena_id, ArenaId(2));
  EXPECT_EQ(cluster.catalog().FindPayload(ImportId(1), "z").status().message(),
            "import 1 has no payload z");
  EXPECT_EQ(cluster.catalog().FindPayload(ImportId(2), "a").status().code(), Code::kNotFound);
}

TEST(Catalog, AHundredThousandPayloadsCostLessThan250BytesEach) {
  constexpr int kPayloads = 100'000;
  constexpr int kParticipants = 64;
  std::vector<model::PlannedParticipant> plan(kParticipants);
  for (int i = 0; i < kPayloads; ++i) {
    // Names of the length that fragment ids have.
    plan[i % kParticipants].payloads.push_back(
        {"sha256%3A" + ToHex(Sha256Of(std::to_string(i))), 1, static_cast<uint32_t>(i)});
  }
  Catalog catalog;
  ASSERT_TRUE(catalog.Apply(NodeJoined{{"n1", "i1", "h", ""}, 1ull << 40, false}).ok());
  auto events = PlanReservation(catalog, {ImportId(1), &plan, "", {"n1"}});
  ASSERT_TRUE(events.ok()) << events.status().ToString();
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  for (const Event& event : *events) ASSERT_TRUE(catalog.Apply(event).ok());
  const size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
  ASSERT_EQ(catalog.payload_count(), static_cast<uint64_t>(kPayloads));
  const double each = static_cast<double>(after - before) / kPayloads;
  std::printf("%.1f bytes a payload, its name of 73 included\n", each);
  EXPECT_LT(each, 250);
  EXPECT_TRUE(catalog.FindPayload(ImportId(1), plan[3].payloads[7].name).ok());
}

TEST(Catalog, SlabsAreChargedLikeArenasAndGoneWithTheirInstance) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20, "i1");
  cluster.Apply(ArenaReserved{ArenaId(1), ImportId(), "n1", "i1", 8192});
  cluster.Apply(ArenaReserved{ArenaId(2), ImportId(), "n1", "i1", 4096});
  const Node& node = cluster.catalog().node(0);
  EXPECT_EQ(node.slab_bytes, 12'288u);
  EXPECT_EQ(node.live_bytes, 12'288u);
  EXPECT_TRUE(cluster.catalog().groups().empty());
  EXPECT_TRUE(cluster.catalog().ImportsOn("n1").empty());
  cluster.Apply(ArenasReleasing{{ArenaId(2)}});
  EXPECT_EQ(node.slab_bytes, 8192u);
  EXPECT_EQ(node.releasing_bytes, 4096u);
  EXPECT_TRUE(cluster.catalog().CheckInvariants().ok());
  cluster.Join("n1", 1 << 20, "i2");
  EXPECT_EQ(node.used_bytes(), 0u);
  EXPECT_TRUE(cluster.catalog().arenas().empty());
  EXPECT_TRUE(cluster.catalog().CheckInvariants().ok());
}

TEST(Catalog, OnlyANodeWithoutWeightsLeaves) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20, "i1");
  cluster.Join("n2", 1 << 20, "i1");
  cluster.Apply(ArenaReserved{ArenaId(1), ImportId(1), "n1", "i1", 4096});
  cluster.Apply(ArenaReserved{ArenaId(2), ImportId(), "n2", "i1", 4096});
  cluster.ExpectCorrupt(NodeLeft{"n1"});
  cluster.ExpectCorrupt(NodeLeft{"n3"});
  cluster.Apply(NodeLeft{"n2"});
  const Node& node = cluster.catalog().node(1);
  EXPECT_TRUE(node.left);
  EXPECT_EQ(node.used_bytes(), 0u);
  EXPECT_EQ(node.free_bytes(), 0u);
  cluster.Join("n2", 1 << 20, "i1");
  EXPECT_FALSE(node.left);
  EXPECT_TRUE(cluster.catalog().CheckInvariants().ok());
}

}  // namespace
}  // namespace mooncake::objects

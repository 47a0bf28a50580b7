#include "objects/reconcile.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "objects/test_cluster.h"

namespace mooncake::objects {
namespace {

model::MetadataObject Manifest(const std::string& node) {
  return {"manifest", 10, Sha256Of("m"), node};
}

TEST(NodeJoin, OnlyNewsIsAnEvent) {
  TestCluster cluster;
  cluster.Join("n1", 4096);
  const auto again = DecideNodeJoin(cluster.catalog(), {"n1", "i1", "h", "/run/n1"}, 4096, false);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->empty());
  EXPECT_EQ(DecideNodeJoin(cluster.catalog(), {"n1", "i1", "h", "/run/x"}, 4096, false)->size(),
            1u);
  EXPECT_EQ(DecideNodeJoin(cluster.catalog(), {"n1", "i1", "h", "/run/n1"}, 8192, false)->size(),
            1u);
  EXPECT_EQ(DecideNodeJoin(cluster.catalog(), {"", "i", "h", ""}, 1, false).status().message(),
            "node_id must not be empty");
  EXPECT_EQ(DecideNodeJoin(cluster.catalog(), {"n", "", "h", ""}, 1, false).status().message(),
            "instance_id must not be empty");
  EXPECT_EQ(DecideNodeJoin(cluster.catalog(), {"n", "i", "\xff", ""}, 1, false).status().message(),
            "host_id is not valid UTF-8");
  EXPECT_EQ(DecideNodeJoin(cluster.catalog(), {"n", "i", "h", ""}, 0, false).status().message(),
            "capacity_bytes of node n must not be 0");
}

TEST(Reconcile, AReportDropsWhatIsUnknownOrGivenUpAndConfirmsTheRest) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20);
  cluster.Reserve(ImportId(1), {{"p", {{"a", 1, 0}}}, {"q", {{"b", 1, 0}}}});  // arenas 1, 2
  cluster.Reserve(ImportId(2), {{"p", {{"a", 1, 0}}}});                        // arena 3
  cluster.Apply(MetadataStored{ImportId(1), {Manifest("n1")}});
  cluster.Apply(MetadataStored{ImportId(2), {Manifest("n1")}});

  EXPECT_EQ(ReconcileReport(cluster.catalog(), "n9", "i1", {}).status().code(), Code::kNotFound);
  EXPECT_EQ(ReconcileReport(cluster.catalog(), "n1", "i0", {}).status().message(),
            "node n1 has not joined as instance i0");

  // Everything in place, plus an arena and an import that nobody knows.
  auto result = ReconcileReport(cluster.catalog(), "n1", "i1",
                                {{ImportId(1), {ArenaId(1), ArenaId(2), ArenaId(77)}, 1},
                                 {ImportId(2), {ArenaId(3)}, 1},
                                 {ImportId(50), {ArenaId(60)}, 3}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->drop_arenas, std::vector{ArenaId(77)});
  EXPECT_EQ(result->drop_imports, std::vector{ImportId(50)});
  EXPECT_TRUE(result->events.empty());
  EXPECT_TRUE(result->missing.empty());

  // An arena of one import under the name of another is not that arena.
  result = ReconcileReport(cluster.catalog(), "n1", "i1", {{ImportId(1), {ArenaId(3)}, 0}});
  EXPECT_EQ(result->drop_arenas, std::vector{ArenaId(3)});
  EXPECT_EQ(result->missing.at(ImportId(1)).arenas, (std::vector{ArenaId(1), ArenaId(2)}));
  EXPECT_EQ(result->missing.at(ImportId(1)).metadata_objects, 1u);

  // Import 1 is dropped: told to go, then confirmed.
  cluster.Apply(PlanGroupDrop(cluster.catalog(), ImportId(1)));
  EXPECT_TRUE(PlanGroupDrop(cluster.catalog(), ImportId(1)).empty());
  result =
      ReconcileReport(cluster.catalog(), "n1", "i1",
                      {{ImportId(1), {ArenaId(1), ArenaId(2)}, 1}, {ImportId(2), {ArenaId(3)}, 1}});
  EXPECT_EQ(result->drop_imports, std::vector{ImportId(1)});
  EXPECT_TRUE(result->events.empty());
  result = ReconcileReport(cluster.catalog(), "n1", "i1", {{ImportId(2), {ArenaId(3)}, 1}});
  EXPECT_EQ(result->events, (std::vector<Event>{ArenasReleased{{ArenaId(1), ArenaId(2)}},
                                                MetadataReleased{"n1", {ImportId(1)}}}));
  cluster.Apply(result->events);
  EXPECT_EQ(cluster.catalog().FindGroup(ImportId(1)), nullptr);
  cluster.ExpectReplayEqual();
}

TEST(Reconcile, MembersAreReadableOnlyWhenEveryNodeReportsAndHoldsThem) {
  TestCluster cluster;
  cluster.Join("n1", 4096 * 2);
  cluster.Join("n2", 4096);
  cluster.Reserve(ImportId(1), {{"p", {{"a", 1, 0}, {"b", 1, 0}, {"c", 1, 0}}}});
  NodeLiveness liveness{{"n1", "n2"}, {}};
  EXPECT_TRUE(ObserveMembers(cluster.catalog(), ImportId(1), liveness).readable);
  liveness.reporting.erase("n2");
  EXPECT_EQ(ObserveMembers(cluster.catalog(), ImportId(1), liveness).reason,
            "node n2 is not reporting");
  liveness.reporting.insert("n2");
  liveness.missing["n2"][ImportId(1)].arenas = {ArenaId(2)};
  EXPECT_EQ(ObserveMembers(cluster.catalog(), ImportId(1), liveness).reason,
            "node n2 no longer holds arena 2");
  liveness.missing["n2"][ImportId(1)] = {{}, 2};
  EXPECT_EQ(ObserveMembers(cluster.catalog(), ImportId(1), liveness).reason,
            "node n2 no longer holds 2 METADATA objects");
  liveness.missing.clear();
  // METADATA alone on a silent node counts too.
  cluster.Join("n3", 4096);
  cluster.Apply(MetadataStored{ImportId(1), {Manifest("n3")}});
  EXPECT_EQ(ObserveMembers(cluster.catalog(), ImportId(1), liveness).reason,
            "node n3 is not reporting");
  EXPECT_FALSE(ObserveMembers(cluster.catalog(), ImportId(9), liveness).readable);
}

TEST(Removal, GoesInBoundedBatchesAndSurvivesAnInterruption) {
  TestCluster cluster;
  cluster.Join("n1", 1 << 20);
  cluster.Reserve(ImportId(1), {{"p", {{"a", 1, 0}, {"b", 1, 1}, {"c", 1, 2}}},
                                {"q", {{"d", 1, 3}, {"e", 1, 4}}}});
  cluster.Apply(MetadataStored{ImportId(1), {Manifest("n1")}});
  auto step = NextRemovalStep(cluster.catalog(), ImportId(1), 2);
  EXPECT_EQ(step, (std::vector<Event>{ObjectsRemoved{ImportId(1), {"a", "b"}}}));
  EXPECT_EQ(NextRemovalStep(cluster.catalog(), ImportId(1), 2), step) << "level-triggered";
  cluster.Apply(step);
  step = NextRemovalStep(cluster.catalog(), ImportId(1), 2);
  EXPECT_EQ(step, (std::vector<Event>{ObjectsRemoved{ImportId(1), {"c", "d"}},
                                      ArenasReleasing{{ArenaId(1)}}}));
  cluster.Apply(step);
  cluster.ExpectReplayEqual();
  EXPECT_EQ(cluster.catalog().FindPayload(ImportId(1), "d").status().code(), Code::kNotFound);
  EXPECT_TRUE(cluster.catalog().FindPayload(ImportId(1), "e").ok());
  // The node may confirm an emptied arena before the group is gone.
  const auto report =
      ReconcileReport(cluster.catalog(), "n1", "i1", {{ImportId(1), {ArenaId(1), ArenaId(2)}, 1}});
  EXPECT_EQ(report->drop_arenas, std::vector{ArenaId(1)});
  cluster.Apply(
      ReconcileReport(cluster.catalog(), "n1", "i1", {{ImportId(1), {ArenaId(2)}, 1}})->events);
  EXPECT_EQ(cluster.catalog().FindArena(ArenaId(1)), nullptr);
  step = NextRemovalStep(cluster.catalog(), ImportId(1), 0);  // at least one makes progress
  cluster.Apply(step);
  step = NextRemovalStep(cluster.catalog(), ImportId(1), 2);
  EXPECT_EQ(step, std::vector<Event>{GroupRemoved{ImportId(1)}}) << "METADATA last";
  cluster.Apply(step);
  EXPECT_TRUE(NextRemovalStep(cluster.catalog(), ImportId(1), 2).empty());
  EXPECT_TRUE(NextRemovalStep(cluster.catalog(), ImportId(8), 2).empty());
  cluster.ExpectReplayEqual();
}

// A store node as the test plays it.
struct SimNode {
  int instance = 1;
  std::map<ImportId, std::set<ArenaId>> arenas;
  std::map<ImportId, uint64_t> metadata;

  std::string InstanceId() const { return "i" + std::to_string(instance); }
  std::vector<HeldImport> Report() const {
    std::map<ImportId, HeldImport> held;
    for (const auto& [id, of_import] : arenas) {
      held[id].arena_ids = {of_import.begin(), of_import.end()};
    }
    for (const auto& [id, count] : metadata) held[id].metadata_objects = count;
    std::vector<HeldImport> report;
    for (auto& [id, import] : held) {
      import.import_id = id;
      report.push_back(std::move(import));
    }
    return report;
  }
};

class RandomCluster {
 public:
  explicit RandomCluster(uint64_t seed) : rng_(seed) {
    for (int n = 0; n < 3; ++n) {
      sims_["n" + std::to_string(n)];
      cluster_.Join("n" + std::to_string(n), kCapacity);
    }
  }

  void Step() {
    switch (Below(8)) {
      case 0:
        Begin();
        break;
      case 1:
        OpenSomeArenas();
        break;
      case 2:
        StoreMetadata();
        break;
      case 3:
        Drop();
        break;
      case 4:
        Remove();
        break;
      case 5:
      case 6:
        Report(PickNode(), Below(3) == 0);
        break;
      case 7:
        if (Below(4) == 0) Restart();
        break;
    }
  }

  // Everything goes; then nothing may be left anywhere.
  void Drain() {
    const std::set<ImportId> imports = imports_;
    for (const ImportId id : imports) cluster_.Apply(PlanGroupDrop(cluster_.catalog(), id));
    for (int round = 0; round < 2; ++round) {
      for (const auto& [node_id, sim] : sims_) Report(node_id, false);
    }
    EXPECT_TRUE(cluster_.catalog().groups().empty());
    for (const Node& node : cluster_.catalog().nodes()) {
      EXPECT_EQ(node.used_bytes(), 0u) << node.address.node_id;
    }
    for (const auto& [node_id, sim] : sims_) EXPECT_TRUE(sim.Report().empty()) << node_id;
    cluster_.ExpectReplayEqual();
  }

  void ExpectReplayEqual() { cluster_.ExpectReplayEqual(); }

 private:
  static constexpr uint64_t kCapacity = 64 * 4096;

  uint64_t Below(uint64_t n) { return rng_() % n; }
  std::string PickNode() { return "n" + std::to_string(Below(sims_.size())); }
  ImportId PickImport() {
    if (imports_.empty()) return ImportId(0);
    return *std::next(imports_.begin(), static_cast<long>(Below(imports_.size())));
  }

  void Begin() {
    std::vector<model::PlannedParticipant> plan(1 + Below(3));
    uint32_t unit = 0;
    for (size_t p = 0; p < plan.size(); ++p) {
      plan[p].participant_id = "p" + std::to_string(p);
      for (uint64_t k = 1 + Below(5); k > 0; --k, ++unit) {
        plan[p].payloads.push_back({"x" + std::to_string(unit), 1 + Below(20'000), unit});
      }
    }
    const ImportId id(++next_import_);
    const Sha256Digest before = cluster_.catalog().Digest();
    const auto events = cluster_.Plan(id, plan);
    if (!events.ok()) {
      EXPECT_EQ(events.status().code(), Code::kExhausted);
      EXPECT_EQ(cluster_.catalog().Digest(), before);
      return;
    }
    for (const Event& event : *events) {
      if (const auto* arena = std::get_if<ArenaReserved>(&event)) {
        EXPECT_TRUE(ids_given_.insert(arena->arena_id).second) << "an id given twice";
      }
    }
    cluster_.Apply(*events);
    imports_.insert(id);
  }

  // What writers do: the node creates arenas at first open.
  void OpenSomeArenas() {
    const Group* group = cluster_.catalog().FindGroup(PickImport());
    if (group == nullptr) return;
    for (const ArenaId id : group->arenas) {
      const Arena* arena = cluster_.catalog().FindArena(id);
      if (arena == nullptr || arena->state != ArenaState::kLive || Below(2) == 0) continue;
      sims_.at(cluster_.catalog().node(arena->node).address.node_id)
          .arenas[group->import_id]
          .insert(id);
    }
  }

  void StoreMetadata() {
    const ImportId id = PickImport();
    const Group* group = cluster_.catalog().FindGroup(id);
    if (group == nullptr || group->removed) return;
    const std::string node_id = PickNode();
    sims_.at(node_id).metadata[id] += 1;
    cluster_.Apply(MetadataStored{
        id, {{"digests/" + std::to_string(rng_()), 1 + Below(9000), Sha256Of("d"), node_id}}});
  }

  void Drop() {
    const ImportId id = PickImport();
    if (id.value == 0) return;
    cluster_.Apply(PlanGroupDrop(cluster_.catalog(), id));
    imports_.erase(id);
  }

  void Remove() {
    const ImportId id = PickImport();
    if (id.value == 0) return;
    for (uint64_t steps = Below(4); steps > 0; --steps) {
      const auto step = NextRemovalStep(cluster_.catalog(), id, static_cast<uint32_t>(Below(5)));
      if (step.empty()) {
        imports_.erase(id);
        return;
      }
      cluster_.Apply(step);
    }
  }

  void Report(const std::string& node_id, bool reply_lost) {
    SimNode& sim = sims_.at(node_id);
    const auto result =
        ReconcileReport(cluster_.catalog(), node_id, sim.InstanceId(), sim.Report());
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    cluster_.Apply(result->events);
    if (reply_lost) return;
    for (const ImportId id : result->drop_imports) {
      sim.arenas.erase(id);
      sim.metadata.erase(id);
    }
    for (auto& [id, arenas] : sim.arenas) {
      for (const ArenaId arena : result->drop_arenas) arenas.erase(arena);
    }
    std::erase_if(sim.arenas, [](const auto& entry) { return entry.second.empty(); });
  }

  void Restart() {
    const std::string node_id = PickNode();
    SimNode& sim = sims_.at(node_id);
    sim.instance += 1;
    sim.arenas.clear();  // METADATA files stay
    cluster_.Join(node_id, kCapacity, sim.InstanceId());
  }

  std::mt19937_64 rng_;
  TestCluster cluster_;
  std::map<std::string, SimNode> sims_;
  std::set<ImportId> imports_;
  std::set<ArenaId> ids_given_;
  uint64_t next_import_ = 0;
};

TEST(Reconcile, RandomHistoriesLeakNothingAndReplayEqual) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomCluster cluster(seed);
    for (int step = 0; step < 300; ++step) {
      cluster.Step();
      if (step % 50 == 0) cluster.ExpectReplayEqual();
      if (::testing::Test::HasFatalFailure()) return;
    }
    cluster.Drain();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace mooncake::objects

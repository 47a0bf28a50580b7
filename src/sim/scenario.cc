#include "sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/channels.h"
#include "sim/fault_plan.h"
#include "sim/planted.h"

namespace mooncake::sim {
namespace {

constexpr int64_t kRestNsMax = 120 * kSecond;
constexpr int64_t kEndNsMax = 60 * kSecond;
// Far more than any run takes: somebody runs in circles.
constexpr uint64_t kTurnsMax = 2'000'000;

class Scenario {
 public:
  explicit Scenario(const ScenarioOptions& options)
      : options_(options),
        simulation_(options.seed),
        cluster_(simulation_, PickCluster(simulation_.dice())),
        judge_(cluster_),
        arenas_(std::make_shared<WrittenArenas>(cluster_)),
        faults_(cluster_, judge_, *arenas_),
        object_judge_(cluster_, judge_),
        objects_(cluster_, object_judge_),
        workload_(cluster_, judge_, objects_),
        clients_(static_cast<size_t>(options.clients)) {
    report_.seed = options.seed;
    simulation_.on_note = options.on_note;
    cluster_.network().on_request = [this](const std::string& address, std::string& request) {
      if (address != kMasterAddress) return;
      judge_.OnMasterRequest(request);
      object_judge_.OnMasterRequest(request);
    };
    cluster_.network().on_answer = [this](const std::string& address, const std::string& request,
                                          std::string& answer) {
      if (address != kMasterAddress) return;
      judge_.OnMasterAnswer(request, answer);
      object_judge_.OnMasterAnswer(request, answer);
    };
    judge_.on_log_record = [this](std::string_view payload) { object_judge_.OnLogRecord(payload); };
    Plant(options.bug, cluster_, judge_, arenas_);
  }

  ScenarioReport Run() {
    {
      const env::WorldScope scope(simulation_);
      simulation_.Spawn(nullptr, "director", [this] { Direct(); });
    }
    const int64_t end_ns =
        simulation_.now_ns() + options_.seconds * kSecond + kRestNsMax + 10 * kEndNsMax;
    simulation_.RunUntil(
        [this] { return (over_ && simulation_.idle()) || simulation_.turns() > kTurnsMax; },
        end_ns);
    if (!over_ || !simulation_.idle()) {
      report_.stuck = "did not end: " + simulation_.DescribeTasks();
      // What is still on the fibers' stacks cannot be freed any more: the report is all that
      // counts.
    }
    report_.trace_hash = simulation_.trace_hash();
    report_.virtual_seconds = simulation_.seconds();
    report_.turns = simulation_.turns();
    report_.violation = judge_.violation();
    report_.counts = workload_.counts();
    report_.object_outcomes = objects_.outcomes();
    report_.faults = faults_.happened();
    for (size_t rule = 1; rule < kRules; ++rule) {
      report_.checks[rule] = judge_.checks(static_cast<Rule>(rule));
    }
    return report_;
  }

  bool ended() const { return over_ && simulation_.idle(); }

 private:
  static ClusterOptions PickCluster(Dice& dice) {
    ClusterOptions options;
    options.nodes = static_cast<int>(dice.Between(1, 3));
    options.capacity_bytes = static_cast<uint64_t>(dice.Between(2, 12)) << 20;
    options.snapshot_every_records = static_cast<uint64_t>(dice.Between(10, 400));
    options.ttl_ms = static_cast<uint64_t>(dice.Between(300, 4'000));
    options.object_lease_ms = dice.Between(100, 3'000);
    options.relaxed_flush_ms = dice.Between(0, 500);
    return options;
  }

  void Direct() {
    faults_.Begin();
    const int64_t end_ns = simulation_.now_ns() + options_.seconds * kSecond;
    int64_t look_ns = 0;
    while (simulation_.now_ns() < end_ns && GoesOn()) {
      faults_.Act();
      StartClients();
      if (simulation_.now_ns() >= look_ns) {
        judge_.Inspect();
        look_ns = simulation_.now_ns() + 100 * kMillisecond;
      }
      simulation_.Sleep(simulation_.dice().Between(kMillisecond, 60 * kMillisecond));
    }
    workload_.Stop();
    faults_.Heal();
    if (GoesOn()) ComeToRest();
    if (GoesOn() && report_.refused.empty()) {
      judge_.InspectAtRest();
      ReadAll();
    }
    EndAll();
    over_ = true;
  }

  bool GoesOn() const { return !judge_.violation() && report_.stuck.empty(); }

  void StartClients() {
    for (size_t i = 0; i < clients_.size(); ++i) {
      std::shared_ptr<Process>& process = clients_[i];
      if (process != nullptr && process->tasks() > 0) continue;
      if (process != nullptr && !simulation_.dice().Chance(300'000)) continue;
      process = simulation_.NewProcess(fmt::format("client.{}", ++client_lives_), nullptr);
      faults_.ArmClient(*process);
      simulation_.Spawn(process.get(), process->name(),
                        [this, process] { workload_.RunClient(*process); });
    }
  }

  bool ClientsEnded() const {
    for (const std::shared_ptr<Process>& process : clients_) {
      if (process != nullptr && process->tasks() > 0) return false;
    }
    return true;
  }

  // Everybody is up, has reported, and nothing is left of the dead.
  bool IsAtRest() {
    const std::shared_ptr<master::Master> master = cluster_.master();
    if (master == nullptr || !ClientsEnded()) return false;
    const master::ReplicatedState& state = master->state();
    if (!state.pool.unfinished().empty()) return false;
    if (!state.weights.open_imports().empty() || !state.weights.leases().empty() ||
        !state.weights.deleting().empty()) {
      return false;
    }
    for (size_t i = 0; i < cluster_.node_count(); ++i) {
      const std::shared_ptr<node::Node> node = cluster_.node(i);
      if (node == nullptr || cluster_.node_process(i)->paused()) return false;
      const objects::Node* known = state.objects.FindNode(node->node_id());
      if (known == nullptr || known->address.instance_id != node->instance_id()) return false;
      if (known->releasing_bytes != 0 || known->metadata_releasing_bytes != 0) return false;
      if (node->used_bytes() != known->live_bytes) return false;
    }
    return true;
  }

  // As the Master sees it: a node that has yet to find it again is no rest.
  bool NodesReport() {
    const std::shared_ptr<master::Master> master = cluster_.master();
    if (master == nullptr) return false;
    struct Asked {
      v1::GetClusterRequest request;
      v1::GetClusterReply reply;
      bool answered = false;
    };
    const auto asked = std::make_shared<Asked>();
    master->GetCluster(rpc::Caller::Operator(), asked->request, &asked->reply,
                       [asked] { asked->answered = true; });
    for (int i = 0; i < 100 && !asked->answered; ++i) simulation_.Sleep(10 * kMillisecond);
    if (!asked->answered || asked->reply.status().code() != 0) return false;
    return std::all_of(asked->reply.nodes().begin(), asked->reply.nodes().end(),
                       [](const v1::NodeStatus& node) { return node.alive(); });
  }

  void ComeToRest() {
    const int64_t end_ns = simulation_.now_ns() + kRestNsMax;
    // Twice in a row, a while apart: what nodes report late changes a state once more.
    int calm = 0;
    while (calm < 20) {
      (void)faults_.StartAll();
      calm = IsAtRest() && NodesReport() ? calm + 1 : 0;
      if (!GoesOn()) return;
      if (faults_.log_damaged() && !cluster_.master_failure().ok()) {
        report_.refused = cluster_.master_failure().ToString();
        return;
      }
      if (simulation_.now_ns() >= end_ns) {
        report_.stuck = "does not come to rest: " + DescribeUnrest();
        return;
      }
      simulation_.Sleep(100 * kMillisecond);
    }
  }

  std::string DescribeUnrest() {
    const std::shared_ptr<master::Master> master = cluster_.master();
    if (master == nullptr) {
      return "no Master: " + cluster_.master_failure().ToString();
    }
    const master::ReplicatedState& state = master->state();
    std::string text =
        fmt::format("{} open imports, {} leases, {} deletions", state.weights.open_imports().size(),
                    state.weights.leases().size(), state.weights.deleting().size());
    for (size_t i = 0; i < cluster_.node_count(); ++i) {
      const std::shared_ptr<node::Node> node = cluster_.node(i);
      const objects::Node* known =
          node == nullptr ? nullptr : state.objects.FindNode(node->node_id());
      if (known == nullptr) {
        text += fmt::format("; node {} is {}", i, node == nullptr ? "down" : "unknown");
      } else {
        text += fmt::format("; node {}: live {}, releasing {} + {}, held {}", i, known->live_bytes,
                            known->releasing_bytes, known->metadata_releasing_bytes,
                            node->used_bytes());
      }
    }
    return text + "; " + simulation_.DescribeTasks();
  }

  // Every revision that is READY can be read, whoever asks.
  void ReadAll() {
    const std::shared_ptr<Process> reader = simulation_.NewProcess("reader", nullptr);
    simulation_.Spawn(reader.get(), "reader", [this] {
      const std::unique_ptr<client::StoreClient> client = cluster_.NewClient();
      std::vector<model::WeightIdentity> ready;
      for (const auto& [id, revision] : cluster_.master()->state().weights.revisions()) {
        if (revision.availability == model::Availability::kReady) {
          ready.push_back(revision.identity);
        }
      }
      for (const model::WeightIdentity& identity : ready) {
        const Status loaded = workload_.LoadAndCheck(*client, identity);
        judge_.ReadAtRest(identity, loaded);
      }
      for (const ObjectName& name : object_judge_.MustBeThere()) {
        const auto objects = cluster_.NewObjectClient({.tenant_id = name.tenant_id});
        object_judge_.ReadAtRest(name, objects_.ReadAndCheck(*objects, name));
      }
    });
    while (reader->tasks() > 0) simulation_.Sleep(10 * kMillisecond);
  }

  void EndAll() {
    const auto end = [this](const std::shared_ptr<Process>& process) {
      if (process != nullptr) simulation_.Crash(*process);
    };
    for (const auto& process : clients_) end(process);
    end(cluster_.master_process());
    for (size_t i = 0; i < cluster_.node_count(); ++i) end(cluster_.node_process(i));
  }

  const ScenarioOptions options_;
  Simulation simulation_;
  SimCluster cluster_;
  Judge judge_;
  const std::shared_ptr<WrittenArenas> arenas_;
  FaultPlan faults_;
  ObjectJudge object_judge_;
  ObjectWorkload objects_;
  Workload workload_;
  std::vector<std::shared_ptr<Process>> clients_;
  uint64_t client_lives_ = 0;
  bool over_ = false;
  ScenarioReport report_;
};

}  // namespace

std::string_view Name(PlantedBug bug) {
  switch (bug) {
    case PlantedBug::kNone:
      return "none";
    case PlantedBug::kReplyBeforeFlush:
      return "reply-before-flush";
    case PlantedBug::kMissedFence:
      return "missed-fence";
    case PlantedBug::kExtentFreedEarly:
      return "extent-freed-early";
    case PlantedBug::kForgottenTombstone:
      return "forgotten-tombstone";
    case PlantedBug::kIgnoredLease:
      return "ignored-lease";
    case PlantedBug::kForgottenRead:
      return "forgotten-read";
    case PlantedBug::kHastyPut:
      return "hasty-put";
  }
  return "?";
}

ScenarioReport RunScenario(const ScenarioOptions& options) {
  auto scenario = std::make_unique<Scenario>(options);
  ScenarioReport report = scenario->Run();
  // A run that did not end holds stacks that nothing can unwind.
  if (!scenario->ended()) (void)scenario.release();
  return report;
}

}  // namespace mooncake::sim

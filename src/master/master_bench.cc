// ./x bench master: what the Master decides and makes durable per second, in the process and over
// gRPC, beside the cost of one fsync in the same folder and run.
//
//   fsync/append     one small record appended to the log (SQLite, synchronous=FULL)
//   command/...      one command at a time (a lease opened, another released)
//   objects/...      one import of N payload objects begun: checked, placed, logged, answered
//   put/...          N ordinary objects put: started, ended (durable), in two requests
//   put_relaxed/...  the same, acknowledged before the log is flushed
//   lookup/...       N of them looked up, with extents and grants; bytes_per_object: resident
//   growth
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <fstream>
#include <memory>
#include <string>

#include "base/log.h"
#include "codec/values.h"
#include "env/clock.h"
#include "env/file.h"
#include "env/random.h"
#include "master/master.h"
#include "oplog/sqlite_log.h"
#include "rpc/grpc_master.h"
#include "rpc/grpc_master_server.h"

namespace mooncake::master {
namespace {

// A running Master in a fresh folder, with one node of boundless memory.
class Bench {
 public:
  explicit Bench(bool grpc) {
    std::string pattern = "/tmp/mooncake-bench-XXXXXX";
    MC_CHECK(::mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    log_ = *oplog::SqliteLog::Open(folder_ + "/log.db");
    MasterOptions options;
    options.verify_replay_every = 0;
    options.node_dead_after_ms = 3'600'000;
    master_ = *Master::Open(options,
                            {*log_, env::SystemClock::Instance(), env::SystemRandom::Instance()});
    master_->Start();
    if (grpc) {
      server_ = *rpc::GrpcMasterServer::Start("127.0.0.1:0", *master_);
      api_ = std::make_unique<rpc::GrpcMaster>(server_->address());
    } else {
      api_ = std::make_unique<rpc::BlockingMaster>(*master_);
    }
    v1::RegisterNodeRequest node;
    node.mutable_address()->set_node_id("n1");
    node.mutable_address()->set_instance_id("i1");
    node.set_capacity_bytes(uint64_t{1} << 60);
    node.set_grant_key(std::string(32, 'k'));
    MC_CHECK(api_->RegisterNode(node).status().code() == 0);
  }
  ~Bench() {
    api_.reset();
    server_.reset();
    master_->Stop();
    (void)log_->Close();
    (void)env::RemoveFolderTree(folder_);
  }

  rpc::MasterApi& api() { return *api_; }

  void Number(v1::CommandId* command) {
    command->set_client_id(std::string(32, 'a'));
    command->set_sequence(++sequence_);
    command->set_acked_below(sequence_);
  }

  v1::BeginImportRequest Plan(uint64_t generation, int payloads) {
    v1::BeginImportRequest request;
    request.mutable_identity()->set_tenant_id("default");
    request.mutable_identity()->set_name_space("ns");
    request.mutable_identity()->set_resource_id("model");
    request.mutable_identity()->set_revision("r");
    request.mutable_identity()->set_weight_generation(generation);
    request.set_placement_id("placement");
    request.set_plan_sha256(std::string(32, 'p'));
    request.set_ttl_ms(60'000);
    constexpr int kRanks = 8;
    for (int i = 0; i < payloads; ++i) {
      if (i % ((payloads + kRanks - 1) / kRanks) == 0) {
        v1::PlannedParticipant* rank = request.add_participants();
        rank->set_participant_id("rank" + std::to_string(request.participants_size()));
        request.add_claim(rank->participant_id());
      }
      v1::PlannedPayload* payload =
          request.mutable_participants(request.participants_size() - 1)->add_payloads();
      payload->set_name("model.layers." + std::to_string(i) + ".mlp.experts.down_proj.weight");
      payload->set_bytes(1 << 20);
      payload->set_unit(static_cast<uint32_t>(i));
    }
    Number(request.mutable_command());
    return request;
  }

  void Abort(uint64_t import_id) {
    v1::AbortImportRequest request;
    request.set_import_id(import_id);
    request.set_reason("bench");
    Number(request.mutable_command());
    MC_CHECK(api_->AbortImport(request).status().code() == 0);
  }

 private:
  std::string folder_;
  std::unique_ptr<oplog::SqliteLog> log_;
  std::unique_ptr<Master> master_;
  std::unique_ptr<rpc::GrpcMasterServer> server_;
  std::unique_ptr<rpc::MasterApi> api_;
  uint64_t sequence_ = 0;
};

void Append(benchmark::State& state) {
  std::string folder = "/tmp/mooncake-bench-XXXXXX";
  MC_CHECK(::mkdtemp(folder.data()) != nullptr);
  auto log = *oplog::SqliteLog::Open(folder + "/log.db");
  uint64_t sequence = 0;
  for (auto _ : state) {
    ++sequence;
    MC_CHECK(log->Append({sequence, 1, 1, "a small record of some forty bytes, no more"}).ok());
  }
  (void)log->Close();
  (void)env::RemoveFolderTree(folder);
}
BENCHMARK(Append)->Name("fsync/append")->UseRealTime();

void Commands(benchmark::State& state, bool grpc) {
  Bench bench(grpc);
  const v1::BeginImportReply begun = bench.api().BeginImport(bench.Plan(1, 1));
  MC_CHECK(begun.status().code() == 0);
  // Refused, and logged as such: the shortest command there is.
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(7);
  for (auto _ : state) {
    bench.Number(release.mutable_command());
    benchmark::DoNotOptimize(bench.api().ReleaseLease(release));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(Commands, in_process, false)->Name("command/in_process")->UseRealTime();
BENCHMARK_CAPTURE(Commands, grpc, true)->Name("command/grpc")->UseRealTime();

void Objects(benchmark::State& state, bool grpc) {
  Bench bench(grpc);
  const int payloads = static_cast<int>(state.range(0));
  uint64_t generation = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const v1::BeginImportRequest plan = bench.Plan(++generation, payloads);
    state.ResumeTiming();
    const v1::BeginImportReply begun = bench.api().BeginImport(plan);
    state.PauseTiming();
    MC_CHECK(begun.status().code() == 0);
    bench.Abort(begun.import_id());
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * payloads);
}
BENCHMARK_CAPTURE(Objects, in_process, false)
    ->Name("objects/in_process")
    ->Arg(1'000)
    ->Arg(100'000)
    ->UseRealTime();
BENCHMARK_CAPTURE(Objects, grpc, true)
    ->Name("objects/grpc")
    ->Arg(1'000)
    ->Arg(100'000)
    ->UseRealTime();

uint64_t ResidentBytes() {
  uint64_t total = 0;
  uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

class Puts {
 public:
  explicit Puts(bool grpc) : bench_(grpc) {}

  Bench& bench() { return bench_; }
  v1::PutStartRequest Start(int count) {
    v1::PutStartRequest request;
    request.set_client_id("bench");
    request.set_put_id(++put_id_);
    request.set_tenant_id("default");
    for (int i = 0; i < count; ++i) {
      request.add_keys("kv/model/layer/block-" + std::to_string(next_key_++) + "/0123456789");
      request.add_sizes(4096);
    }
    return request;
  }
  v1::PutEndRequest End(const v1::PutStartReply& started, bool relaxed) {
    v1::PutEndRequest request;
    request.set_client_id("bench");
    request.set_tenant_id("default");
    request.set_relaxed(relaxed);
    for (const v1::PutEntry& entry : started.entries()) {
      MC_CHECK(entry.status().code() == 0);
      request.add_object_ids(entry.object_id());
    }
    return request;
  }
  uint64_t key_count() const { return next_key_; }

 private:
  Bench bench_;
  uint64_t put_id_ = 0;
  uint64_t next_key_ = 0;
};

void Put(benchmark::State& state, bool grpc, bool relaxed) {
  Puts puts(grpc);
  const int count = static_cast<int>(state.range(0));
  // Slabs and tables are there.
  (void)puts.bench().api().PutEnd(
      puts.End(puts.bench().api().PutStart(puts.Start(count)), relaxed));
  const uint64_t before_bytes = ResidentBytes();
  const uint64_t before_keys = puts.key_count();
  for (auto _ : state) {
    state.PauseTiming();
    const v1::PutStartRequest request = puts.Start(count);
    state.ResumeTiming();
    const v1::PutStartReply started = puts.bench().api().PutStart(request);
    const v1::PutEndReply ended = puts.bench().api().PutEnd(puts.End(started, relaxed));
    MC_CHECK(ended.results_size() == count && ended.results(0).code() == 0);
  }
  state.SetItemsProcessed(state.iterations() * count);
  state.counters["bytes_per_object"] = static_cast<double>(ResidentBytes() - before_bytes) /
                                       static_cast<double>(puts.key_count() - before_keys);
}
BENCHMARK_CAPTURE(Put, in_process, false, false)
    ->Name("put/in_process")
    ->Arg(1)
    ->Arg(1'000)
    ->Arg(10'000)
    ->UseRealTime();
BENCHMARK_CAPTURE(Put, grpc, true, false)
    ->Name("put/grpc")
    ->Arg(1)
    ->Arg(1'000)
    ->Arg(10'000)
    ->UseRealTime();
BENCHMARK_CAPTURE(Put, in_process_relaxed, false, true)
    ->Name("put_relaxed/in_process")
    ->Arg(1)
    ->Arg(1'000)
    ->UseRealTime();
BENCHMARK_CAPTURE(Put, grpc_relaxed, true, true)
    ->Name("put_relaxed/grpc")
    ->Arg(1)
    ->Arg(1'000)
    ->UseRealTime();

void Lookup(benchmark::State& state, bool grpc) {
  Puts puts(grpc);
  const int count = static_cast<int>(state.range(0));
  const v1::PutStartRequest start = puts.Start(10'000);
  (void)puts.bench().api().PutEnd(puts.End(puts.bench().api().PutStart(start), true));
  v1::LookupObjectsRequest request;
  request.set_tenant_id("default");
  request.set_locate(true);
  request.set_renew_lease(true);
  for (int i = 0; i < count; ++i) request.add_keys(start.keys(i * 7919 % start.keys_size()));
  for (auto _ : state) {
    const v1::LookupObjectsReply reply = puts.bench().api().LookupObjects(request);
    MC_CHECK(reply.entries_size() == count && reply.entries(0).status().code() == 0);
  }
  state.SetItemsProcessed(state.iterations() * count);
}
BENCHMARK_CAPTURE(Lookup, in_process, false)
    ->Name("lookup/in_process")
    ->Arg(1)
    ->Arg(1'000)
    ->UseRealTime();
BENCHMARK_CAPTURE(Lookup, grpc, true)->Name("lookup/grpc")->Arg(1)->Arg(1'000)->UseRealTime();

}  // namespace
}  // namespace mooncake::master

int main(int argc, char** argv) {
  MC_CHECK(mooncake::SetLogLevel("error").ok());
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

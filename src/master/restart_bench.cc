// ./x bench restart: a Master with a large state: how much memory an object takes, how long a
// snapshot and a start from it take, and what callers see of a snapshot being taken.

#include <fmt/format.h>
#include <malloc.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "env/clock.h"
#include "env/file.h"
#include "env/random.h"
#include "master/master.h"
#include "master/recovery.h"
#include "master/snapshot.h"
#include "oplog/log_folder.h"
#include "rpc/async_master.h"

namespace mooncake::master {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Size {
  uint64_t revisions = 10'000;
  uint64_t objects = 1'000'000;
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

uint64_t HeapBytes() {
  const auto info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

void Must(const Status& status) {
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  MC_CHECK(status.ok());
}

model::MetadataObject Metadata(const std::string& name) {
  return {name, 4096, Sha256Of(name), "node"};
}

void AddRevision(uint64_t number, uint64_t objects, ReplicatedState& state) {
  const model::ImportId id(number);
  const model::ArenaId arena(number);
  model::WeightIdentity identity{"default", "models", "qwen3-235b", "step",
                                 model::WeightGeneration(number)};
  weights::ImportBegun begun;
  begun.identity = identity;
  begun.import_id = id;
  begun.placement_id = "sha256:" + std::string(64, 'a');
  begun.participants = {"rank00000"};
  begun.created_at = "2026-01-01T00:00:00Z";
  begun.policy.preferred_residency = model::Residency::kHot;
  begun.ttl_ms = 10'000;
  begun.metadata_node_ids = {"node"};
  Must(state.weights.Apply(begun, 1));
  Must(state.objects.Apply(objects::ArenaReserved{arena, id, "node", "instance", objects * kMiB}));
  objects::ObjectsReserved reserved{id, 0, {}};
  for (uint64_t i = 0; i < objects; ++i) {
    reserved.payloads.push_back({fmt::format("sha256:{:064x}", number * objects + i), kMiB,
                                 static_cast<uint32_t>(i), arena, i * kMiB});
  }
  Must(state.objects.Apply(reserved));
  const model::MetadataObject digests = Metadata("digests/rank00000");
  Must(state.weights.Apply(weights::Claimed{id, 0, "client", 10'000}, 1));
  Must(state.weights.Apply(weights::ReceiptAccepted{id, 0, digests}, 1));
  const model::MetadataObject manifest = Metadata("manifest");
  const model::MetadataObject affinity = Metadata("affinity");
  Must(state.objects.Apply(objects::MetadataStored{id, {digests, manifest, affinity}}));
  Must(state.weights.Apply(
      weights::Committed{id, manifest, affinity, {}, objects, objects * kMiB, objects, {}}, 1));
}

ReplicatedState LargeState(const Size& size) {
  ReplicatedState state;
  objects::NodeJoined joined;
  joined.address = {"node", "instance", "host", "/run/node.sock"};
  joined.capacity_bytes = uint64_t{1} << 60;
  joined.durable_arenas = true;
  Must(state.objects.Apply(joined));
  for (uint64_t i = 1; i <= size.revisions; ++i) {
    AddRevision(i, size.objects / size.revisions, state);
  }
  return state;
}

// Waits of a client that sends one small durable command after the other until `stop`.
std::vector<double> CommandSeconds(rpc::MasterApi& api, const std::string& client,
                                   const std::atomic<bool>& stop) {
  std::vector<double> seconds;
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(7);  // none: refused, and logged so
  for (uint64_t sequence = 1; !stop; ++sequence) {
    release.mutable_command()->set_client_id(client);
    release.mutable_command()->set_sequence(sequence);
    release.mutable_command()->set_acked_below(sequence);
    const double begin = Seconds();
    (void)api.ReleaseLease(release);
    seconds.push_back(Seconds() - begin);
  }
  return seconds;
}

void PrintWaits(std::string_view what, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  fmt::print("{:<34} p50 {:.2f} ms, p99 {:.2f} ms, longest {:.1f} ms ({} commands)\n", what,
             seconds[seconds.size() / 2] * 1e3, seconds[seconds.size() * 99 / 100] * 1e3,
             seconds.back() * 1e3, seconds.size());
}

void Run(const Size& size) {
  std::string folder = "/tmp/mooncake-bench-XXXXXX";
  MC_CHECK(::mkdtemp(folder.data()) != nullptr);
  {
    const uint64_t before = HeapBytes();
    ReplicatedState state = LargeState(size);
    const uint64_t resident = HeapBytes() - before;
    fmt::print(
        "{} objects in {} revisions: {:.0f} MiB, {:.0f} bytes an object (its 71-byte name, "
        "revisions and all)\n",
        size.objects, size.revisions, static_cast<double>(resident) / kMiB,
        static_cast<double>(resident) / static_cast<double>(size.objects));
    auto files = *oplog::LogFolder::Open(folder);
    Must(files->log().WriteMeta(kClusterIdKey, "cluster"));
    state.sequence = 1;
    state.term = 1;
    state.logged_ms = 1;
    v1::LogBatch batch;
    batch.set_time_ms(1);
    Must(files->log().Append({1, 1, 1, batch.SerializeAsString()}));
    double begin = Seconds();
    const std::string file = EncodeSnapshot(state, "cluster");
    const double encoded = Seconds() - begin;
    begin = Seconds();
    Must(files->snapshots().Write(1, file));
    fmt::print("snapshot: {:.0f} MiB, encoded in {:.2f} s, written and synced in {:.2f} s\n",
               static_cast<double>(file.size()) / kMiB, encoded, Seconds() - begin);
    Must(files->log().Close());
  }
  auto files = *oplog::LogFolder::Open(folder);
  MasterOptions options;
  options.verify_replay_every = 0;
  double begin = Seconds();
  const auto master =
      *Master::Open(options, {files->log(),
                              env::SystemClock::Instance(),
                              env::SystemRandom::Instance(),
                              {&files->snapshots(), [&files] { return files->OpenReader(); }}});
  fmt::print("start from it, until it serves: {:.2f} s (target < 3 s)\n", Seconds() - begin);

  master->Start();
  rpc::BlockingMaster api(*master);
  std::atomic<bool> stop{false};
  std::vector<double> quiet;
  std::jthread first([&] { quiet = CommandSeconds(api, std::string(32, 'a'), stop); });
  std::this_thread::sleep_for(std::chrono::seconds(2));
  stop = true;
  first.join();
  stop = false;
  std::vector<double> meanwhile;
  std::jthread second([&] { meanwhile = CommandSeconds(api, std::string(32, 'b'), stop); });
  begin = Seconds();
  Must(master->TakeSnapshot().status());
  const double taken = Seconds() - begin;
  stop = true;
  second.join();
  PrintWaits("a durable command, else quiet", quiet);
  PrintWaits(fmt::format("while a snapshot is taken ({:.1f} s)", taken), meanwhile);
  master->Stop();
  Must(files->log().Close());
  Must(env::RemoveFolderTree(folder));
}

}  // namespace
}  // namespace mooncake::master

int main(int argc, char** argv) {
  mooncake::master::Size size;
  CLI::App app{"A Master's memory, snapshots and starts with a large state"};
  app.add_option("--revisions", size.revisions)->capture_default_str();
  app.add_option("--objects", size.objects)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  MC_CHECK(mooncake::SetLogLevel("error").ok());
  mooncake::master::Run(size);
  return 0;
}

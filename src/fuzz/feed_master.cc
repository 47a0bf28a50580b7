// The Master's log and snapshots, and what anybody may send it.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "fuzz/decoders.h"
#include "fuzz/frames.h"
#include "master/snapshot.h"
#include "master/test_world.h"
#include "mooncake/v1/master.pb.h"
#include "oplog/snapshot_frames.h"
#include "rpc/async_master.h"

namespace mooncake::fuzz {
namespace {

using master::BookClient;
using master::TestWorld;

// A bit of everything: published, removed, open and aborted imports, leases.
void Live(TestWorld& world) {
  BookClient one(world.api(), 1);
  BookClient two(world.api(), 2);
  const auto published = BookClient::Plan(BookClient::Identity(1), 2, 3, 5'000);
  MC_CHECK(world.Publish(one, published).ok());
  const auto removed = BookClient::Plan(BookClient::Identity(2), 1, 2, 9'000);
  MC_CHECK(world.Publish(two, removed).ok());
  MC_CHECK(world.Open(one, BookClient::Identity(1), 60'000).lease_id() != 0);
  MC_CHECK(world.Remove(two, removed.identity()).status().code() == 0);
  const auto open = BookClient::Plan(BookClient::Identity(3), 2, 2, 3'000);
  MC_CHECK(world.api().BeginImport(one.Numbered(open)).status().code() == 0);
  const auto begun =
      world.api().BeginImport(two.Numbered(BookClient::Plan(BookClient::Identity(4), 1, 1, 100)));
  v1::AbortImportRequest abort;
  abort.set_import_id(begun.import_id());
  abort.set_reason("replicas differ");
  abort.set_code(static_cast<uint32_t>(Code::kConflict));
  MC_CHECK(world.api().AbortImport(two.Numbered(abort)).status().code() == 0);
}

bool IsDamage(const Status& status) {
  return status.code() == Code::kCorrupt || status.code() == Code::kUnsupported;
}

// Keeps every request that it passes on, each behind a byte that names its method.
class Recorder final : public rpc::MasterApi {
 public:
  Recorder(rpc::MasterApi& inner, std::string* bytes) : inner_(inner), bytes_(bytes) {}

#define MOONCAKE_DEFINE(Name)                                                      \
  v1::Name##Reply Name(const v1::Name##Request& request) override {                \
    AppendFrame(static_cast<char>(k##Name) + request.SerializeAsString(), bytes_); \
    return inner_.Name(request);                                                   \
  }
  enum Method : uint8_t {
#define MOONCAKE_NUMBER(Name) k##Name,
    MOONCAKE_MASTER_RPCS(MOONCAKE_NUMBER)
#undef MOONCAKE_NUMBER
        kMethods
  };
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

 private:
  rpc::MasterApi& inner_;
  std::string* bytes_;
};

}  // namespace

void FeedLogRecords(std::string_view bytes) {
  master::ReplicatedState state;
  uint64_t sequence = 0;
  for (const std::string_view frame : FramesOf(bytes)) {
    const Status applied =
        state.ApplyRecord({++sequence, 1, static_cast<int64_t>(sequence), frame});
    if (!applied.ok()) {
      MC_CHECK(IsDamage(applied));
      return;
    }
  }
  // A log may tell of a state that no Master would write: then it does not serve.
  if (!state.CheckInvariants().ok()) return;
  const std::string file = EncodeSnapshot(state, "cluster");
  const auto decoded = master::DecodeSnapshot(file);
  MC_CHECK(decoded.ok() && decoded->state.Digest() == state.Digest());
}

std::vector<std::string> LogRecordsSeeds() {
  TestWorld world;
  Live(world);
  std::string bytes;
  MC_CHECK(world.log()
               .Scan(1,
                     [&](const oplog::LogRecordView& record) {
                       AppendFrame(record.payload, &bytes);
                       return OkStatus();
                     })
               .ok());
  return {bytes};
}

void FeedSnapshot(std::string_view bytes) {
  const auto decoded = master::DecodeSnapshot(bytes);
  if (!decoded.ok()) MC_CHECK(IsDamage(decoded.status()));
}

std::vector<std::string> SnapshotSeeds() {
  TestWorld world;
  std::vector<std::string> seeds{EncodeSnapshot(world.master().state(), "cluster")};
  Live(world);
  seeds.push_back(EncodeSnapshot(world.master().state(), "cluster"));
  return seeds;
}

// With checksums that fit: a frame is a section's number and one record.
constexpr std::array kSections = {master::kSnapshotHeader, master::kSnapshotObjects,
                                  master::kSnapshotWeights, master::kSnapshotCommands};

void FeedSnapshotRecords(std::string_view bytes) {
  oplog::SnapshotBuilder builder;
  for (const std::string_view frame : FramesOf(bytes)) {
    if (frame.empty()) continue;
    builder.Add(kSections[static_cast<uint8_t>(frame[0]) % kSections.size()], frame.substr(1));
  }
  FeedSnapshot(builder.Finish());
}

std::vector<std::string> SnapshotRecordsSeeds() {
  std::vector<std::string> seeds;
  for (const std::string& file : SnapshotSeeds()) {
    std::string& bytes = seeds.emplace_back();
    MC_CHECK(
        oplog::ReadSnapshotFrames(file, [&](std::string_view section, std::string_view record) {
          const auto number = std::find(kSections.begin(), kSections.end(), section);
          AppendFrame(static_cast<char>(number - kSections.begin()) + std::string(record), &bytes);
          return OkStatus();
        }).ok());
  }
  return seeds;
}

void FeedMasterRequests(std::string_view bytes) {
  TestWorld world;
  for (const std::string_view frame : FramesOf(bytes)) {
    if (frame.empty()) continue;
    const auto method = static_cast<uint8_t>(frame[0]) % Recorder::kMethods;
    const std::string body(frame.substr(1));
    switch (method) {
#define MOONCAKE_CALL(Name)                                             \
  case Recorder::k##Name: {                                             \
    v1::Name##Request request;                                          \
    if (request.ParseFromString(body)) (void)world.api().Name(request); \
    break;                                                              \
  }
      MOONCAKE_MASTER_RPCS(MOONCAKE_CALL)
#undef MOONCAKE_CALL
      default:
        break;
    }
  }
  // TestWorld has compared live and replayed state after every batch.
  world.Settle();
  const Status consistent = world.master().state().CheckInvariants();
  MC_CHECK(consistent.ok());
}

std::vector<std::string> MasterRequestsSeeds() {
  TestWorld world;
  std::string bytes;
  Recorder recorder(world.api(), &bytes);
  BookClient client(recorder, 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 2, 2, 5'000);
  const uint64_t import_id = recorder.BeginImport(client.Numbered(plan)).import_id();
  v1::GetImportRequest get;
  get.set_import_id(import_id);
  get.set_client_id(client.client_id());
  get.add_extents_of("rank0");
  const std::string node_id = recorder.GetImport(get).metadata_node_ids(0);
  v1::KeepImportRequest keep;
  keep.set_import_id(import_id);
  keep.set_client_id(client.client_id());
  (void)recorder.KeepImport(keep);
  for (const char* rank : {"rank0", "rank1"}) {
    v1::SubmitReceiptRequest receipt;
    receipt.set_import_id(import_id);
    receipt.set_participant_id(rank);
    *receipt.mutable_digests() = BookClient::Metadata(model::DigestsName(rank), rank, node_id);
    (void)recorder.SubmitReceipt(client.Numbered(receipt));
  }
  (void)recorder.CommitImport(client.Numbered(BookClient::Commit(plan, import_id, node_id)));
  v1::OpenRevisionRequest open;
  *open.mutable_identity() = plan.identity();
  open.set_ttl_ms(10'000);
  const uint64_t lease_id = recorder.OpenRevision(client.Numbered(open)).lease_id();
  v1::LocateObjectsRequest locate;
  locate.set_lease_id(lease_id);
  locate.set_metadata_objects(true);
  locate.add_payload_names("w0.0");
  (void)recorder.LocateObjects(locate);
  v1::ListWeightsRequest list;
  list.set_tenant_id("default");
  list.set_page_size(1);
  (void)recorder.ListWeights(list);
  v1::RenewLeasesRequest renew;
  renew.add_lease_ids(lease_id);
  (void)recorder.RenewLeases(renew);
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(lease_id);
  (void)recorder.ReleaseLease(client.Numbered(release));
  v1::RemoveWeightRequest remove;
  *remove.mutable_identity() = plan.identity();
  (void)recorder.RemoveWeight(client.Numbered(remove));
  MC_CHECK(import_id != 0 && lease_id != 0);
  return {bytes};
}

}  // namespace mooncake::fuzz

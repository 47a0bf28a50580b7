// The whole Master as programs run it: SQLite, its own thread, many clients, in the process and
// over gRPC on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "env/deadline.h"
#include "env/test_folder.h"
#include "master/recovery.h"
#include "master/test_world.h"
#include "oplog/log_folder.h"
#include "rpc/grpc_master.h"
#include "rpc/grpc_master_server.h"

namespace mooncake::master {
namespace {

class MasterThreadsTest : public testing::Test {
 protected:
  MasterThreadsTest() {
    auto files = oplog::LogFolder::Open(folder_.path());
    MC_CHECK(files.ok());
    files_ = *std::move(files);
    MasterOptions options;
    // Many in a life, each beside the writers.
    options.snapshot_every_records = 10;
    options.log_drop_records_max = 3;
    options.verify_replay_every = 16;
    options.removal_batch_members = 4;
    options.node_dead_after_ms = 600'000;  // the books' node reports only at the end
    auto master =
        Master::Open(options, {files_->log(),
                               env::SystemClock::Instance(),
                               env::SystemRandom::Instance(),
                               {&files_->snapshots(), [this] { return files_->OpenReader(); }}});
    MC_CHECK(master.ok());
    master_ = *std::move(master);
    master_->Start();
  }

  std::string Listen() {
    auto server = rpc::GrpcMasterServer::Start("127.0.0.1:0", *master_);
    MC_CHECK(server.ok());
    server_ = *std::move(server);
    return server_->address();
  }

  // `clients` threads live their lives; every command must have been executed once, and the log
  // must say what the Master knew.
  void HammerAndCheck(rpc::MasterApi& api, int clients, int rounds);

  env::TestFolder folder_;
  std::unique_ptr<oplog::LogFolder> files_;
  std::unique_ptr<Master> master_;
  std::unique_ptr<rpc::GrpcMasterServer> server_;
};

// One client's life: publish, read and remove its own revisions, with every command sent twice now
// and then, the second time perhaps beside the first.
class Hammer {
 public:
  Hammer(rpc::MasterApi& api, int number, unsigned seed)
      : api_(api),
        client_(api, number),
        resource_("model" + std::to_string(number)),
        engine_(seed) {}

  void Run(int rounds) {
    for (int round = 1; round <= rounds; ++round) {
      const auto identity = BookClient::Identity(static_cast<uint64_t>(round), resource_);
      const auto plan = BookClient::Plan(identity, 2, 3, 4096);
      Publish(plan);
      Read(identity);
      if (round % 2 == 0) Remove(identity);
    }
  }

  std::vector<uint64_t> import_ids;
  std::vector<uint64_t> lease_ids;

 private:
  template <class Request, class Reply>
  Reply Send(Request request, Reply (rpc::MasterApi::*method)(const Request&)) {
    request = client_.Numbered(request);
    std::vector<Reply> replies;
    std::thread beside;
    Reply second;
    const bool twice_at_once = engine_() % 8 == 0;
    if (twice_at_once) beside = std::thread([&] { second = (api_.*method)(request); });
    const Reply reply = (api_.*method)(request);
    if (beside.joinable()) {
      beside.join();
      EXPECT_EQ(second.SerializeAsString(), reply.SerializeAsString());
    }
    if (engine_() % 8 == 0) {
      EXPECT_EQ((api_.*method)(request).SerializeAsString(), reply.SerializeAsString());
    }
    EXPECT_EQ(reply.status().code(), 0u) << reply.status().message();
    return reply;
  }

  void Publish(const v1::BeginImportRequest& plan) {
    const auto begun = Send(plan, &rpc::MasterApi::BeginImport);
    import_ids.push_back(begun.import_id());
    v1::GetImportRequest get;
    get.set_import_id(begun.import_id());
    get.set_client_id(client_.client_id());
    get.add_extents_of("rank0");
    const auto got = api_.GetImport(get);
    ASSERT_EQ(got.status().code(), 0u) << got.status().message();
    EXPECT_EQ(got.extents(0).payloads_size(), 3);
    for (const char* rank : {"rank0", "rank1"}) {
      v1::SubmitReceiptRequest receipt;
      receipt.set_import_id(begun.import_id());
      receipt.set_participant_id(rank);
      *receipt.mutable_digests() =
          BookClient::Metadata(model::DigestsName(rank), rank, got.metadata_node_ids(0));
      Send(receipt, &rpc::MasterApi::SubmitReceipt);
    }
    Send(BookClient::Commit(plan, begun.import_id(), got.metadata_node_ids(0)),
         &rpc::MasterApi::CommitImport);
  }

  void Read(const v1::WeightIdentity& identity) {
    v1::OpenRevisionRequest open;
    *open.mutable_identity() = identity;
    open.set_ttl_ms(60'000);
    const auto opened = Send(open, &rpc::MasterApi::OpenRevision);
    lease_ids.push_back(opened.lease_id());
    v1::LocateObjectsRequest locate;
    locate.set_lease_id(opened.lease_id());
    locate.add_payload_names("w1.1");
    EXPECT_EQ(api_.LocateObjects(locate).objects(0).bytes(), 4096u);
    v1::ReleaseLeaseRequest release;
    release.set_lease_id(opened.lease_id());
    Send(release, &rpc::MasterApi::ReleaseLease);
  }

  void Remove(const v1::WeightIdentity& identity) {
    v1::RemoveWeightRequest remove;
    *remove.mutable_identity() = identity;
    Send(remove, &rpc::MasterApi::RemoveWeight);
  }

  rpc::MasterApi& api_;
  BookClient client_;
  const std::string resource_;
  std::mt19937 engine_;
};

void MasterThreadsTest::HammerAndCheck(rpc::MasterApi& api, int clients, int rounds) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  BookNode node("n1", uint64_t{1} << 30);
  ASSERT_TRUE(node.Register(api).ok());
  std::vector<std::unique_ptr<Hammer>> hammers;
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    hammers.push_back(std::make_unique<Hammer>(api, i, seed + static_cast<unsigned>(i)));
    threads.emplace_back([&hammer = *hammers.back(), rounds] { hammer.Run(rounds); });
  }
  for (std::thread& thread : threads) thread.join();

  const auto total = static_cast<uint64_t>(clients) * static_cast<uint64_t>(rounds);
  std::set<uint64_t> imports, leases;
  for (const auto& hammer : hammers) {
    imports.insert(hammer->import_ids.begin(), hammer->import_ids.end());
    leases.insert(hammer->lease_ids.begin(), hammer->lease_ids.end());
  }
  // Every command was executed once: ids are distinct and without gaps.
  EXPECT_EQ(imports.size(), total);
  EXPECT_EQ(*imports.rbegin(), total);
  EXPECT_EQ(leases.size(), total);
  EXPECT_EQ(*leases.rbegin(), total);

  // Deletions end by themselves.
  const auto count_of = [&api](const char* availability) {
    return api.GetCluster({}).revisions_by_availability().at(availability);
  };
  const env::Deadline deadline = env::Deadline::AfterMs(60'000);
  while (count_of("DELETED") < total / 2 && !deadline.Expired()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(count_of("DELETED"), total / 2);
  EXPECT_EQ(count_of("READY"), total / 2);
  EXPECT_EQ(api.GetCluster({}).active_leases(), 0u);
  // Group commit: fewer records than commands.
  EXPECT_LT(api.GetCluster({}).last_log_sequence(), total * 6);
  // However late the snapshots' thread came to it: more records make the next one due.
  BookClient refused(api, clients);
  v1::ReleaseLeaseRequest unknown;
  unknown.set_lease_id(1'000'000);
  while (files_->OpenReader().value()->FirstSequence().value() == 1 && !deadline.Expired()) {
    (void)api.ReleaseLease(refused.Numbered(unknown));
  }
  const uint64_t records = api.GetCluster({}).last_log_sequence();

  server_.reset();
  master_->Stop();
  const Sha256Digest live = master_->state().Digest();
  ASSERT_TRUE(files_->log().Close().ok());
  auto reopened = files_->OpenReader();
  ASSERT_TRUE(reopened.ok()) << reopened.status().ToString();
  const auto replayed = Replay(**reopened, &files_->snapshots());
  ASSERT_TRUE(replayed.ok()) << replayed.status().ToString();
  EXPECT_EQ(replayed->Digest(), live);
  EXPECT_GE(replayed->sequence, records);
  EXPECT_EQ(files_->snapshots().List()->size(), Snapshotter::kKept);
  EXPECT_GT((*reopened)->FirstSequence().value(), 1u);
}

TEST_F(MasterThreadsTest, SixteenClientsHammerOverGrpc) {
  rpc::GrpcMaster api(Listen());
  HammerAndCheck(api, 16, 10);
}

TEST_F(MasterThreadsTest, EightClientsHammerInTheProcess) {
  rpc::BlockingMaster api(*master_);
  HammerAndCheck(api, 8, 10);
}

// A Master that never lives long enough to write so many records itself.
TEST(MasterSnapshots, TheLogOfEarlierLivesCounts) {
  env::TestFolder folder;
  MasterOptions options;
  options.snapshot_every_records = 10;
  for (int life = 1; life <= 10; ++life) {
    auto files = *oplog::LogFolder::Open(folder.path());
    // Each start writes one record.
    auto master =
        *Master::Open(options, {files->log(),
                                env::SystemClock::Instance(),
                                env::SystemRandom::Instance(),
                                {&files->snapshots(), [&files] { return files->OpenReader(); }}});
    master->Start();
    const env::Deadline deadline = env::Deadline::AfterMs(life == 10 ? 60'000 : 0);
    while (files->snapshots().List()->empty() && !deadline.Expired()) std::this_thread::yield();
    master->Stop();
    EXPECT_EQ(files->snapshots().List()->empty(), life < 10) << "life " << life;
    ASSERT_TRUE(files->log().Close().ok());
  }
}

TEST_F(MasterThreadsTest, StopAnswersWhoeverIsWaiting) {
  rpc::GrpcMaster api(Listen(), {.total_timeout_ms = 500});
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) (void)api.GetCluster({});
    });
  }
  const env::Deadline deadline = env::Deadline::AfterMs(20'000);
  while (api.GetCluster({}).status().code() != 0 && !deadline.Expired()) {
  }
  server_->Stop();
  master_->Stop();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(CodeOf(api.GetCluster({}).status()), Code::kUnavailable);
}

}  // namespace
}  // namespace mooncake::master

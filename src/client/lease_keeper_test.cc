#include "client/lease_keeper.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>

#include "rpc/status_proto.h"
#include "rpc/test_master.h"

namespace mooncake::client {
namespace {

// Counts renewals and answers as told.
class CountingMaster final : public rpc::EmptyMaster {
 public:
  v1::RenewLeasesReply RenewLeases(const v1::RenewLeasesRequest& request) override {
    std::lock_guard lock(mutex);
    v1::RenewLeasesReply reply;
    if (!reachable) {
      ++failures;
      changed.notify_all();
      rpc::SetStatus(reply.mutable_status(), Unavailable("no Master"));
      return reply;
    }
    for (const uint64_t id : request.lease_ids()) {
      ++renewals[id];
      rpc::SetStatus(reply.add_leases(), expired.contains(id) ? LeaseExpired("over") : OkStatus());
    }
    changed.notify_all();
    return reply;
  }
  v1::KeepImportReply KeepImport(const v1::KeepImportRequest& request) override {
    std::lock_guard lock(mutex);
    v1::KeepImportReply reply;
    ++renewals[request.import_id()];
    clients[request.import_id()] = request.client_id();
    reply.set_state(aborted ? v1::IMPORT_STATE_ABORTED : v1::IMPORT_STATE_OPEN);
    changed.notify_all();
    return reply;
  }
  template <class Predicate>
  bool WaitFor(Predicate predicate) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), predicate);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, int> renewals;
  std::map<uint64_t, std::string> clients;
  std::set<uint64_t> expired;
  bool aborted = false;
  bool reachable = true;
  int failures = 0;
};

TEST(LeaseKeeperTest, RenewsWhatIsKeptUntilItIsLetGo) {
  const auto master = std::make_shared<CountingMaster>();
  LeaseKeeper keeper(master);
  auto revision = keeper.KeepRevision(1, 3);
  auto import = keeper.KeepImport(100, "me", 3);
  EXPECT_TRUE(
      master->WaitFor([&] { return master->renewals[1] >= 3 && master->renewals[100] >= 3; }));
  EXPECT_EQ(master->clients[100], "me");
  EXPECT_TRUE(revision->state().ok());
  EXPECT_TRUE(import->state().ok());

  revision.reset();
  // A renewal that was under way may still arrive; after two rounds of the other nothing more does.
  int now = 0;
  const auto import_rounds = [&](int more) {
    const int target = master->renewals[100] + more;
    return master->WaitFor([&, target] { return master->renewals[100] >= target; });
  };
  ASSERT_TRUE(import_rounds(2));
  {
    std::lock_guard lock(master->mutex);
    now = master->renewals[1];
  }
  ASSERT_TRUE(import_rounds(5));
  std::lock_guard lock(master->mutex);
  EXPECT_EQ(master->renewals[1], now);
}

TEST(LeaseKeeperTest, OnlyTheMasterSaysThatALeaseIsLost) {
  const auto master = std::make_shared<CountingMaster>();
  master->reachable = false;
  LeaseKeeper keeper(master);
  const auto kept = keeper.KeepRevision(1, 3);
  const auto other = keeper.KeepRevision(2, 3);
  // Long past its TTL without an answer.
  ASSERT_TRUE(master->WaitFor([&] { return master->failures >= 20; }));
  EXPECT_TRUE(kept->state().ok());
  {
    std::lock_guard lock(master->mutex);
    master->reachable = true;
    master->expired = {1};
  }
  ASSERT_TRUE(
      master->WaitFor([&] { return master->renewals[1] >= 1 && master->renewals[2] >= 5; }));
  EXPECT_EQ(kept->state().code(), Code::kLeaseExpired);
  EXPECT_TRUE(other->state().ok());
  std::lock_guard lock(master->mutex);
  EXPECT_EQ(master->renewals[1], 1);
}

TEST(LeaseKeeperTest, AnAbortedImportIsLost) {
  const auto master = std::make_shared<CountingMaster>();
  master->aborted = true;
  LeaseKeeper keeper(master);
  const auto kept = keeper.KeepImport(7, "me", 3);
  const auto other = keeper.KeepRevision(2, 3);
  ASSERT_TRUE(
      master->WaitFor([&] { return master->renewals[7] >= 1 && master->renewals[2] >= 5; }));
  EXPECT_EQ(kept->state().code(), Code::kNotFound);
}

}  // namespace
}  // namespace mooncake::client

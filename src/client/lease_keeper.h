// Renews what a running operation holds at the Master: the lease of the revision it reads, the
// import it writes.
//
// One thread renews everything that is kept, each at a third of its TTL, revision leases in one
// call. What is kept ends with its KeptLease: an operation that is gone is never renewed. Only the
// Master says that a lease is lost (an unreachable Master may come back and still know it); whoever
// hands data over asks it first.
//
// Threads: every method from any thread. KeptLease objects may outlive the keeper.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "env/sync.h"
#include "rpc/master_api.h"

namespace mooncake::client {

class LeaseKeeper {
 public:
  enum class Kind : uint8_t { kRevision, kImport };

  explicit LeaseKeeper(std::shared_ptr<rpc::MasterApi> master);
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // What one operation holds; stops being renewed with the last reference.
  class KeptLease {
   public:
    Kind kind() const { return kind_; }
    uint64_t id() const { return id_; }
    // Not OK once the Master answered that it is over (LEASE_EXPIRED, NOT_FOUND, ...).
    Status state() const;

   private:
    friend class LeaseKeeper;
    KeptLease(Kind kind, uint64_t id, std::string client_id, uint64_t ttl_ms);
    void MarkLost(Status why);

    const Kind kind_;
    const uint64_t id_;
    const std::string client_id_;
    const int64_t ttl_ms_;
    uint64_t number_ = 0;  // of its entry
    mutable env::Mutex mutex_;
    Status state_;
  };
  using Kept = std::shared_ptr<KeptLease>;

  Kept KeepRevision(uint64_t lease_id, uint64_t ttl_ms);
  // `client_id`: who claimed the participants that are being written.
  Kept KeepImport(uint64_t import_id, std::string client_id, uint64_t ttl_ms);

 private:
  struct Entry {
    std::weak_ptr<KeptLease> lease;
    int64_t due_ms = 0;
  };

  Kept Keep(Kept kept);
  void Run();
  void Renew(const std::vector<Kept>& due);
  void RenewRevisions(const std::vector<Kept>& due);
  void RenewImport(const Kept& kept);
  void Reschedule(const Kept& kept, bool reached);

  const std::shared_ptr<rpc::MasterApi> master_;

  env::Mutex mutex_;
  env::CondVar changed_;
  std::map<uint64_t, Entry> entries_;  // in the order they came
  uint64_t next_number_ = 1;
  bool stopping_ = false;
  env::Thread thread_;
};

}  // namespace mooncake::client

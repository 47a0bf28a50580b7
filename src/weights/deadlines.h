// weights::Deadlines: when leases and import sessions run out. The Master's volatile companion of
// the catalogue: never logged, rebuilt with full TTLs after a restart (or after a failed append).
//
// A lease or import is dead only once its expiry is logged; from its deadline on it is refused here
// too, so that no reader is told "live" after it was told "expired". Times are the Master's logged
// clock in milliseconds (monotonic). Owned by the sequencer, single-threaded.
//
// An import runs out when one of its unfinished writers does, or when none of its clients has
// renewed for the session's TTL (all receipts in and nobody commits; participants that nobody
// claims).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "weights/catalog.h"
#include "weights/events.h"

namespace mooncake::weights {

class Deadlines {
 public:
  // Every lease and open import of the catalogue gets a full TTL from now.
  void Restart(const Catalog& catalog, int64_t now_ms);

  // After each live Apply.
  void Observe(const Catalog& catalog, const Event& event, int64_t now_ms);

  // Renews the client's hold on an open import (any client that takes part may). LEASE_EXPIRED:
  // past its deadline. NOT_FOUND: not open.
  Status KeepImport(const Catalog& catalog, ImportId id, std::string_view client_id,
                    int64_t now_ms);

  // Since the client last claimed a participant of the open import or renewed it. Absent: it has
  // claimed none.
  std::optional<int64_t> SilentMs(ImportId id, std::string_view client_id, int64_t now_ms) const;

  // LEASE_EXPIRED: past its deadline, or ended. NOT_FOUND: never given.
  Status RenewLease(const Catalog& catalog, LeaseId id, int64_t now_ms);
  // The same check without renewing.
  Status CheckLease(const Catalog& catalog, LeaseId id, int64_t now_ms) const;

  // At most `max`, by deadline. They are returned again until their expiry is observed.
  std::vector<LeaseId> ExpiredLeases(int64_t now_ms, size_t max) const;
  struct ExpiredImport {
    ImportId import_id;
    std::string client_id;  // the silent writer; empty: nobody has renewed
    std::string reason;
  };
  std::vector<ExpiredImport> ExpiredImports(int64_t now_ms, size_t max) const;

 private:
  struct Writer {  // a client with a claimed participant whose receipt is not in
    int64_t deadline_ms = 0;
    uint64_t ttl_ms = 0;
  };
  struct Session {
    int64_t deadline_ms = 0;  // pushed by every renewal of any client
    uint64_t ttl_ms = 0;
    std::map<std::string, Writer, std::less<>> writers;
    std::map<std::string, int64_t, std::less<>> heard_ms;  // of every claimer, finished or not
    int64_t earliest_ms = 0;  // of deadline_ms and the writers': as in sessions_by_deadline_
  };
  void SetLease(LeaseId id, int64_t deadline_ms);
  void ForgetLease(LeaseId id);
  // After any change of the session.
  void Reorder(ImportId id, Session& session);
  void ForgetSession(ImportId id);

  std::map<LeaseId, int64_t> lease_deadline_;
  std::set<std::pair<int64_t, LeaseId>> leases_by_deadline_;
  std::map<ImportId, Session> sessions_;
  std::set<std::pair<int64_t, ImportId>> sessions_by_deadline_;
};

}  // namespace mooncake::weights

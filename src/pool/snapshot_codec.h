// pool::Catalog to and from the records of a snapshot's section "pool"
// (proto/mooncake/v1/snapshot.proto).
//
// Saving is deterministic: equal states give equal records, and an empty catalogue gives none. A
// loader makes every sum, index and free range again from what the records say, so that none of
// them can disagree with it.
#pragma once

#include <functional>
#include <string_view>

#include "base/status.h"
#include "mooncake/v1/snapshot.pb.h"
#include "pool/catalog.h"

namespace mooncake::pool {

void SaveSnapshot(const Catalog& catalog, const std::function<void(std::string_view)>& add);

class SnapshotLoader {
 public:
  // CORRUPT: the record contradicts those before it, or is none; the loader is of no use then.
  Status Add(std::string_view record);
  // After the last record. The invariants are the caller's to check.
  Catalog Take();

 private:
  Status Load(const v1::PoolRecord::Tenant& record);
  Status Load(const v1::PoolRecord::Object& record);

  Catalog catalog_;
  uint64_t next_object_id_ = 0;  // 0: no counters yet
};

}  // namespace mooncake::pool

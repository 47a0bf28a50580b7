// weights::Catalog to and from the records of a snapshot's section "weight_metadata"
// (proto/mooncake/v1/snapshot.proto).
//
// Saving is deterministic: equal states give equal records. A loader makes every index and count
// again from what the records say, so that none of them can disagree with it.
#pragma once

#include <functional>
#include <string_view>

#include "base/status.h"
#include "mooncake/v1/snapshot.pb.h"
#include "weights/catalog.h"

namespace mooncake::weights {

void SaveSnapshot(const Catalog& catalog, const std::function<void(std::string_view)>& add);

class SnapshotLoader {
 public:
  // CORRUPT: the record contradicts those before it, or is none; the loader is of no use then.
  Status Add(std::string_view record);
  // After the last record. The invariants are the caller's to check.
  Catalog Take() { return std::move(catalog_); }

 private:
  Status Load(const v1::WeightsRecord::Counters& counters);
  Status Load(const v1::WeightsRecord::Revision& record);
  Status Load(const v1::WeightsRecord::Lease& record);
  Status Load(const v1::WeightsRecord::AbortReason& record);

  Catalog catalog_;
  bool has_counters_ = false;
};

}  // namespace mooncake::weights

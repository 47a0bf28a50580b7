// objects::Catalog to and from the records of a snapshot's section "objects"
// (proto/mooncake/v1/snapshot.proto).
//
// Saving is deterministic: equal states give equal records. A loader makes every sum, index and
// count again from what the records say, so that none of them can disagree with it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "mooncake/v1/snapshot.pb.h"
#include "objects/catalog.h"

namespace mooncake::objects {

void SaveSnapshot(const Catalog& catalog, const std::function<void(std::string_view)>& add);

class SnapshotLoader {
 public:
  // CORRUPT: the record contradicts those before it, or is none; the loader is of no use then.
  Status Add(std::string_view record);
  // After the last record. The invariants are the caller's to check.
  Catalog Take() { return std::move(catalog_); }

 private:
  Status Load(const v1::ObjectsRecord::Counters& counters);
  Status Load(const v1::ObjectsRecord::Node& record);
  Status Load(const v1::ObjectsRecord::Arena& record);
  Status Load(const v1::ObjectsRecord::Group& record);
  Status Load(const v1::ObjectsRecord::Payloads& record);
  Status CheckPayloads(const v1::ObjectsRecord::Payloads& record) const;
  Status LoadMetadata(const v1::MetadataObject& record);

  Catalog catalog_;
  bool has_counters_ = false;
  Group* group_ = nullptr;  // the last one
};

}  // namespace mooncake::objects

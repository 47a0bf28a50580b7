// Messages of the wire schema to and from the model's plain values.
//
// ToProto is total and overwrites `proto`. FromProto checks what a type cannot hold (enum numbers,
// digest lengths): INVALID_ARGUMENT with the field and both values; FromLog says CORRUPT instead,
// of what a log or a snapshot holds. Whether a value makes sense (an identity, a policy) is the
// model's to say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "model/grant.h"
#include "model/node.h"
#include "model/revision.h"
#include "mooncake/v1/master.pb.h"
#include "mooncake/v1/types.pb.h"

namespace mooncake::codec {

// `field` is named by the error.
Result<Sha256Digest> DigestFromBytes(std::string_view field, std::string_view bytes);
std::string BytesOf(const Sha256Digest& digest);

model::WeightIdentity FromProto(const v1::WeightIdentity& proto);
void ToProto(const model::WeightIdentity& identity, v1::WeightIdentity* proto);

Result<model::StoragePolicy> FromProto(const v1::StoragePolicy& proto);
void ToProto(const model::StoragePolicy& policy, v1::StoragePolicy* proto);

Result<model::MetadataObject> FromProto(const v1::MetadataObject& proto);
void ToProto(const model::MetadataObject& object, v1::MetadataObject* proto);

model::NodeAddress FromProto(const v1::NodeAddress& proto);
void ToProto(const model::NodeAddress& address, v1::NodeAddress* proto);

model::Extent FromProto(const v1::Extent& proto);
void ToProto(const model::Extent& extent, v1::Extent* proto);

// The MAC travels beside the grant's values.
Result<model::Grant> FromProto(const v1::Grant& proto);
void ToProto(const model::Grant& grant, const Sha256Digest& mac, v1::Grant* proto);

// Likewise.
model::ExtentPermit FromProto(const v1::ExtentPermit& proto);
void ToProto(const model::ExtentPermit& permit, const Sha256Digest& mac, v1::ExtentPermit* proto);

// Without physical_bytes and operation_id, which the model keeps elsewhere.
Result<model::RevisionMetadata> FromProto(const v1::RevisionMetadata& proto);
void ToProto(const model::RevisionMetadata& metadata, v1::RevisionMetadata* proto);

Result<model::Availability> AvailabilityFromProto(int number);

model::PlannedParticipant FromProto(const v1::PlannedParticipant& proto);
void ToProto(const model::PlannedParticipant& participant, v1::PlannedParticipant* proto);

// INVALID_ARGUMENT becomes CORRUPT.
Status AsDamage(const Status& status);

template <class Proto>
auto FromLog(const Proto& proto) -> decltype(FromProto(proto)) {
  auto value = FromProto(proto);
  if (value.ok()) return value;
  return AsDamage(value.status());
}
Result<Sha256Digest> DigestFromLog(std::string_view field, std::string_view bytes);

}  // namespace mooncake::codec

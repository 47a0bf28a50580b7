#include "python/store_codes.h"

namespace mooncake::python {

int CodeOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kInvalidArgument:
      return kInvalidParams;
    case Code::kPermissionDenied:  // the token, or the tenant that was named with it
      return kIllegalClient;
    case Code::kNotFound:
    case Code::kStaleGeneration:
      return kObjectNotFound;
    case Code::kNotReady:
      return kReplicaIsNotReady;
    case Code::kConflict:
      return kObjectReplicaBusy;
    case Code::kBusy:
      return kObjectHasLease;
    case Code::kLeaseExpired:
      return kLeaseExpired;
    case Code::kDurabilityFailed:
      return kPersistentFail;
    case Code::kPolicyUnsatisfiable:
    case Code::kExhausted:
      return kNoAvailableHandle;
    case Code::kUnavailable:
      return kRpcFail;
    case Code::kOutcomeUnknown:
      return kRpcTimeout;
    case Code::kCorrupt:
      return kChecksumMismatch;
    case Code::kUnsupported:
      return kNotSupported;
    case Code::kCancelled:
    case Code::kInternal:
      return kInternalError;
  }
  return kInternalError;
}

int CodeOf(const client::PutResult& result) {
  switch (result.refusal) {
    case v1::PUT_REFUSAL_NO_ROOM:
    case v1::PUT_REFUSAL_NO_NODE:
      return kNoAvailableHandle;
    case v1::PUT_REFUSAL_QUOTA:
      return kTenantQuotaExceeded;
    case v1::PUT_REFUSAL_UNKNOWN_TENANT:
      return kTenantNotRegistered;
    case v1::PUT_REFUSAL_GROUP:
      return kInvalidParams;
    default:
      return result.of_transfer ? kTransferFail : CodeOf(result.status);
  }
}

int CodeOfStart(const client::PutResult& result) {
  return result.existed ? int{kObjectAlreadyExists} : CodeOf(result);
}

int64_t CodeOf(const client::ReadResult& result) {
  if (result.status.ok()) return static_cast<int64_t>(result.bytes);
  if (!result.of_transfer) return CodeOf(result.status);
  switch (result.status.code()) {
    case Code::kLeaseExpired:
      return kLeaseExpired;
    case Code::kCorrupt:
      return kChecksumMismatch;
    default:
      return kTransferFail;
  }
}

}  // namespace mooncake::python

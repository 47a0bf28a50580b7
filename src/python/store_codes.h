// Failures of ordinary objects as the numbers of the ordinary Store's face (python/mooncake/store):
// 0 is success, and every method of that face returns them.
#pragma once

#include "base/status.h"
#include "client/object_client.h"

namespace mooncake::python {

// Those that this store answers with; the face's module has the names of all.
enum StoreCode : int {
  kInternalError = -1,
  kNoAvailableHandle = -200,
  kInvalidParams = -600,
  kIllegalClient = -601,
  kReplicaIsNotReady = -703,
  kObjectNotFound = -704,
  kObjectAlreadyExists = -705,
  kObjectHasLease = -706,
  kLeaseExpired = -707,
  kObjectReplicaBusy = -714,
  kTransferFail = -800,
  kChecksumMismatch = -801,
  kRpcFail = -900,
  kRpcTimeout = -901,
  kNotSupported = -1012,
  kPersistentFail = -1503,
  kTenantQuotaExceeded = -1700,
  kTenantNotRegistered = -1701,
};

// Of what the Master answered, or of not getting an answer.
int CodeOf(const Status& status);
// `existed` is success: nothing was changed.
int CodeOf(const client::PutResult& result);
// Of starting a put session: that the object exists is a failure there.
int CodeOfStart(const client::PutResult& result);
// The bytes that were read, or a failure.
int64_t CodeOf(const client::ReadResult& result);

}  // namespace mooncake::python

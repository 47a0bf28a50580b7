// What a put asks of the Master: start, end, revoke (proto/mooncake/v1/master.proto, "ordinary
// objects"). Bytes are moved between these, by whoever calls them (extent_writer.h).
//
// Entries are independent unless PutOptions::all_or_nothing. Threads: every function from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "client/extent_writer.h"
#include "client/object_session.h"

namespace mooncake::client {

struct PutName {
  std::string_view key;
  uint64_t bytes = 0;
  std::string_view group_id;
};

// One replica of an object that is being written.
struct PutReplica {
  v1::ExtentPermit permit;
  std::shared_ptr<const v1::NodeAddress> node;
};

struct StartedPut {
  PutResult result;
  uint64_t object_id = 0;  // 0: nothing is being written. Otherwise it is to be ended or revoked
  std::vector<PutReplica> replicas;  // empty when `result` is a failure
};

// As many as names, in one PutStart under a number of the client's own: repeated with that number
// while the Master cannot be reached, also over its restart. Names are few enough for a request.
std::vector<StartedPut> StartPuts(ObjectSession& session, std::span<const PutName> names,
                                  const PutOptions& options);

struct EndedPuts {
  std::vector<Status> statuses;  // NOT_FOUND: the Master gave the put up, nothing became readable
  bool lost = false;             // the Master cannot be reached, and would not hear of more
};
// `ids` of one or more starts.
EndedPuts EndPuts(ObjectSession& session, std::span<const uint64_t> ids, const PutOptions& options);

// Gives back what will not be ended. What cannot be told, the Master finds out once this client has
// been silent about it.
Status RevokePuts(ObjectSession& session, std::span<const uint64_t> ids, const CallLimits& limits);

}  // namespace mooncake::client

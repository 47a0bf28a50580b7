// Are the replicas of what an import stores equal? Judged from the digests objects that all its
// participants handed in, before it is committed, by every importer that could commit it: the
// answer depends on the plan and those objects alone.
//
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "client/digests.h"
#include "reshard/upload_plan.h"

namespace mooncake::client {

// By participant: index into the plan's.
using DigestsByParticipant = std::map<uint32_t, DigestsTable>;

// The participants whose digests objects say something about replicas, ascending.
std::vector<uint32_t> ParticipantsToCompare(const reshard::UploadPlan& plan);

// `tables` are those of ParticipantsToCompare. CONFLICT: the first difference by tensor, box and
// participant, with both participants and their ranks. CORRUPT: a participant's object lacks a
// fragment, or has it with another size.
Status CompareReplicas(const reshard::UploadPlan& plan, const DigestsByParticipant& tables);

}  // namespace mooncake::client

// PlanReservation: where the payloads of a new import will lie, all or nothing.
//
// Pure. Each participant's payloads are laid, in the order of its plan, into arenas of its own:
// every payload at a multiple of kPayloadAlignment, an arena at most kArenaBytesMax unless one
// payload is larger. A participant begins on the node with the most free space (a node of the
// preferred host before any other, ties to the smaller node id), stays there while payloads fit and
// spills to the next such node when one does not.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/revision.h"
#include "objects/catalog.h"
#include "objects/events.h"

namespace mooncake::objects {

inline constexpr uint64_t kPayloadAlignment = 4096;
inline constexpr uint64_t kArenaBytesMax = 256ull << 20;
inline constexpr uint64_t kPayloadBytesMax = 1ull << 50;
inline constexpr uint64_t kPayloadsPerImportMax = 1u << 24;

struct ReservationRequest {
  ImportId import_id;
  const std::vector<model::PlannedParticipant>* participants = nullptr;
  std::string preferred_host_id;       // may be empty
  std::set<std::string> usable_nodes;  // node ids that report now
};

// INVALID_ARGUMENT: no payloads, a name that is bad or stands twice, zero bytes, units not numbered
// 0..n-1 without a gap. UNAVAILABLE: no usable node. EXHAUSTED: with the needed bytes, the free
// bytes of the usable nodes together, and the largest node's.
Result<std::vector<Event>> PlanReservation(const Catalog& catalog,
                                           const ReservationRequest& request);

}  // namespace mooncake::objects

#include "objects/reservation.h"

#include <algorithm>
#include <unordered_set>

namespace mooncake::objects {
namespace {

uint64_t SaturatingAdd(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}

std::string Of(const model::PlannedParticipant& participant) {
  return " of participant " + participant.participant_id;
}

Status ValidatePayloads(const model::PlannedParticipant& participant,
                        std::unordered_set<std::string_view>* names) {
  for (const model::PlannedPayload& payload : participant.payloads) {
    if (const Status status = model::ValidatePayloadName(payload.name); !status.ok()) {
      return InvalidArgument(status.message() + Of(participant));
    }
    if (payload.bytes == 0 || payload.bytes > kPayloadBytesMax) {
      return InvalidArgument("payload " + payload.name + Of(participant) + " must have 1 to " +
                             std::to_string(kPayloadBytesMax) + " bytes, got " +
                             std::to_string(payload.bytes));
    }
    if (!names->insert(payload.name).second) {
      return InvalidArgument("payload " + payload.name + Of(participant) + " is planned twice");
    }
  }
  return OkStatus();
}

// Units must be exactly 0..n-1.
Status ValidateUnits(const std::vector<model::PlannedParticipant>& participants, size_t payloads) {
  std::vector<bool> seen;
  for (const model::PlannedParticipant& participant : participants) {
    for (const model::PlannedPayload& payload : participant.payloads) {
      if (payload.unit >= payloads) {
        return InvalidArgument("payload " + payload.name + Of(participant) + " has affinity unit " +
                               std::to_string(payload.unit) + " of at most " +
                               std::to_string(payloads));
      }
      if (payload.unit >= seen.size()) seen.resize(payload.unit + size_t{1});
      seen[payload.unit] = true;
    }
  }
  const auto gap = std::find(seen.begin(), seen.end(), false);
  if (gap == seen.end()) return OkStatus();
  return InvalidArgument("affinity unit " + std::to_string(gap - seen.begin()) + " of " +
                         std::to_string(seen.size()) + " has no payload");
}

Status ValidatePlan(const std::vector<model::PlannedParticipant>& participants) {
  size_t payloads = 0;
  for (const auto& participant : participants) payloads += participant.payloads.size();
  if (payloads == 0) return InvalidArgument("the plan has no payloads");
  if (payloads > kPayloadsPerImportMax) {
    return InvalidArgument("a plan may have at most " + std::to_string(kPayloadsPerImportMax) +
                           " payloads, got " + std::to_string(payloads));
  }
  std::unordered_set<std::string_view> names;
  names.reserve(payloads);
  for (const auto& participant : participants) {
    MC_RETURN_IF_ERROR(ValidatePayloads(participant, &names));
  }
  return ValidateUnits(participants, payloads);
}

struct Candidate {
  const Node* node = nullptr;
  uint64_t free_bytes = 0;
  bool preferred = false;
};

std::vector<Candidate> CandidatesOf(const Catalog& catalog, const ReservationRequest& request) {
  std::vector<Candidate> candidates;
  for (const Node& node : catalog.nodes()) {
    if (!request.usable_nodes.contains(node.address.node_id) || node.objects_only) continue;
    candidates.push_back(
        {&node, node.free_bytes(),
         !request.preferred_host_id.empty() && node.address.host_id == request.preferred_host_id});
  }
  return candidates;
}

// Lays payloads into arenas and remembers what it took; nothing is in the catalogue yet.
class Layout {
 public:
  Layout(const Catalog& catalog, const ReservationRequest& request)
      : import_id_(request.import_id),
        candidates_(CandidatesOf(catalog, request)),
        next_arena_id_(catalog.next_arena_id().value) {}

  // False: a payload fits nowhere.
  bool Lay(uint32_t index, const model::PlannedParticipant& participant) {
    if (participant.payloads.empty()) return true;
    Candidate* node = nullptr;
    std::vector<ArenaReserved> arenas;
    ObjectsReserved objects;
    objects.import_id = import_id_;
    objects.participant = index;
    objects.payloads.reserve(participant.payloads.size());
    for (const model::PlannedPayload& payload : participant.payloads) {
      const uint64_t bytes = Aligned(payload.bytes);
      if (node == nullptr || node->free_bytes < bytes) {
        node = Best(bytes);
        if (node == nullptr) return false;
        arenas.push_back(NewArena(*node));
      } else if (arenas.back().bytes + bytes > kArenaBytesMax) {
        arenas.push_back(NewArena(*node));
      }
      ArenaReserved& arena = arenas.back();
      objects.payloads.push_back(
          {payload.name, payload.bytes, payload.unit, arena.arena_id, arena.bytes});
      arena.bytes += bytes;
      node->free_bytes -= bytes;
    }
    for (ArenaReserved& arena : arenas) events_.emplace_back(std::move(arena));
    events_.emplace_back(std::move(objects));
    return true;
  }

  std::vector<Event> TakeEvents() && { return std::move(events_); }

 private:
  // The node with the most free space that holds `bytes`: of the preferred host first, then by free
  // space, then by id.
  Candidate* Best(uint64_t bytes) {
    Candidate* best = nullptr;
    for (Candidate& candidate : candidates_) {
      if (candidate.free_bytes < bytes) continue;
      if (best == nullptr || IsBetter(candidate, *best)) best = &candidate;
    }
    return best;
  }

  static bool IsBetter(const Candidate& a, const Candidate& b) {
    if (a.preferred != b.preferred) return a.preferred;
    if (a.free_bytes != b.free_bytes) return a.free_bytes > b.free_bytes;
    return a.node->address.node_id < b.node->address.node_id;
  }

  ArenaReserved NewArena(const Candidate& on) {
    ArenaReserved arena;
    arena.arena_id = ArenaId(next_arena_id_++);
    arena.import_id = import_id_;
    arena.node_id = on.node->address.node_id;
    arena.instance_id = on.node->address.instance_id;
    return arena;
  }

  const ImportId import_id_;
  std::vector<Candidate> candidates_;
  uint64_t next_arena_id_;
  std::vector<Event> events_;
};

Status DoesNotFit(const Catalog& catalog, const ReservationRequest& request) {
  uint64_t needed = 0;
  for (const auto& participant : *request.participants) {
    for (const auto& payload : participant.payloads) {
      needed = SaturatingAdd(needed, Aligned(payload.bytes));
    }
  }
  uint64_t free = 0;
  const Candidate* largest = nullptr;
  const std::vector<Candidate> candidates = CandidatesOf(catalog, request);
  for (const Candidate& candidate : candidates) {
    free = SaturatingAdd(free, candidate.free_bytes);
    if (largest == nullptr || candidate.free_bytes > largest->free_bytes) largest = &candidate;
  }
  return Exhausted("needs " + std::to_string(needed) + " bytes of node memory, " +
                   std::to_string(free) + " are free on " + std::to_string(candidates.size()) +
                   " nodes, " + std::to_string(largest->free_bytes) + " of them on node " +
                   largest->node->address.node_id);
}

}  // namespace

Result<std::vector<Event>> PlanReservation(const Catalog& catalog,
                                           const ReservationRequest& request) {
  const std::vector<model::PlannedParticipant>& participants = *request.participants;
  MC_RETURN_IF_ERROR(ValidatePlan(participants));
  if (CandidatesOf(catalog, request).empty()) {
    return Unavailable("no store node is reporting to the Master");
  }
  Layout layout(catalog, request);
  for (size_t i = 0; i < participants.size(); ++i) {
    if (!layout.Lay(static_cast<uint32_t>(i), participants[i])) {
      return DoesNotFit(catalog, request);
    }
  }
  return std::move(layout).TakeEvents();
}

}  // namespace mooncake::objects

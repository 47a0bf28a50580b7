// Participants of a parallel run and their ranks.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manifest/canonical.h"
#include "manifest/field_checks.h"
#include "manifest/rank_order.h"
#include "manifest/sorting.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

Status CheckDistinctRanks(const std::vector<TopologyParticipant>& participants) {
  std::vector<const TopologyParticipant*> by_rank;
  by_rank.reserve(participants.size());
  for (const TopologyParticipant& participant : participants) by_rank.push_back(&participant);
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [](const auto* a, const auto* b) { return RankLess(a->rank, b->rank); });
  const auto twin =
      std::adjacent_find(by_rank.begin(), by_rank.end(),
                         [](const auto* a, const auto* b) { return a->rank == b->rank; });
  if (twin == by_rank.end()) return OkStatus();
  return InvalidArgument(fmt::format("duplicate topology parallel rank: {} of {} and {}",
                                     ToText((*twin)->rank), (*twin)->participant_id,
                                     (*std::next(twin))->participant_id));
}

Status CheckRankInRange(const ParallelTopology& topology, const TopologyParticipant& participant) {
  const std::pair<AxisKind, int64_t> sizes[] = {{AxisKind::kTp, topology.tp_size},
                                                {AxisKind::kPp, topology.pp_size},
                                                {AxisKind::kEp, topology.ep_size},
                                                {AxisKind::kDp, topology.dp_size}};
  for (const auto& [kind, size] : sizes) {
    const int64_t coordinate = participant.rank.Coordinate(kind);
    if (coordinate < size) continue;
    return InvalidArgument(fmt::format("{} rank is out of range for participant {}: {} of {}",
                                       AxisKindName(kind), participant.participant_id, coordinate,
                                       size));
  }
  return OkStatus();
}

}  // namespace

Result<TopologyParticipant> MakeTopologyParticipant(TopologyParticipant fields) {
  MC_RETURN_IF_ERROR(CheckText("participant_id", fields.participant_id));
  MC_RETURN_IF_ERROR(MakeParallelRank(fields.rank).status());
  return fields;
}

Result<ParallelTopology> MakeTopology(ParallelTopology fields,
                                      std::optional<std::string> topology_id) {
  MC_RETURN_IF_ERROR(CheckAtLeast("tp_size", fields.tp_size, 1));
  MC_RETURN_IF_ERROR(CheckAtLeast("pp_size", fields.pp_size, 1));
  MC_RETURN_IF_ERROR(CheckAtLeast("ep_size", fields.ep_size, 1));
  MC_RETURN_IF_ERROR(CheckAtLeast("dp_size", fields.dp_size, 1));
  std::vector<TopologyParticipant>& participants = fields.participants;
  if (participants.empty()) {
    return InvalidArgument("parallel topology participants must not be empty");
  }
  for (const TopologyParticipant& participant : participants) {
    MC_RETURN_IF_ERROR(MakeTopologyParticipant(participant).status());
  }
  SortBy(participants, &TopologyParticipant::participant_id);
  if (const auto* twin = FirstTwin(participants, &TopologyParticipant::participant_id)) {
    return InvalidArgument("duplicate topology participant_id: " + twin->participant_id);
  }
  MC_RETURN_IF_ERROR(CheckDistinctRanks(participants));
  for (const TopologyParticipant& participant : participants) {
    MC_RETURN_IF_ERROR(CheckRankInRange(fields, participant));
  }
  fields.topology_id = TopologyId(fields);
  if (topology_id && *topology_id != fields.topology_id) {
    return InvalidArgument(
        fmt::format("topology_id does not match canonical topology: expected {}, got {}",
                    fields.topology_id, *topology_id));
  }
  return fields;
}

}  // namespace mooncake::manifest

#include "client/replica_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "geometry/box.h"

namespace mooncake::client {
namespace {

using manifest::PlacementFragment;

class Evidence {
 public:
  Evidence(const reshard::UploadPlan& plan, const DigestsByParticipant& tables)
      : plan_(plan), tables_(tables) {
    for (uint32_t p = 0; p < plan.participants.size(); ++p) {
      for (const uint32_t fragment : plan.participants[p].replicas) holders_[fragment].part = p;
      for (const uint32_t fragment : plan.participants[p].compared) holders_[fragment].part = p;
    }
    // A fragment that is a payload object of its own has that object's digests.
    for (const reshard::PayloadObject& object : plan.objects) {
      if (object.fragments.size() != 1) continue;
      const auto holder = holders_.find(object.fragments[0].fragment);
      if (holder != holders_.end()) holder->second.object = &object;
    }
  }

  uint32_t ParticipantOf(uint32_t fragment) const { return holders_.at(fragment).part; }

  Result<Sha256Digest> FingerprintOf(uint32_t position) const {
    const Holder& holder = holders_.at(position);
    const PlacementFragment& fragment = plan_.placement->fragments[position];
    const auto table = tables_.find(holder.part);
    if (table == tables_.end()) return Missing(holder.part, fragment, "nothing");
    uint64_t nbytes = 0;
    Sha256Digest fingerprint{};
    if (holder.object != nullptr) {
      const DigestsTable::Entry* entry = table->second.Find(holder.object->name);
      if (entry == nullptr) return Missing(holder.part, fragment, "no such payload");
      nbytes = entry->nbytes;
      fingerprint = client::FingerprintOf(entry->blocks);
    } else {
      const DigestsTable::Fragment* entry =
          table->second.FindFragment(fragment.placement_fragment_id);
      if (entry == nullptr) return Missing(holder.part, fragment, "no such fragment");
      nbytes = entry->nbytes;
      fingerprint = entry->sha256;
    }
    if (nbytes != fragment.nbytes) {
      return Missing(holder.part, fragment, fmt::format("{} bytes", nbytes));
    }
    return fingerprint;
  }

 private:
  struct Holder {
    uint32_t part = 0;
    const reshard::PayloadObject* object = nullptr;  // when the fragment is one by itself
  };

  Status Missing(uint32_t part, const PlacementFragment& fragment, const std::string& got) const {
    return Corrupt(
        fmt::format("digests of participant {}: expected {} bytes of {} (fragment {}), "
                    "got {}",
                    plan_.participants[part].participant_id, fragment.nbytes, fragment.tensor_id,
                    fragment.placement_fragment_id, got));
  }

  const reshard::UploadPlan& plan_;
  const DigestsByParticipant& tables_;
  std::unordered_map<uint32_t, Holder> holders_;  // by fragment
};

std::string Who(const reshard::UploadPlan& plan, uint32_t part, const PlacementFragment& fragment) {
  const manifest::ParallelRank& rank = fragment.rank;
  return fmt::format("participant {} (dp={} pp={} ep={} tp={}{})",
                     plan.participants[part].participant_id, rank.dp, rank.pp, rank.ep, rank.tp,
                     fragment.slot ? fmt::format(" slot={}", *fragment.slot) : "");
}

Status Differ(const reshard::UploadPlan& plan, const Evidence& evidence,
              const reshard::Replica& first, size_t count) {
  const PlacementFragment& fragment = plan.placement->fragments[first.fragment];
  const PlacementFragment& uploaded = plan.placement->fragments[first.of];
  const bool tied = fragment.tensor_id != uploaded.tensor_id;
  return Conflict(fmt::format(
      "replicas of one box have different bytes: tensor {}{}, box {}: {} and {}, whose bytes would "
      "be stored; {} of {} compared fragments differ",
      fragment.tensor_id, tied ? " (tied to " + uploaded.tensor_id + ")" : "",
      geometry::UncheckedBox(fragment.global_offset, fragment.local_shape).ToString(),
      Who(plan, evidence.ParticipantOf(first.fragment), fragment),
      Who(plan, evidence.ParticipantOf(first.of), uploaded), count, plan.replicas.size()));
}

}  // namespace

std::vector<uint32_t> ParticipantsToCompare(const reshard::UploadPlan& plan) {
  std::vector<uint32_t> participants;
  for (uint32_t p = 0; p < plan.participants.size(); ++p) {
    const reshard::ParticipantUpload& participant = plan.participants[p];
    if (!participant.replicas.empty() || !participant.compared.empty()) participants.push_back(p);
  }
  return participants;
}

Status CompareReplicas(const reshard::UploadPlan& plan, const DigestsByParticipant& tables) {
  const Evidence evidence(plan, tables);
  std::unordered_map<uint32_t, Sha256Digest> uploaded;  // by fragment
  const reshard::Replica* first = nullptr;
  size_t count = 0;
  const auto key = [&](const reshard::Replica& replica) {
    const PlacementFragment& fragment = plan.placement->fragments[replica.fragment];
    return std::tie(fragment.tensor_id, fragment.global_offset, fragment.local_shape);
  };
  for (const reshard::Replica& replica : plan.replicas) {
    auto known = uploaded.find(replica.of);
    if (known == uploaded.end()) {
      MC_ASSIGN_OR_RETURN(const Sha256Digest fingerprint, evidence.FingerprintOf(replica.of));
      known = uploaded.emplace(replica.of, fingerprint).first;
    }
    MC_ASSIGN_OR_RETURN(const Sha256Digest fingerprint, evidence.FingerprintOf(replica.fragment));
    if (fingerprint == known->second) continue;
    ++count;
    const bool earlier =
        first == nullptr || key(replica) < key(*first) ||
        (key(replica) == key(*first) &&
         evidence.ParticipantOf(replica.fragment) < evidence.ParticipantOf(first->fragment));
    if (earlier) first = &replica;
  }
  return first == nullptr ? OkStatus() : Differ(plan, evidence, *first, count);
}

}  // namespace mooncake::client

// UploadPlan: who writes which payload object when a placement is published.
//
// Every rank computes it alone and gets the same one: it is a pure function of the placement and
// the pack threshold. It chooses the smallest complete DP replica (the planner's owner rules),
// uploads each distinct box of a tensor once, and gives boxes that several ranks hold to the one
// with the fewest bytes so far: boxes with one owner first, then by size (largest first), tensor,
// box; ties go to the smaller participant id.
//
// Payload objects, per participant: a fragment of at least `pack_threshold` bytes is an object of
// its own, named UrlEncode(placement_fragment_id); the participant's smaller fragments lie packed
// tightly, ordered by fragment id, in one object named "pack-" + UrlEncode(participant_id). (An id
// that itself begins with "pack-" has its first letter percent-encoded, so the two never meet.)
// Names of one and the same tensor are stored once: where all members of an alias group are chosen
// with equal boxes and descriptors, the boxes of its first member are uploaded and the others are
// *twins*, which share its byte ranges (the stored manifest's extended form). Other aliased
// fragments get byte ranges of their own. Empty fragments are not stored.
//
// Replicas: the other holders of an uploaded box must have the same bytes, and so must the holders
// of a twin. Which of them the plan lists is ReplicaScope's choice; they upload nothing and hand in
// fingerprints (client/import_session.h). A twin of a participant that holds the first name's box
// too is the same memory by declaration and is not listed.
//
// Of a tensor that declares its owners, the tiling that the planner would read is uploaded, from
// the owners in the chosen DP replica if that holds it whole, else from any.
//
// An affinity unit is the closure of objects that share a tensor, an alias group, a weight and its
// block scales, or are one object.
// Units are numbered by their smallest member name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/types.h"
#include "model/affinity.h"

namespace mooncake::reshard {

inline constexpr uint64_t kDefaultPackThreshold = 256 * 1024;

struct UploadedFragment {
  uint32_t fragment = 0;       // index into placement->fragments
  uint64_t object_offset = 0;  // bytes
};

struct PayloadObject {
  std::string name;  // below <group>/payload/
  uint64_t nbytes = 0;
  uint32_t participant = 0;  // index into UploadPlan::participants
  uint32_t unit = 0;
  std::vector<UploadedFragment> fragments;  // by object_offset, no gaps
};

// A fragment whose bytes are those of another one (indices into placement->fragments).
struct AliasTwin {
  uint32_t fragment = 0;
  uint32_t of = 0;
};

// Which holders of an uploaded box are compared with it.
enum class ReplicaScope : uint8_t {
  kNone,
  kSelected,  // in the DP replica that is uploaded (of owned tensors: whoever it could come from)
  kAll,       // everywhere
};

// A fragment that must have the bytes of an uploaded one (indices into placement->fragments).
struct Replica {
  uint32_t fragment = 0;
  uint32_t of = 0;

  friend bool operator==(const Replica&, const Replica&) = default;
};

struct ParticipantUpload {
  std::string participant_id;
  uint64_t nbytes = 0;
  std::vector<uint32_t> objects;   // indices into UploadPlan::objects, by name
  std::vector<uint32_t> replicas;  // fragments that it holds and only fingerprints, ascending
  std::vector<uint32_t> compared;  // fragments that it uploads and others have too, ascending

  // Its receipt is waited for.
  bool hands_in() const { return !objects.empty() || !replicas.empty(); }
};

struct UploadPlan {
  manifest::PlacementPtr placement;
  std::string group_id;
  std::vector<ParticipantUpload> participants;  // all of the topology, by participant_id
  std::vector<PayloadObject> objects;           // by name
  std::vector<AliasTwin> twins;                 // ascending
  std::vector<Replica> replicas;                // by fragment
  uint32_t unit_count = 0;
  uint64_t nbytes = 0;  // of all objects
  // Lowercase hex; see UploadPlanText. Independent of group_id.
  std::string plan_sha256;

  std::string ObjectKey(const PayloadObject& object) const {
    return group_id + "/payload/" + object.name;
  }
};

// INVALID_ARGUMENT for a placement that cannot be read from, one without any elements, and with
// kAll one that has a fragment whose box is not uploaded as it is (another replica cut otherwise):
// nothing could be compared with it.
Result<UploadPlan> PlanUpload(const manifest::PlacementPtr& placement, std::string group_id,
                              uint64_t pack_threshold = kDefaultPackThreshold,
                              ReplicaScope scope = ReplicaScope::kNone);

// What plan_sha256 is the SHA-256 of. Lines end in "\n"; ids are UrlEncode'd, names are as they
// are:
//   mooncake-upload-plan 1
//   placement <placement_id>
//   participant <participant_id> <number of objects> <bytes>        every participant, by id, then
//   object <name> <bytes> <unit>                                    its objects, by name, each with
//   fragment <placement_fragment_id> <object_offset> <bytes>        its fragments, by offset
//   twin <placement_fragment_id> <placement_fragment_id>            who has whose bytes
//   replica <placement_fragment_id> <placement_fragment_id>         who is compared with whom, last
std::string UploadPlanText(const UploadPlan& plan);

// The stored manifest of the plan: tensors by tensor id, without ownership and padding; fragments
// by (tensor id, fragment id), with fragment_id = placement_fragment_id. Aliases are kept for twins
// and who they share a range with; elsewhere the stored contract cannot say them, and bytes are
// stored under each name.
Result<manifest::StoredManifestPtr> BuildStoredManifest(const UploadPlan& plan,
                                                        std::string namespace_name,
                                                        std::string created_at);

// The group's affinity summary, in the format of model/affinity.h.
model::AffinitySummary BuildAffinitySummary(const UploadPlan& plan);
// model::PayloadKeyDigest over the plan's full payload keys.
std::string BuildPayloadKeyDigest(const UploadPlan& plan);

}  // namespace mooncake::reshard

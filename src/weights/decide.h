// One pure function per command: (catalogue, command, facts) -> events, or a refusal without a
// trace.
//
// The caller applies the events at once, logs them, and replies only when they are durable. No
// events and OK means "already so": the caller replies from the catalogue. Facts are what the
// catalogue cannot know (wall time, configuration, what the object catalogue and the nodes say).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/policy.h"
#include "model/revision.h"
#include "model/states.h"
#include "weights/catalog.h"
#include "weights/events.h"

namespace mooncake::weights {

// Longest lease or import TTL.
inline constexpr uint64_t kTtlMsMax = 24ull * 3600 * 1000;

// ---- import ----

struct BeginImport {
  std::string client_id;
  model::WeightIdentity identity;
  std::string placement_id;
  Sha256Digest plan_sha256{};
  // Those that own payloads, all of which must hand in a receipt. Empty: join what exists.
  std::vector<std::string> participants;
  std::vector<std::string> claim;              // participants this client acts for
  std::optional<model::StoragePolicy> policy;  // absent: the cluster's default
  uint64_t ttl_ms = 0;
};
struct BeginFacts {
  model::StoragePolicy default_policy;
  bool has_cold_tier = false;
  std::string created_at;  // ISO-8601 with Z
  std::vector<std::string> metadata_node_ids;
};
struct BeginDecision {
  ImportId import_id;
  model::ImportState state = model::ImportState::kOpen;  // kOpen or kCommitted
  bool created = false;  // a new session: its space must be reserved in the same batch
  std::vector<Event> events;
};
// INVALID_ARGUMENT, POLICY_UNSATISFIABLE, NOT_FOUND (nothing to join), CONFLICT, STALE_GENERATION.
// A claim of a participant that another client has, or that is received, is not an error: after
// Apply, ViewClaim tells.
Result<BeginDecision> DecideBeginImport(const Catalog& catalog, const BeginImport& command,
                                        const BeginFacts& facts);

// v1::ParticipantState's numbers.
enum class ClaimView : uint8_t { kUnclaimed = 1, kYours = 2, kOthers = 3, kReceived = 4 };
ClaimView ViewClaim(const Participant& participant, std::string_view client_id);

struct SubmitReceipt {
  std::string client_id;
  ImportId import_id;
  std::string participant_id;
  model::MetadataObject digests;  // its sha256 is the participant's payload fingerprint
  bool compare_only = false;      // nothing was uploaded: compare with the receipt that is there
};
struct ReceiptDecision {
  bool complete = false;  // with this, every participant's receipt is in
  std::vector<Event> events;
};
// CONFLICT: other bytes, or another client's participant. NOT_READY: nothing to compare with yet.
Result<ReceiptDecision> DecideReceipt(const Catalog& catalog, const SubmitReceipt& command);

struct CommitImport {
  ImportId import_id;
  model::MetadataObject manifest;
  model::MetadataObject affinity;
  uint64_t payload_count = 0;
  uint64_t logical_payload_bytes = 0;
  Sha256Digest payload_keys_sha256{};
  uint64_t affinity_count = 0;
};
struct CommitFacts {
  model::GroupFacts group;     // from the object catalogue
  model::MemberFacts members;  // of the payloads
};
// Facts matter while the import is OPEN only (they cost: see NeedsCommitFacts). NOT_READY: receipts
// are missing. UNAVAILABLE: a payload is not readable now. INVALID_ARGUMENT: names the field and
// both values. CONFLICT: committed with other facts. A second equal commit is OK without events.
Result<std::vector<Event>> DecideCommit(const Catalog& catalog, const CommitImport& command,
                                        const CommitFacts& facts);
bool NeedsCommitFacts(const Catalog& catalog, ImportId id);

struct AbortImport {
  std::string client_id;  // must have claimed a participant
  ImportId import_id;
  std::string reason;
  Code code = Code::kCancelled;  // what every writer is to be told: that, or CONFLICT
};
// OK without events when it is aborted already. INVALID_ARGUMENT: another code. CONFLICT:
// committed, or not the caller's import.
Result<std::vector<Event>> DecideAbort(const Catalog& catalog, const AbortImport& command);
// A writer's lease ran out. No events unless the import is open.
std::vector<Event> DecideExpireImport(const Catalog& catalog, ImportId id, std::string_view reason);

// ---- reading ----

// The record that an exact query may show (READY, DEGRADED, DELETING, DELETED). NOT_FOUND,
// NOT_READY.
Result<const Revision*> Query(const Catalog& catalog, const model::WeightIdentity& identity);

struct OpenRevision {
  model::WeightIdentity identity;
  uint64_t ttl_ms = 0;
  std::string holder;  // host and pid, for people
};
struct OpenDecision {
  LeaseId lease_id;
  std::vector<Event> events;
};
Result<OpenDecision> DecideOpen(const Catalog& catalog, const OpenRevision& command);

// OK without events when the lease has ended already. NOT_FOUND: never given.
Result<std::vector<Event>> DecideReleaseLease(const Catalog& catalog, LeaseId id);
// Ids that have ended since are left out.
std::vector<Event> DecideExpireLeases(const Catalog& catalog, const std::vector<LeaseId>& ids);

// ---- availability and removal ----

// READY <-> DEGRADED as the facts say; a changed reason of DEGRADED is an event too.
std::vector<Event> DecideMembers(const Catalog& catalog, ImportId id,
                                 const model::MemberFacts& facts);

struct RemoveWeight {
  model::WeightIdentity identity;
  std::optional<model::MetadataGeneration> expected_metadata_generation;
};
// OK without events on DELETING and DELETED, whatever generation is expected. NOT_FOUND, NOT_READY,
// STALE_GENERATION, BUSY (count and one holder).
Result<std::vector<Event>> DecideRemove(const Catalog& catalog, const RemoveWeight& command);

// Nothing of a DELETING revision's group is left (objects::NextRemovalStep is empty).
std::vector<Event> DecideGroupEmpty(const Catalog& catalog, ImportId id);

}  // namespace mooncake::weights

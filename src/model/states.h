// The state machines of weight management, as tables.
//
// Pure. A catalogue's Decide function gathers the guard facts and asks the table; the table says
// what happens next or which code refuses, and why. Nothing else in the project encodes these
// rules.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"

namespace mooncake::model {

// Whether a revision is complete and can be discovered and read.
//
//            begin              commit (all receipts)
//   ABSENT ---------> IMPORTING ----------------------> READY <------------> DEGRADED
//     ^                   |                               |   member lost/back   |
//     +-------------------+                               +--------+-------------+
//        abort, expiry                                             | remove (no lease)
//                                                                  v
//                                              DELETED <------- DELETING
//                                            (tombstone)  group empty
//
// ABSENT is "no record"; it is never persisted and has no number on the wire. The others' numbers
// are v1::Availability's: on disk, never renumber.
enum class Availability : uint8_t {
  kAbsent = 0,
  kImporting = 1,
  kReady = 2,
  kDegraded = 3,
  kDeleting = 4,
  kDeleted = 5,
};
inline constexpr uint8_t kAvailabilityMax = 5;

// Aggregate physical state of all required payloads. v1::Residency's numbers: never renumber.
enum class Residency : uint8_t {
  kUnknown = 1,
  kHot = 2,
  kCold = 3,
  kMixed = 4,
  kAbsent = 5,
};
inline constexpr uint8_t kResidencyMin = 1;
inline constexpr uint8_t kResidencyMax = 5;

// An import as its publishers see it. v1::ImportState's numbers.
enum class ImportState : uint8_t { kOpen = 1, kCommitted = 2, kAborted = 3 };

// One participant of an open import.
//
//   UNCLAIMED --claim--> CLAIMED (by one client) --receipt--> RECEIVED
//
enum class ParticipantState : uint8_t { kUnclaimed = 0, kClaimed = 1, kReceived = 2 };

std::string_view Name(Availability availability);  // "READY", ...
std::string_view Name(Residency residency);        // "HOT", ...
std::string_view Name(ImportState state);          // "OPEN", ...
std::string_view Name(ParticipantState state);     // "CLAIMED", ...

// The primary invariants: IMPORTING is UNKNOWN; READY is HOT, COLD or MIXED; DELETED is ABSENT.
// DEGRADED says what was last observed of the rest, or UNKNOWN; DELETING is UNKNOWN, since members
// vanish one by one.
bool IsAllowed(Availability availability, Residency residency);

// READY and DEGRADED: what an ordinary list shows.
constexpr bool IsDiscoverable(Availability availability) {
  return availability == Availability::kReady || availability == Availability::kDegraded;
}

// ---- revision: what happens to it ----

enum class RevisionTrigger : uint8_t {
  kBegin,        // BeginImport of its identity
  kReceipt,      // SubmitReceipt of one participant
  kCommit,       // CommitImport
  kAbort,        // AbortImport, or a writer's lease ran out
  kMemberLost,   // a required member has no readable replica
  kMembersBack,  // every required member is readable (again)
  kOpen,         // OpenRevision: a reader wants a lease
  kQuery,        // GetWeight
  kRemove,       // RemoveWeight
  kGroupEmpty,   // the last member of the group is gone
};
inline constexpr uint8_t kRevisionTriggerCount = 10;
std::string_view Name(RevisionTrigger trigger);

// What a guard may ask. Facts that a trigger's guards do not mention are ignored.
struct RevisionFacts {
  bool same_content = false;      // begin: equal plan; receipt, commit: equal to the record
  bool all_receipts = false;      // commit: every participant's receipt is in
  bool members_readable = false;  // commit: every payload written has a readable replica now
  bool has_lease = false;         // remove: at least one live revision lease
};

enum class RevisionGuard : uint8_t {
  kAlways,
  kSameContent,
  kReceiptMissing,
  kMemberUnreadable,
  kHasLease,
};
inline constexpr uint8_t kRevisionGuardCount = 5;

// What the caller does with a row that is not a refusal.
enum class Effect : uint8_t {
  kChange,   // the revision's record changes: emit the trigger's event
  kNothing,  // already so, or not affected: succeed without an event
  kProceed,  // allowed; the revision's own record keeps its state (lease, receipt, query)
  kRefuse,   // Status with `code` and `reason`
};

struct RevisionRow {
  Availability state;
  RevisionTrigger trigger;
  RevisionGuard guard;
  Effect effect;
  Availability next;  // equal to state unless the effect is kChange
  Code code;          // kOk unless effect is kRefuse
  std::string_view reason;
};

std::span<const RevisionRow> RevisionTable();

// The first row whose guard holds. Total: the last row of every (state, trigger) is kAlways.
const RevisionRow& LookUp(Availability state, RevisionTrigger trigger, const RevisionFacts& facts);

// ---- participant ----

enum class ParticipantTrigger : uint8_t { kClaim, kReceipt, kCompare };
inline constexpr uint8_t kParticipantTriggerCount = 3;
std::string_view Name(ParticipantTrigger trigger);

struct ParticipantFacts {
  bool is_claimer = false;    // the caller's client id claimed it
  bool same_content = false;  // equal to the receipt that is there
};

enum class ParticipantGuard : uint8_t {
  kAlways,
  kClaimer,
  kSameContent,
};

struct ParticipantRow {
  ParticipantState state;
  ParticipantTrigger trigger;
  ParticipantGuard guard;
  Effect effect;
  ParticipantState next;
  Code code;
  std::string_view reason;
};

std::span<const ParticipantRow> ParticipantTable();
const ParticipantRow& LookUp(ParticipantState state, ParticipantTrigger trigger,
                             const ParticipantFacts& facts);

}  // namespace mooncake::model

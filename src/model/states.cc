#include "model/states.h"

namespace mooncake::model {
namespace {

using enum Effect;
using A = Availability;
using T = RevisionTrigger;
using G = RevisionGuard;

// One block a state, triggers in enum order; the last row of a trigger is kAlways.
constexpr RevisionRow kRevisionTable[] = {
    {A::kAbsent, T::kBegin, G::kAlways, kChange, A::kImporting, Code::kOk, "a new import"},
    {A::kAbsent, T::kReceipt, G::kAlways, kRefuse, A::kAbsent, Code::kNotFound,
     "the import was aborted or never begun"},
    {A::kAbsent, T::kCommit, G::kAlways, kRefuse, A::kAbsent, Code::kNotFound,
     "the import was aborted or never begun"},
    {A::kAbsent, T::kAbort, G::kAlways, kNothing, A::kAbsent, Code::kOk, "aborted already"},
    {A::kAbsent, T::kMemberLost, G::kAlways, kNothing, A::kAbsent, Code::kOk, "no members"},
    {A::kAbsent, T::kMembersBack, G::kAlways, kNothing, A::kAbsent, Code::kOk, "no members"},
    {A::kAbsent, T::kOpen, G::kAlways, kRefuse, A::kAbsent, Code::kNotFound, "no such revision"},
    {A::kAbsent, T::kQuery, G::kAlways, kRefuse, A::kAbsent, Code::kNotFound, "no such revision"},
    {A::kAbsent, T::kRemove, G::kAlways, kRefuse, A::kAbsent, Code::kNotFound, "no such revision"},
    {A::kAbsent, T::kGroupEmpty, G::kAlways, kNothing, A::kAbsent, Code::kOk,
     "an aborted import's group empties without a tombstone"},

    {A::kImporting, T::kBegin, G::kSameContent, kNothing, A::kImporting, Code::kOk,
     "joins the import of the same plan"},
    {A::kImporting, T::kBegin, G::kAlways, kRefuse, A::kImporting, Code::kConflict,
     "another plan is being imported under this identity"},
    {A::kImporting, T::kReceipt, G::kAlways, kProceed, A::kImporting, Code::kOk,
     "the participant's own table decides"},
    {A::kImporting, T::kCommit, G::kReceiptMissing, kRefuse, A::kImporting, Code::kNotReady,
     "a participant's receipt is missing"},
    {A::kImporting, T::kCommit, G::kMemberUnreadable, kRefuse, A::kImporting, Code::kUnavailable,
     "READY promises a readable replica of every member"},
    {A::kImporting, T::kCommit, G::kAlways, kChange, A::kReady, Code::kOk,
     "complete: READY and HOT at once"},
    {A::kImporting, T::kAbort, G::kAlways, kChange, A::kAbsent, Code::kOk,
     "the record vanishes; the identity may be published again"},
    {A::kImporting, T::kMemberLost, G::kAlways, kNothing, A::kImporting, Code::kOk,
     "commit looks again"},
    {A::kImporting, T::kMembersBack, G::kAlways, kNothing, A::kImporting, Code::kOk,
     "commit looks again"},
    {A::kImporting, T::kOpen, G::kAlways, kRefuse, A::kImporting, Code::kNotReady,
     "the revision is still being imported"},
    {A::kImporting, T::kQuery, G::kAlways, kRefuse, A::kImporting, Code::kNotReady,
     "the revision is still being imported"},
    {A::kImporting, T::kRemove, G::kAlways, kRefuse, A::kImporting, Code::kNotReady,
     "the revision is still being imported: abort the import instead"},
    {A::kImporting, T::kGroupEmpty, G::kAlways, kNothing, A::kImporting, Code::kOk,
     "nothing is being deleted"},

    {A::kReady, T::kBegin, G::kSameContent, kNothing, A::kReady, Code::kOk,
     "committed already: the publisher compares fingerprints"},
    {A::kReady, T::kBegin, G::kAlways, kRefuse, A::kReady, Code::kConflict,
     "the identity was published with another plan"},
    {A::kReady, T::kReceipt, G::kSameContent, kNothing, A::kReady, Code::kOk, "the same bytes"},
    {A::kReady, T::kReceipt, G::kAlways, kRefuse, A::kReady, Code::kConflict,
     "the identity was published with other bytes"},
    {A::kReady, T::kCommit, G::kSameContent, kNothing, A::kReady, Code::kOk, "committed already"},
    {A::kReady, T::kCommit, G::kAlways, kRefuse, A::kReady, Code::kConflict,
     "the revision was committed with other facts"},
    {A::kReady, T::kAbort, G::kAlways, kRefuse, A::kReady, Code::kConflict,
     "the import is committed"},
    {A::kReady, T::kMemberLost, G::kAlways, kChange, A::kDegraded, Code::kOk,
     "a required member has no readable replica"},
    {A::kReady, T::kMembersBack, G::kAlways, kNothing, A::kReady, Code::kOk, "readable already"},
    {A::kReady, T::kOpen, G::kAlways, kProceed, A::kReady, Code::kOk, "readable"},
    {A::kReady, T::kQuery, G::kAlways, kProceed, A::kReady, Code::kOk, "discoverable"},
    {A::kReady, T::kRemove, G::kHasLease, kRefuse, A::kReady, Code::kBusy, "a reader holds it"},
    {A::kReady, T::kRemove, G::kAlways, kChange, A::kDeleting, Code::kOk, "nobody reads it"},
    {A::kReady, T::kGroupEmpty, G::kAlways, kNothing, A::kReady, Code::kOk,
     "nothing is being deleted"},

    {A::kDegraded, T::kBegin, G::kSameContent, kNothing, A::kDegraded, Code::kOk,
     "committed already: the publisher compares fingerprints"},
    {A::kDegraded, T::kBegin, G::kAlways, kRefuse, A::kDegraded, Code::kConflict,
     "the identity was published with another plan"},
    {A::kDegraded, T::kReceipt, G::kSameContent, kNothing, A::kDegraded, Code::kOk,
     "the same bytes"},
    {A::kDegraded, T::kReceipt, G::kAlways, kRefuse, A::kDegraded, Code::kConflict,
     "the identity was published with other bytes"},
    {A::kDegraded, T::kCommit, G::kSameContent, kNothing, A::kDegraded, Code::kOk,
     "committed already"},
    {A::kDegraded, T::kCommit, G::kAlways, kRefuse, A::kDegraded, Code::kConflict,
     "the revision was committed with other facts"},
    {A::kDegraded, T::kAbort, G::kAlways, kRefuse, A::kDegraded, Code::kConflict,
     "the import is committed"},
    {A::kDegraded, T::kMemberLost, G::kAlways, kChange, A::kDegraded, Code::kOk,
     "the reason may have changed"},
    {A::kDegraded, T::kMembersBack, G::kAlways, kChange, A::kReady, Code::kOk,
     "every required member is readable again"},
    {A::kDegraded, T::kOpen, G::kAlways, kRefuse, A::kDegraded, Code::kNotReady,
     "a required member has no readable replica"},
    {A::kDegraded, T::kQuery, G::kAlways, kProceed, A::kDegraded, Code::kOk, "discoverable"},
    {A::kDegraded, T::kRemove, G::kHasLease, kRefuse, A::kDegraded, Code::kBusy,
     "a reader holds it"},
    {A::kDegraded, T::kRemove, G::kAlways, kChange, A::kDeleting, Code::kOk, "nobody reads it"},
    {A::kDegraded, T::kGroupEmpty, G::kAlways, kNothing, A::kDegraded, Code::kOk,
     "nothing is being deleted"},

    {A::kDeleting, T::kBegin, G::kAlways, kRefuse, A::kDeleting, Code::kStaleGeneration,
     "the revision is being deleted; publish a higher generation"},
    {A::kDeleting, T::kReceipt, G::kAlways, kRefuse, A::kDeleting, Code::kStaleGeneration,
     "the revision is being deleted"},
    {A::kDeleting, T::kCommit, G::kAlways, kRefuse, A::kDeleting, Code::kStaleGeneration,
     "the revision is being deleted"},
    {A::kDeleting, T::kAbort, G::kAlways, kRefuse, A::kDeleting, Code::kConflict,
     "the import was committed; the revision is being deleted"},
    {A::kDeleting, T::kMemberLost, G::kAlways, kNothing, A::kDeleting, Code::kOk,
     "members vanish on purpose"},
    {A::kDeleting, T::kMembersBack, G::kAlways, kNothing, A::kDeleting, Code::kOk,
     "deletion is never undone"},
    {A::kDeleting, T::kOpen, G::kAlways, kRefuse, A::kDeleting, Code::kNotReady,
     "the revision is being deleted"},
    {A::kDeleting, T::kQuery, G::kAlways, kProceed, A::kDeleting, Code::kOk,
     "state stays queryable"},
    {A::kDeleting, T::kRemove, G::kAlways, kNothing, A::kDeleting, Code::kOk,
     "being deleted already"},
    {A::kDeleting, T::kGroupEmpty, G::kAlways, kChange, A::kDeleted, Code::kOk,
     "the tombstone stays"},

    {A::kDeleted, T::kBegin, G::kAlways, kRefuse, A::kDeleted, Code::kStaleGeneration,
     "the revision was deleted; publish a higher generation"},
    {A::kDeleted, T::kReceipt, G::kAlways, kRefuse, A::kDeleted, Code::kStaleGeneration,
     "the revision was deleted"},
    {A::kDeleted, T::kCommit, G::kAlways, kRefuse, A::kDeleted, Code::kStaleGeneration,
     "the revision was deleted"},
    {A::kDeleted, T::kAbort, G::kAlways, kRefuse, A::kDeleted, Code::kConflict,
     "the import was committed; the revision was deleted since"},
    {A::kDeleted, T::kMemberLost, G::kAlways, kNothing, A::kDeleted, Code::kOk, "no members"},
    {A::kDeleted, T::kMembersBack, G::kAlways, kNothing, A::kDeleted, Code::kOk, "no members"},
    {A::kDeleted, T::kOpen, G::kAlways, kRefuse, A::kDeleted, Code::kNotFound,
     "the revision was deleted"},
    {A::kDeleted, T::kQuery, G::kAlways, kProceed, A::kDeleted, Code::kOk,
     "the tombstone stays queryable"},
    {A::kDeleted, T::kRemove, G::kAlways, kNothing, A::kDeleted, Code::kOk, "deleted already"},
    {A::kDeleted, T::kGroupEmpty, G::kAlways, kNothing, A::kDeleted, Code::kOk, "deleted already"},
};

bool Holds(RevisionGuard guard, const RevisionFacts& facts) {
  switch (guard) {
    case RevisionGuard::kAlways:
      return true;
    case RevisionGuard::kSameContent:
      return facts.same_content;
    case RevisionGuard::kReceiptMissing:
      return !facts.all_receipts;
    case RevisionGuard::kMemberUnreadable:
      return !facts.members_readable;
    case RevisionGuard::kHasLease:
      return facts.has_lease;
  }
  return false;
}

using P = ParticipantState;
using PT = ParticipantTrigger;
using PG = ParticipantGuard;

constexpr ParticipantRow kParticipantTable[] = {
    {P::kUnclaimed, PT::kClaim, PG::kAlways, kChange, P::kClaimed, Code::kOk,
     "the first to claim it writes it"},
    {P::kUnclaimed, PT::kReceipt, PG::kAlways, kRefuse, P::kUnclaimed, Code::kInvalidArgument,
     "nobody has claimed the participant"},
    {P::kUnclaimed, PT::kCompare, PG::kAlways, kRefuse, P::kUnclaimed, Code::kNotReady,
     "the participant's receipt is not in yet"},

    {P::kClaimed, PT::kClaim, PG::kClaimer, kNothing, P::kClaimed, Code::kOk, "claimed already"},
    {P::kClaimed, PT::kClaim, PG::kAlways, kNothing, P::kClaimed, Code::kOk,
     "another client writes it: the caller compares later"},
    {P::kClaimed, PT::kReceipt, PG::kClaimer, kChange, P::kReceived, Code::kOk,
     "its writer is done"},
    {P::kClaimed, PT::kReceipt, PG::kAlways, kRefuse, P::kClaimed, Code::kConflict,
     "another client writes the participant"},
    {P::kClaimed, PT::kCompare, PG::kAlways, kRefuse, P::kClaimed, Code::kNotReady,
     "the participant's receipt is not in yet"},

    {P::kReceived, PT::kClaim, PG::kAlways, kNothing, P::kReceived, Code::kOk,
     "written already: the caller compares"},
    {P::kReceived, PT::kReceipt, PG::kSameContent, kNothing, P::kReceived, Code::kOk,
     "the same bytes"},
    {P::kReceived, PT::kReceipt, PG::kAlways, kRefuse, P::kReceived, Code::kConflict,
     "the participant was written with other bytes"},
    {P::kReceived, PT::kCompare, PG::kSameContent, kNothing, P::kReceived, Code::kOk,
     "the same bytes"},
    {P::kReceived, PT::kCompare, PG::kAlways, kRefuse, P::kReceived, Code::kConflict,
     "the participant was written with other bytes"},
};

bool Holds(ParticipantGuard guard, const ParticipantFacts& facts) {
  switch (guard) {
    case ParticipantGuard::kAlways:
      return true;
    case ParticipantGuard::kClaimer:
      return facts.is_claimer;
    case ParticipantGuard::kSameContent:
      return facts.same_content;
  }
  return false;
}

template <class Row, class State, class Trigger, class Facts>
const Row& FirstThatHolds(std::span<const Row> table, State state, Trigger trigger,
                          const Facts& facts) {
  for (const Row& row : table) {
    if (row.state == state && row.trigger == trigger && Holds(row.guard, facts)) return row;
  }
  MC_CHECK(false);
  return table.front();
}

}  // namespace

std::string_view Name(Availability availability) {
  switch (availability) {
    case Availability::kAbsent:
      return "ABSENT";
    case Availability::kImporting:
      return "IMPORTING";
    case Availability::kReady:
      return "READY";
    case Availability::kDegraded:
      return "DEGRADED";
    case Availability::kDeleting:
      return "DELETING";
    case Availability::kDeleted:
      return "DELETED";
  }
  return "?";
}

std::string_view Name(Residency residency) {
  switch (residency) {
    case Residency::kUnknown:
      return "UNKNOWN";
    case Residency::kHot:
      return "HOT";
    case Residency::kCold:
      return "COLD";
    case Residency::kMixed:
      return "MIXED";
    case Residency::kAbsent:
      return "ABSENT";
  }
  return "?";
}

std::string_view Name(ImportState state) {
  switch (state) {
    case ImportState::kOpen:
      return "OPEN";
    case ImportState::kCommitted:
      return "COMMITTED";
    case ImportState::kAborted:
      return "ABORTED";
  }
  return "?";
}

std::string_view Name(ParticipantState state) {
  switch (state) {
    case ParticipantState::kUnclaimed:
      return "UNCLAIMED";
    case ParticipantState::kClaimed:
      return "CLAIMED";
    case ParticipantState::kReceived:
      return "RECEIVED";
  }
  return "?";
}

std::string_view Name(RevisionTrigger trigger) {
  switch (trigger) {
    case RevisionTrigger::kBegin:
      return "begin";
    case RevisionTrigger::kReceipt:
      return "receipt";
    case RevisionTrigger::kCommit:
      return "commit";
    case RevisionTrigger::kAbort:
      return "abort";
    case RevisionTrigger::kMemberLost:
      return "member lost";
    case RevisionTrigger::kMembersBack:
      return "members back";
    case RevisionTrigger::kOpen:
      return "open";
    case RevisionTrigger::kQuery:
      return "query";
    case RevisionTrigger::kRemove:
      return "remove";
    case RevisionTrigger::kGroupEmpty:
      return "group empty";
  }
  return "?";
}

std::string_view Name(ParticipantTrigger trigger) {
  switch (trigger) {
    case ParticipantTrigger::kClaim:
      return "claim";
    case ParticipantTrigger::kReceipt:
      return "receipt";
    case ParticipantTrigger::kCompare:
      return "compare";
  }
  return "?";
}

bool IsAllowed(Availability availability, Residency residency) {
  switch (availability) {
    case Availability::kAbsent:
      return false;
    case Availability::kImporting:
      return residency == Residency::kUnknown;
    case Availability::kReady:
      return residency == Residency::kHot || residency == Residency::kCold ||
             residency == Residency::kMixed;
    case Availability::kDegraded:
      return residency != Residency::kAbsent;
    case Availability::kDeleting:
      return residency == Residency::kUnknown;
    case Availability::kDeleted:
      return residency == Residency::kAbsent;
  }
  return false;
}

std::span<const RevisionRow> RevisionTable() { return kRevisionTable; }

const RevisionRow& LookUp(Availability state, RevisionTrigger trigger, const RevisionFacts& facts) {
  return FirstThatHolds(RevisionTable(), state, trigger, facts);
}

std::span<const ParticipantRow> ParticipantTable() { return kParticipantTable; }

const ParticipantRow& LookUp(ParticipantState state, ParticipantTrigger trigger,
                             const ParticipantFacts& facts) {
  return FirstThatHolds(ParticipantTable(), state, trigger, facts);
}

}  // namespace mooncake::model

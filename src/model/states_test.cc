#include "model/states.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace mooncake::model {
namespace {

constexpr uint8_t kStates = kAvailabilityMax + 1;

RevisionFacts FactsOf(unsigned bits) {
  return {.same_content = (bits & 1) != 0,
          .all_receipts = (bits & 2) != 0,
          .members_readable = (bits & 4) != 0,
          .has_lease = (bits & 8) != 0};
}

// The expected outcome of every (state, trigger, facts), written independently of the table:
// "READY" (moves there), "same" (succeeds, no event), "go" (proceeds) or a code's name.
std::string Expected(Availability state, RevisionTrigger trigger, const RevisionFacts& facts) {
  using enum Availability;
  using T = RevisionTrigger;
  const bool readable_record = state == kReady || state == kDegraded;
  const bool gone = state == kDeleting || state == kDeleted;
  switch (trigger) {
    case T::kBegin:
      if (state == kAbsent) return "IMPORTING";
      if (gone) return "STALE_GENERATION";
      return facts.same_content ? "same" : "CONFLICT";
    case T::kReceipt:
      if (state == kAbsent) return "NOT_FOUND";
      if (gone) return "STALE_GENERATION";
      if (state == kImporting) return "go";
      return facts.same_content ? "same" : "CONFLICT";
    case T::kCommit:
      if (state == kAbsent) return "NOT_FOUND";
      if (gone) return "STALE_GENERATION";
      if (state != kImporting) return facts.same_content ? "same" : "CONFLICT";
      if (!facts.all_receipts) return "NOT_READY";
      return facts.members_readable ? "READY" : "UNAVAILABLE";
    case T::kAbort:
      if (state == kAbsent) return "same";
      return state == kImporting ? "ABSENT" : "CONFLICT";
    case T::kMemberLost:
      return readable_record ? "DEGRADED" : "same";
    case T::kMembersBack:
      return state == kDegraded ? "READY" : "same";
    case T::kOpen:
      if (state == kAbsent || state == kDeleted) return "NOT_FOUND";
      return state == kReady ? "go" : "NOT_READY";
    case T::kQuery:
      if (state == kAbsent) return "NOT_FOUND";
      return state == kImporting ? "NOT_READY" : "go";
    case T::kRemove:
      if (state == kAbsent) return "NOT_FOUND";
      if (state == kImporting) return "NOT_READY";
      if (gone) return "same";
      return facts.has_lease ? "BUSY" : "DELETING";
    case T::kGroupEmpty:
      return state == kDeleting ? "DELETED" : "same";
  }
  return "?";
}

TEST(RevisionTable, FullProductOfStatesTriggersAndFacts) {
  for (uint8_t s = 0; s < kStates; ++s) {
    for (uint8_t t = 0; t < kRevisionTriggerCount; ++t) {
      for (unsigned bits = 0; bits < 16; ++bits) {
        const auto state = static_cast<Availability>(s);
        const auto trigger = static_cast<RevisionTrigger>(t);
        const RevisionFacts facts = FactsOf(bits);
        const RevisionRow& row = LookUp(state, trigger, facts);
        std::string actual;
        switch (row.effect) {
          case Effect::kChange:
            actual = Name(row.next);
            break;
          case Effect::kNothing:
            actual = "same";
            break;
          case Effect::kProceed:
            actual = "go";
            break;
          case Effect::kRefuse:
            actual = CodeName(row.code);
            break;
        }
        EXPECT_EQ(actual, Expected(state, trigger, facts))
            << Name(state) << " + " << Name(trigger) << " facts " << bits;
        if (row.effect != Effect::kChange) {
          EXPECT_EQ(row.next, state) << Name(state) << " + " << Name(trigger);
        }
        EXPECT_EQ(row.code == Code::kOk, row.effect != Effect::kRefuse);
        EXPECT_FALSE(row.reason.empty());
      }
    }
  }
}

TEST(RevisionTable, EveryRowIsReachableAndEveryBlockEndsUnconditionally) {
  std::map<const RevisionRow*, int> hits;
  for (uint8_t s = 0; s < kStates; ++s) {
    for (uint8_t t = 0; t < kRevisionTriggerCount; ++t) {
      const RevisionRow* last = nullptr;
      for (const RevisionRow& row : RevisionTable()) {
        if (row.state == static_cast<Availability>(s) &&
            row.trigger == static_cast<RevisionTrigger>(t)) {
          if (last != nullptr) {
            EXPECT_NE(last->guard, RevisionGuard::kAlways) << "unreachable row: " << row.reason;
          }
          last = &row;
        }
      }
      ASSERT_NE(last, nullptr);
      EXPECT_EQ(last->guard, RevisionGuard::kAlways);
      for (unsigned bits = 0; bits < 16; ++bits) {
        hits[&LookUp(static_cast<Availability>(s), static_cast<RevisionTrigger>(t),
                     FactsOf(bits))] += 1;
      }
    }
  }
  EXPECT_EQ(hits.size(), RevisionTable().size());
}

// From the RFC's primary invariants, for the pairs a table step can produce.
TEST(RevisionTable, OnlyTheDrawnEdgesChangeState) {
  std::map<std::pair<Availability, Availability>, int> edges;
  for (const RevisionRow& row : RevisionTable()) {
    if (row.effect == Effect::kChange) edges[{row.state, row.next}] += 1;
  }
  using enum Availability;
  const std::map<std::pair<Availability, Availability>, int> drawn = {
      {{kAbsent, kImporting}, 1}, {{kImporting, kReady}, 1},   {{kImporting, kAbsent}, 1},
      {{kReady, kDegraded}, 1},   {{kDegraded, kReady}, 1},    {{kDegraded, kDegraded}, 1},
      {{kReady, kDeleting}, 1},   {{kDegraded, kDeleting}, 1}, {{kDeleting, kDeleted}, 1}};
  EXPECT_EQ(edges, drawn);
}

TEST(ParticipantTable, FullProduct) {
  using S = ParticipantState;
  using T = ParticipantTrigger;
  for (uint8_t s = 0; s < 3; ++s) {
    for (uint8_t t = 0; t < kParticipantTriggerCount; ++t) {
      for (unsigned bits = 0; bits < 4; ++bits) {
        const auto state = static_cast<S>(s);
        const auto trigger = static_cast<T>(t);
        const ParticipantFacts facts{.is_claimer = (bits & 1) != 0,
                                     .same_content = (bits & 2) != 0};
        std::string expected;
        if (trigger == T::kClaim) {
          expected = state == S::kUnclaimed ? "CLAIMED" : "same";
        } else if (state == S::kReceived) {
          expected = facts.same_content ? "same" : "CONFLICT";
        } else if (trigger == T::kCompare) {
          expected = "NOT_READY";
        } else if (state == S::kUnclaimed) {
          expected = "INVALID_ARGUMENT";
        } else {
          expected = facts.is_claimer ? "RECEIVED" : "CONFLICT";
        }
        const ParticipantRow& row = LookUp(state, trigger, facts);
        std::string actual = "same";
        if (row.effect == Effect::kChange) actual = Name(row.next);
        if (row.effect == Effect::kRefuse) actual = CodeName(row.code);
        EXPECT_EQ(actual, expected) << Name(state) << " + " << Name(trigger) << " facts " << bits;
        EXPECT_EQ(row.code == Code::kOk, row.effect != Effect::kRefuse);
      }
    }
  }
}

TEST(States, AllowedPairsOfAvailabilityAndResidency) {
  using A = Availability;
  using R = Residency;
  const std::set<std::pair<A, R>> allowed = {
      {A::kImporting, R::kUnknown}, {A::kReady, R::kHot},        {A::kReady, R::kCold},
      {A::kReady, R::kMixed},       {A::kDegraded, R::kUnknown}, {A::kDegraded, R::kHot},
      {A::kDegraded, R::kCold},     {A::kDegraded, R::kMixed},   {A::kDeleting, R::kUnknown},
      {A::kDeleted, R::kAbsent}};
  for (uint8_t a = 0; a < kStates; ++a) {
    for (uint8_t r = kResidencyMin; r <= kResidencyMax; ++r) {
      const auto pair = std::pair(static_cast<A>(a), static_cast<R>(r));
      EXPECT_EQ(IsAllowed(pair.first, pair.second), allowed.contains(pair))
          << Name(pair.first) << " " << Name(pair.second);
    }
  }
}

}  // namespace
}  // namespace mooncake::model

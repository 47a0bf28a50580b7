// Says what must never be: one named checker for every rule, fed with what the Master told anybody,
// what clients were promised, and what Master and nodes hold.
//
// The first violation is final; nothing is forgiven later. A rule of a capability that does not
// exist yet has its place and is reported as never checked. Threads: all on one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "model/identity.h"
#include "mooncake/v1/master.pb.h"
#include "sim/sim_cluster.h"
#include "sim/sim_content.h"

namespace mooncake::sim {

// The management RFC's twelve safety invariants under their numbers, then ours.
enum class Rule : uint8_t {
  kOneManifest = 1,
  kReadyIsComplete = 2,
  kImmutableAfterReady = 3,
  kNoStaleGeneration = 4,
  kLeaseProtects = 5,
  kColdBeforeRelease = 6,
  kGroupIsWhole = 7,
  kTerminalIsIdle = 8,
  kNoTensorsInMetadata = 9,
  kReplicasDecide = 10,
  kWatermarkIsNoHead = 11,
  kReplacementOrder = 12,
  kAcknowledgedIsKept = 13,
  kReadyIsReadable = 14,
  kExtentsAreDisjoint = 15,
  kBytesAreCounted = 16,
  kReaderGetsItsBytes = 17,
  kLeaseNotBoth = 18,
  kOneOutcome = 19,
};
inline constexpr size_t kRules = 20;  // one beyond the last
std::string_view Name(Rule rule);
// The capability that the rule is about, when the product does not have it yet; else empty.
std::string_view ArrivesWith(Rule rule);

struct Violation {
  Rule rule = Rule::kOneManifest;
  std::string text;
};

class Judge {
 public:
  explicit Judge(SimCluster& cluster) : cluster_(cluster) {}

  // ---- what passes the network ----
  void OnMasterRequest(const std::string& request);
  void OnMasterAnswer(const std::string& request, const std::string& answer);
  // Every record before it is appended to the Master's log.
  void OnLogRecord(std::string_view payload);

  // Told every record, too.
  std::function<void(std::string_view)> on_log_record;

  // ---- what clients did and were told ----
  void PublishTried(const Content& content);
  void PublishTold(const Content& content);  // READY
  void RemoveTried(const model::WeightIdentity& identity);
  void RemoveTold(const model::WeightIdentity& identity);
  // A load answered OK. `wrong`: what of the target differs from every variant that was tried.
  void LoadTold(const model::WeightIdentity& identity, const std::string& wrong);
  // A load failed with what it must not, unless bits were flipped.
  void LoadFailed(const model::WeightIdentity& identity, const Status& why);
  // What a reader got after everything had come to rest.
  void ReadAtRest(const model::WeightIdentity& identity, const Status& loaded);
  // From now on lost and unreadable data may be the damage's fault. Wrong bytes never are.
  void Damaged() { damaged_ = true; }

  // Variants that some publisher tried under the name.
  std::vector<uint32_t> VariantsOf(const model::WeightIdentity& identity) const;
  // That were told READY and not tried to be removed.
  std::vector<model::WeightIdentity> Published() const;
  std::vector<model::WeightIdentity> Tried() const;

  // ---- what Master and nodes hold; on a task of the director ----
  void Inspect();
  // Everything was healed and has come to rest.
  void InspectAtRest();

  // Counts that the rule was looked at; `text` says how it was broken, the first time.
  void Check(Rule rule, bool holds, const std::string& text);

  const std::optional<Violation>& violation() const { return violation_; }
  uint64_t checks(Rule rule) const { return checks_[static_cast<size_t>(rule)]; }
  bool damaged() const { return damaged_; }

 private:
  struct RevisionFacts {
    std::set<uint32_t> variants_tried;
    std::optional<uint32_t> variant_told;
    bool remove_tried = false;
    bool remove_told = false;
    uint64_t metadata_generation = 0;
    std::string immutable;                    // of its metadata, once READY
    std::map<uint64_t, int> availability_of;  // by metadata generation
  };
  struct LeaseFacts {
    std::string identity;
    std::pair<std::string, uint64_t> command;
    uint64_t ttl_ms = 0;
    int64_t protected_until_ns = 0;  // as its holder may believe
    bool over = false;
  };

  RevisionFacts& FactsOf(const v1::WeightIdentity& identity);
  void SeeMetadata(const v1::RevisionMetadata& metadata);
  void SeeGone(const std::string& identity, std::string_view how);
  void SeeOutcome(const v1::CommandId& command, const std::string& method,
                  const v1::StatusProto& status, uint64_t id);
  void SeeOpened(const v1::OpenRevisionRequest& request, const v1::OpenRevisionReply& reply);
  void SeeRenewed(const v1::RenewLeasesRequest& request, const v1::RenewLeasesReply& reply);
  void EndLease(uint64_t lease_id);
  void InspectCatalogues(const master::ReplicatedState& state);
  void InspectHoldings(const master::ReplicatedState& state);

  SimCluster& cluster_;
  bool damaged_ = false;
  std::optional<Violation> violation_;
  std::array<uint64_t, kRules> checks_{};
  std::map<std::string, RevisionFacts> revisions_;  // by identity, as text
  std::map<std::string, model::WeightIdentity> identities_;
  std::map<uint64_t, LeaseFacts> leases_;
  std::map<std::pair<std::string, uint64_t>, std::string> outcomes_;  // of commands
  std::map<std::pair<std::string, uint64_t>, int64_t> arrived_ns_;    // of commands, the first time
};

}  // namespace mooncake::sim

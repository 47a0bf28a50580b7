// Balance: which of several byte-equal sources a plan reads from.
//
// Without one a plan has the contract's choice: one source replica for each target replica, and the
// first rank of those that hold a box. With one, every fragment of the source that has the same box
// of the same tensor is a *holder*, and each read goes
//   1. to a holder on the reader's own host, where one is known to be there;
//   2. among those, to the one that sends the fewest bytes so far;
//   3. among those, to the first by (dp, pp, ep, tp, fragment id); a plan for one participant alone
//      begins at another holder for each participant, since the others' reads are unknown to it.
// Reads with the fewest holders are decided first, then the largest. So where all holders hold the
// same boxes, no two differ by more than one read's bytes. How a target is cut never changes: the
// same boxes are read, from other ranks.
//
// Holders are those of complete source replicas (of tensors that declare their owners: all). Pure:
// the order of input changes nothing. A stored source has one fragment a box and nothing to choose.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/types.h"
#include "reshard/plan.h"

namespace mooncake::reshard {

// By participant id. Who is not named is on no known host, and nobody's neighbour.
using HostMap = std::map<std::string, std::string, std::less<>>;

struct Balance {
  HostMap source_hosts;
  HostMap target_hosts;

  friend bool operator==(const Balance&, const Balance&) = default;
};

// 64 hex characters: SHA-256 of these lines, each ended by "\n", by participant id:
//   mooncake-plan-balance 1
//   source <UrlEncode(participant id)> <UrlEncode(host)>
//   target <UrlEncode(participant id)> <UrlEncode(host)>
std::string DigestOf(const Balance& balance);

// "host" of "host", "host:port", "scheme://host:port" and "[v6]:port".
std::string_view HostOfEndpoint(std::string_view endpoint);
// The host that all of the binding's fragments are on; none when they differ or there are none.
std::optional<std::string> HostOf(const manifest::RuntimeBinding& binding);

class SourceIndex;

// Chooses the source of every operation of one plan. Internal to the folder.
class ReadBalancer {
 public:
  // `source` is indexed from a placement; `part` is the one part that the plan fills, if it fills
  // one. All outlive the balancer.
  ReadBalancer(const SourceIndex& source, const Balance& balance, const manifest::Placement& target,
               std::optional<uint32_t> part);

  // `operations` have the contract's sources, `bytes` what each of them copies.
  void Assign(std::span<PlannedOperation> operations, std::span<const uint64_t> bytes) const;

 private:
  // Numbers of equal hosts are equal; 0: unknown.
  using HostNumbers = std::vector<uint32_t>;

  const SourceIndex& source_;
  const manifest::Placement& target_;
  const std::optional<uint32_t> part_;
  HostNumbers source_hosts_;  // by part
  HostNumbers target_hosts_;
};

}  // namespace mooncake::reshard

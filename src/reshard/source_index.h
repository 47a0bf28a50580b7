// SourceIndex: what planning needs of a source, whatever the target (planner.h names it publicly).
//
// Internal to the folder. Per tensor and complete dp replica: the distinct boxes of the chosen
// owner and the fragment chosen for each. Replicas of one tensor that are cut alike share one
// Tiling. Immutable after construction (the list of holders is made on demand).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "geometry/box.h"
#include "geometry/box_index.h"
#include "manifest/types.h"
#include "reshard/fragment_groups.h"
#include "reshard/planner.h"
#include "reshard/tensor_table.h"

namespace mooncake::reshard {

class SourceIndex;

// Distinct source boxes of one tensor, ascending. Numbers are pooled: a Box is built when asked
// for.
struct Tiling {
  size_t first_number = 0;
  uint32_t count = 0;
  int32_t tree = -1;  // for many boxes; -1: scan
  uint8_t rank = 0;
  bool exact = true;  // the boxes are disjoint and fill the tensor
};

// One replica of one tensor: its tiling and, per box of it, the chosen fragment.
struct ReplicaSelection {
  uint32_t tiling = 0;
  uint32_t first = 0;  // into fragments and parts
};

// For each fragment of a source placement, all that hold the same box of the same tensor and may be
// read in its stead (balance.h says which). Immutable after construction.
class SourceHolders {
 public:
  struct Holder {
    uint32_t fragment = 0;
    uint32_t part = 0;
  };
  explicit SourceHolders(const SourceIndex& source);

  // By (dp, pp, ep, tp, fragment id). `fragment` is one that the index chose, and is among them.
  std::span<const Holder> of(uint32_t fragment) const {
    const uint32_t box = box_of_[fragment];
    return std::span(holders_).subspan(begins_[box], begins_[box + 1] - begins_[box]);
  }

 private:
  std::vector<uint32_t> box_of_;  // per fragment
  std::vector<uint32_t> begins_;  // per box, and one behind the last
  std::vector<Holder> holders_;
};

class SourceIndex {
 public:
  explicit SourceIndex(manifest::PlacementPtr placement);
  explicit SourceIndex(manifest::StoredManifestPtr stored);

  const manifest::PlacementPtr& placement() const { return placement_; }
  const manifest::StoredManifestPtr& stored() const { return stored_; }
  const std::string& resource_id() const;
  const std::string& revision() const;
  uint64_t weight_generation() const;

  // Why nothing can be planned from this source: too many dimensions, no complete replica, an owner
  // that is missing or ambiguous. The contract reports it after the target's own faults.
  const Status& rank_status() const { return rank_status_; }
  const Status& choice_status() const { return choice_status_; }

  const std::shared_ptr<const TensorList>& tensors() const { return tensors_; }
  const TensorTable& table() const { return table_; }
  // Source dp ranks that hold a whole replica, ascending. {0} for a stored source.
  const std::vector<int64_t>& complete_dps() const { return complete_dps_; }

  bool is_complete(int64_t dp) const {
    return std::binary_search(complete_dps_.begin(), complete_dps_.end(), dp);
  }
  // Of a placement source; made when first asked for, from any thread.
  const SourceHolders& holders() const;

  // Which of the tensor's selections a target dp rank reads.
  const ReplicaSelection& SelectionFor(uint32_t tensor, int64_t target_dp) const;
  const Tiling& tiling(const ReplicaSelection& selection) const {
    return tilings_[selection.tiling];
  }
  geometry::Box BoxOf(const Tiling& tiling, uint32_t position) const;
  // Positions within the tiling of all boxes that share an element with `query`, ascending.
  void FindOverlaps(const Tiling& tiling, const geometry::Box& query,
                    std::vector<uint32_t>* found) const;

  uint32_t fragment(const ReplicaSelection& selection, uint32_t position) const {
    return fragments_[selection.first + position];
  }
  // The placement part that holds the fragment; 0 for a stored source.
  uint32_t part(const ReplicaSelection& selection, uint32_t position) const {
    return parts_.empty() ? 0 : parts_[selection.first + position];
  }

 private:
  // A tensor's selections; the index of each is that of the dp rank in `dps` (dp-owned tensors and
  // stored ones have a single one).
  struct TensorSelections {
    uint32_t first = 0;
    bool single = true;
  };

  void TakeTensors(TensorList tensors);
  void IndexTensor(uint32_t tensor, const FragmentGroups& groups,
                   std::span<const uint32_t> part_of_fragment, const std::vector<int64_t>& dps,
                   std::vector<bool>* complete);
  // A tensor that declares who holds which box: a selection for each dp rank that holds it whole,
  // one for all others.
  void IndexOwned(uint32_t tensor, const FragmentGroups& groups,
                  std::span<const uint32_t> part_of_fragment, const std::vector<int64_t>& dps);
  ReplicaSelection Select(const FragmentGroups& groups, const FragmentGroups::Group& group,
                          std::span<const uint32_t> part_of_fragment);
  uint32_t AddTiling(std::span<const geometry::Box> boxes, bool exact);

  manifest::PlacementPtr placement_;
  manifest::StoredManifestPtr stored_;
  Status rank_status_;
  Status choice_status_;
  std::shared_ptr<const TensorList> tensors_;
  TensorTable table_;
  std::vector<int64_t> complete_dps_;
  std::vector<uint32_t> complete_positions_;  // of complete_dps_ among all source dp ranks
  std::vector<TensorSelections> tensor_selections_;
  std::vector<ReplicaSelection> selections_;
  std::vector<Tiling> tilings_;
  std::vector<int64_t> numbers_;  // per box: offsets, then extents
  std::vector<geometry::BoxIndex> trees_;
  std::vector<uint32_t> fragments_;
  std::vector<uint32_t> parts_;
  mutable std::once_flag holders_once_;
  mutable std::unique_ptr<const SourceHolders> holders_;
};

// How an owned tensor is read, for each box of a tiling the entry (of `groups`, loaded with the
// tensor) to read it from, the first by (rank, fragment):
// the first tiling that one dp rank (a group of `groups`) holds whole, from that dp rank alone;
// empty when it holds none.
std::vector<const FragmentGroups::Entry*> OwnersWithin(const manifest::TensorDescriptor& tensor,
                                                       const FragmentGroups& groups,
                                                       const FragmentGroups::Group& group);
// The first tiling, from anybody.
std::vector<const FragmentGroups::Entry*> FirstOwners(const manifest::TensorDescriptor& tensor,
                                                      const FragmentGroups& groups);

// INVALID_ARGUMENT for the first tensor of more dimensions than the planner takes.
Status ValidateTensorRanks(std::span<const manifest::TensorDescriptor* const> tensors);

// For each fragment of the placement, the part (index) that has its rank.
std::vector<uint32_t> PartsOfFragments(const manifest::Placement& placement);

}  // namespace mooncake::reshard

// FragmentGroups: the fragments of one tensor, by distinct box and by owner.
//
// Internal to the folder. A fragment's owner is its coordinates along the tensor's ownership axes;
// a group is all fragments of one owner within one dp rank (or, when dp itself owns the tensor, of
// one owner over all dp ranks). The groups are the contract's unit of choice: a source group is
// read from when its distinct boxes tile the tensor, and a target group must tile it. One object is
// loaded again for each tensor and keeps its memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "geometry/box.h"
#include "manifest/types.h"
#include "reshard/tensor_table.h"

namespace mooncake::reshard {

bool IsDpOwned(const manifest::TensorDescriptor& tensor);

class FragmentGroups {
 public:
  struct Entry {
    // (dp, pp, ep, tp): what selects the group; coordinates that do not are 0.
    std::array<int64_t, 4> group{};
    uint32_t box = 0;               // position in boxes()
    uint32_t fragment = 0;          // position in the span given to Load
    std::array<int64_t, 4> rank{};  // (dp, pp, ep, tp)
  };
  struct Group {
    int64_t dp = 0;  // 0 when dp owns the tensor
    uint32_t first = 0;
    uint32_t count = 0;  // of entries
    bool tiles = false;  // its distinct boxes tile the tensor exactly
  };

  // The fragments of one tensor that hold elements. Its position in `by_tensor` is `position` and
  // it has at most geometry::kMaxRank dimensions. Group::tiles means something only with
  // `prove_tiling`.
  void Load(const manifest::TensorDescriptor& tensor, manifest::FragmentSpan fragments,
            const FragmentsByTensor& by_tensor, size_t position, bool prove_tiling);

  // The tensor's distinct boxes, ascending.
  const std::vector<geometry::Box>& boxes() const { return boxes_; }
  // By (group, box, rank, fragment): the first entry of a box is the one to choose.
  std::span<const Entry> entries() const { return entries_; }
  std::span<const Entry> of(const Group& group) const {
    return std::span(entries_).subspan(group.first, group.count);
  }
  // Ascending by (dp, owner).
  const std::vector<Group>& groups() const { return groups_; }

 private:
  void NumberBoxes();
  void FormGroups(bool dp_owned);
  bool Tiles(const geometry::Box& whole, std::span<const Entry> entries);

  std::vector<Entry> entries_;
  std::vector<geometry::Box> boxes_;
  std::vector<Group> groups_;
  // Scratch.
  std::vector<geometry::Box> member_boxes_;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> distinct_;
  std::vector<geometry::Box> chosen_;
  // The boxes of the group before, whose answer often holds again (other dp ranks, other owners).
  std::vector<uint32_t> tested_;
  bool tested_tiles_ = false;
};

}  // namespace mooncake::reshard

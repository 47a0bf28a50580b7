#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"
#include "reshard/plan_check.h"

namespace mooncake::reshard {

using geometry::Box;
using geometry::Volume;
using manifest::Extents;
using manifest::PlacementFragment;
using manifest::StoredFragment;

namespace {

// One side's fragment as geometry.
struct FragmentView {
  const std::string& tensor_id;
  const std::string& fragment_id;
  const Extents& offset;
  const Extents& shape;
  uint64_t nbytes;
};

FragmentView ViewOf(const PlacementFragment& f) {
  return {f.tensor_id, f.placement_fragment_id, f.global_offset, f.local_shape, f.nbytes};
}

FragmentView ViewOf(const StoredFragment& f) {
  return {f.tensor_id, f.fragment_id, f.global_offset, f.local_shape, f.nbytes};
}

FragmentView SourceView(const TransferRegion& region) {
  return std::visit([](const auto& fragment) { return ViewOf(fragment); }, region.source);
}

struct RegionBoxes {
  Box source;
  Box target;
  Box overlap;
};

// A scalar's box has no dimensions.
Result<Box> BoxOf(const Extents& offset, const Extents& shape) {
  if (offset.empty() && shape.empty()) return geometry::UncheckedBox(offset, shape);
  return geometry::MakeBox(offset, shape);
}

Result<RegionBoxes> BoxesOf(const TransferRegion& region) {
  const FragmentView source = SourceView(region);
  const FragmentView target = ViewOf(region.target);
  if (region.tensor_id.empty()) {
    return InvalidArgument("transfer region tensor_id must be a non-empty string");
  }
  if (region.tensor_id != source.tensor_id || region.tensor_id != target.tensor_id) {
    return InvalidArgument("transfer region tensor mismatch: region of " + region.tensor_id +
                           ", source of " + source.tensor_id + ", target of " + target.tensor_id);
  }
  const size_t rank = region.overlap_offset.size();
  for (const Extents* numbers :
       {&region.overlap_shape, &source.offset, &source.shape, &target.offset, &target.shape}) {
    if (numbers->size() != rank) {
      return InvalidArgument("transfer region logical rank mismatch: " + std::to_string(rank) +
                             " and " + std::to_string(numbers->size()));
    }
  }
  const bool offsets_valid = std::all_of(region.overlap_offset.begin(), region.overlap_offset.end(),
                                         [](int64_t offset) { return offset >= 0; });
  const Result<Box> overlap = BoxOf(region.overlap_offset, region.overlap_shape);
  if (!offsets_valid || !overlap.ok()) {
    return InvalidArgument("transfer region logical box is invalid: " +
                           (overlap.ok() ? overlap->ToString() : overlap.status().message()));
  }
  RegionBoxes boxes;
  MC_ASSIGN_OR_RETURN(boxes.source, BoxOf(source.offset, source.shape));
  MC_ASSIGN_OR_RETURN(boxes.target, BoxOf(target.offset, target.shape));
  boxes.overlap = *overlap;
  for (const auto& [side, box] :
       {std::pair("source", &boxes.source), std::pair("target", &boxes.target)}) {
    if (!box->Contains(*overlap)) {
      return InvalidArgument(std::string("transfer region exceeds ") + side +
                             " logical fragment: " + overlap->ToString() + " in " +
                             box->ToString());
    }
  }
  return boxes;
}

Status CheckNumbers(const TransferRegion& region) {
  const std::pair<const char*, int64_t> offsets[] = {
      {"source_base_offset", region.source_base_offset},
      {"target_base_offset", region.target_base_offset}};
  for (const auto& [name, value] : offsets) {
    if (value < 0) {
      return InvalidArgument(std::string("transfer region ") + name + " must be at least 0, got " +
                             std::to_string(value));
    }
  }
  if (region.inner_bytes <= 0) {
    return InvalidArgument("transfer region inner_bytes must be at least 1, got " +
                           std::to_string(region.inner_bytes));
  }
  const size_t loops = region.outer_loop_counts.size();
  if (region.source_strides.size() != loops || region.target_strides.size() != loops) {
    return InvalidArgument("transfer region loop ranks differ: " + std::to_string(loops) +
                           " counts, " + std::to_string(region.source_strides.size()) + " and " +
                           std::to_string(region.target_strides.size()) + " strides");
  }
  const auto all_at_least = [](const Extents& values, int64_t least) {
    return std::all_of(values.begin(), values.end(), [=](int64_t v) { return v >= least; });
  };
  if (!all_at_least(region.outer_loop_counts, 1)) {
    return InvalidArgument("transfer region outer_loop_counts must be at least 1");
  }
  if (!all_at_least(region.source_strides, 0) || !all_at_least(region.target_strides, 0)) {
    return InvalidArgument("transfer region strides must be at least 0");
  }
  return OkStatus();
}

// Bytes of one element; 0 when the size is not a whole number of elements.
uint64_t ItemsizeOf(const FragmentView& fragment) {
  const Volume volume = geometry::VolumeOf(fragment.shape);
  if (fragment.nbytes % volume != 0) return 0;
  return static_cast<uint64_t>(fragment.nbytes / volume);
}

bool SameLoops(const TransferRegion& region, const geometry::StridedRegion& canonical) {
  const auto same = [&](const Extents& values, const auto& wanted) {
    return std::equal(values.begin(), values.end(), wanted.begin(),
                      [](int64_t a, uint64_t b) { return static_cast<uint64_t>(a) == b; });
  };
  return region.outer_loop_counts.size() == static_cast<size_t>(canonical.loops) &&
         static_cast<uint64_t>(region.inner_bytes) == canonical.inner_bytes &&
         same(region.outer_loop_counts, canonical.counts) &&
         same(region.source_strides, canonical.source_strides) &&
         same(region.target_strides, canonical.target_strides);
}

Status CheckGeometry(const TransferRegion& region, const RegionBoxes& boxes) {
  const uint64_t itemsize = ItemsizeOf(SourceView(region));
  const uint64_t target_itemsize = ItemsizeOf(ViewOf(region.target));
  if (itemsize == 0 || itemsize != target_itemsize) {
    return InvalidArgument("transfer region itemsize differs: source " + std::to_string(itemsize) +
                           ", target " + std::to_string(target_itemsize));
  }
  Volume bytes = static_cast<Volume>(region.inner_bytes);
  for (int64_t count : region.outer_loop_counts) {
    if (__builtin_mul_overflow(bytes, static_cast<Volume>(count), &bytes)) {
      bytes = geometry::kVolumeMax;
    }
  }
  // The overlap lies in a fragment whose bytes fit in 64 bits.
  if (bytes != boxes.overlap.volume() * itemsize) {
    return InvalidArgument("transfer region loop geometry does not match overlap " +
                           boxes.overlap.ToString());
  }
  const geometry::StridedRegion canonical =
      geometry::CanonicalRegion(boxes.source, boxes.target, boxes.overlap, itemsize);
  const auto base = [&](const char* side, int64_t got, uint64_t wanted) {
    return static_cast<uint64_t>(got) == wanted
               ? OkStatus()
               : InvalidArgument(std::string("transfer region ") + side +
                                 " base offset is inconsistent: expected " +
                                 std::to_string(wanted) + ", got " + std::to_string(got));
  };
  MC_RETURN_IF_ERROR(base("source", region.source_base_offset, canonical.source_base_offset));
  MC_RETURN_IF_ERROR(base("target", region.target_base_offset, canonical.target_base_offset));
  if (!SameLoops(region, canonical)) {
    return InvalidArgument("transfer region loop geometry is not canonical");
  }
  return OkStatus();
}

}  // namespace

Status ValidateTransferRegion(const TransferRegion& region) {
  MC_ASSIGN_OR_RETURN(const RegionBoxes boxes, BoxesOf(region));
  MC_RETURN_IF_ERROR(CheckNumbers(region));
  return CheckGeometry(region, boxes);
}

geometry::StridedRegion StridedRegionOf(const TransferRegion& region) {
  geometry::StridedRegion result;
  MC_CHECK(region.outer_loop_counts.size() <= static_cast<size_t>(geometry::kMaxRank));
  result.source_base_offset = static_cast<uint64_t>(region.source_base_offset);
  result.target_base_offset = static_cast<uint64_t>(region.target_base_offset);
  result.inner_bytes = static_cast<uint64_t>(region.inner_bytes);
  result.loops = static_cast<int>(region.outer_loop_counts.size());
  std::copy(region.outer_loop_counts.begin(), region.outer_loop_counts.end(),
            result.counts.begin());
  std::copy(region.source_strides.begin(), region.source_strides.end(),
            result.source_strides.begin());
  std::copy(region.target_strides.begin(), region.target_strides.end(),
            result.target_strides.begin());
  return result;
}

TransferRegion TransferRegionOf(const LogicalPlan& plan, size_t operation) {
  const geometry::StridedRegion region = plan.region(operation);
  const Box overlap = plan.overlap(operation);
  TransferRegion result;
  result.target = plan.target_fragment(operation);
  result.tensor_id = result.target.tensor_id;
  const uint32_t source = plan.operations()[operation].source;
  if (plan.has_stored_source()) {
    result.source = plan.source_stored_fragments()[source];
  } else {
    result.source = plan.source_placement_fragments()[source];
  }
  for (int d = 0; d < overlap.rank(); ++d) {
    result.overlap_offset.push_back(overlap.begin(d));
    result.overlap_shape.push_back(overlap.extent(d));
  }
  result.source_base_offset = static_cast<int64_t>(region.source_base_offset);
  result.target_base_offset = static_cast<int64_t>(region.target_base_offset);
  result.inner_bytes = static_cast<int64_t>(region.inner_bytes);
  const auto loops = region.loops;
  result.outer_loop_counts.assign(region.counts.begin(), region.counts.begin() + loops);
  result.source_strides.assign(region.source_strides.begin(),
                               region.source_strides.begin() + loops);
  result.target_strides.assign(region.target_strides.begin(),
                               region.target_strides.begin() + loops);
  return result;
}

Status ValidateSegmentLimit(uint64_t segment_count, uint64_t max_segments) {
  if (max_segments == 0) return InvalidArgument("max_segments must be a positive integer, got 0");
  if (segment_count > max_segments) {
    return InvalidArgument("transfer region exceeds max_segments: " +
                           std::to_string(segment_count) + " > " + std::to_string(max_segments));
  }
  return OkStatus();
}

}  // namespace mooncake::reshard

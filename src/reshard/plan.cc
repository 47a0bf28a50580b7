#include "reshard/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/check.h"

namespace mooncake::reshard {

using geometry::Box;

namespace {

template <class Fragment>
Box BoxOfFragment(const Fragment& fragment) {
  return geometry::UncheckedBox(fragment.global_offset, fragment.local_shape);
}

uint64_t ItemsizeOf(const manifest::PlacementFragment& fragment) {
  return fragment.nbytes / static_cast<uint64_t>(geometry::VolumeOf(fragment.local_shape));
}

}  // namespace

Status ValidatePlanningLimits(const PlanningLimits& limits) {
  const std::pair<const char*, uint64_t> all[] = {
      {"max_transfer_regions", limits.max_transfer_regions},
      {"max_segments_per_region", limits.max_segments_per_region},
      {"max_total_lowered_segments", limits.max_total_lowered_segments}};
  for (const auto& [name, value] : all) {
    if (value == 0) {
      return InvalidArgument(std::string("planning limit ") + name +
                             " must be a positive integer, got 0");
    }
  }
  return OkStatus();
}

Status CheckRegionCount(uint64_t needed, const PlanningLimits& limits) {
  if (needed <= limits.max_transfer_regions) return OkStatus();
  return InvalidArgument("logical transfer plan exceeds max_transfer_regions: " +
                         std::to_string(limits.max_transfer_regions) + ", it needs " +
                         std::to_string(needed));
}

Status CheckRegionSegments(uint64_t segments, const PlanningLimits& limits) {
  if (segments <= limits.max_segments_per_region) return OkStatus();
  return InvalidArgument(
      "logical transfer region exceeds max_segments_per_region: " + std::to_string(segments) +
      " > " + std::to_string(limits.max_segments_per_region));
}

Status CheckTotalSegments(uint64_t reached, uint64_t needed, const PlanningLimits& limits) {
  if (reached <= limits.max_total_lowered_segments) return OkStatus();
  return InvalidArgument(
      "logical transfer plan exceeds max_total_lowered_segments: " + std::to_string(reached) +
      " > " + std::to_string(limits.max_total_lowered_segments) + ", it needs " +
      std::to_string(needed));
}

manifest::FragmentSpan LogicalPlan::target_fragments() const {
  if (local_target_part_) return target_placement_->parts[*local_target_part_].fragments;
  return target_placement_->fragments;
}

manifest::FragmentSpan LogicalPlan::source_placement_fragments() const {
  MC_CHECK(source_placement_ != nullptr);
  return source_placement_->fragments;
}

std::span<const manifest::StoredFragment> LogicalPlan::source_stored_fragments() const {
  MC_CHECK(source_manifest_ != nullptr);
  return source_manifest_->fragments;
}

const std::string& LogicalPlan::source_fragment_id(size_t operation) const {
  const uint32_t source = operations_[operation].source;
  return has_stored_source() ? source_manifest_->fragments[source].fragment_id
                             : source_placement_->fragments[source].placement_fragment_id;
}

Box LogicalPlan::source_box(size_t operation) const {
  const uint32_t source = operations_[operation].source;
  return has_stored_source() ? BoxOfFragment(source_manifest_->fragments[source])
                             : BoxOfFragment(source_placement_->fragments[source]);
}

Box LogicalPlan::target_box(size_t operation) const {
  return BoxOfFragment(target_fragment(operation));
}

Box LogicalPlan::overlap(size_t operation) const {
  if (!overlaps_.empty()) return overlaps_[operation];
  const std::optional<Box> overlap = source_box(operation).Intersect(target_box(operation));
  MC_CHECK(overlap.has_value());
  return *overlap;
}

uint64_t LogicalPlan::itemsize(size_t operation) const {
  return ItemsizeOf(target_fragment(operation));
}

geometry::StridedRegion LogicalPlan::region(size_t operation) const {
  return geometry::CanonicalRegion(source_box(operation), target_box(operation), overlap(operation),
                                   itemsize(operation));
}

size_t LogicalPlan::memory_bytes() const {
  return sizeof(LogicalPlan) + operations_.capacity() * sizeof(PlannedOperation) +
         overlaps_.capacity() * sizeof(Box) +
         (source_executors_.capacity() + target_executors_.capacity()) * sizeof(uint32_t) +
         (source_tensors_->capacity() + target_tensors_->capacity()) * sizeof(void*);
}

std::vector<PipelineRouteGroup> PipelineRoutes(const LogicalPlan& plan) {
  // Absent values sort as -1, before every coordinate.
  using Key = std::array<int64_t, 4>;
  std::map<Key, std::vector<uint32_t>> by_key;
  Key last_key{};
  std::vector<uint32_t>* last = nullptr;
  for (size_t i = 0; i < plan.operations().size(); ++i) {
    const manifest::PlacementFragment& target = plan.target_fragment(i);
    Key key{-1, -1, target.rank.pp, target.pipeline_stage_id.value_or(-1)};
    if (!plan.has_stored_source()) {
      const auto& source = plan.source_placement_fragments()[plan.operations()[i].source];
      key[0] = source.rank.pp;
      key[1] = source.pipeline_stage_id.value_or(-1);
    }
    if (last == nullptr || key != last_key) {
      last = &by_key[key];
      last_key = key;
    }
    last->push_back(static_cast<uint32_t>(i));
  }
  const auto optional_of = [](int64_t value) {
    return value < 0 ? std::nullopt : std::optional(value);
  };
  std::vector<PipelineRouteGroup> routes;
  routes.reserve(by_key.size());
  for (auto& [key, indices] : by_key) {
    routes.push_back({optional_of(key[0]), optional_of(key[1]), key[2], optional_of(key[3]),
                      std::move(indices)});
  }
  return routes;
}

ExecutorOperations OperationsByExecutor(const LogicalPlan& plan, PlanSide side) {
  using RankKey = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  const auto key_of = [](const manifest::ParallelRank& rank) {
    return RankKey(rank.dp, rank.pp, rank.ep, rank.tp);
  };
  const bool source_side = side == PlanSide::kSource;
  const std::span<const uint32_t> executors =
      source_side ? plan.source_executors() : plan.target_executors();
  ExecutorOperations result;
  result.begins.assign(executors.size() + 1, 0);
  if (executors.empty()) return result;
  const std::vector<manifest::PlacementPart>& parts =
      source_side ? plan.source_placement()->parts : plan.target_placement()->parts;
  // A plan put together by hand may list its executors in any order.
  std::vector<std::pair<RankKey, uint32_t>> ranks;
  for (uint32_t e = 0; e < executors.size(); ++e) {
    ranks.emplace_back(key_of(parts[executors[e]].rank), e);
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<uint32_t> executor_of(plan.operations().size());
  for (size_t i = 0; i < executor_of.size(); ++i) {
    const manifest::PlacementFragment& fragment =
        source_side ? plan.source_placement_fragments()[plan.operations()[i].source]
                    : plan.target_fragment(i);
    const auto it =
        std::lower_bound(ranks.begin(), ranks.end(), std::pair{key_of(fragment.rank), uint32_t{0}});
    MC_CHECK(it != ranks.end() && it->first == key_of(fragment.rank));
    executor_of[i] = it->second;
    ++result.begins[it->second + 1];
  }
  for (size_t e = 0; e < executors.size(); ++e) result.begins[e + 1] += result.begins[e];
  std::vector<uint32_t> next(result.begins.begin(), result.begins.end() - 1);
  result.indices.resize(executor_of.size());
  for (size_t i = 0; i < executor_of.size(); ++i) {
    result.indices[next[executor_of[i]]++] = static_cast<uint32_t>(i);
  }
  return result;
}

}  // namespace mooncake::reshard

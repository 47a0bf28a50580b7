#include "reshard/plan_reuse.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/url_encode.h"
#include "geometry/cover.h"
#include "manifest/canonical.h"
#include "manifest/lookup.h"
#include "reshard/compatibility.h"
#include "reshard/plan_assembler.h"
#include "reshard/source_index.h"

namespace mooncake::reshard {

using geometry::Box;
using manifest::PlacementFragment;

namespace {

constexpr std::string_view kMagic = "MCWPLAN1";
constexpr std::string_view kBalancedMagic = "MCWPLAN2";
constexpr size_t kDigestBytes = 32;

std::shared_ptr<const TensorList> TensorsOf(const PlanSource& source) {
  return std::make_shared<const TensorList>(source.stored
                                                ? SortedTensors(source.stored->tensors)
                                                : PlacementTensors(source.placement->tensors));
}

Status CheckRevision(const PlanSource& source, const manifest::Placement& target) {
  return source.stored
             ? CheckSameRevision(source.stored->resource_id, source.stored->revision,
                                 source.stored->weight_generation, target)
             : CheckSameRevision(source.placement->resource_id, source.placement->revision,
                                 source.placement->weight_generation, target);
}

PlanSource SourceOf(const LogicalPlan& plan) {
  return {plan.source_placement(), plan.source_manifest()};
}

std::optional<std::string_view> ParticipantOf(const LogicalPlan& plan) {
  if (!plan.local_target_part()) return std::nullopt;
  return plan.target_placement()->parts[*plan.local_target_part()].participant_id;
}

std::shared_ptr<const TensorList> TargetTensors(const manifest::Placement& target,
                                                std::optional<uint32_t> part) {
  return std::make_shared<const TensorList>(part ? PlacementTensors(target.parts[*part].tensors)
                                                 : PlacementTensors(target.tensors));
}

// --- the file ------------------------------------------------------------------------------------

template <class Integer>
void Append(std::string& out, Integer value) {
  for (size_t b = 0; b < sizeof(value); ++b) out += static_cast<char>(value >> (8 * b));
}

// Takes little-endian integers and bytes from the front.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class Integer>
  Result<Integer> Take() {
    MC_ASSIGN_OR_RETURN(const std::string_view bytes, TakeBytes(sizeof(Integer)));
    Integer value = 0;
    for (size_t b = 0; b < sizeof(value); ++b) {
      value |= static_cast<Integer>(static_cast<uint8_t>(bytes[b])) << (8 * b);
    }
    return value;
  }
  Result<std::string_view> TakeBytes(uint64_t count) {
    if (count > rest_.size()) {
      return InvalidArgument("saved plan ends early: " + std::to_string(count) + " bytes wanted, " +
                             std::to_string(rest_.size()) + " left");
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

struct SavedPlan {
  std::string geometry_digest;
  std::string balance_digest;  // empty: the contract's choice
  std::optional<std::string> participant_id;
  PlanningLimits limits;
  std::vector<PlannedOperation> operations;
};

Result<SavedPlan> Decode(std::string_view saved) {
  const bool balanced = saved.starts_with(kBalancedMagic);
  if (saved.size() < kMagic.size() + kDigestBytes || (!balanced && !saved.starts_with(kMagic))) {
    return InvalidArgument("not a saved plan: it does not begin with " + std::string(kMagic) +
                           " or " + std::string(kBalancedMagic));
  }
  const std::string_view content = saved.substr(0, saved.size() - kDigestBytes);
  const Sha256Digest check = Sha256Of(content);
  if (std::memcmp(check.data(), saved.data() + content.size(), kDigestBytes) != 0) {
    return InvalidArgument("saved plan is damaged: its bytes are not those of its checksum");
  }
  Reader reader(content.substr(kMagic.size()));
  SavedPlan plan;
  MC_ASSIGN_OR_RETURN(const std::string_view digest, reader.TakeBytes(2 * kDigestBytes));
  plan.geometry_digest = digest;
  if (balanced) {
    MC_ASSIGN_OR_RETURN(const std::string_view hex, reader.TakeBytes(2 * kDigestBytes));
    plan.balance_digest = hex;
    MC_RETURN_IF_ERROR(Sha256FromHex(hex).status());
  }
  MC_ASSIGN_OR_RETURN(const auto id_bytes, reader.Take<uint32_t>());
  if (id_bytes > 0) {
    MC_ASSIGN_OR_RETURN(const std::string_view id, reader.TakeBytes(id_bytes));
    plan.participant_id = std::string(id);
  }
  MC_ASSIGN_OR_RETURN(plan.limits.max_transfer_regions, reader.Take<uint64_t>());
  MC_ASSIGN_OR_RETURN(plan.limits.max_segments_per_region, reader.Take<uint64_t>());
  MC_ASSIGN_OR_RETURN(plan.limits.max_total_lowered_segments, reader.Take<uint64_t>());
  MC_ASSIGN_OR_RETURN(const auto count, reader.Take<uint64_t>());
  if (count != reader.left() / 8 || reader.left() % 8 != 0) {
    return InvalidArgument("saved plan has " + std::to_string(reader.left()) + " bytes for " +
                           std::to_string(count) + " operations of 8");
  }
  plan.operations.resize(count);
  for (PlannedOperation& operation : plan.operations) {
    MC_ASSIGN_OR_RETURN(operation.source, reader.Take<uint32_t>());
    MC_ASSIGN_OR_RETURN(operation.target, reader.Take<uint32_t>());
  }
  return plan;
}

// --- proving what was read -----------------------------------------------------------------------

// Operations as the planner would have made them: source fragments of the same tensors that tile
// every target fragment exactly.
class LoadedPlan {
 public:
  LoadedPlan(SavedPlan saved, PlanSource source, manifest::PlacementPtr target,
             std::optional<uint32_t> part)
      : saved_(std::move(saved)),
        source_(std::move(source)),
        target_(std::move(target)),
        part_(part),
        source_tensors_(TensorsOf(source_)),
        target_tensors_(TargetTensors(*target_, part_)) {}

  Result<LogicalPlanPtr> Prove() {
    MC_RETURN_IF_ERROR(ValidatePlanningLimits(saved_.limits));
    MC_RETURN_IF_ERROR(CheckRegionCount(saved_.operations.size(), saved_.limits));
    MC_RETURN_IF_ERROR(ValidateTensorRanks(*source_tensors_));
    MC_RETURN_IF_ERROR(ValidateTensorRanks(*target_tensors_));
    MC_RETURN_IF_ERROR(CheckTensors());
    const manifest::FragmentSpan targets = TargetFragments();
    size_t next = 0;
    for (uint32_t t = 0; t < targets.size(); ++t) {
      const size_t first = next;
      while (next < saved_.operations.size() && saved_.operations[next].target == t) ++next;
      MC_RETURN_IF_ERROR(
          CheckTarget(targets[t], std::span(saved_.operations).subspan(first, next - first)));
    }
    if (next != saved_.operations.size()) {
      return InvalidArgument("saved plan has operations out of order: the " + std::to_string(next) +
                             "th fills fragment " + std::to_string(saved_.operations[next].target) +
                             " of " + std::to_string(targets.size()));
    }
    MC_RETURN_IF_ERROR(CheckTotalSegments(segments_, segments_, saved_.limits));
    return Assemble();
  }

 private:
  manifest::FragmentSpan TargetFragments() const {
    return part_ ? manifest::FragmentSpan(target_->parts[*part_].fragments)
                 : manifest::FragmentSpan(target_->fragments);
  }
  size_t source_count() const {
    return source_.stored ? source_.stored->fragments.size() : source_.placement->fragments.size();
  }
  Box SourceBox(uint32_t source) const {
    const auto box = [](const auto& f) {
      return geometry::UncheckedBox(f.global_offset, f.local_shape);
    };
    return source_.stored ? box(source_.stored->fragments[source])
                          : box(source_.placement->fragments[source]);
  }
  const std::string& SourceTensor(uint32_t source) const {
    return source_.stored ? source_.stored->fragments[source].tensor_id
                          : source_.placement->fragments[source].tensor_id;
  }

  Status CheckTensors() const {
    const TensorTable table(*source_tensors_);
    for (const manifest::TensorDescriptor* tensor : *target_tensors_) {
      const std::optional<uint32_t> position = table.Find(tensor->tensor_id);
      if (!position) {
        return InvalidArgument("target manifests contain unknown tensors: " + tensor->tensor_id);
      }
      MC_RETURN_IF_ERROR(CheckCompatible(*(*source_tensors_)[*position], *tensor));
    }
    return OkStatus();
  }

  Status CheckTarget(const PlacementFragment& target,
                     std::span<const PlannedOperation> operations) {
    const auto not_covered = [&] {
      return InvalidArgument("target fragment is not fully covered: " +
                             target.placement_fragment_id + " of tensor " + target.tensor_id);
    };
    if (target.is_empty()) return operations.empty() ? OkStatus() : not_covered();
    const Box whole = geometry::UncheckedBox(target.global_offset, target.local_shape);
    const uint64_t itemsize =
        target.nbytes / static_cast<uint64_t>(geometry::VolumeOf(target.local_shape));
    std::vector<Box> overlaps;
    for (const PlannedOperation& operation : operations) {
      if (operation.source >= source_count() ||
          SourceTensor(operation.source) != target.tensor_id) {
        return not_covered();
      }
      const Box box = SourceBox(operation.source);
      const std::optional<Box> overlap = box.Intersect(whole);
      if (!overlap) return not_covered();
      const geometry::RegionSummary region =
          geometry::SummarizeRegion(box, whole, *overlap, itemsize);
      if (!overlaps.empty() && region.target_base_offset <= last_offset_) return not_covered();
      last_offset_ = region.target_base_offset;
      MC_RETURN_IF_ERROR(CheckRegionSegments(region.segment_count, saved_.limits));
      if (__builtin_add_overflow(segments_, region.segment_count, &segments_)) {
        segments_ = UINT64_MAX;
      }
      overlaps.push_back(*overlap);
    }
    if (!geometry::BoxesExactlyCover(whole, overlaps)) return not_covered();
    if (__builtin_add_overflow(bytes_, target.nbytes, &bytes_)) {
      return InvalidArgument("logical transfer plan exceeds 2^64 - 1 bytes");
    }
    return OkStatus();
  }

  std::vector<uint32_t> SourceExecutors() const {
    if (!source_.placement) return {};
    const std::vector<uint32_t> part_of = PartsOfFragments(*source_.placement);
    std::vector<uint32_t> parts;
    for (const PlannedOperation& operation : saved_.operations) {
      parts.push_back(part_of[operation.source]);
    }
    return InRankOrder(std::move(parts), *source_.placement);
  }

  std::vector<uint32_t> TargetExecutors() const {
    std::vector<uint32_t> parts;
    for (uint32_t p = 0; p < target_->parts.size(); ++p) {
      if (part_ ? p == *part_ : manifest::HoldsElements(target_->parts[p])) parts.push_back(p);
    }
    return InRankOrder(std::move(parts), *target_);
  }

  static std::vector<uint32_t> InRankOrder(std::vector<uint32_t> parts,
                                           const manifest::Placement& placement) {
    const auto key = [&](uint32_t part) {
      const manifest::ParallelRank& rank = placement.parts[part].rank;
      return std::array{rank.dp, rank.pp, rank.ep, rank.tp};
    };
    std::sort(parts.begin(), parts.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    return parts;
  }

  LogicalPlanPtr Assemble() {
    return PlanAssembler()
        .Source(source_.placement, source_.stored, source_tensors_)
        .Target(target_, part_, target_tensors_)
        .Limits(saved_.limits)
        .BalanceDigest(std::move(saved_.balance_digest))
        .Executors(SourceExecutors(), TargetExecutors())
        .Operations(std::move(saved_.operations), {}, bytes_, segments_)
        .Build();
  }

  SavedPlan saved_;
  PlanSource source_;
  manifest::PlacementPtr target_;
  std::optional<uint32_t> part_;
  std::shared_ptr<const TensorList> source_tensors_;
  std::shared_ptr<const TensorList> target_tensors_;
  uint64_t last_offset_ = 0;
  uint64_t segments_ = 0;
  uint64_t bytes_ = 0;
};

Status CheckGeometry(const std::string& of_plan, const PlanSource& source,
                     const manifest::Placement& target,
                     std::optional<std::string_view> participant_id,
                     std::string_view balance_digest) {
  const std::string given = GeometryDigestOf(source, target, participant_id, balance_digest);
  if (of_plan == given) return OkStatus();
  return InvalidArgument("the plan is of another geometry: the plan's is " + of_plan +
                         ", that of source and target is " + given);
}

}  // namespace

std::string GeometryDigestOf(const PlanSource& source, const manifest::Placement& target,
                             std::optional<std::string_view> participant_id,
                             std::string_view balance_digest) {
  std::string text = "mooncake-plan-geometry 1\nsource ";
  text += source.stored ? "stored " + manifest::StoredGeometryDigest(*source.stored)
                        : "placement " + source.placement->geometry_digest;
  text += "\ntarget " + target.geometry_digest + "\n";
  if (participant_id) text += "participant " + UrlEncode(*participant_id) + "\n";
  if (!balance_digest.empty()) text += "balance " + std::string(balance_digest) + "\n";
  return ToHex(Sha256Of(text));
}

std::string GeometryDigestOf(const LogicalPlan& plan) {
  return GeometryDigestOf(SourceOf(plan), *plan.target_placement(), ParticipantOf(plan),
                          plan.balance_digest());
}

Result<LogicalPlanPtr> ReusePlan(const LogicalPlan& plan, const PlanSource& source,
                                 const manifest::PlacementPtr& target) {
  MC_RETURN_IF_ERROR(CheckRevision(source, *target));
  MC_RETURN_IF_ERROR(CheckGeometry(GeometryDigestOf(plan), source, *target, ParticipantOf(plan),
                                   plan.balance_digest()));
  return PlanAssembler()
      .Source(source.placement, source.stored, TensorsOf(source))
      .Target(target, plan.local_target_part(), TargetTensors(*target, plan.local_target_part()))
      .LikeThat(plan)
      .Build();
}

Result<std::string> SavePlan(const LogicalPlan& plan) {
  if (!plan.copies_whole_overlaps()) {
    return InvalidArgument("a plan whose operations copy parts of overlaps cannot be saved");
  }
  std::string out(plan.balance_digest().empty() ? kMagic : kBalancedMagic);
  out += GeometryDigestOf(plan);
  out += plan.balance_digest();
  const std::string_view participant = ParticipantOf(plan).value_or("");
  Append(out, static_cast<uint32_t>(participant.size()));
  out += participant;
  Append(out, plan.limits().max_transfer_regions);
  Append(out, plan.limits().max_segments_per_region);
  Append(out, plan.limits().max_total_lowered_segments);
  Append(out, static_cast<uint64_t>(plan.operations().size()));
  for (const PlannedOperation& operation : plan.operations()) {
    Append(out, operation.source);
    Append(out, operation.target);
  }
  const Sha256Digest check = Sha256Of(out);
  out.append(reinterpret_cast<const char*>(check.data()), check.size());
  return out;
}

Result<LogicalPlanPtr> LoadPlan(std::string_view saved, const PlanSource& source,
                                const manifest::PlacementPtr& target) {
  MC_ASSIGN_OR_RETURN(SavedPlan plan, Decode(saved));
  MC_RETURN_IF_ERROR(CheckRevision(source, *target));
  MC_RETURN_IF_ERROR(CheckGeometry(plan.geometry_digest, source, *target, plan.participant_id,
                                   plan.balance_digest));
  std::optional<uint32_t> part;
  if (plan.participant_id) {
    const manifest::PlacementPart* found = manifest::FindPart(*target, *plan.participant_id);
    if (found == nullptr) {
      return InvalidArgument("unknown target participant: " + *plan.participant_id);
    }
    part = static_cast<uint32_t>(found - target->parts.data());
  }
  return LoadedPlan(std::move(plan), source, target, part).Prove();
}

}  // namespace mooncake::reshard

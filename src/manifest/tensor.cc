// Ranks, axes and tensor descriptors.
#include <fmt/format.h>

#include <algorithm>

#include "manifest/extension.h"
#include "manifest/field_checks.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

std::string_view AxisKindName(AxisKind kind) {
  switch (kind) {
    case AxisKind::kDp:
      return "dp";
    case AxisKind::kPp:
      return "pp";
    case AxisKind::kEp:
      return "ep";
    case AxisKind::kTp:
      return "tp";
  }
  return "unknown";
}

std::string_view AxisSemanticsName(AxisSemantics semantics) {
  switch (semantics) {
    case AxisSemantics::kSplit:
      return "split";
    case AxisSemantics::kReplicated:
      return "replicated";
    case AxisSemantics::kOwnership:
      return "ownership";
  }
  return "unknown";
}

Result<AxisKind> ParseAxisKind(std::string_view kind) {
  MC_RETURN_IF_ERROR(CheckText("parallel axis kind", kind));
  for (const AxisKind known : {AxisKind::kDp, AxisKind::kPp, AxisKind::kEp, AxisKind::kTp}) {
    if (kind == AxisKindName(known)) return known;
  }
  return InvalidArgument(fmt::format("unsupported parallel axis kind: {}", kind));
}

Result<AxisSemantics> ParseAxisSemantics(std::string_view semantics) {
  MC_RETURN_IF_ERROR(CheckText("axis semantics", semantics));
  for (const AxisSemantics known :
       {AxisSemantics::kSplit, AxisSemantics::kReplicated, AxisSemantics::kOwnership}) {
    if (semantics == AxisSemanticsName(known)) return known;
  }
  return InvalidArgument(fmt::format("unsupported parallel axis semantics: {}", semantics));
}

bool EqualApartFromId(const TensorDescriptor& a, const TensorDescriptor& b) {
  const bool same_extension =
      a.extension == b.extension ||
      (a.extension != nullptr && b.extension != nullptr && *a.extension == *b.extension);
  return same_extension && a.global_shape == b.global_shape && a.dtype == b.dtype &&
         a.itemsize == b.itemsize && a.shard_dims == b.shard_dims &&
         a.layout_fingerprint == b.layout_fingerprint && a.parallel_axes == b.parallel_axes &&
         a.layer_id == b.layer_id && a.expert_id == b.expert_id;
}

bool operator==(const TensorDescriptor& a, const TensorDescriptor& b) {
  return a.tensor_id == b.tensor_id && EqualApartFromId(a, b);
}

Result<ParallelRank> MakeParallelRank(ParallelRank fields) {
  MC_RETURN_IF_ERROR(CheckAtLeast("parallel rank dp", fields.dp, 0));
  MC_RETURN_IF_ERROR(CheckAtLeast("parallel rank tp", fields.tp, 0));
  MC_RETURN_IF_ERROR(CheckAtLeast("parallel rank pp", fields.pp, 0));
  MC_RETURN_IF_ERROR(CheckAtLeast("parallel rank ep", fields.ep, 0));
  return fields;
}

namespace {

Status CheckAxis(const ParallelAxis& axis) {
  if (axis.semantics != AxisSemantics::kSplit) return OkStatus();
  if (axis.kind != AxisKind::kEp && axis.kind != AxisKind::kTp) {
    return InvalidArgument(fmt::format("{} cannot use split semantics", AxisKindName(axis.kind)));
  }
  MC_RETURN_IF_ERROR(CheckAtLeast("split axis dim", axis.dim, 0));
  if (axis.kind == AxisKind::kEp && axis.dim != 0) {
    return InvalidArgument(
        fmt::format("EP must split the leading logical expert dimension, got dim {}", axis.dim));
  }
  return OkStatus();
}

Status CheckShardDims(const TensorDescriptor& tensor) {
  const Extents& dims = tensor.shard_dims;
  MC_RETURN_IF_ERROR(CheckAllAtLeast("shard_dims", dims, 0));
  Extents sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return InvalidArgument("shard_dims must not contain duplicates: " + ToText(dims));
  }
  if (sorted != dims) return InvalidArgument("shard_dims must be sorted: " + ToText(dims));
  if (!dims.empty() && dims.back() >= static_cast<int64_t>(tensor.global_shape.size())) {
    return InvalidArgument(
        fmt::format("shard_dims contains an out-of-range dimension: {} of a tensor of rank {}",
                    dims.back(), tensor.global_shape.size()));
  }
  return OkStatus();
}

// Sorts the axes by kind and checks them against shape and shard_dims.
Status NormalizeAxes(TensorDescriptor& tensor) {
  std::vector<ParallelAxis>& axes = tensor.parallel_axes;
  for (ParallelAxis& axis : axes) {
    MC_RETURN_IF_ERROR(CheckAxis(axis));
    if (axis.semantics != AxisSemantics::kSplit) axis.dim = 0;
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const ParallelAxis& a, const ParallelAxis& b) { return a.kind < b.kind; });
  const auto twin = std::adjacent_find(
      axes.begin(), axes.end(),
      [](const ParallelAxis& a, const ParallelAxis& b) { return a.kind == b.kind; });
  if (twin != axes.end()) {
    return InvalidArgument(fmt::format("parallel_axes must not contain duplicate kinds: {}",
                                       AxisKindName(twin->kind)));
  }
  Extents split_dims;
  for (const ParallelAxis& axis : axes) {
    if (axis.semantics == AxisSemantics::kSplit) split_dims.push_back(axis.dim);
  }
  std::sort(split_dims.begin(), split_dims.end());
  if (std::adjacent_find(split_dims.begin(), split_dims.end()) != split_dims.end()) {
    return InvalidArgument("split axes must not share a dimension: " + ToText(split_dims));
  }
  if (!split_dims.empty() &&
      split_dims.back() >= static_cast<int64_t>(tensor.global_shape.size())) {
    return InvalidArgument(
        fmt::format("split axis dimension is out of range: {} of a tensor of rank {}",
                    split_dims.back(), tensor.global_shape.size()));
  }
  if (split_dims != tensor.shard_dims) {
    return InvalidArgument(
        fmt::format("parallel axis split dimensions conflict with shard_dims: {} and {}",
                    ToText(split_dims), ToText(tensor.shard_dims)));
  }
  return OkStatus();
}

bool HasSplitEp(const TensorDescriptor& tensor) {
  return std::any_of(tensor.parallel_axes.begin(), tensor.parallel_axes.end(),
                     [](const ParallelAxis& axis) {
                       return axis.kind == AxisKind::kEp && axis.semantics == AxisSemantics::kSplit;
                     });
}

}  // namespace

Result<ParallelAxis> MakeAxis(AxisSemantics semantics, std::string_view kind, int64_t dim) {
  ParallelAxis axis;
  MC_ASSIGN_OR_RETURN(axis.kind, ParseAxisKind(kind));
  axis.semantics = semantics;
  axis.dim = semantics == AxisSemantics::kSplit ? dim : 0;
  MC_RETURN_IF_ERROR(CheckAxis(axis));
  return axis;
}

Result<TensorDescriptor> MakeTensorDescriptor(TensorDescriptor fields) {
  const bool extended = fields.extension != nullptr;
  MC_RETURN_IF_ERROR(CheckAllAtLeast("global_shape", fields.global_shape, extended ? 0 : 1));
  if (fields.global_shape.empty() && !extended) {
    return InvalidArgument("global_shape must not be empty");
  }
  MC_RETURN_IF_ERROR(CheckText("tensor_id", fields.tensor_id));
  MC_RETURN_IF_ERROR(CheckText("dtype", fields.dtype));
  MC_RETURN_IF_ERROR(CheckAtLeast("itemsize", fields.itemsize, 1));
  MC_RETURN_IF_ERROR(CheckShardDims(fields));
  MC_RETURN_IF_ERROR(NormalizeAxes(fields));
  MC_RETURN_IF_ERROR(CheckAtLeast("layer_id", fields.layer_id, 0));
  MC_RETURN_IF_ERROR(CheckAtLeast("expert_id", fields.expert_id, 0));
  if (fields.expert_id && HasSplitEp(fields)) {
    return InvalidArgument(fmt::format(
        "an individually allocated expert requires explicit EP ownership: {}", fields.tensor_id));
  }
  MC_RETURN_IF_ERROR(CheckText("layout_fingerprint", fields.layout_fingerprint));
  if (extended) MC_RETURN_IF_ERROR(NormalizeExtension(fields));
  return fields;
}

}  // namespace mooncake::manifest

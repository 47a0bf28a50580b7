// Placement and stored fragments: boxes of tensors.
#include <fmt/format.h>

#include "manifest/canonical.h"
#include "manifest/field_checks.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

Status NormalizeFragment(PlacementFragment& fragment, FragmentForm form) {
  const int64_t least = form == FragmentForm::kExtended ? 0 : 1;
  MC_RETURN_IF_ERROR(CheckAllAtLeast("global_offset", fragment.global_offset, 0));
  MC_RETURN_IF_ERROR(CheckAllAtLeast("local_shape", fragment.local_shape, least));
  MC_RETURN_IF_ERROR(CheckText("tensor_id", fragment.tensor_id));
  MC_RETURN_IF_ERROR(CheckUnsignedAtLeast("nbytes", fragment.nbytes, static_cast<uint64_t>(least)));
  MC_RETURN_IF_ERROR(MakeParallelRank(fragment.rank).status());
  MC_RETURN_IF_ERROR(CheckAtLeast("pipeline_stage_id", fragment.pipeline_stage_id, 0));
  MC_RETURN_IF_ERROR(NormalizeAliases(fragment.tensor_id, fragment.aliases));
  if (fragment.slot && form == FragmentForm::kBase) {
    return InvalidArgument(fmt::format("slot is for fragments of extended tensors: {} of {}",
                                       *fragment.slot, fragment.tensor_id));
  }
  return CheckAtLeast("slot", fragment.slot, 0);
}

Result<PlacementFragment> MakePlacementFragment(PlacementFragment fields,
                                                std::optional<std::string> placement_fragment_id,
                                                FragmentForm form) {
  MC_RETURN_IF_ERROR(NormalizeFragment(fields, form));
  if (placement_fragment_id) {
    MC_RETURN_IF_ERROR(CheckText("placement_fragment_id", *placement_fragment_id));
    fields.placement_fragment_id = *std::move(placement_fragment_id);
  } else {
    fields.placement_fragment_id = PlacementFragmentId(fields);
  }
  return fields;
}

Result<StoredFragment> MakeStoredFragment(StoredFragment fields) {
  MC_RETURN_IF_ERROR(CheckAllAtLeast("global_offset", fields.global_offset, 0));
  MC_RETURN_IF_ERROR(CheckAllAtLeast("local_shape", fields.local_shape, 1));
  MC_RETURN_IF_ERROR(CheckText("fragment_id", fields.fragment_id));
  MC_RETURN_IF_ERROR(CheckText("tensor_id", fields.tensor_id));
  MC_RETURN_IF_ERROR(CheckText("object_key", fields.object_key));
  MC_RETURN_IF_ERROR(CheckUnsignedAtLeast("nbytes", fields.nbytes, 1));
  MC_RETURN_IF_ERROR(NormalizeAliases(fields.tensor_id, fields.aliases));
  return fields;
}

Status ValidateFragmentGeometry(const TensorDescriptor& tensor, std::string_view fragment_id,
                                std::span<const int64_t> global_offset,
                                std::span<const int64_t> local_shape, uint64_t nbytes) {
  const size_t rank = tensor.global_shape.size();
  if (global_offset.size() != rank || local_shape.size() != rank) {
    return InvalidArgument(fmt::format(
        "fragment rank mismatch: {}: offset {} and shape {} of {} with shape {}", fragment_id,
        ToText(global_offset), ToText(local_shape), tensor.tensor_id, ToText(tensor.global_shape)));
  }
  for (size_t dim = 0; dim < rank; ++dim) {
    // Written without the sum: offset and extent come from the caller and may be as large as they
    // go.
    if (global_offset[dim] < 0 || local_shape[dim] < 0 ||
        local_shape[dim] > tensor.global_shape[dim] ||
        global_offset[dim] > tensor.global_shape[dim] - local_shape[dim]) {
      return InvalidArgument(
          fmt::format("fragment is out of bounds: {}: offset {} and shape {} of {} with shape {}",
                      fragment_id, ToText(global_offset), ToText(local_shape), tensor.tensor_id,
                      ToText(tensor.global_shape)));
    }
  }
  const std::optional<uint64_t> expected = CheckedBytes(local_shape, tensor.itemsize);
  if (!expected) {
    return InvalidArgument(fmt::format(
        "fragment byte size mismatch: {}: expected more than 2^64-1, got {}", fragment_id, nbytes));
  }
  if (*expected != nbytes) {
    return InvalidArgument(fmt::format("fragment byte size mismatch: {}: expected {}, got {}",
                                       fragment_id, *expected, nbytes));
  }
  return OkStatus();
}

Result<Extents> CanonicalStridesBytes(std::span<const int64_t> shape, int64_t itemsize) {
  Extents strides(shape.size());
  int64_t stride = itemsize;
  for (size_t dim = shape.size(); dim-- > 0;) {
    strides[dim] = stride;
    if (dim > 0 && __builtin_mul_overflow(stride, shape[dim], &stride)) {
      return InvalidArgument(fmt::format(
          "row-major strides of {} with itemsize {} must fit in a signed 64-bit integer",
          ToText(shape), itemsize));
    }
  }
  return strides;
}

}  // namespace mooncake::manifest

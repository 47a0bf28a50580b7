// Runtime bindings: where a participant's fragments live, as values of their own.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

#include "manifest/field_checks.h"
#include "manifest/sorting.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

// The end of the range, exclusive, is at most 2^64-1. `prefix` is "" or "storage ".
Status CheckAddressRange(std::string_view prefix, std::string_view address_name, uint64_t address,
                         std::string_view nbytes_name, uint64_t nbytes) {
  MC_RETURN_IF_ERROR(CheckUnsignedAtLeast(address_name, address, 1));
  MC_RETURN_IF_ERROR(CheckUnsignedAtLeast(nbytes_name, nbytes, 1));
  if (nbytes <= UINT64_MAX - address) return OkStatus();
  return InvalidArgument(fmt::format(
      "{}address range must fit in an unsigned 64-bit integer: {:#x}+{}", prefix, address, nbytes));
}

// Checks shape and strides against each other and makes strides of extent-1 dimensions canonical.
Status NormalizeView(RuntimeBindingFragment& fragment) {
  for (size_t i = 0; i < fragment.local_shape.size(); ++i) {
    if (fragment.local_shape[i] >= 1) continue;
    return CheckAtLeast(fmt::format("runtime local_shape[{}]", i), fragment.local_shape[i], 1);
  }
  for (size_t i = 0; i < fragment.strides_bytes.size(); ++i) {
    if (fragment.strides_bytes[i] >= 0) continue;
    return CheckAtLeast(fmt::format("runtime strides_bytes[{}]", i), fragment.strides_bytes[i], 0);
  }
  if (fragment.strides_bytes.size() != fragment.local_shape.size()) {
    return InvalidArgument(fmt::format("runtime stride rank differs from local_shape: {} and {}",
                                       ToText(fragment.strides_bytes),
                                       ToText(fragment.local_shape)));
  }
  bool has_singleton = false;
  for (size_t i = 0; i < fragment.local_shape.size(); ++i) {
    has_singleton |= fragment.local_shape[i] == 1;
    if (fragment.local_shape[i] == 1 || fragment.strides_bytes[i] > 0) continue;
    return InvalidArgument(
        fmt::format("runtime stride must be positive for non-singleton dimensions: {} of {}",
                    ToText(fragment.strides_bytes), ToText(fragment.local_shape)));
  }
  if (!has_singleton) return OkStatus();
  MC_ASSIGN_OR_RETURN(const Extents canonical,
                      CanonicalStridesBytes(fragment.local_shape, fragment.itemsize));
  for (size_t i = 0; i < fragment.local_shape.size(); ++i) {
    if (fragment.local_shape[i] == 1) fragment.strides_bytes[i] = canonical[i];
  }
  return OkStatus();
}

Status CheckStorage(const RuntimeBindingFragment& fragment) {
  MC_RETURN_IF_ERROR(CheckAddressRange("storage ", "storage_address", fragment.storage_address,
                                       "storage_nbytes", fragment.storage_nbytes));
  if (fragment.storage_offset_bytes > UINT64_MAX - fragment.storage_address) {
    return InvalidArgument(fmt::format("normalized runtime address must fit in 64 bits: {:#x}+{}",
                                       fragment.storage_address, fragment.storage_offset_bytes));
  }
  if (fragment.address != fragment.storage_address + fragment.storage_offset_bytes) {
    return InvalidArgument(fmt::format(
        "runtime address must equal storage_address plus storage_offset_bytes: {:#x} and {:#x}+{}",
        fragment.address, fragment.storage_address, fragment.storage_offset_bytes));
  }
  const uint64_t span = SpanBytes(fragment);
  if (span > fragment.storage_nbytes ||
      fragment.storage_offset_bytes > fragment.storage_nbytes - span) {
    return InvalidArgument(
        fmt::format("runtime view exceeds storage allocation bounds: {} bytes at {} of {}", span,
                    fragment.storage_offset_bytes, fragment.storage_nbytes));
  }
  return OkStatus();
}

// The strides of a strided view do not make it overlap itself, and its byte count is its elements'.
Status CheckStrides(const RuntimeBindingFragment& fragment) {
  const std::optional<uint64_t> elements = CheckedBytes(fragment.local_shape, fragment.itemsize);
  if (!elements || *elements != fragment.nbytes) {
    return InvalidArgument(
        fmt::format("runtime view nbytes does not match its elements: {} of {} bytes, got {}",
                    ToText(fragment.local_shape), fragment.itemsize, fragment.nbytes));
  }
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, extent)
  for (size_t i = 0; i < fragment.local_shape.size(); ++i) {
    if (fragment.local_shape[i] > 1) {
      dims.emplace_back(fragment.strides_bytes[i], fragment.local_shape[i]);
    }
  }
  std::sort(dims.begin(), dims.end());
  int64_t span = fragment.itemsize;
  for (const auto& [stride, extent] : dims) {
    if (stride < span) {
      return InvalidArgument(fmt::format(
          "runtime view overlaps itself: a stride of {} over {} bytes: strides {} of {}", stride,
          span, ToText(fragment.strides_bytes), ToText(fragment.local_shape)));
    }
    int64_t reach = 0;
    if (__builtin_mul_overflow(stride, extent - 1, &reach) ||
        __builtin_add_overflow(span, reach, &span)) {
      return InvalidArgument(
          fmt::format("runtime view must span at most 2^63-1 bytes: strides {} of {}",
                      ToText(fragment.strides_bytes), ToText(fragment.local_shape)));
    }
  }
  return OkStatus();
}

}  // namespace

uint64_t SpanBytes(const RuntimeBindingFragment& view) {
  if (!view.strided) return view.nbytes;
  auto span = static_cast<uint64_t>(view.itemsize);
  for (size_t i = 0; i < view.local_shape.size(); ++i) {
    span += static_cast<uint64_t>(view.local_shape[i] - 1) *
            static_cast<uint64_t>(view.strides_bytes[i]);
  }
  return span;
}

Result<RuntimeBindingFragment> MakeRuntimeBindingFragment(RuntimeBindingFragment fields) {
  MC_RETURN_IF_ERROR(CheckText("placement_fragment_id", fields.placement_fragment_id));
  MC_RETURN_IF_ERROR(CheckText("fragment_id", fields.fragment_id));
  MC_RETURN_IF_ERROR(CheckText("worker_id", fields.worker_id));
  MC_RETURN_IF_ERROR(CheckText("endpoint", fields.endpoint));
  MC_RETURN_IF_ERROR(CheckText("device", fields.device));
  MC_RETURN_IF_ERROR(CheckAddressRange("", "address", fields.address, "nbytes", fields.nbytes));
  MC_RETURN_IF_ERROR(CheckAtLeast("runtime itemsize", fields.itemsize, 1));
  MC_RETURN_IF_ERROR(NormalizeView(fields));
  if (fields.strided) MC_RETURN_IF_ERROR(CheckStrides(fields));
  MC_RETURN_IF_ERROR(CheckStorage(fields));
  return fields;
}

Result<RuntimeBindingPtr> MakeRuntimeBinding(RuntimeBinding fields) {
  for (RuntimeBindingFragment& fragment : fields.fragments) {
    MC_ASSIGN_OR_RETURN(fragment, MakeRuntimeBindingFragment(std::move(fragment)));
  }
  MC_RETURN_IF_ERROR(CheckText("resource_id", fields.resource_id));
  MC_RETURN_IF_ERROR(CheckText("placement_id", fields.placement_id));
  MC_RETURN_IF_ERROR(CheckText("instance_id", fields.instance_id));
  MC_RETURN_IF_ERROR(CheckText("lease_id", fields.lease_id));
  MC_RETURN_IF_ERROR(CheckText("revision", fields.revision));
  MC_RETURN_IF_ERROR(CheckText("participant_id", fields.participant_id));
  MC_RETURN_IF_ERROR(CheckText("placement_digest", fields.placement_digest));
  if (!IsSha256Hex(fields.placement_digest)) {
    return InvalidArgument("placement_digest must be a lowercase SHA-256 digest, got " +
                           fields.placement_digest);
  }
  SortBy(fields.fragments, &RuntimeBindingFragment::placement_fragment_id);
  if (const auto* twin =
          FirstTwin(fields.fragments, &RuntimeBindingFragment::placement_fragment_id)) {
    return InvalidArgument("duplicate placement fragment in runtime binding: " +
                           twin->placement_fragment_id);
  }
  std::unordered_set<std::string_view> ids;
  ids.reserve(fields.fragments.size());
  for (const RuntimeBindingFragment& fragment : fields.fragments) {
    if (ids.insert(fragment.fragment_id).second) continue;
    return InvalidArgument("duplicate runtime fragment_id in runtime binding: " +
                           fragment.fragment_id);
  }
  return std::make_shared<const RuntimeBinding>(std::move(fields));
}

}  // namespace mooncake::manifest

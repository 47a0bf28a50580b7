// Stored manifests: where the one stored copy of every tensor lies in the group's payload objects.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "geometry/box.h"
#include "manifest/canonical.h"
#include "manifest/extension.h"
#include "manifest/field_checks.h"
#include "manifest/fragment_rules.h"
#include "manifest/hashing.h"
#include "manifest/sorting.h"
#include "manifest/tiling.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

Status RemakeMembers(StoredManifest& manifest) {
  for (TensorDescriptor& tensor : manifest.tensors) {
    MC_ASSIGN_OR_RETURN(tensor, MakeTensorDescriptor(std::move(tensor)));
  }
  for (StoredFragment& fragment : manifest.fragments) {
    MC_ASSIGN_OR_RETURN(fragment, MakeStoredFragment(std::move(fragment)));
  }
  return OkStatus();
}

// A stored manifest holds one copy: how ranks hold a tensor is none of its business.
Status CheckExtensions(const StoredManifest& manifest) {
  for (const TensorDescriptor& tensor : manifest.tensors) {
    if (tensor.extension == nullptr) continue;
    if (tensor.is_owned() || tensor.extension->padded_shape) {
      return InvalidArgument("a stored tensor has no ownership and no padded_shape: " +
                             tensor.tensor_id);
    }
  }
  return OkStatus();
}

Status CheckKeys(const StoredManifest& manifest) {
  if (manifest.manifest_key != manifest.group_id + "/manifest") {
    return InvalidArgument(fmt::format("manifest_key does not belong to manifest group: {} and {}",
                                       manifest.manifest_key, manifest.group_id));
  }
  const std::string prefix = manifest.group_id + "/payload/";
  for (const StoredFragment& fragment : manifest.fragments) {
    if (fragment.object_key.starts_with(prefix)) continue;
    return InvalidArgument(
        fmt::format("payload object_key does not belong to manifest group: {} and {}",
                    fragment.object_key, manifest.group_id));
  }
  return OkStatus();
}

Result<std::vector<uint32_t>> CheckStoredFragments(const TensorPositions& positions,
                                                   const StoredManifest& manifest) {
  std::unordered_set<std::string_view> ids;
  ids.reserve(manifest.fragments.size());
  for (const StoredFragment& fragment : manifest.fragments) {
    if (!ids.insert(fragment.fragment_id).second) {
      return InvalidArgument("duplicate fragment_id: " + fragment.fragment_id);
    }
  }
  std::vector<uint32_t> tensor_of;
  tensor_of.reserve(manifest.fragments.size());
  for (const StoredFragment& fragment : manifest.fragments) {
    const int64_t tensor = positions.Find(fragment.tensor_id);
    if (tensor < 0) return InvalidArgument("unknown tensor_id: " + fragment.tensor_id);
    MC_RETURN_IF_ERROR(ValidateFragmentGeometry(manifest.tensors[tensor], fragment.fragment_id,
                                                fragment.global_offset, fragment.local_shape,
                                                fragment.nbytes));
    MC_RETURN_IF_ERROR(CheckFragmentCuts(manifest.tensors[tensor], fragment.fragment_id,
                                         fragment.global_offset, fragment.local_shape));
    tensor_of.push_back(static_cast<uint32_t>(tensor));
  }
  return tensor_of;
}

// The tensors of one alias group's one box are exactly the group, and all alike.
Status CheckAliasBox(const StoredManifest& manifest, const std::vector<std::string>& group,
                     std::span<const uint32_t> fragments, std::span<const uint32_t> tensor_of) {
  std::vector<uint32_t> present;
  present.reserve(fragments.size());
  for (const uint32_t fragment : fragments) present.push_back(tensor_of[fragment]);
  std::sort(present.begin(), present.end());
  present.erase(std::unique(present.begin(), present.end()), present.end());
  // Every fragment's tensor is in its group, so equal numbers mean equal sets.
  if (present.size() != group.size()) {
    return InvalidArgument(
        fmt::format("stored alias group is incomplete for fragment geometry: {}: {} of {} tensors",
                    manifest.fragments[fragments[0]].fragment_id, present.size(), group.size()));
  }
  const TensorDescriptor& first = manifest.tensors[present[0]];
  for (const uint32_t tensor : present) {
    if (EqualApartFromId(first, manifest.tensors[tensor])) continue;
    return InvalidArgument(fmt::format("stored alias tensor descriptors differ: {} and {}",
                                       first.tensor_id, manifest.tensors[tensor].tensor_id));
  }
  return OkStatus();
}

Status CheckStoredAliases(const TensorPositions& positions, const StoredManifest& manifest,
                          std::span<const uint32_t> tensor_of) {
  const std::vector<StoredFragment>& fragments = manifest.fragments;
  AliasGroupNumbers numbers;
  std::vector<uint32_t> group_of(fragments.size());
  std::vector<uint32_t> aliased;
  for (uint32_t i = 0; i < fragments.size(); ++i) {
    group_of[i] = numbers.NumberOf(fragments[i].aliases);
    if (group_of[i] != AliasGroupNumbers::kNone) aliased.push_back(i);
  }
  for (uint32_t number = 1; number <= numbers.count(); ++number) {
    for (const std::string& member : numbers.Group(number)) {
      if (positions.Find(member) >= 0) continue;
      return InvalidArgument("stored alias references unknown tensor: " + member);
    }
  }
  const auto box_of = [&](uint32_t i) {
    const StoredFragment& f = fragments[i];
    return std::tie(group_of[i], f.global_offset, f.local_shape, f.nbytes);
  };
  std::stable_sort(aliased.begin(), aliased.end(),
                   [&](uint32_t a, uint32_t b) { return box_of(a) < box_of(b); });
  for (size_t begin = 0, end = 0; begin < aliased.size(); begin = end) {
    end = begin + 1;
    while (end < aliased.size() && box_of(aliased[end]) == box_of(aliased[begin])) ++end;
    MC_RETURN_IF_ERROR(CheckAliasBox(manifest, numbers.Group(group_of[aliased[begin]]),
                                     std::span(aliased).subspan(begin, end - begin), tensor_of));
  }
  return OkStatus();
}

Status CheckStoredCoverage(const StoredManifest& manifest, std::span<const uint32_t> tensor_of) {
  const std::vector<StoredFragment>& fragments = manifest.fragments;
  const auto box_of = [&](uint32_t i) {
    return std::tie(tensor_of[i], fragments[i].global_offset, fragments[i].local_shape);
  };
  const std::vector<uint32_t> order = SortedPositions(
      fragments.size(), [&](uint32_t a, uint32_t b) { return box_of(a) < box_of(b); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (box_of(order[i - 1]) != box_of(order[i])) continue;
    return InvalidArgument(
        fmt::format("duplicate fragment geometry: {}: {} and {}", fragments[order[i]].tensor_id,
                    fragments[order[i - 1]].fragment_id, fragments[order[i]].fragment_id));
  }
  std::vector<BoxView> boxes;
  size_t next = 0;
  for (uint32_t tensor = 0; tensor < manifest.tensors.size(); ++tensor) {
    boxes.clear();
    for (; next < order.size() && tensor_of[order[next]] == tensor; ++next) {
      const StoredFragment& fragment = fragments[order[next]];
      boxes.push_back({fragment.global_offset, fragment.local_shape});
    }
    const Extents& shape = manifest.tensors[tensor].global_shape;
    if (boxes.empty() && geometry::VolumeOf(shape) == 0) continue;  // an empty tensor
    MC_ASSIGN_OR_RETURN(const bool tiles, ExactlyTile(shape, boxes));
    if (!tiles) {
      return InvalidArgument("tensor is not fully covered: " + manifest.tensors[tensor].tensor_id);
    }
  }
  return OkStatus();
}

// Declared to lie in the same bytes: the same box of tensors of one alias group.
bool ShareRange(const StoredFragment& a, const StoredFragment& b) {
  return a.shares_range && b.shares_range && a.object_offset == b.object_offset &&
         a.nbytes == b.nbytes && !a.aliases.empty() && a.aliases == b.aliases &&
         a.global_offset == b.global_offset && a.local_shape == b.local_shape;
}

Status CheckObjectRanges(const std::vector<StoredFragment>& fragments) {
  const std::vector<uint32_t> order =
      SortedPositions(fragments.size(), [&fragments](uint32_t a, uint32_t b) {
        return std::tie(fragments[a].object_key, fragments[a].object_offset) <
               std::tie(fragments[b].object_key, fragments[b].object_offset);
      });
  bool shared_before = false;  // the fragment before shares its range with the one before it
  for (size_t i = 0; i < order.size(); ++i) {
    const StoredFragment& here = fragments[order[i]];
    const StoredFragment* next = i + 1 < order.size() ? &fragments[order[i + 1]] : nullptr;
    // Neighbours suffice: the first overlap in this order is one of neighbours.
    const bool overlaps = next != nullptr && next->object_key == here.object_key &&
                          next->object_offset - here.object_offset < here.nbytes;
    const bool shares = overlaps && ShareRange(here, *next);
    if (overlaps && !shares) {
      return InvalidArgument(
          fmt::format("stored fragment object ranges overlap: {} and {} in {}: {}+{} and {}+{}",
                      here.fragment_id, next->fragment_id, here.object_key, here.object_offset,
                      here.nbytes, next->object_offset, next->nbytes));
    }
    if (here.shares_range && !shares && !shared_before) {
      return InvalidArgument("stored fragment shares its range with no other: " + here.fragment_id);
    }
    shared_before = shares;
  }
  return OkStatus();
}

}  // namespace

Result<StoredManifestIdentity> MakeStoredManifestIdentity(StoredManifestIdentity fields) {
  MC_RETURN_IF_ERROR(CheckText("namespace", fields.namespace_name));
  MC_RETURN_IF_ERROR(CheckText("resource_id", fields.resource_id));
  MC_RETURN_IF_ERROR(CheckText("revision", fields.revision));
  MC_RETURN_IF_ERROR(CheckText("group_id", fields.group_id));
  MC_RETURN_IF_ERROR(CheckText("manifest_key", fields.manifest_key));
  MC_RETURN_IF_ERROR(CheckText("content_sha256", fields.content_sha256));
  if (!IsSha256Hex(fields.content_sha256)) {
    return InvalidArgument("content_sha256 must be a SHA-256 hex digest, got " +
                           fields.content_sha256);
  }
  return fields;
}

Result<StoredManifestPtr> MakeStoredManifest(StoredManifest fields) {
  MC_RETURN_IF_ERROR(RemakeMembers(fields));
  MC_RETURN_IF_ERROR(CheckText("namespace", fields.namespace_name));
  MC_RETURN_IF_ERROR(CheckText("resource_id", fields.resource_id));
  MC_RETURN_IF_ERROR(CheckText("revision", fields.revision));
  MC_RETURN_IF_ERROR(CheckText("group_id", fields.group_id));
  MC_RETURN_IF_ERROR(CheckText("manifest_key", fields.manifest_key));
  MC_RETURN_IF_ERROR(CheckText("created_at", fields.created_at));
  MC_RETURN_IF_ERROR(CheckKeys(fields));
  MC_ASSIGN_OR_RETURN(const TensorPositions positions, TensorPositions::Of(fields.tensors));
  MC_ASSIGN_OR_RETURN(const std::vector<uint32_t> tensor_of,
                      CheckStoredFragments(positions, fields));
  MC_RETURN_IF_ERROR(CheckStoredAliases(positions, fields, tensor_of));
  MC_RETURN_IF_ERROR(CheckStoredCoverage(fields, tensor_of));
  MC_RETURN_IF_ERROR(CheckObjectRanges(fields.fragments));
  MC_RETURN_IF_ERROR(CheckExtensions(fields));
  fields.extended = std::any_of(fields.tensors.begin(), fields.tensors.end(),
                                [](const auto& tensor) { return tensor.extension != nullptr; }) ||
                    std::any_of(fields.fragments.begin(), fields.fragments.end(),
                                [](const auto& fragment) { return fragment.shares_range; });
  fields.manifest_digest = StoredManifestDigest(fields);
  return std::make_shared<const StoredManifest>(std::move(fields));
}

StoredManifestIdentity IdentityOf(const StoredManifest& manifest) {
  return {.namespace_name = manifest.namespace_name,
          .resource_id = manifest.resource_id,
          .revision = manifest.revision,
          .weight_generation = manifest.weight_generation,
          .group_id = manifest.group_id,
          .manifest_key = manifest.manifest_key,
          .content_sha256 = manifest.manifest_digest};
}

}  // namespace mooncake::manifest

// The checks that the constructors of the small contract values call: each reads the object's
// fields, lets manifest/validate.h judge them and writes the canonical form back.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "manifest/validate.h"
#include "python/bindings.h"
#include "python/contract_values.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/extension_values.h"

namespace mooncake::python {

namespace {

// The field as an exact tuple: lists and other sequences become one.
void SetTuple(nb::handle object, PyObject* name) {
  const nb::object value = Get(object, name);
  if (PyTuple_CheckExact(value.ptr())) return;
  Set(object, name, AsTuple(value, "", "must be a sequence"));
}

// `items` in the order that sorts `keys`, which belong to them one by one.
template <class Key>
nb::tuple SortedItems(const nb::tuple& items, const std::vector<Key>& keys) {
  if (std::is_sorted(keys.begin(), keys.end())) return items;
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&keys](size_t a, size_t b) { return keys[a] < keys[b]; });
  nb::list sorted;
  for (const size_t position : order) sorted.append(items[position]);
  return nb::tuple(sorted);
}

void SetAliases(nb::handle object, const std::vector<std::string>& given,
                const std::vector<std::string>& sorted) {
  SetTuple(object, N().aliases);
  if (given == sorted) return;
  nb::list list;
  for (const std::string& alias : sorted) list.append(ToStr(alias));
  Set(object, N().aliases, nb::tuple(list));
}

void CheckParallelRank(nb::handle self) {
  ValueOrThrow(manifest::MakeParallelRank(ReadRank(self)));
}

void CheckAxis(nb::handle self) { ReadAxis(self); }

void CheckTensorDescriptor(nb::handle self) {
  manifest::TensorDescriptor fields = ReadTensor(self);
  std::vector<manifest::AxisKind> kinds;
  for (const manifest::ParallelAxis& axis : fields.parallel_axes) kinds.push_back(axis.kind);
  const manifest::TensorDescriptor made =
      ValueOrThrow(manifest::MakeTensorDescriptor(std::move(fields)));
  if (made.extension != nullptr) {
    Set(self, N().ownership, ToPython(made.extension->ownership));
    if (!Get(self, N().padded_shape).is_none()) SetTuple(self, N().padded_shape);
  }
  SetTuple(self, N().global_shape);
  SetTuple(self, N().shard_dims);
  SetTuple(self, N().parallel_axes);
  Set(self, N().parallel_axes,
      SortedItems(nb::borrow<nb::tuple>(Get(self, N().parallel_axes)), kinds));
}

void CheckTopologyParticipant(nb::handle self) {
  ValueOrThrow(manifest::MakeTopologyParticipant(ReadParticipant(self)));
}

void CheckOwnedBox(nb::handle self) {
  ReadOwnedBox(self);
  SetTuple(self, N().offset);
  SetTuple(self, N().shape);
  SetTuple(self, N().owners);
}

void CheckSections(nb::handle self) {
  ReadSections(self);
  SetTuple(self, N().parts);
}

void CheckBlockScales(nb::handle self) {
  ReadBlockScales(self);
  SetTuple(self, N().block_shape);
}

void CheckParallelTopology(nb::handle self) {
  manifest::ParallelTopology fields = ReadTopology(self);
  std::vector<std::string> ids;
  for (const auto& participant : fields.participants) ids.push_back(participant.participant_id);
  std::optional<std::string> topology_id;
  if (!fields.topology_id.empty()) topology_id = std::move(fields.topology_id);
  const manifest::ParallelTopology made =
      ValueOrThrow(manifest::MakeTopology(std::move(fields), std::move(topology_id)));
  SetTuple(self, N().participants);
  Set(self, N().participants, SortedItems(nb::borrow<nb::tuple>(Get(self, N().participants)), ids));
  if (Get(self, N().topology_id).is_none()) Set(self, N().topology_id, ToStr(made.topology_id));
}

void CheckPlacementFragment(nb::handle self) {
  manifest::PlacementFragment fields = ReadPlacementFragment(self);
  const std::vector<std::string> aliases = fields.aliases;
  std::optional<std::string> id;
  if (!fields.placement_fragment_id.empty()) id = std::move(fields.placement_fragment_id);
  const bool derived = !id;
  const manifest::PlacementFragment made =
      ValueOrThrow(manifest::MakePlacementFragment(std::move(fields), std::move(id), FormOf(self)));
  SetTuple(self, N().global_offset);
  SetTuple(self, N().local_shape);
  SetAliases(self, aliases, made.aliases);
  if (derived) Set(self, N().placement_fragment_id, ToStr(made.placement_fragment_id));
}

void CheckStoredFragment(nb::handle self) {
  manifest::StoredFragment fields = ReadStoredFragment(self);
  const std::vector<std::string> aliases = fields.aliases;
  const manifest::StoredFragment made =
      ValueOrThrow(manifest::MakeStoredFragment(std::move(fields)));
  SetTuple(self, N().global_offset);
  SetTuple(self, N().local_shape);
  SetAliases(self, aliases, made.aliases);
}

void CheckStoredManifestIdentity(nb::handle self) {
  ValueOrThrow(manifest::MakeStoredManifestIdentity(ReadStoredManifestIdentity(self)));
}

void CheckRuntimeFragment(nb::handle self) {
  manifest::RuntimeBindingFragment fields = ReadRuntimeFragment(self);
  const manifest::Extents strides = fields.strides_bytes;
  const manifest::RuntimeBindingFragment made =
      ValueOrThrow(manifest::MakeRuntimeBindingFragment(std::move(fields)));
  SetTuple(self, N().local_shape);
  SetTuple(self, N().strides_bytes);
  if (made.strides_bytes != strides) Set(self, N().strides_bytes, ToTuple(made.strides_bytes));
}

void CheckPlacementPart(nb::handle self) {
  manifest::PlacementPart fields = ReadPart(self);
  std::vector<std::string> tensor_ids;
  for (const auto& tensor : fields.tensors) tensor_ids.push_back(tensor.tensor_id);
  std::vector<std::string> fragment_ids;
  for (const auto& fragment : fields.fragments) {
    fragment_ids.push_back(fragment.placement_fragment_id);
  }
  ValueOrThrow(manifest::MakePart(std::move(fields)));
  SetTuple(self, N().tensors);
  SetTuple(self, N().fragments);
  Set(self, N().tensors, SortedItems(nb::borrow<nb::tuple>(Get(self, N().tensors)), tensor_ids));
  Set(self, N().fragments,
      SortedItems(nb::borrow<nb::tuple>(Get(self, N().fragments)), fragment_ids));
}

void ValidateFragmentGeometry(nb::handle tensor, nb::handle fragment_id, nb::handle global_offset,
                              nb::handle local_shape, nb::handle nbytes) {
  if (!Classes().tensor_descriptor.IsInstance(tensor)) Refuse("tensor must be a TensorDescriptor");
  ThrowIfError(manifest::ValidateFragmentGeometry(
      ReadTensor(tensor), Text(fragment_id, "fragment_id"), Ints(global_offset, "global_offset", 0),
      Ints(local_shape, "local_shape", 1), U64(nbytes, "nbytes", 1)));
}

nb::tuple CanonicalStridesBytes(nb::handle shape, nb::handle itemsize) {
  return ToTuple(ValueOrThrow(
      manifest::CanonicalStridesBytes(Ints(shape, "shape", 0), Int(itemsize, "itemsize", 1))));
}

nb::tuple RequireItems(nb::handle value, const std::string& name, nb::handle item_type) {
  nb::tuple items = AsTuple(value, name, "must be a sequence");
  for (nb::handle item : items) {
    const int answer = PyObject_IsInstance(item.ptr(), item_type.ptr());
    if (answer < 0) throw nb::python_error();
    if (answer == 1) continue;
    Refuse(
        fmt::format("{} must contain {}", name, nb::cast<std::string>(item_type.attr("__name__"))));
  }
  return items;
}

void RequireSha256Digest(nb::handle value, const std::string& name) {
  const std::string digest = Text(value, name.c_str());
  const bool is_hex = std::all_of(digest.begin(), digest.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (digest.size() == 64 && is_hex) return;
  Refuse(fmt::format("{} must be a lowercase SHA-256 digest, got {}", name, digest));
}

}  // namespace

void BindChecks(nb::module_& m) {
  m.def("check_parallel_rank", &CheckParallelRank, AnyArg("value"));
  m.def("check_axis", &CheckAxis, AnyArg("value"));
  m.def("check_tensor_descriptor", &CheckTensorDescriptor, AnyArg("value"));
  m.def("check_topology_participant", &CheckTopologyParticipant, AnyArg("value"));
  m.def("check_parallel_topology", &CheckParallelTopology, AnyArg("value"));
  m.def("check_placement_fragment", &CheckPlacementFragment, AnyArg("value"));
  m.def("check_stored_fragment", &CheckStoredFragment, AnyArg("value"));
  m.def("check_stored_manifest_identity", &CheckStoredManifestIdentity, AnyArg("value"));
  m.def("check_runtime_binding_fragment", &CheckRuntimeFragment, AnyArg("value"));
  m.def("check_placement_part", &CheckPlacementPart, AnyArg("value"));
  m.def("check_owned_box", &CheckOwnedBox, AnyArg("value"));
  m.def(
      "check_section", [](nb::handle self) { ReadSection(self); }, AnyArg("value"));
  m.def("check_sections", &CheckSections, AnyArg("value"));
  m.def("check_block_scales", &CheckBlockScales, AnyArg("value"));
  m.def(
      "check_packing", [](nb::handle self) { ReadPacking(self); }, AnyArg("value"));
  m.def("validate_fragment_geometry", &ValidateFragmentGeometry, AnyArg("tensor"),
        AnyArg("fragment_id"), AnyArg("global_offset"), AnyArg("local_shape"), AnyArg("nbytes"));
  m.def("canonical_strides_bytes", &CanonicalStridesBytes, AnyArg("shape"), AnyArg("itemsize"));
  m.def("require_items", &RequireItems, AnyArg("value"), nb::arg("name"), AnyArg("item_type"));
  m.def("require_sha256_digest", &RequireSha256Digest, AnyArg("value"), nb::arg("name"));
}

}  // namespace mooncake::python

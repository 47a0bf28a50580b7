// Placements, stored manifests and runtime bindings: built from Python objects or JSON, checked and
// kept in C++, turned into Python objects one range at a time.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "manifest/canonical.h"
#include "manifest/json.h"
#include "manifest/validate.h"
#include "python/bindings.h"
#include "python/contract_values.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/handles.h"

namespace mooncake::python {

namespace {

// Pure C++ work while other Python threads run.
template <class Function>
auto WithoutGil(Function&& function) {
  nb::gil_scoped_release release;
  return function();
}

// The Python objects that a made value's sorted members came from, in that order. First come, first
// kept where an id repeats (equal descriptors of several parts).
class Originals {
 public:
  void Add(const std::string& id, nb::handle object) { by_id_.try_emplace(id, object); }

  template <class Sorted, class Id>
  nb::tuple In(const Sorted& sorted, Id id) const {
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(sorted.size()));
    if (tuple == nullptr) throw nb::python_error();
    for (size_t i = 0; i < sorted.size(); ++i) {
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), by_id_.at(sorted[i].*id).inc_ref().ptr());
    }
    return nb::steal<nb::tuple>(tuple);
  }

 private:
  std::unordered_map<std::string, nb::handle> by_id_;
};

manifest::ParallelTopology TopologyOf(nb::handle topology) {
  if (!Classes().parallel_topology.IsInstance(topology)) {
    Refuse("topology must be a ParallelTopology");
  }
  return ReadTopology(topology);
}

// ---- placements ---------------------------------------------------------------------------------

nb::tuple MakePlacement(nb::handle resource_id, nb::handle revision, nb::handle weight_generation,
                        nb::handle placement_set_id, nb::handle topology, nb::handle parts,
                        nb::handle placement_id) {
  manifest::PlacementFields fields;
  fields.resource_id = Text(resource_id, "resource_id");
  fields.revision = Text(revision, "revision");
  fields.weight_generation = U64(weight_generation, "weight_generation", 0);
  fields.placement_set_id = Text(placement_set_id, "placement_set_id");
  fields.topology = TopologyOf(topology);
  fields.placement_id = OptionalText(placement_id, "placement_id");
  const nb::tuple given = Items(parts, "WeightPlacementManifest parts", Classes().placement_part);
  Originals part_objects, tensor_objects, fragment_objects;
  std::vector<nb::object> alive;  // items of lazy fields, until the tuples below hold them
  for (nb::handle part : given) {
    fields.parts.push_back(ReadPart(part));
    const manifest::PlacementPart& read = fields.parts.back();
    part_objects.Add(read.participant_id, part);
    const nb::tuple tensors = AsTuple(Get(part, N().tensors), "tensors", "must be a sequence");
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensor_objects.Add(read.tensors[i].tensor_id, tensors[i]);
    }
    const nb::tuple fragments =
        AsTuple(Get(part, N().fragments), "fragments", "must be a sequence");
    for (size_t i = 0; i < fragments.size(); ++i) {
      fragment_objects.Add(read.fragments[i].placement_fragment_id, fragments[i]);
    }
    alive.push_back(tensors);
    alive.push_back(fragments);
  }
  manifest::PlacementPtr made =
      ValueOrThrow(WithoutGil([&fields] { return manifest::MakePlacement(std::move(fields)); }));
  nb::tuple made_parts = part_objects.In(made->parts, &manifest::PlacementPart::participant_id);
  nb::tuple tensors = tensor_objects.In(made->tensors, &manifest::TensorDescriptor::tensor_id);
  nb::tuple fragments =
      fragment_objects.In(made->fragments, &manifest::PlacementFragment::placement_fragment_id);
  return nb::make_tuple(PlacementHandle{std::move(made)}, made_parts, tensors, fragments);
}

nb::tuple MakePlacementFromFragments(nb::handle resource_id, nb::handle revision,
                                     nb::handle weight_generation, nb::handle placement_set_id,
                                     nb::handle topology, nb::handle tensors, nb::handle fragments,
                                     nb::handle placement_id) {
  manifest::FragmentInventory fields;
  Originals tensor_objects, fragment_objects;
  const nb::tuple given_tensors = Items(tensors, "placement tensors", Classes().tensor_descriptor);
  const nb::tuple given_fragments =
      Items(fragments, "placement fragments", Classes().placement_fragment);
  fields.tensors.reserve(given_tensors.size());
  for (nb::handle tensor : given_tensors) {
    fields.tensors.push_back(ReadTensor(tensor));
    tensor_objects.Add(fields.tensors.back().tensor_id, tensor);
  }
  fields.fragments.reserve(given_fragments.size());
  for (nb::handle fragment : given_fragments) {
    fields.fragments.push_back(ReadPlacementFragment(fragment));
    fragment_objects.Add(fields.fragments.back().placement_fragment_id, fragment);
  }
  fields.resource_id = Text(resource_id, "resource_id");
  fields.revision = Text(revision, "revision");
  fields.weight_generation = U64(weight_generation, "weight_generation", 0);
  fields.placement_set_id = Text(placement_set_id, "placement_set_id");
  fields.topology = TopologyOf(topology);
  fields.placement_id = OptionalText(placement_id, "placement_id");
  manifest::PlacementPtr made = ValueOrThrow(
      WithoutGil([&fields] { return manifest::PlacementFromFragments(std::move(fields)); }));
  nb::tuple made_tensors = tensor_objects.In(made->tensors, &manifest::TensorDescriptor::tensor_id);
  nb::tuple made_fragments =
      fragment_objects.In(made->fragments, &manifest::PlacementFragment::placement_fragment_id);
  return nb::make_tuple(PlacementHandle{std::move(made)}, made_tensors, made_fragments);
}

template <class Iterator>
struct ItemRange {
  Iterator first;
  Iterator last;
  Iterator begin() const { return first; }
  Iterator end() const { return last; }
};

template <class Items>
auto Range(const Items& items, size_t begin, size_t end) {
  if (begin > end || end > items.size()) throw nb::index_error();
  const auto first = items.begin();
  return ItemRange<std::remove_const_t<decltype(first)>>{first + static_cast<ptrdiff_t>(begin),
                                                         first + static_cast<ptrdiff_t>(end)};
}

template <class Items>
nb::list Tensors(const Items& tensors) {
  Maker maker;
  nb::list made;
  for (const manifest::TensorDescriptor& tensor : tensors) made.append(maker.Tensor(tensor));
  return made;
}

template <class Items>
nb::list Fragments(const Items& fragments) {
  Maker maker;
  nb::list made;
  for (const auto& fragment : fragments) made.append(maker.Fragment(fragment));
  return made;
}

const manifest::PlacementPart& PartOf(const PlacementHandle& self, size_t index) {
  if (index >= self.value->parts.size()) throw nb::index_error();
  return self.value->parts[index];
}

nb::dict PartFields(const PlacementHandle& self, size_t index) {
  const manifest::PlacementPart& part = PartOf(self, index);
  nb::dict fields;
  fields["resource_id"] = ToStr(part.resource_id);
  fields["revision"] = ToStr(part.revision);
  fields["weight_generation"] = part.weight_generation;
  fields["placement_set_id"] = ToStr(part.placement_set_id);
  fields["topology_id"] = ToStr(part.topology_id);
  fields["participant_id"] = ToStr(part.participant_id);
  fields["rank"] = Maker().Rank(part.rank);
  return fields;
}

// The same placement, leaving out these tensors by name.
PlacementHandle OmitTensors(nb::handle placement, nb::handle tensor_ids) {
  const manifest::PlacementPtr from = PlacementOf(placement);
  manifest::PlacementFields fields{.resource_id = from->resource_id,
                                   .revision = from->revision,
                                   .weight_generation = from->weight_generation,
                                   .placement_set_id = from->placement_set_id,
                                   .topology = from->topology,
                                   .parts = from->parts,
                                   .placement_id = std::nullopt,
                                   .omitted_tensors = {}};
  for (nb::handle id : AsTuple(tensor_ids, "omitted_tensors", "must be a sequence")) {
    fields.omitted_tensors.push_back(Text(id, "omitted_tensors"));
  }
  return {
      ValueOrThrow(WithoutGil([&fields] { return manifest::MakePlacement(std::move(fields)); }))};
}

void BindPlacementMakers(nb::module_& m) {
  m.def("omit_tensors", &OmitTensors, AnyArg("placement"), AnyArg("tensor_ids"));
  m.def("make_placement", &MakePlacement, AnyArg("resource_id"), AnyArg("revision"),
        AnyArg("weight_generation"), AnyArg("placement_set_id"), AnyArg("topology"),
        AnyArg("parts"), AnyArg("placement_id"));
  m.def("make_placement_from_fragments", &MakePlacementFromFragments, AnyArg("resource_id"),
        AnyArg("revision"), AnyArg("weight_generation"), AnyArg("placement_set_id"),
        AnyArg("topology"), AnyArg("tensors"), AnyArg("fragments"), AnyArg("placement_id"));
  m.def(
      "placement_from_json",
      [](const nb::str& json) {
        const std::string_view text = Utf8(json);
        return PlacementHandle{
            ValueOrThrow(WithoutGil([text] { return manifest::PlacementFromJson(text); }))};
      },
      nb::arg("text"));
}

void BindPlacement(nb::module_& m) {
  using Self = const PlacementHandle&;
  nb::class_<PlacementHandle>(m, "Placement")
      .def_prop_ro("resource_id", [](Self self) { return ToStr(self.value->resource_id); })
      .def_prop_ro("placement_id", [](Self self) { return ToStr(self.value->placement_id); })
      .def_prop_ro("revision", [](Self self) { return ToStr(self.value->revision); })
      .def_prop_ro("weight_generation", [](Self self) { return self.value->weight_generation; })
      .def_prop_ro("placement_set_id",
                   [](Self self) { return ToStr(self.value->placement_set_id); })
      .def_prop_ro("digest", [](Self self) { return ToStr(self.value->digest); })
      .def_prop_ro("geometry_digest", [](Self self) { return ToStr(self.value->geometry_digest); })
      .def_prop_ro("extended", [](Self self) { return self.value->extended; })
      .def("omitted_tensors",
           [](Self self) {
             nb::list ids;
             for (const std::string& id : self.value->omitted_tensors) ids.append(ToStr(id));
             return nb::tuple(ids);
           })
      .def_prop_ro("part_count", [](Self self) { return self.value->parts.size(); })
      .def_prop_ro("tensor_count", [](Self self) { return self.value->tensors.size(); })
      .def_prop_ro("fragment_count", [](Self self) { return self.value->fragments.size(); })
      .def("topology", [](Self self) { return Maker().Topology(self.value->topology); })
      .def(
          "tensors",
          [](Self self, size_t begin, size_t end) {
            return Tensors(Range(self.value->tensors, begin, end));
          },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "fragments",
          [](Self self, size_t begin, size_t end) {
            return Fragments(Range(self.value->fragments, begin, end));
          },
          nb::arg("begin"), nb::arg("end"))
      .def("part", &PartFields, nb::arg("index"))
      .def(
          "part_tensor_count",
          [](Self self, size_t part) { return PartOf(self, part).tensors.size(); }, nb::arg("part"))
      .def(
          "part_fragment_count",
          [](Self self, size_t part) { return PartOf(self, part).fragments.size(); },
          nb::arg("part"))
      .def(
          "part_tensors",
          [](Self self, size_t part, size_t begin, size_t end) {
            return Tensors(Range(PartOf(self, part).tensors, begin, end));
          },
          nb::arg("part"), nb::arg("begin"), nb::arg("end"))
      .def(
          "part_fragments",
          [](Self self, size_t part, size_t begin, size_t end) {
            return Fragments(Range(PartOf(self, part).fragments, begin, end));
          },
          nb::arg("part"), nb::arg("begin"), nb::arg("end"))
      .def("to_json",
           [](Self self) {
             return ToStr(WithoutGil([&] { return manifest::PlacementToJson(*self.value); }));
           })
      .def(
          "__eq__",
          [](Self self, const PlacementHandle& other) {
            return self.value == other.value || *self.value == *other.value;
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  BindPlacementMakers(m);
}

// ---- stored manifests ---------------------------------------------------------------------------

StoredManifestHandle MakeStoredManifest(nb::handle self) {
  manifest::StoredManifest fields;
  fields.namespace_name = Text(Get(self, N().namespace_name), "namespace");
  fields.resource_id = Text(Get(self, N().resource_id), "resource_id");
  fields.revision = Text(Get(self, N().revision), "revision");
  fields.group_id = Text(Get(self, N().group_id), "group_id");
  fields.manifest_key = Text(Get(self, N().manifest_key), "manifest_key");
  fields.created_at = Text(Get(self, N().created_at), "created_at");
  const nb::tuple tensors =
      Items(Get(self, N().tensors), "WeightManifest tensors", Classes().tensor_descriptor);
  const nb::tuple fragments =
      Items(Get(self, N().fragments), "WeightManifest fragments", Classes().stored_fragment);
  fields.weight_generation = U64(Get(self, N().weight_generation), "weight_generation", 0);
  for (nb::handle tensor : tensors) fields.tensors.push_back(ReadTensor(tensor));
  for (nb::handle fragment : fragments) fields.fragments.push_back(ReadStoredFragment(fragment));
  manifest::StoredManifestPtr made = ValueOrThrow(
      WithoutGil([&fields] { return manifest::MakeStoredManifest(std::move(fields)); }));
  Set(self, N().tensors, tensors);
  Set(self, N().fragments, fragments);
  return {std::move(made)};
}

nb::dict StoredManifestFields(const StoredManifestHandle& self) {
  const manifest::StoredManifest& stored = *self.value;
  nb::dict fields;
  fields["namespace"] = ToStr(stored.namespace_name);
  fields["resource_id"] = ToStr(stored.resource_id);
  fields["revision"] = ToStr(stored.revision);
  fields["weight_generation"] = stored.weight_generation;
  fields["group_id"] = ToStr(stored.group_id);
  fields["manifest_key"] = ToStr(stored.manifest_key);
  fields["created_at"] = ToStr(stored.created_at);
  return fields;
}

void BindStoredManifest(nb::module_& m) {
  using Self = const StoredManifestHandle&;
  nb::class_<StoredManifestHandle>(m, "StoredManifest")
      .def_prop_ro("manifest_digest", [](Self self) { return ToStr(self.value->manifest_digest); })
      .def_prop_ro("tensor_count", [](Self self) { return self.value->tensors.size(); })
      .def_prop_ro("fragment_count", [](Self self) { return self.value->fragments.size(); })
      .def("fields", &StoredManifestFields)
      .def(
          "tensors",
          [](Self self, size_t begin, size_t end) {
            return Tensors(Range(self.value->tensors, begin, end));
          },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "fragments",
          [](Self self, size_t begin, size_t end) {
            return Fragments(Range(self.value->fragments, begin, end));
          },
          nb::arg("begin"), nb::arg("end"))
      .def("to_json",
           [](Self self) {
             return ToStr(WithoutGil([&] { return manifest::StoredManifestToJson(*self.value); }));
           })
      .def(
          "__eq__",
          [](Self self, const StoredManifestHandle& other) {
            return self.value == other.value || *self.value == *other.value;
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  m.def("make_stored_manifest", &MakeStoredManifest, AnyArg("value"));
  m.def(
      "stored_manifest_from_json",
      [](const nb::str& json) {
        const std::string_view text = Utf8(json);
        return StoredManifestHandle{
            ValueOrThrow(WithoutGil([text] { return manifest::StoredManifestFromJson(text); }))};
      },
      nb::arg("text"));
}

// ---- runtime bindings ---------------------------------------------------------------------------

RuntimeBindingHandle MakeRuntimeBinding(nb::handle self) {
  manifest::RuntimeBinding fields;
  fields.resource_id = Text(Get(self, N().resource_id), "resource_id");
  fields.placement_id = Text(Get(self, N().placement_id), "placement_id");
  fields.instance_id = Text(Get(self, N().instance_id), "instance_id");
  fields.lease_id = Text(Get(self, N().lease_id), "lease_id");
  fields.revision = Text(Get(self, N().revision), "revision");
  fields.participant_id = Text(Get(self, N().participant_id), "participant_id");
  fields.placement_digest = Text(Get(self, N().placement_digest), "placement_digest");
  fields.generation = U64(Get(self, N().generation), "generation", 0);
  const nb::tuple given = Items(Get(self, N().fragments), "WeightRuntimeBindingManifest fragments",
                                Classes().runtime_fragment);
  Originals objects;
  for (nb::handle fragment : given) {
    fields.fragments.push_back(ReadRuntimeFragment(fragment));
    objects.Add(fields.fragments.back().placement_fragment_id, fragment);
  }
  manifest::RuntimeBindingPtr made = ValueOrThrow(manifest::MakeRuntimeBinding(std::move(fields)));
  Set(self, N().fragments,
      objects.In(made->fragments, &manifest::RuntimeBindingFragment::placement_fragment_id));
  return {std::move(made)};
}

void BindRuntimeBinding(nb::module_& m) {
  const nb::class_<RuntimeBindingHandle> binding(m, "RuntimeBinding");
  m.def("make_runtime_binding", &MakeRuntimeBinding, AnyArg("value"));
  m.def(
      "validate_runtime_binding",
      [](nb::handle placement, nb::handle binding) {
        ThrowIfError(
            manifest::ValidateRuntimeBinding(*PlacementOf(placement), *RuntimeBindingOf(binding)));
      },
      AnyArg("placement"), AnyArg("binding"));
  m.def(
      "validate_runtime_bindings",
      [](nb::handle placement, const nb::tuple& bindings) {
        std::vector<manifest::RuntimeBindingPtr> values;
        for (nb::handle binding : bindings) values.push_back(RuntimeBindingOf(binding));
        ThrowIfError(manifest::ValidateRuntimeBindings(*PlacementOf(placement), values));
      },
      AnyArg("placement"), nb::arg("bindings"));
}

}  // namespace

void BindManifests(nb::module_& m) {
  BindPlacement(m);
  BindStoredManifest(m);
  BindRuntimeBinding(m);
}

}  // namespace mooncake::python

#include "python/contract_values.h"

#include <fmt/format.h>

#include "manifest/validate.h"
#include "python/errors.h"
#include "python/extension_values.h"

namespace mooncake::python {

using manifest::AxisKindName;
using manifest::AxisSemantics;

ContractClasses& Classes() {
  static ContractClasses classes;
  return classes;
}

// ---- from Python --------------------------------------------------------------------------------

manifest::ParallelRank ReadRank(nb::handle object) {
  return {.dp = Int(Get(object, N().dp), "parallel rank dp", 0),
          .tp = Int(Get(object, N().tp), "parallel rank tp", 0),
          .pp = Int(Get(object, N().pp), "parallel rank pp", 0),
          .ep = Int(Get(object, N().ep), "parallel rank ep", 0)};
}

manifest::ParallelRank ReadRankField(nb::handle object, const char* name) {
  const nb::object rank = Get(object, N().rank);
  if (!Classes().parallel_rank.IsInstance(rank)) {
    Refuse(fmt::format("{} must be a ParallelRank", name));
  }
  return ReadRank(rank);
}

manifest::ParallelAxis ReadAxis(nb::handle object) {
  AxisSemantics semantics = AxisSemantics::kSplit;
  if (Classes().replicated_axis.IsInstance(object)) {
    semantics = AxisSemantics::kReplicated;
  } else if (Classes().ownership_axis.IsInstance(object)) {
    semantics = AxisSemantics::kOwnership;
  } else if (!Classes().split_axis.IsInstance(object)) {
    Refuse("TensorDescriptor parallel_axes must contain explicit axis values");
  }
  const std::string kind = Text(Get(object, N().kind), "parallel axis kind");
  // The kind is judged before the dimension's type.
  ValueOrThrow(manifest::MakeAxis(semantics, kind, 0));
  const int64_t dim =
      semantics == AxisSemantics::kSplit ? Int(Get(object, N().dim), "split axis dim", 0) : 0;
  return ValueOrThrow(manifest::MakeAxis(semantics, kind, dim));
}

manifest::TensorDescriptor ReadTensor(nb::handle object) {
  manifest::TensorDescriptor tensor;
  const bool extended = Classes().extended_tensor.IsInstance(object);
  tensor.global_shape = Ints(Get(object, N().global_shape), "global_shape", extended ? 0 : 1);
  if (tensor.global_shape.empty() && !extended) Refuse("global_shape must not be empty");
  tensor.tensor_id = Text(Get(object, N().tensor_id), "tensor_id");
  tensor.dtype = Text(Get(object, N().dtype), "dtype");
  tensor.itemsize = Int(Get(object, N().itemsize), "itemsize", 1);
  tensor.shard_dims = Ints(Get(object, N().shard_dims), "shard_dims", 0);
  const nb::tuple axes = AsTuple(Get(object, N().parallel_axes), "TensorDescriptor parallel_axes",
                                 "must be a sequence");
  for (nb::handle axis : axes) tensor.parallel_axes.push_back(ReadAxis(axis));
  tensor.layer_id = OptionalInt(Get(object, N().layer_id), "layer_id", 0);
  tensor.expert_id = OptionalInt(Get(object, N().expert_id), "expert_id", 0);
  tensor.layout_fingerprint = Text(Get(object, N().layout_fingerprint), "layout_fingerprint");
  if (extended) tensor.extension = ReadExtension(object);
  return tensor;
}

manifest::TopologyParticipant ReadParticipant(nb::handle object) {
  manifest::TopologyParticipant participant;
  participant.participant_id = Text(Get(object, N().participant_id), "participant_id");
  participant.rank = ReadRankField(object, "topology participant rank");
  return participant;
}

manifest::ParallelTopology ReadTopology(nb::handle object) {
  manifest::ParallelTopology topology;
  topology.tp_size = Int(Get(object, N().tp_size), "tp_size", 1);
  topology.pp_size = Int(Get(object, N().pp_size), "pp_size", 1);
  topology.ep_size = Int(Get(object, N().ep_size), "ep_size", 1);
  topology.dp_size = Int(Get(object, N().dp_size), "dp_size", 1);
  const nb::tuple participants =
      Items(Get(object, N().participants), "parallel topology participants",
            Classes().topology_participant);
  for (nb::handle participant : participants) {
    topology.participants.push_back(ReadParticipant(participant));
  }
  topology.topology_id = OptionalText(Get(object, N().topology_id), "topology_id").value_or("");
  return topology;
}

std::vector<std::string> ReadAliases(nb::handle value) {
  const nb::tuple items = AsTuple(value, "aliases", "must be a sequence");
  std::vector<std::string> aliases;
  aliases.reserve(items.size());
  for (nb::handle item : items) {
    if (!PyUnicode_CheckExact(item.ptr()) || PyUnicode_GET_LENGTH(item.ptr()) == 0) {
      Refuse("aliases must contain non-empty strings");
    }
    aliases.push_back(Text(item, "aliases"));
  }
  return aliases;
}

manifest::FragmentForm FormOf(nb::handle fragment) {
  return Classes().extended_fragment.IsInstance(fragment) ? manifest::FragmentForm::kExtended
                                                          : manifest::FragmentForm::kBase;
}

manifest::PlacementFragment ReadPlacementFragment(nb::handle object) {
  manifest::PlacementFragment fragment;
  const bool extended = FormOf(object) == manifest::FragmentForm::kExtended;
  const int least = extended ? 0 : 1;
  fragment.global_offset = Ints(Get(object, N().global_offset), "global_offset", 0);
  fragment.local_shape = Ints(Get(object, N().local_shape), "local_shape", least);
  fragment.tensor_id = Text(Get(object, N().tensor_id), "tensor_id");
  fragment.nbytes = U64(Get(object, N().nbytes), "nbytes", static_cast<uint64_t>(least));
  if (extended) fragment.slot = OptionalInt(Get(object, N().slot), "slot", 0);
  fragment.rank = ReadRankField(object, "rank");
  fragment.pipeline_stage_id =
      OptionalInt(Get(object, N().pipeline_stage_id), "pipeline_stage_id", 0);
  fragment.aliases = ReadAliases(Get(object, N().aliases));
  fragment.placement_fragment_id =
      OptionalText(Get(object, N().placement_fragment_id), "placement_fragment_id").value_or("");
  return fragment;
}

manifest::StoredFragment ReadStoredFragment(nb::handle object) {
  manifest::StoredFragment fragment;
  fragment.global_offset = Ints(Get(object, N().global_offset), "global_offset", 0);
  fragment.local_shape = Ints(Get(object, N().local_shape), "local_shape", 1);
  fragment.fragment_id = Text(Get(object, N().fragment_id), "fragment_id");
  fragment.tensor_id = Text(Get(object, N().tensor_id), "tensor_id");
  fragment.object_key = Text(Get(object, N().object_key), "object_key");
  fragment.object_offset = U64(Get(object, N().object_offset), "object_offset", 0);
  fragment.nbytes = U64(Get(object, N().nbytes), "nbytes", 1);
  fragment.aliases = ReadAliases(Get(object, N().aliases));
  fragment.shares_range = Classes().shared_stored_fragment.IsInstance(object);
  return fragment;
}

namespace {

// The contract wants exactly a tuple or a list here and names the element.
manifest::Extents RuntimeInts(nb::handle value, const char* name, int64_t min) {
  if (!PyTuple_CheckExact(value.ptr()) && !PyList_CheckExact(value.ptr())) {
    Refuse(fmt::format("{} must be a tuple or list", name));
  }
  manifest::Extents numbers;
  for (nb::handle item : AsTuple(value, name, "must be a tuple or list")) {
    // Formats the element's name only where it is refused.
    if (PyLong_CheckExact(item.ptr())) {
      int overflow = 0;
      const int64_t number = PyLong_AsLongLongAndOverflow(item.ptr(), &overflow);
      if (overflow == 0 && number >= min) {
        numbers.push_back(number);
        continue;
      }
    }
    numbers.push_back(Int(item, fmt::format("{}[{}]", name, numbers.size()), min));
  }
  return numbers;
}

}  // namespace

manifest::RuntimeBindingFragment ReadRuntimeFragment(nb::handle object) {
  manifest::RuntimeBindingFragment fragment;
  fragment.placement_fragment_id =
      Text(Get(object, N().placement_fragment_id), "placement_fragment_id");
  fragment.fragment_id = Text(Get(object, N().fragment_id), "fragment_id");
  fragment.worker_id = Text(Get(object, N().worker_id), "worker_id");
  fragment.endpoint = Text(Get(object, N().endpoint), "endpoint");
  fragment.device = Text(Get(object, N().device), "device");
  fragment.address = U64(Get(object, N().address), "address", 1);
  fragment.nbytes = U64(Get(object, N().nbytes), "nbytes", 1);
  fragment.itemsize = Int(Get(object, N().itemsize), "runtime itemsize", 1);
  fragment.local_shape = RuntimeInts(Get(object, N().local_shape), "runtime local_shape", 1);
  fragment.strides_bytes = RuntimeInts(Get(object, N().strides_bytes), "runtime strides_bytes", 0);
  fragment.storage_address = U64(Get(object, N().storage_address), "storage_address", 1);
  fragment.storage_nbytes = U64(Get(object, N().storage_nbytes), "storage_nbytes", 1);
  fragment.storage_offset_bytes =
      U64(Get(object, N().storage_offset_bytes), "storage_offset_bytes", 0);
  fragment.strided = Classes().strided_fragment.IsInstance(object);
  return fragment;
}

manifest::PlacementPart ReadPart(nb::handle object) {
  manifest::PlacementPart part;
  part.resource_id = Text(Get(object, N().resource_id), "resource_id");
  part.revision = Text(Get(object, N().revision), "revision");
  part.weight_generation = U64(Get(object, N().weight_generation), "weight_generation", 0);
  part.placement_set_id = Text(Get(object, N().placement_set_id), "placement_set_id");
  part.topology_id = Text(Get(object, N().topology_id), "topology_id");
  part.participant_id = Text(Get(object, N().participant_id), "participant_id");
  part.rank = ReadRankField(object, "placement part rank");
  const nb::tuple tensors =
      Items(Get(object, N().tensors), "WeightPlacementPart tensors", Classes().tensor_descriptor);
  part.tensors.reserve(tensors.size());
  for (nb::handle tensor : tensors) part.tensors.push_back(ReadTensor(tensor));
  const nb::tuple fragments = Items(Get(object, N().fragments), "WeightPlacementPart fragments",
                                    Classes().placement_fragment);
  part.fragments.reserve(fragments.size());
  for (nb::handle fragment : fragments) part.fragments.push_back(ReadPlacementFragment(fragment));
  return part;
}

manifest::StoredManifestIdentity ReadStoredManifestIdentity(nb::handle object) {
  manifest::StoredManifestIdentity identity;
  identity.namespace_name = Text(Get(object, N().namespace_name), "namespace");
  identity.resource_id = Text(Get(object, N().resource_id), "resource_id");
  identity.revision = Text(Get(object, N().revision), "revision");
  identity.weight_generation = U64(Get(object, N().weight_generation), "weight_generation", 0);
  identity.group_id = Text(Get(object, N().group_id), "group_id");
  identity.manifest_key = Text(Get(object, N().manifest_key), "manifest_key");
  identity.content_sha256 = Text(Get(object, N().content_sha256), "content_sha256");
  return identity;
}

// ---- to Python ----------------------------------------------------------------------------------

nb::object Maker::Shared(std::string_view text) {
  const auto [it, added] = texts_.try_emplace(text);
  if (added) it->second = ToStr(text);
  return it->second;
}

nb::object Maker::Rank(const manifest::ParallelRank& rank) {
  nb::object& made = ranks_[{rank.dp, rank.tp, rank.pp, rank.ep}];
  if (!made.is_valid()) {
    nb::object object = Classes().parallel_rank.Make();
    Init(object, N().dp, nb::int_(rank.dp));
    Init(object, N().tp, nb::int_(rank.tp));
    Init(object, N().pp, nb::int_(rank.pp));
    Init(object, N().ep, nb::int_(rank.ep));
    made = std::move(object);
  }
  return made;
}

nb::object Maker::Axis(const manifest::ParallelAxis& axis) {
  PyClass& type = axis.semantics == AxisSemantics::kSplit        ? Classes().split_axis
                  : axis.semantics == AxisSemantics::kReplicated ? Classes().replicated_axis
                                                                 : Classes().ownership_axis;
  nb::object object = type.Make();
  Init(object, N().kind, Shared(AxisKindName(axis.kind)));
  if (axis.semantics == AxisSemantics::kSplit) Init(object, N().dim, nb::int_(axis.dim));
  return object;
}

nb::object Maker::Aliases(const std::vector<std::string>& aliases) {
  nb::list list;
  for (const std::string& alias : aliases) list.append(Shared(alias));
  return nb::tuple(list);
}

nb::object Maker::Tensor(const manifest::TensorDescriptor& tensor) {
  nb::object object = tensor.extension == nullptr ? Classes().tensor_descriptor.Make()
                                                  : Classes().extended_tensor.Make();
  nb::list axes;
  for (const manifest::ParallelAxis& axis : tensor.parallel_axes) axes.append(Axis(axis));
  Init(object, N().tensor_id, ToStr(tensor.tensor_id));
  Init(object, N().global_shape, ToTuple(tensor.global_shape));
  Init(object, N().dtype, Shared(tensor.dtype));
  Init(object, N().itemsize, nb::int_(tensor.itemsize));
  Init(object, N().shard_dims, ToTuple(tensor.shard_dims));
  Init(object, N().layout_fingerprint, Shared(tensor.layout_fingerprint));
  Init(object, N().parallel_axes, nb::tuple(axes));
  Init(object, N().layer_id, ToInt(tensor.layer_id));
  Init(object, N().expert_id, ToInt(tensor.expert_id));
  if (tensor.extension != nullptr) InitExtension(object, *tensor.extension);
  return object;
}

nb::object Maker::Topology(const manifest::ParallelTopology& topology) {
  nb::object object = Classes().parallel_topology.Make();
  nb::list participants;
  for (const manifest::TopologyParticipant& participant : topology.participants) {
    nb::object made = Classes().topology_participant.Make();
    Init(made, N().participant_id, ToStr(participant.participant_id));
    Init(made, N().rank, Rank(participant.rank));
    participants.append(made);
  }
  Init(object, N().tp_size, nb::int_(topology.tp_size));
  Init(object, N().pp_size, nb::int_(topology.pp_size));
  Init(object, N().ep_size, nb::int_(topology.ep_size));
  Init(object, N().dp_size, nb::int_(topology.dp_size));
  Init(object, N().participants, nb::tuple(participants));
  Init(object, N().topology_id, ToStr(topology.topology_id));
  return object;
}

nb::object Maker::Fragment(const manifest::PlacementFragment& fragment) {
  const bool extended = manifest::IsExtended(fragment);
  nb::object object =
      extended ? Classes().extended_fragment.Make() : Classes().placement_fragment.Make();
  Init(object, N().tensor_id, Shared(fragment.tensor_id));
  Init(object, N().global_offset, ToTuple(fragment.global_offset));
  Init(object, N().local_shape, ToTuple(fragment.local_shape));
  Init(object, N().nbytes, nb::int_(fragment.nbytes));
  Init(object, N().rank, Rank(fragment.rank));
  Init(object, N().pipeline_stage_id, ToInt(fragment.pipeline_stage_id));
  Init(object, N().aliases, Aliases(fragment.aliases));
  Init(object, N().placement_fragment_id, ToStr(fragment.placement_fragment_id));
  if (extended) Init(object, N().slot, ToInt(fragment.slot));
  return object;
}

nb::object Maker::Fragment(const manifest::StoredFragment& fragment) {
  nb::object object = fragment.shares_range ? Classes().shared_stored_fragment.Make()
                                            : Classes().stored_fragment.Make();
  Init(object, N().fragment_id, ToStr(fragment.fragment_id));
  Init(object, N().tensor_id, Shared(fragment.tensor_id));
  Init(object, N().global_offset, ToTuple(fragment.global_offset));
  Init(object, N().local_shape, ToTuple(fragment.local_shape));
  Init(object, N().object_key, Shared(fragment.object_key));
  Init(object, N().object_offset, nb::int_(fragment.object_offset));
  Init(object, N().nbytes, nb::int_(fragment.nbytes));
  Init(object, N().aliases, Aliases(fragment.aliases));
  return object;
}

}  // namespace mooncake::python

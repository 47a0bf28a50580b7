// The small dataclasses of the Python face and their C++ structs, in both directions.
//
// Read... takes an object whose class was checked, reads its fields strictly and returns them as
// they are: not yet checked by manifest/validate.h, not yet canonical. A Maker builds objects from
// values that were checked, without running constructors. The GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <map>
#include <string_view>
#include <unordered_map>

#include "manifest/types.h"
#include "manifest/validate.h"
#include "python/convert.h"

namespace mooncake::python {

struct ContractClasses {
  PyClass parallel_rank{"mooncake.reshard.weight.types", "ParallelRank"};
  PyClass split_axis{"mooncake.reshard.weight.types", "SplitAxis"};
  PyClass replicated_axis{"mooncake.reshard.weight.types", "ReplicatedAxis"};
  PyClass ownership_axis{"mooncake.reshard.weight.types", "OwnershipAxis"};
  PyClass tensor_descriptor{"mooncake.reshard.weight.types", "TensorDescriptor"};
  PyClass placement_fragment{"mooncake.reshard.weight.types", "PlacementFragment"};
  PyClass topology_participant{"mooncake.reshard.weight.topology", "TopologyParticipant"};
  PyClass parallel_topology{"mooncake.reshard.weight.topology", "ParallelTopology"};
  PyClass placement_part{"mooncake.reshard.weight.part", "WeightPlacementPart"};
  PyClass placement{"mooncake.reshard.weight.placement", "WeightPlacementManifest"};
  PyClass stored_fragment{"mooncake.reshard.weight.storage_manifest", "StoredFragment"};
  PyClass stored_manifest{"mooncake.reshard.weight.storage_manifest", "WeightManifest"};
  PyClass runtime_fragment{"mooncake.reshard.contracts.runtime", "RuntimeBindingFragment"};
  PyClass runtime_binding{"mooncake.reshard.weight.runtime", "WeightRuntimeBindingManifest"};
  PyClass extended_tensor{"mooncake.reshard.weight.extended", "ExtendedTensor"};
  PyClass extended_fragment{"mooncake.reshard.weight.extended", "ExtendedFragment"};
  PyClass shared_stored_fragment{"mooncake.reshard.weight.extended", "SharedStoredFragment"};
  PyClass strided_fragment{"mooncake.reshard.weight.extended", "StridedBindingFragment"};
  PyClass owned_box{"mooncake.reshard.weight.extended", "OwnedBox"};
  PyClass section{"mooncake.reshard.weight.extended", "Section"};
  PyClass sections{"mooncake.reshard.weight.extended", "Sections"};
  PyClass block_scales{"mooncake.reshard.weight.extended", "BlockScales"};
  PyClass packing{"mooncake.reshard.weight.extended", "Packing"};
  PyClass extended_kind{"mooncake.reshard.weight.columns", "ExtendedKind"};
  PyClass planning_limits{"mooncake.reshard.weight._planner.contracts", "PlanningLimits"};
  PyClass executor{"mooncake.reshard.weight._planner.contracts", "PlacementExecutorPlan"};
  PyClass transfer_region{"mooncake.reshard.weight._planner.regions", "TransferRegion"};
};
ContractClasses& Classes();

manifest::ParallelRank ReadRank(nb::handle object);
// A field that must be a ParallelRank; ValueError "<name> must be a ParallelRank".
manifest::ParallelRank ReadRankField(nb::handle object, const char* name);
manifest::ParallelAxis ReadAxis(nb::handle object);
manifest::TensorDescriptor ReadTensor(nb::handle object);
manifest::TopologyParticipant ReadParticipant(nb::handle object);
manifest::ParallelTopology ReadTopology(nb::handle object);
manifest::PlacementFragment ReadPlacementFragment(nb::handle object);
manifest::StoredFragment ReadStoredFragment(nb::handle object);
manifest::RuntimeBindingFragment ReadRuntimeFragment(nb::handle object);
manifest::PlacementPart ReadPart(nb::handle object);
manifest::StoredManifestIdentity ReadStoredManifestIdentity(nb::handle object);

std::vector<std::string> ReadAliases(nb::handle value);

// What fragment's rules a PlacementFragment object is under, on its own.
manifest::FragmentForm FormOf(nb::handle fragment);

// Makes objects, sharing the immutable pieces that repeat (ranks, ids, dtypes). Short-lived: holds
// views of the strings it was shown.
class Maker {
 public:
  nb::object Rank(const manifest::ParallelRank& rank);
  nb::object Tensor(const manifest::TensorDescriptor& tensor);
  nb::object Topology(const manifest::ParallelTopology& topology);
  nb::object Fragment(const manifest::PlacementFragment& fragment);
  nb::object Fragment(const manifest::StoredFragment& fragment);
  // One string object however often it is asked for.
  nb::object Shared(std::string_view text);

 private:
  nb::object Axis(const manifest::ParallelAxis& axis);
  void InitExtension(nb::handle object, const manifest::TensorExtension& extension);
  nb::object Aliases(const std::vector<std::string>& aliases);

  std::map<std::array<int64_t, 4>, nb::object> ranks_;
  std::unordered_map<std::string_view, nb::object> texts_;
};

}  // namespace mooncake::python

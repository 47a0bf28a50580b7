"""Names, their order, identity and type hints: what programs import."""

import dataclasses
import importlib
import inspect
import typing

import mooncake
import mooncake.reshard
import mooncake.reshard.contracts as contracts
import pytest
from mooncake.reshard import geometry, weight

CONTRACTS = """
LeaseId ParticipantId PlacementFragmentId PlacementId PlacementManifest PlacementSetId ResourceId
ResourceKind ResourceManifest RevisionId RuntimeBindingManifest RuntimeBindingFragment
RuntimeFragmentId RuntimeInstanceId StoredFragmentId TensorId TopologyId StoredResourceManifest
validate_resource_binding_identity
""".split()
WEIGHT = """
ParallelRank ParallelTopology PlacementFragment WeightPlacementManifest WeightPlacementPart
RuntimeBindingFragment WeightRuntimeBindingManifest SplitAxis ReplicatedAxis OwnershipAxis
TensorDescriptor TopologyParticipant validate_runtime_binding validate_runtime_bindings
weight_placement_from_json weight_placement_to_json StoredFragment WeightManifest
LogicalTransferPlan LogicalTransferOperation PipelineRouteGroup PlacementExecutorPlan
PlanningLimits TransferRegion plan_placement_transfer plan_placement_transfer_to_local_target
plan_stored_transfer_to_target_placement
""".split()
MANIFEST = """
ParallelRank ParallelTopology PlacementFragment TopologyParticipant WeightPlacementManifest
WeightPlacementPart RuntimeBindingFragment WeightRuntimeBindingManifest SplitAxis ReplicatedAxis
OwnershipAxis TensorDescriptor validate_runtime_binding validate_runtime_bindings
""".split()
PLANNER = """
LogicalTransferPlan LogicalTransferOperation PlanningLimits PipelineRouteGroup
PlacementExecutorPlan TransferRegion plan_placement_transfer
plan_placement_transfer_to_local_target plan_stored_transfer_to_target_placement
""".split()
HOMES = {
    "types": "ParallelRank SplitAxis ReplicatedAxis OwnershipAxis TensorDescriptor "
    "PlacementFragment RuntimeBindingFragment validate_fragment_geometry canonical_strides_bytes "
    "require_manifest_items require_sha256_digest ParallelAxis ParallelAxisKind SplitAxisKind",
    "topology": "ParallelTopology TopologyParticipant",
    "part": "WeightPlacementPart",
    "placement": "WeightPlacementManifest",
    "runtime": "WeightRuntimeBindingManifest",
    "binding": "validate_runtime_binding validate_runtime_bindings",
    "serde": "weight_placement_from_json weight_placement_to_json",
    "storage_manifest": "StoredManifestIdentity StoredFragment WeightManifest "
    "validate_weight_manifest_snapshot",
    "manifest": " ".join(MANIFEST),
    "planner": " ".join(PLANNER),
}


def submodule(name):
    return importlib.import_module(f"mooncake.reshard.weight.{name}")


def test_all_lists():
    assert mooncake.reshard.__all__ == [
        "ResourceKind",
        "ResourceManifest",
        "PlacementManifest",
        "RuntimeBindingManifest",
    ]
    assert contracts.__all__ == CONTRACTS
    assert weight.__all__[: len(WEIGHT)] == WEIGHT
    assert "StoredWeightManifest" in weight.__all__
    assert submodule("manifest").__all__ == MANIFEST
    assert submodule("planner").__all__ == PLANNER
    assert not hasattr(submodule("types"), "__all__")
    assert geometry.__all__ == [
        "LogicalBox",
        "OverlapRegion",
        "box_contains",
        "boxes_exactly_cover",
        "boxes_overlap",
        "regions_exactly_cover",
    ]
    for module in (mooncake.reshard, contracts, weight, geometry, submodule("manifest")):
        assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("home", HOMES)
def test_one_object_under_every_name(home):
    module = submodule(home)
    for name in HOMES[home].split():
        value = getattr(module, name)
        for other in (weight, submodule("manifest"), submodule("types"), contracts):
            assert getattr(other, name, value) is value, (home, name, other)


def test_second_name_of_the_stored_manifest():
    assert weight.StoredWeightManifest is weight.WeightManifest


@pytest.mark.parametrize("name", [*MANIFEST, *PLANNER, "WeightManifest", "StoredFragment"])
def test_type_hints_resolve(name):
    value = getattr(weight, name)
    if name == "LogicalTransferOperation":
        assert typing.get_origin(value) is weight.TransferRegion
        source, target = typing.get_args(value)
        assert set(typing.get_args(source)) == {weight.PlacementFragment, weight.StoredFragment}
        assert target is weight.PlacementFragment
        return
    hints = typing.get_type_hints(value)
    if inspect.isclass(value):
        assert set(hints) >= {field.name for field in dataclasses.fields(value)}
        hints = typing.get_type_hints(value.__init__)
    assert hints["return"] is type(None) or inspect.isfunction(value)


def test_kinds_and_protocols():
    assert contracts.ResourceKind.MODEL_WEIGHT == "model_weight"
    assert contracts.ResourceKind.KV_CACHE == "kv_cache"
    assert [kind.name for kind in contracts.ResourceKind] == ["MODEL_WEIGHT", "KV_CACHE"]
    for name in ("ResourceManifest", "PlacementManifest", "RuntimeBindingManifest"):
        protocol = getattr(contracts, name)
        assert typing.Protocol in protocol.__mro__
        with pytest.raises(TypeError):
            isinstance(1, protocol)  # not runtime_checkable
    assert contracts.ResourceManifest in contracts.StoredResourceManifest.__mro__
    assert contracts.PlacementManifest not in weight.WeightPlacementManifest.__mro__
    assert contracts.LeaseId("x") == "x"
    assert contracts.LeaseId.__supertype__ is str
    assert len([name for name in CONTRACTS if name.endswith("Id")]) == 12


@pytest.mark.parametrize(
    "module",
    [
        "mooncake.model_weight",
        "mooncake.reshard.kv_cache",
        "mooncake.reshard.weight._planner.attestation",
    ],
)
def test_modules_that_must_not_exist(module):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module)


def test_names_that_must_not_exist():
    assert not hasattr(weight, "WeightRuntimeManifest")
    for name in ("SourcePlacementManifest", "TargetPlacementManifest"):
        assert not hasattr(submodule("placement"), name)
    for name in ("CopyRange", "BoundWeightFragment", "TransferPlan"):
        assert not hasattr(submodule("_planner.contracts"), name)
    for name in ("WeightPlacementManifest", "WeightManifest", "WeightRuntimeBindingManifest"):
        assert not hasattr(getattr(weight, name), "model_id")
    for name in ("WeightPlacementPart", "WeightRuntimeBindingManifest", "RuntimeBindingFragment"):
        assert not hasattr(getattr(weight, name), "from_runtime_inventory")
    assert "partition_dim" not in {f.name for f in dataclasses.fields(weight.TensorDescriptor)}


def test_the_package_is_shared_with_other_distributions(tmp_path, monkeypatch):
    (tmp_path / "mooncake").mkdir()
    (tmp_path / "mooncake" / "somebody_elses.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.reload(mooncake)
    assert importlib.import_module("mooncake.somebody_elses").value == 7

"""Plans: golden vectors, the rules of hand-made plans, the planner's refusals."""

import dataclasses
import pickle
import random
import types

import pytest
from contract_samples import (
    GOLDEN,
    fragment,
    mini_placement,
    placement,
    refused,
    single_placement,
    stored,
    stored_fragment,
    tensor,
)
from mooncake.reshard.lazy_tuple import LazyTuple
from mooncake.reshard.weight import (
    LogicalTransferPlan,
    OwnershipAxis,
    ParallelRank,
    PipelineRouteGroup,
    PlacementExecutorPlan,
    PlanningLimits,
    ReplicatedAxis,
    SplitAxis,
    StoredFragment,
    WeightManifest,
    WeightPlacementManifest,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    plan_stored_transfer_to_target_placement,
    weight_placement_from_json,
)

SOURCE = weight_placement_from_json(GOLDEN["source"]["json"])
TARGET = weight_placement_from_json(GOLDEN["target"]["json"])
TP = [ParallelRank(tp=0), ParallelRank(tp=1)]
MINI, SINGLE = mini_placement(), single_placement()


def golden_stored():
    """The stored source of GOLDEN["plan_stored"].

    Both golden plans copy the same boxes in the same order, so the placement plan's sources say
    which box each stored id names.
    """
    by_id = {frag.fragment_id: frag for frag in SOURCE.fragments}
    fragments = {}
    pairs = zip(GOLDEN["plan"]["operations"], GOLDEN["plan_stored"]["operations"], strict=True)
    for live, stored_operation in pairs:
        frag, name = by_id[live["source"]], stored_operation["source"]
        fragments[name] = StoredFragment(
            fragment_id=name,
            tensor_id=frag.tensor_id,
            global_offset=frag.global_offset,
            local_shape=frag.local_shape,
            object_key=f"g/payload/{name}",
            object_offset=0,
            nbytes=frag.nbytes,
        )
    return WeightManifest(
        namespace="d",
        resource_id=SOURCE.resource_id,
        revision=SOURCE.revision,
        weight_generation=SOURCE.weight_generation,
        group_id="g",
        manifest_key="g/manifest",
        tensors=SOURCE.tensors,
        fragments=list(fragments.values()),
        created_at="2026-01-01T00:00:00Z",
    )


def operation_object(operation):
    value = vars(operation) | {
        "source": operation.source.fragment_id,
        "target": operation.target.fragment_id,
    }
    return {k: list(v) if isinstance(v, tuple) else v for k, v in value.items()}


def executor_object(executor):
    return {
        "participant_id": executor.participant_id,
        "rank": vars(executor.rank),
        "ids": list(executor.placement_fragment_ids),
    }


def assert_golden(plan, golden):
    assert [operation_object(operation) for operation in plan.operations] == golden["operations"]
    assert plan.total_bytes == golden["total_bytes"]
    assert [executor_object(e) for e in plan.source_executors] == golden["source_executors"]
    assert [executor_object(e) for e in plan.target_executors] == golden["target_executors"]
    for side in ("source", "target"):
        executors = getattr(plan, f"{side}_executors")
        assert [
            list(plan.operation_indices_for_executor(executor, side)) for executor in executors
        ] == golden[f"{side}_operation_indices"]
    routes = [
        vars(route) | {"operation_indices": list(route.operation_indices)}
        for route in plan.pipeline_routes
    ]
    assert routes == golden["pipeline_routes"]


# ---- golden plans -------------------------------------------------------------------------------


def test_golden_plan():
    plan = plan_placement_transfer(SOURCE, TARGET)
    assert_golden(plan, GOLDEN["plan"])
    assert plan.source_placement is SOURCE and plan.target_placement is TARGET
    assert plan.source_placement_id == SOURCE.placement_id
    assert plan.target_placement_id == TARGET.placement_id
    assert plan.source_manifest is None and plan.source_manifest_identity is None
    assert plan.source_tensors == SOURCE.tensors and plan.target_tensors == TARGET.tensors


def test_golden_stored_plan():
    manifest = golden_stored()
    plan = plan_stored_transfer_to_target_placement(manifest, TARGET)
    assert_golden(plan, GOLDEN["plan_stored"])
    assert plan.source_executors == ()
    assert plan.source_placement is None and plan.source_placement_id is None
    assert plan.source_manifest_identity == manifest.manifest_identity
    assert plan.source_tensors == SOURCE.tensors


@pytest.mark.parametrize("participant", [p.participant_id for p in TARGET.topology.participants])
def test_local_plans_are_a_part_of_the_global_one(participant):
    whole = plan_placement_transfer(SOURCE, TARGET)
    local = plan_placement_transfer_to_local_target(SOURCE, TARGET, participant)
    (part,) = [p for p in TARGET.parts if p.participant_id == participant]
    assert local.target_tensors == part.tensors
    assert local.source_tensors == SOURCE.tensors
    assert [e.participant_id for e in local.target_executors] == [participant]
    (executor,) = [e for e in whole.target_executors if e.participant_id == participant]
    indices = whole.operation_indices_for_executor(executor, "target")
    assert list(local.operations) == [whole.operations[i] for i in indices]
    rebuilt = dataclasses.replace(local)
    assert rebuilt.operations == local.operations


def test_input_order_does_not_matter():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    shuffle = random.Random(seed).shuffle

    def shuffled(of):
        tensors, fragments = list(of.tensors), list(of.fragments)
        shuffle(tensors)
        shuffle(fragments)
        return type(of).from_fragments(
            resource_id=of.resource_id,
            revision=of.revision,
            weight_generation=of.weight_generation,
            placement_set_id=of.placement_set_id,
            topology=of.topology,
            tensors=tensors,
            fragments=fragments,
        )

    plan = plan_placement_transfer(SOURCE, TARGET)
    again = plan_placement_transfer(shuffled(SOURCE), shuffled(TARGET))
    assert again == plan and again.operations == plan.operations


# ---- the plan as a value ------------------------------------------------------------------------

PLANS = {
    "placement": plan_placement_transfer(SOURCE, TARGET),
    "stored": plan_stored_transfer_to_target_placement(golden_stored(), TARGET),
    "local": plan_placement_transfer_to_local_target(SOURCE, TARGET, "t1"),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_plan_dataclass(plan):
    names = (
        "resource_id revision source_placement target_placement source_tensors target_tensors "
        "operations source_manifest planning_limits source_executors target_executors "
        "source_manifest_identity"
    ).split()
    assert [f.name for f in dataclasses.fields(plan)] == names
    assert set(names) <= set(vars(plan))
    for twin in (dataclasses.replace(plan), pickle.loads(pickle.dumps(plan))):
        assert twin is not plan and hash(twin) == hash(plan)
        assert all(getattr(twin, name) == getattr(plan, name) for name in names)
        assert twin.pipeline_routes == plan.pipeline_routes
        assert twin.total_bytes == plan.total_bytes
        assert repr(twin) == repr(plan)
        assert type(twin.operations) is tuple
    assert plan != 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.revision = "x"
    assert isinstance(plan.operations, tuple)
    for name in ("source_tensors", "target_tensors", "operations"):
        assert isinstance(getattr(plan, name), tuple)
    assert plan.validate_source_manifest_snapshot() is None
    assert plan.validate_source_placement_snapshot() is None


def test_equal_plans():
    again = plan_placement_transfer(SOURCE, TARGET)
    assert again == PLANS["placement"] and hash(again) == hash(PLANS["placement"])
    assert dataclasses.replace(again) == again
    assert pickle.loads(pickle.dumps(again)) == again
    local = PLANS["local"]
    assert pickle.loads(pickle.dumps(local)) == local == dataclasses.replace(local)
    wider = PlanningLimits(max_transfer_regions=7_000)
    assert plan_placement_transfer(SOURCE, TARGET, planning_limits=wider) != again


def test_plans_to_one_participant_are_equal_whoever_made_them():
    single = single_placement()
    plan = plan_placement_transfer(mini_placement(), single)
    assert dataclasses.replace(plan) == plan == pickle.loads(pickle.dumps(plan))
    local = plan_placement_transfer_to_local_target(mini_placement(), single)
    assert local == plan and hash(local) == hash(plan)


def test_operations_are_made_on_access():
    plan = plan_placement_transfer(SOURCE, TARGET)
    assert type(plan.operations) is LazyTuple
    assert len(plan.operations) == 44 and not plan.operations._made
    last = plan.operations[-1]
    assert plan.operations[43] is last and len(plan.operations._made) == 1
    assert (
        last.target
        is plan.target_placement.fragments[plan.target_placement.fragments.index(last.target)]
    )
    assert tuple(plan.operations)[43] is last


def test_executors():
    plan = PLANS["placement"]
    with refused("invalid executor side: both"):
        plan.operation_indices_for_executor(plan.source_executors[0], "both")
    with refused("source executor is not part of this logical plan"):
        plan.operation_indices_for_executor(plan.target_executors[0], "source")
    copy = PlacementExecutorPlan(**vars(plan.source_executors[1]))
    assert plan.operation_indices_for_executor(
        copy, "source"
    ) == plan.operation_indices_for_executor(plan.source_executors[1], "source")


def test_snapshots():
    manifest = golden_stored()
    plan = plan_stored_transfer_to_target_placement(manifest, TARGET)
    object.__setattr__(manifest, "created_at", "later")
    with refused("source manifest"):
        plan.validate_source_manifest_snapshot()
    source = mini_placement()
    plan = plan_placement_transfer(source, SINGLE)
    object.__setattr__(source.fragments[0], "nbytes", 1)
    with refused("logical plan and source placement fragment snapshots differ"):
        plan.validate_source_placement_snapshot()


def changed_operation(plan, index=0, **changes):
    operations = list(plan.operations)
    operations[index] = dataclasses.replace(operations[index], **changes)
    return tuple(operations)


def test_hand_made_plans_are_checked():
    plan, stored_plan = PLANS["placement"], PLANS["stored"]
    cases = [
        (plan, {"resource_id": ""}, "resource_id must be a non-empty string"),
        (plan, {"resource_id": "x"}, "resource_id differ"),
        (plan, {"revision": "x"}, "revision differ"),
        (plan, {"target_placement": None}, "target_placement must be a WeightPlacementManifest"),
        (plan, {"planning_limits": None}, "planning_limits must be PlanningLimits"),
        (plan, {"operations": [1]}, "must contain TransferRegion"),
        (plan, {"operations": {1}}, "must be a sequence"),
        (
            plan,
            {"planning_limits": PlanningLimits(max_transfer_regions=43)},
            "logical transfer plan exceeds max_transfer_regions: 43",
        ),
        (
            plan,
            {"source_manifest": golden_stored()},
            "logical transfer plan requires exactly one source provenance",
        ),
        (
            plan,
            {"source_placement": None},
            "logical transfer plan requires exactly one source provenance",
        ),
        (
            plan,
            {"source_tensors": plan.source_tensors[1:]},
            "logical plan source tensor catalog differs from placement",
        ),
        (
            plan,
            {"target_tensors": plan.target_tensors[1:]},
            "logical target tensor catalog differs from placement",
        ),
        (
            stored_plan,
            {"source_tensors": plan.source_tensors[1:]},
            "logical plan source tensor catalog differs",
        ),
        (plan, {"operations": plan.operations[1:]}, "logical target fragment is not fully covered"),
        (stored_plan, {"source_manifest": 7}, "logical transfer plan source manifest is invalid"),
    ]
    for base, changes, message in cases:
        with refused(message):
            dataclasses.replace(base, **changes)


def test_executors_of_hand_made_plans_are_checked():
    plan = PLANS["placement"]
    executor = plan.target_executors[0]
    cases = [
        (plan, {"target_executors": ()}, "logical plan has no target executor metadata"),
        (plan, {"source_executors": ()}, "logical plan has no source executor metadata"),
        (plan, {"target_executors": [1]}, "must contain PlacementExecutorPlan"),
        (plan, {"target_executors": plan.target_executors[1:]}, "logical target executor"),
        (
            plan,
            {
                "target_executors": [
                    dataclasses.replace(executor, placement_id="x"),
                    *plan.target_executors[1:],
                ]
            },
            "logical target executor",
        ),
        (
            plan,
            {
                "target_executors": [
                    dataclasses.replace(
                        executor, placement_fragment_ids=executor.placement_fragment_ids[1:]
                    ),
                    *plan.target_executors[1:],
                ]
            },
            "logical target executor",
        ),
    ]
    for base, changes, message in cases:
        with refused(message):
            dataclasses.replace(base, **changes)


def test_operations_must_be_of_the_plans_placements():
    plan = plan_placement_transfer(MINI, SINGLE)
    (first, *_) = plan.operations
    other = dataclasses.replace(first.source, placement_fragment_id="other")
    with refused("logical plan and source placement fragment snapshots differ"):
        dataclasses.replace(plan, operations=changed_operation(plan, source=other))
    other = dataclasses.replace(first.target, placement_fragment_id="other")
    with refused("logical plan and target placement fragment snapshots differ"):
        dataclasses.replace(plan, operations=changed_operation(plan, target=other))
    box = types.SimpleNamespace(**vars(first.source))
    with refused("operation source must be a PlacementFragment or StoredFragment"):
        dataclasses.replace(plan, operations=changed_operation(plan, source=box))
    from_store = plan_stored_transfer_to_target_placement(stored(), SINGLE)
    sly = dataclasses.replace(from_store.operations[0].source, object_offset=4)
    with refused("logical plan and source manifest fragment snapshots differ"):
        dataclasses.replace(from_store, operations=changed_operation(from_store, source=sly))


# ---- small values -------------------------------------------------------------------------------


def test_limits():
    assert vars(PlanningLimits()) == {
        "max_transfer_regions": 1_000_000,
        "max_segments_per_region": 1_000_000,
        "max_total_lowered_segments": 10_000_000,
    }
    for name in vars(PlanningLimits()):
        for value in (0, -1, 1.0, True, None, "1"):
            with refused(f"planning limit {name} must be a positive integer"):
                PlanningLimits(**{name: value})
    huge = PlanningLimits(max_transfer_regions=1 << 100)  # unbounded in effect
    assert plan_placement_transfer(MINI, SINGLE, planning_limits=huge).planning_limits is huge


def test_route_groups_and_executors():
    group = PipelineRouteGroup(None, None, 0, None, [3, 1])
    assert group.operation_indices == (3, 1)
    assert pickle.loads(pickle.dumps(group)) == group
    for fields in ((-1, None, 0, None, ()), (None, None, None, None, ()), (0, True, 0, None, ())):
        with pytest.raises(ValueError):
            PipelineRouteGroup(*fields)
    with refused("must not contain duplicates"):
        PipelineRouteGroup(0, 0, 0, 0, (1, 1))
    executor = PlacementExecutorPlan("p", "w0", ParallelRank(), ["b", "a"])
    assert executor.placement_fragment_ids == ("b", "a")
    for changes in (
        {"placement_id": ""},
        {"participant_id": 1},
        {"rank": None},
        {"placement_fragment_ids": ()},
        {"placement_fragment_ids": ("a", "a")},
        {"placement_fragment_ids": ("a", "")},
        {"placement_fragment_ids": "ab"},
    ):
        with pytest.raises(ValueError):
            dataclasses.replace(executor, **changes)


# ---- what the planner refuses -------------------------------------------------------------------


def test_argument_types():
    for wrong in (None, stored(), SINGLE.parts[0]):
        with refused("source placement manifests must be WeightPlacementManifest"):
            plan_placement_transfer(wrong, SINGLE)
        with refused("source placement manifests must be WeightPlacementManifest"):
            plan_placement_transfer_to_local_target(wrong, SINGLE)
        with refused("must be WeightPlacementManifest"):
            plan_placement_transfer(SINGLE, wrong)
    with refused("logical transfer plan source manifest is invalid"):
        plan_stored_transfer_to_target_placement(SINGLE, SINGLE)
    with refused("planning_limits must be PlanningLimits"):
        plan_placement_transfer(SINGLE, SINGLE, planning_limits="x")
    with pytest.raises(TypeError):
        plan_placement_transfer(SINGLE, SINGLE, PlanningLimits())


def test_participants():
    with refused("target_participant_id is required for a multi-participant target"):
        plan_placement_transfer_to_local_target(SINGLE, MINI)
    with refused("unknown target participant: nobody"):
        plan_placement_transfer_to_local_target(SINGLE, MINI, "nobody")
    assert len(plan_placement_transfer_to_local_target(MINI, SINGLE).operations) == 2
    ranks = [ParallelRank(pp=0), ParallelRank(pp=1)]
    lopsided = placement(
        [tensor(axes=(OwnershipAxis("pp"),))], [fragment((0, 0), (4, 2), ranks[0])], ranks
    )
    with refused("local target manifest has no fragments"):
        plan_placement_transfer_to_local_target(SINGLE, lopsided, "w1")


def test_identity_and_tensors():
    for name, value in (("resource_id", "x"), ("revision", "x"), ("weight_generation", 9)):
        with refused(f"source and target {name} differ"):
            plan_placement_transfer(MINI, single_placement(**{name: value}))
        with refused(f"source and target {name} differ"):
            plan_stored_transfer_to_target_placement(stored(), single_placement(**{name: value}))
    more = single_placement(
        tensors=[tensor(name, axes=()) for name in "wba"],
        fragments=[fragment((0, 0), (4, 2), tensor_id=name) for name in "wba"],
    )
    with refused("target manifests are missing tensors: a, b"):
        plan_placement_transfer(more, SINGLE)
    with refused("target manifests contain unknown tensors: a, b"):
        plan_placement_transfer(SINGLE, more)
    with refused("unknown tensors: a, b"):
        plan_placement_transfer_to_local_target(SINGLE, more)
    assert len(plan_placement_transfer_to_local_target(more, SINGLE).operations) == 1


def test_compatibility():
    other = single_placement(tensors=[tensor(axes=(), layout_fingerprint="v2")])
    with refused("layout mismatch for tensor w"):
        plan_placement_transfer(SINGLE, other)
    for changes in ({"dtype": "float16"}, {"layer_id": 1}, {"layer_id": None}, {"expert_id": 3}):
        with refused("tensor descriptor mismatch: w"):
            plan_placement_transfer(SINGLE, single_placement(tensors=[tensor(axes=(), **changes)]))


def test_sources_that_cannot_be_read():
    dp = [ParallelRank(dp=0), ParallelRank(dp=1)]
    replicated = tensor(axes=(ReplicatedAxis("dp"),))
    whole = placement([replicated], [fragment((0, 0), (4, 2), rank) for rank in dp], dp)
    plan = plan_placement_transfer(whole, SINGLE)
    assert [o.source.rank.dp for o in plan.operations] == [0]
    owned = tensor(axes=(OwnershipAxis("dp"),))
    twice = placement([owned], [fragment((0, 0), (4, 2), rank) for rank in dp], dp)
    with refused("DP-owned source tensor has ambiguous declared owners: w"):
        plan_placement_transfer(twice, SINGLE)


def test_target_replicas_spread_over_source_replicas():
    dp = [ParallelRank(dp=i) for i in range(3)]
    replicated = tensor(axes=(ReplicatedAxis("dp"),))

    def copies(ranks):
        return placement([replicated], [fragment((0, 0), (4, 2), rank) for rank in ranks], ranks)

    plan = plan_placement_transfer(copies(dp[:2]), copies(dp))
    assert {o.target.rank.dp: o.source.rank.dp for o in plan.operations} == {0: 0, 1: 1, 2: 0}


def test_limits_are_kept():
    columns = placement(
        [tensor(axes=(SplitAxis("tp", 1),))],
        [fragment((0, i), (4, 1), rank) for i, rank in enumerate(TP)],
        TP,
    )

    def plan(**limits):
        return plan_placement_transfer(MINI, columns, planning_limits=PlanningLimits(**limits))

    assert plan(
        max_transfer_regions=4, max_segments_per_region=2, max_total_lowered_segments=8
    ).operations
    with refused("logical transfer plan exceeds max_transfer_regions: 3"):
        plan(max_transfer_regions=3)
    with refused("logical transfer region exceeds max_segments_per_region: 2 > 1"):
        plan(max_segments_per_region=1)
    with refused("logical transfer plan exceeds max_total_lowered_segments: 8 > 7"):
        plan(max_total_lowered_segments=7)


def test_stored_sources_pick_the_first_object():
    fragments = [stored_fragment((0, 0), (2, 2), "b"), stored_fragment((2, 0), (2, 2), "a")]
    plan = plan_stored_transfer_to_target_placement(stored(fragments=fragments), SINGLE)
    assert [o.source.fragment_id for o in plan.operations] == ["fb", "fa"]
    assert [o.target_base_offset for o in plan.operations] == [0, 8]
    assert isinstance(plan, LogicalTransferPlan)


def next_generation(placement):
    """The same layout, one generation on."""
    return WeightPlacementManifest.from_fragments(
        resource_id=placement.resource_id,
        revision="next",
        weight_generation=placement.weight_generation + 1,
        placement_set_id="another",
        topology=placement.topology,
        tensors=placement.tensors,
        fragments=placement.fragments,
    )


def test_plans_are_reused_for_the_next_generation():
    plan = PLANS["placement"]
    source, target = next_generation(SOURCE), next_generation(TARGET)
    reused = plan.reuse(source, target)
    assert reused == plan_placement_transfer(source, target)
    assert reused.geometry_digest == plan.geometry_digest
    assert (reused.revision, reused.source_placement, reused.target_placement) == (
        "next",
        source,
        target,
    )
    assert [o.target for o in reused.operations] == [o.target for o in plan.operations]
    with refused("the plan is of another geometry"):
        plan.reuse(target, target)
    with refused("source and target revision differ"):
        plan.reuse(source, TARGET)
    with refused("source must be a WeightPlacementManifest"):
        plan.reuse("source", target)


def test_plans_are_saved_and_loaded():
    for plan in PLANS.values():
        source = plan.source_placement or plan.source_manifest
        saved = plan.save()
        assert saved.startswith(b"MCWPLAN1" + plan.geometry_digest.encode())
        loaded = LogicalTransferPlan.load(saved, source, plan.target_placement)
        assert loaded == plan and loaded.save() == saved
        assert loaded.planning_limits == plan.planning_limits
        assert loaded.operations == plan.operations
        damaged = saved[:80] + bytes([saved[80] ^ 1]) + saved[81:]
        with refused("saved plan is damaged"):
            LogicalTransferPlan.load(damaged, source, plan.target_placement)
        with refused("the plan is of another geometry"):
            LogicalTransferPlan.load(saved, SINGLE, SINGLE)
    with refused("saved plan must be bytes"):
        LogicalTransferPlan.load("plan", SOURCE, TARGET)

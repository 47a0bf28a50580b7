"""`balance=` of the plan functions: which of several equal replicas is read."""

import dataclasses
import pickle
from collections import Counter

import pytest
from contract_samples import refused
from mooncake.reshard.weight import (
    Balance,
    LogicalTransferPlan,
    OwnershipAxis,
    ParallelRank,
    ParallelTopology,
    PlacementFragment,
    PlanningLimits,
    ReplicatedAxis,
    RuntimeBindingFragment,
    TensorDescriptor,
    TopologyParticipant,
    WeightManifest,
    WeightPlacementManifest,
    WeightRuntimeBindingManifest,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    plan_stored_transfer_to_target_placement,
)
from mooncake.reshard.weight.storage_manifest import StoredFragment


def replicas(count, sizes=(4, 4, 4, 4), generation=1):
    """Tensors of these many elements, whole on each of `count` dp replicas w0, w1, ..."""
    ranks = [ParallelRank(dp=dp) for dp in range(count)]
    tensors = [
        TensorDescriptor(f"t{t}", (size,), "bfloat16", 2, (), "v1", (ReplicatedAxis("dp"),))
        for t, size in enumerate(sizes)
    ]
    return WeightPlacementManifest.from_fragments(
        resource_id="m",
        revision="r",
        weight_generation=generation,
        placement_set_id="s",
        topology=ParallelTopology(
            tp_size=1,
            pp_size=1,
            ep_size=1,
            dp_size=count,
            participants=[TopologyParticipant(f"w{i}", rank) for i, rank in enumerate(ranks)],
        ),
        tensors=tensors,
        fragments=[
            PlacementFragment(tensor.tensor_id, (0,), tensor.global_shape, 2 * size, rank)
            for tensor, size in zip(tensors, sizes, strict=True)
            for rank in ranks
        ],
    )


def sent(plan):
    """Bytes by source dp rank."""
    counts = Counter()
    for region in plan.operations:
        counts[region.source.rank.dp] += region.total_bytes
    return dict(counts)


def binding(placement, participant, endpoints):
    part = next(p for p in placement.parts if p.participant_id == participant)
    return WeightRuntimeBindingManifest(
        resource_id=placement.resource_id,
        placement_id=placement.placement_id,
        placement_digest=placement.digest,
        instance_id="i",
        generation=0,
        lease_id="l",
        revision=placement.revision,
        participant_id=participant,
        fragments=[
            RuntimeBindingFragment(
                placement_fragment_id=fragment.placement_fragment_id,
                fragment_id=f"f{number}",
                address=4096 * (number + 1),
                nbytes=fragment.nbytes,
                worker_id=participant,
                endpoint=endpoint,
                device="cpu",
                itemsize=2,
                local_shape=fragment.local_shape,
                strides_bytes=(2,),
                storage_address=4096 * (number + 1),
                storage_nbytes=fragment.nbytes,
                storage_offset_bytes=0,
            )
            for number, (fragment, endpoint) in enumerate(
                zip(part.fragments, endpoints, strict=True)
            )
        ],
    )


def test_default_is_the_contracts_choice():
    source, target = replicas(4), replicas(1)
    plain = plan_placement_transfer(source, target)
    assert sent(plain) == {0: 32}
    assert plain.balance_digest is None
    assert plan_placement_transfer(source, target, balance=False) == plain


def test_reads_are_spread():
    source = replicas(4)
    plan = plan_placement_transfer(source, replicas(1), balance=True)
    assert sent(plan) == {0: 8, 1: 8, 2: 8, 3: 8}
    assert [e.participant_id for e in plan.source_executors] == ["w0", "w1", "w2", "w3"]
    assert plan.balance_digest == Balance().digest
    plan.validate_source_placement_snapshot()
    local = plan_placement_transfer_to_local_target(source, replicas(2), "w1", balance=True)
    assert sent(local) == {0: 8, 1: 8, 2: 8, 3: 8}


def test_own_host_first():
    source, target = replicas(2), replicas(2)
    balance = Balance({"w0": "a", "w1": "b"}, {"w0": "b", "w1": "a"})
    plan = plan_placement_transfer(source, target, balance=balance)
    assert {(r.source.rank.dp, r.target.rank.dp) for r in plan.operations} == {(1, 0), (0, 1)}
    local = plan_placement_transfer_to_local_target(source, target, "w0", balance=balance)
    assert sent(local) == {1: 32}


def test_hosts_of_bindings():
    placement = replicas(2)
    same = binding(placement, "w0", ["node-1:1", "node-1:2", "node-1", "tcp://node-1:7"])
    mixed = binding(placement, "w1", ["node-1", "node-2", "node-2", "node-2"])
    balance = Balance.of_bindings(source=[same, mixed], target=[same])
    assert balance == Balance({"w0": "node-1"}, {"w0": "node-1"})
    assert hash(balance) == hash(Balance({"w0": "node-1"}, {"w0": "node-1"}))
    assert balance != Balance() and balance != "x"


def test_another_balance_is_another_plan():
    source, target = replicas(2), replicas(2)
    plain = plan_placement_transfer(source, target)
    even = plan_placement_transfer(source, target, balance=True)
    near = plan_placement_transfer(source, target, balance=Balance({"w0": "a"}))
    digests = {plan.geometry_digest for plan in (plain, even, near)}
    assert len(digests) == 3
    assert plain != even
    assert even == plan_placement_transfer(source, target, balance=Balance())


def test_reuse_save_and_pickle_keep_it():
    source, target = replicas(3), replicas(2)
    plan = plan_placement_transfer(source, target, balance=True)
    next_source, next_target = replicas(3, generation=2), replicas(2, generation=2)
    planned = plan_placement_transfer(next_source, next_target, balance=True)
    assert plan.reuse(next_source, next_target) == planned
    saved = plan.save()
    assert LogicalTransferPlan.load(saved, next_source, next_target) == planned
    assert LogicalTransferPlan.load(saved, source, target).balance_digest == Balance().digest
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan and again.balance_digest == plan.balance_digest
    # By hand, nobody chose between replicas.
    assert dataclasses.replace(plan).balance_digest is None


def test_what_is_no_balance():
    source, target = replicas(2), replicas(2)
    for value in (1, "even", {"w0": "a"}):
        with refused("balance must be a bool or a Balance"):
            plan_placement_transfer(source, target, balance=value)
    with refused("balance source_hosts must be a mapping"):
        Balance(["w0"])
    for hosts in ({1: "a"}, {"w0": 1}, {"w0": ""}):
        with refused("balance target_hosts"):
            Balance({}, hosts)


def test_a_stored_source_has_nothing_to_choose():
    tensor = TensorDescriptor("t0", (4,), "bfloat16", 2, (), "v1", (OwnershipAxis("pp"),))
    stored = WeightManifest(
        namespace="n",
        resource_id="m",
        revision="r",
        weight_generation=1,
        group_id="g",
        manifest_key="g/manifest",
        tensors=[dataclasses.replace(tensor, parallel_axes=(ReplicatedAxis("dp"),))],
        fragments=[StoredFragment("f", "t0", (0,), (4,), "g/payload/f", 0, 8)],
        created_at="now",
    )
    target = replicas(2, (4,))
    plain = plan_stored_transfer_to_target_placement(stored, target)
    assert plan_stored_transfer_to_target_placement(stored, target, balance=True) == plain
    with refused("balance must be"):
        plan_stored_transfer_to_target_placement(stored, target, balance=0)


@pytest.mark.parametrize("balance", [False, True])
def test_limits_name_the_need(balance):
    source, target = replicas(2), replicas(2)
    with refused("exceeds max_transfer_regions: 3, it needs 8"):
        plan_placement_transfer(source, target, planning_limits=PlanningLimits(3), balance=balance)
    with refused("exceeds max_total_lowered_segments: 4 > 3, it needs 8"):
        plan_placement_transfer(
            source, target, planning_limits=PlanningLimits(8, 1, 3), balance=balance
        )
    with refused("exceeds max_transfer_regions: 3, it needs 4"):
        plan_placement_transfer_to_local_target(
            source, target, "w1", planning_limits=PlanningLimits(3), balance=balance
        )

"""Legacy one-dimensional records: what they become, and every conflict that is refused."""

import types

import pytest
from contract_samples import mini_placement, refused
from mooncake.reshard.adapters.runtime_v1 import runtime_v1_bindings, runtime_v1_placement
from mooncake.reshard.weight import (
    OwnershipAxis,
    ParallelRank,
    ReplicatedAxis,
    SplitAxis,
    plan_placement_transfer,
    validate_runtime_bindings,
)

FIELDS = {"resource_id": "m", "revision": "r", "weight_generation": 1}


def record(tp, size=2, **changes):
    fields = {
        "tensor_id": "w",
        "local_shape": [2, 2],
        "dtype": "bfloat16",
        "itemsize": 2,
        "partition_dim": 0,
        "tp_rank": tp,
        "tp_size": size,
    }
    return {k: v for k, v in (fields | changes).items() if v is not ...}


def made(*records):
    return runtime_v1_placement(records, **FIELDS)


def test_records_give_the_placement_that_the_base_contract_has():
    placement = runtime_v1_placement(
        [
            record(0, layer_id=0, layout_fingerprint="v1"),
            record(1, layer_id=0, layout_fingerprint="v1"),
        ],
        placement_set_id="s",
        **FIELDS,
    )
    mini = mini_placement()
    assert placement.tensors == mini.tensors and placement.fragments == mini.fragments
    assert not placement.extended


@pytest.mark.parametrize(
    "notation",
    [
        {"partition_dim": 0},
        {"partition_dim": ..., "shard_dims": [0]},
        {"partition_dim": 0, "shard_dims": (0,)},
    ],
)
def test_both_notations_of_a_cut(notation):
    assert made(record(0, **notation), record(1, **notation)) == made(record(0), record(1))


@pytest.mark.parametrize(
    "notation",
    [
        {"partition_dim": None},
        {"partition_dim": ..., "shard_dims": ()},
        {"partition_dim": None, "shard_dims": []},
    ],
)
def test_replicated_tensors(notation):
    placement = made(record(0, **notation), record(1, **notation))
    (tensor,) = placement.tensors
    assert tensor.global_shape == (2, 2) and tensor.shard_dims == ()
    assert tensor.parallel_axes == (ReplicatedAxis("tp"),)
    assert [f.global_offset for f in placement.fragments] == [(0, 0), (0, 0)]


def test_attribute_records_and_synonyms():
    objects = [
        types.SimpleNamespace(
            name="w",
            shape=(2, 2),
            dtype="bfloat16",
            nbytes=8,
            partition_dim=0,
            tp_rank=t,
            tp_size=2,
            anything_else=3,
        )
        for t in (0, 1)
    ]
    assert made(*objects) == made(record(0), record(1))


def test_uneven_shares_are_placed_by_their_own_extents():
    placement = made(
        *(record(t, size=3, local_shape=[2, e], partition_dim=1) for t, e in enumerate((3, 1, 2)))
    )
    assert placement.tensors[0].global_shape == (2, 6)
    assert placement.tensors[0].parallel_axes == (SplitAxis("tp", 1),)
    boxes = {f.rank.tp: (f.global_offset, f.local_shape) for f in placement.fragments}
    assert boxes == {0: ((0, 0), (2, 3)), 1: ((0, 3), (2, 1)), 2: ((0, 4), (2, 2))}
    whole = made(record(0, size=1, local_shape=[2, 6], partition_dim=1))
    assert len(plan_placement_transfer(placement, whole).operations) == 3
    assert whole.tensors[0].parallel_axes == ()


def test_data_and_pipeline_parallel_records():
    placement = made(
        *(
            record(t, tensor_id=f"layer.{p}", dp_rank=d, pp_rank=p, pipeline_stage_id=p)
            for d in (0, 1)
            for p in (0, 1)
            for t in (0, 1)
        )
    )
    assert placement.topology.world_size == 8
    assert placement.tensors[0].parallel_axes == (
        ReplicatedAxis("dp"),
        OwnershipAxis("pp"),
        SplitAxis("tp", 0),
    )


def test_bindings():
    records = [record(t, address=4096 * (1 + t), participant_id=f"worker-{t}") for t in (0, 1)]
    placement = made(*records)
    bindings = runtime_v1_bindings(placement, records, instance_id="i", generation=3, lease_id="l")
    validate_runtime_bindings(placement, bindings)
    assert [b.participant_id for b in bindings] == ["worker-0", "worker-1"]
    assert [b.fragments[0].address for b in bindings] == [4096, 8192]
    with refused("runtime_v1 address of w must be an integer, got None"):
        runtime_v1_bindings(placement, [record(0)], instance_id="i", generation=3, lease_id="l")
    with refused("the placement has no fragment of x at ParallelRank(dp=0, tp=0, pp=0, ep=0)"):
        runtime_v1_bindings(
            placement,
            [record(0, tensor_id="x", address=1)],
            instance_id="i",
            generation=3,
            lease_id="l",
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shard_dims": [1]}, "partition_dim and shard_dims of w conflict: 0 and (1,)"),
        ({"shard_dims": []}, "partition_dim and shard_dims of w conflict: 0 and ()"),
        ({"partition_dim": None, "shard_dims": [0]}, "of w conflict: None and (0,)"),
        ({"partition_dim": ...}, "record of w needs partition_dim or shard_dims"),
        ({"partition_dim": 2}, "partition_dim of w is out of range: 2 of 2 dimensions"),
        ({"partition_dim": -1}, "partition_dim of w must be at least 0, got -1"),
        ({"partition_dim": True}, "partition_dim of w must be an integer, got True"),
        ({"partition_dim": ..., "shard_dims": [0, 1]}, "at most one dimension, got (0, 1)"),
        ({"name": "x"}, "name and tensor_id conflict: 'x' and 'w'"),
        ({"shape": [4, 2]}, "shape and local_shape conflict"),
        ({"local_shape": []}, "local_shape of w must not be empty"),
        ({"local_shape": [0, 2]}, "local_shape of w must be at least 1, got 0"),
        ({"local_shape": "22"}, "local_shape of w must contain integers"),
        ({"itemsize": ...}, "record of w needs an itemsize"),
        ({"itemsize": ..., "nbytes": 7}, "that its shape (2, 2) divides, got 7"),
        ({"nbytes": 16}, "nbytes of w conflicts with its shape: expected 8, got 16"),
        ({"tp_rank": 2}, "tp_rank of w must be below 2, got 2"),
        ({"tp_size": 3}, "tp_size differs between records of w and w: 3 and 2"),
        (
            {"dtype": "float16"},
            "dtype differs between records of w and w: 'float16' and 'bfloat16'",
        ),
        ({"local_shape": [2, 3]}, "differ apart from dimension 0: (2, 3) at tp rank 0, (2, 2)"),
        ({"partition_dim": 1}, "partition_dim differs between records of w and w: 1 and 0"),
        ({"global_shape": [5, 2]}, "global_shape of w conflicts with the local shapes"),
        ({"global_offset": [1, 0]}, "expected (0, 0), got (1, 0)"),
        ({"tensor_id": ""}, "tensor_id must be a non-empty string"),
        ({"dtype": ...}, "dtype of w must be a non-empty string"),
        ({"tp_dim": 0}, "unknown runtime_v1 fields: tp_dim"),
        ({"participant_id": "dp0-pp0-tp1"}, "participant dp0-pp0-tp1 has two ranks"),
    ],
)
def test_refusals(changes, message):
    with refused(message):
        made(record(0, **changes), record(1))


def test_ranks_that_are_missing_or_disagree():
    with refused("records of w lack tp ranks [1]"):
        made(record(0))
    with refused("replicas of w differ in shape at tp rank 0: (2, 2) and (3, 2)"):
        made(record(0), record(1), record(0, local_shape=[3, 2], dp_rank=1), record(1, dp_rank=1))
    with refused("runtime_v1 records must not be empty"):
        made()
    with refused("duplicate fragment_id"):
        made(record(0), record(0), record(1))
    assert made(record(1), record(0)).fragments[0].rank == ParallelRank(tp=0)

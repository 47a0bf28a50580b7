"""Small contract values for the tests beside this, and their ids as json and hashlib make them."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from mooncake.reshard.weight import (
    ParallelRank,
    ParallelTopology,
    PlacementFragment,
    RuntimeBindingFragment,
    SplitAxis,
    StoredFragment,
    TensorDescriptor,
    TopologyParticipant,
    WeightManifest,
    WeightPlacementManifest,
    WeightRuntimeBindingManifest,
)

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "reshard_vectors.json").read_text(encoding="utf-8")
)


def refused(message, kind=ValueError):
    """A context that wants exactly this failure, wherever the message goes on."""
    return pytest.raises(kind, match=re.escape(message))


class Text(str):
    """A subclass of str: not a str to the contracts."""


class Number(int):
    """A subclass of int: not an int to the contracts."""


ROWS_OVER_TP = (SplitAxis("tp", 0),)


def tensor(tensor_id="w", shape=(4, 2), axes=ROWS_OVER_TP, **changes):
    fields = {
        "tensor_id": tensor_id,
        "global_shape": shape,
        "dtype": "bfloat16",
        "itemsize": 2,
        "shard_dims": tuple(sorted(axis.dim for axis in axes if isinstance(axis, SplitAxis))),
        "layout_fingerprint": "v1",
        "parallel_axes": axes,
        "layer_id": 0,
    }
    return TensorDescriptor(**(fields | changes))


def fragment(offset, shape, rank=None, tensor_id="w", itemsize=2, **changes):
    nbytes = itemsize
    for extent in shape:
        nbytes *= extent
    fields = {
        "tensor_id": tensor_id,
        "global_offset": offset,
        "local_shape": shape,
        "nbytes": nbytes,
        "rank": rank or ParallelRank(),
    }
    return PlacementFragment(**(fields | changes))


def topology(ranks, **sizes):
    """Participants w0, w1, ... of these ranks; every axis as long as they need."""
    needed = {
        f"{axis}_size": 1 + max(getattr(rank, axis) for rank in ranks)
        for axis in ("dp", "tp", "pp", "ep")
    }
    participants = [TopologyParticipant(f"w{i}", rank) for i, rank in enumerate(ranks)]
    return ParallelTopology(participants=participants, **(needed | sizes))


def placement(tensors, fragments, ranks, sizes=None, **changes):
    fields = {
        "resource_id": "m",
        "revision": "r",
        "weight_generation": 1,
        "placement_set_id": "s",
        "topology": topology(ranks, **(sizes or {})),
        "tensors": tensors,
        "fragments": fragments,
    }
    return WeightPlacementManifest.from_fragments(**(fields | changes))


def mini_placement(**changes):
    """The (4, 2) bf16 tensor `w`, rows split over two tp ranks: GOLDEN["mini"]."""
    ranks = [ParallelRank(tp=0), ParallelRank(tp=1)]
    return placement(
        [tensor()],
        [fragment((0, 0), (2, 2), ranks[0]), fragment((2, 0), (2, 2), ranks[1])],
        ranks,
        **changes,
    )


def single_placement(**changes):
    """The same tensor, whole on one rank."""
    given = {"tensors": [tensor(axes=())], "fragments": [fragment((0, 0), (4, 2))]} | changes
    return placement(ranks=[ParallelRank()], **given)


def bound(frag, address=0x1000, **changes):
    strides, step = [], 2
    for extent in reversed(frag.local_shape):
        strides.insert(0, step)
        step *= extent
    fields = {
        "placement_fragment_id": frag.placement_fragment_id,
        "fragment_id": f"live:{frag.placement_fragment_id}",
        "address": address,
        "nbytes": frag.nbytes,
        "worker_id": "worker",
        "endpoint": "host",
        "device": "cpu",
        "itemsize": 2,
        "local_shape": frag.local_shape,
        "strides_bytes": tuple(strides),
        "storage_address": address,
        "storage_nbytes": frag.nbytes,
        "storage_offset_bytes": 0,
    }
    return RuntimeBindingFragment(**(fields | changes))


def binding(of, participant, fragments, **changes):
    fields = {
        "resource_id": of.resource_id,
        "placement_id": of.placement_id,
        "placement_digest": of.digest,
        "instance_id": "i",
        "generation": 0,
        "lease_id": "l",
        "revision": of.revision,
        "participant_id": participant,
        "fragments": fragments,
    }
    return WeightRuntimeBindingManifest(**(fields | changes))


def stored_fragment(offset, shape, key="0", object_offset=0, itemsize=2, **changes):
    nbytes = itemsize
    for extent in shape:
        nbytes *= extent
    fields = {
        "fragment_id": f"f{key}",
        "tensor_id": "w",
        "global_offset": offset,
        "local_shape": shape,
        "object_key": f"weights/d/m/r/1/payload/{key}",
        "object_offset": object_offset,
        "nbytes": nbytes,
    }
    return StoredFragment(**(fields | changes))


def stored(tensors=None, fragments=None, **changes):
    """GOLDEN["mini_stored"]."""
    fields = {
        "namespace": "d",
        "resource_id": "m",
        "revision": "r",
        "weight_generation": 1,
        "group_id": "weights/d/m/r/1",
        "manifest_key": "weights/d/m/r/1/manifest",
        "tensors": [tensor()] if tensors is None else tensors,
        "fragments": [stored_fragment((0, 0), (4, 2))] if fragments is None else fragments,
        "created_at": "2026-01-01T00:00:00Z",
    }
    return WeightManifest(**(fields | changes))


# ---- the canonical forms, from Python's own json ------------------------------------------------


def canonical(value, ensure_ascii=True):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ensure_ascii)


def sha256(value):
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def rank_object(rank):
    return {"dp": rank.dp, "tp": rank.tp, "pp": rank.pp, "ep": rank.ep}


def axis_object(axis):
    semantics = type(axis).__name__.removesuffix("Axis").lower()
    return {"semantics": semantics, **vars(axis)}


def tensor_object(descriptor):
    return vars(descriptor) | {
        "parallel_axes": [axis_object(axis) for axis in descriptor.parallel_axes]
    }


def fragment_object(frag, with_id=True):
    value = vars(frag) | {"rank": rank_object(frag.rank)}
    if frag.pipeline_stage_id is None:
        del value["pipeline_stage_id"]
    if not with_id:
        del value["placement_fragment_id"]
    return value


def topology_object(of):
    return {
        "tp_size": of.tp_size,
        "pp_size": of.pp_size,
        "ep_size": of.ep_size,
        "dp_size": of.dp_size,
        "topology_id": of.topology_id,
        "participants": [
            {"participant_id": p.participant_id, "rank": rank_object(p.rank)}
            for p in of.participants
        ],
    }


def placement_object(of):
    """The wire object of a placement."""
    return {
        "resource_kind": "model_weight",
        "resource_id": of.resource_id,
        "revision": of.revision,
        "weight_generation": of.weight_generation,
        "placement_set_id": of.placement_set_id,
        "placement_id": of.placement_id,
        "topology": topology_object(of.topology),
        "tensors": [tensor_object(t) for t in of.tensors],
        "parts": [
            {
                "participant_id": part.participant_id,
                "rank": rank_object(part.rank),
                "fragments": [fragment_object(f) for f in part.fragments],
            }
            for part in of.parts
        ],
    }

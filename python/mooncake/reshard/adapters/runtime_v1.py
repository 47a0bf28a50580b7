"""Legacy inputs: one-dimensional tensor-parallel records (runtime_v1) as placements and bindings.

A record is one rank's share of one tensor, as a mapping or as an object with attributes. Fields
(docs/contracts.md, "Legacy inputs", says what each means):

    tensor_id (or name)                 required
    local_shape (or shape)              required: of this rank's share
    dtype, tp_rank, tp_size             required
    partition_dim and/or shard_dims     None, (): every tp rank holds all; d, (d,): cut along d
    itemsize, nbytes                    at least one of them
    dp_rank, pp_rank                    0 where absent
    global_shape, global_offset         optional: must be what the local shapes give
    layer_id, expert_id, layout_fingerprint, pipeline_stage_id, aliases, participant_id
    address, device, endpoint, worker_id, fragment_id    for bindings only

The rules are the base contract's: what comes out is an ordinary placement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..weight import (
    OwnershipAxis,
    ParallelRank,
    ParallelTopology,
    PlacementFragment,
    ReplicatedAxis,
    RuntimeBindingFragment,
    SplitAxis,
    TensorDescriptor,
    TopologyParticipant,
    WeightPlacementManifest,
    WeightRuntimeBindingManifest,
)
from ..weight.types import canonical_strides_bytes

__all__ = ["runtime_v1_bindings", "runtime_v1_placement"]

_SYNONYMS = {"name": "tensor_id", "shape": "local_shape"}
_FIELDS = frozenset(
    "tensor_id local_shape dtype tp_rank tp_size partition_dim shard_dims itemsize nbytes dp_rank "
    "pp_rank global_shape global_offset layer_id expert_id layout_fingerprint pipeline_stage_id "
    "aliases participant_id address device endpoint worker_id fragment_id".split()
)


@dataclass(frozen=True)
class _Share:
    """A record, read: one rank's share of one tensor."""

    fields: Mapping[str, Any]
    tensor_id: str
    local_shape: tuple[int, ...]
    dtype: str
    itemsize: int
    dim: Optional[int]
    tp_size: int
    rank: ParallelRank

    @property
    def participant_id(self) -> str:
        rank = self.rank
        given = self.fields.get("participant_id")
        return f"dp{rank.dp}-pp{rank.pp}-tp{rank.tp}" if given is None else given

    @property
    def nbytes(self) -> int:
        return self.itemsize * math.prod(self.local_shape)


def runtime_v1_placement(
    records: Iterable[Any],
    *,
    resource_id: str,
    revision: str,
    weight_generation: int,
    placement_set_id: str = "runtime-v1",
) -> WeightPlacementManifest:
    """The placement that `records` of all ranks describe.

    ValueError names the tensor and the values that disagree: between the two notations of a cut,
    between ranks, or between a record and what the local shapes give.
    """
    shares = [_read(record) for record in records]
    if not shares:
        raise ValueError("runtime_v1 records must not be empty")
    tp_size = _agreed("tp_size", shares, lambda share: share.tp_size)
    by_tensor: dict[str, list[_Share]] = {}
    for share in shares:
        by_tensor.setdefault(share.tensor_id, []).append(share)
    participants = _participants(shares)
    ranks = participants.values()
    topology = ParallelTopology(
        tp_size=tp_size,
        pp_size=1 + max(rank.pp for rank in ranks),
        ep_size=1,
        dp_size=1 + max(rank.dp for rank in ranks),
        participants=[TopologyParticipant(name, rank) for name, rank in participants.items()],
    )
    tensors, fragments = [], []
    for tensor_id, group in sorted(by_tensor.items()):
        boxes = _boxes(tensor_id, group)
        tensors.append(_descriptor(tensor_id, group, boxes, topology))
        fragments += [_fragment(share, boxes[share.rank.tp], tensors[-1]) for share in group]
    return WeightPlacementManifest.from_fragments(
        resource_id=resource_id,
        revision=revision,
        weight_generation=weight_generation,
        placement_set_id=placement_set_id,
        topology=topology,
        tensors=tensors,
        fragments=fragments,
    )


def runtime_v1_bindings(
    placement: WeightPlacementManifest,
    records: Iterable[Any],
    *,
    instance_id: str,
    generation: int,
    lease_id: str,
) -> tuple[WeightRuntimeBindingManifest, ...]:
    """One binding a participant from records with addresses, which may be of some ranks only."""
    by_participant: dict[str, list[_Share]] = {}
    for share in map(_read, records):
        by_participant.setdefault(share.participant_id, []).append(share)
    known = {
        (f.tensor_id, f.rank): f.placement_fragment_id
        for part in placement.parts
        for f in part.fragments
    }
    bindings = []
    for participant_id, group in sorted(by_participant.items()):
        fragments = []
        for share in group:
            key = (share.tensor_id, share.rank)
            if key not in known:
                raise ValueError(
                    f"the placement has no fragment of {share.tensor_id} at {share.rank}"
                )
            fragments.append(_runtime_fragment(share, known[key]))
        bindings.append(
            WeightRuntimeBindingManifest(
                resource_id=placement.resource_id,
                placement_id=placement.placement_id,
                placement_digest=placement.digest,
                instance_id=instance_id,
                generation=generation,
                lease_id=lease_id,
                revision=placement.revision,
                participant_id=participant_id,
                fragments=fragments,
            )
        )
    return tuple(bindings)


# ---- reading one record ----


def _read(record: Any) -> _Share:
    fields = _fields(record)
    name = fields.get("tensor_id")
    if type(name) is not str or not name:
        raise ValueError("runtime_v1 tensor_id must be a non-empty string")
    shape = _ints(name, "local_shape", fields, least=1)
    if not shape:
        raise ValueError(f"runtime_v1 local_shape of {name} must not be empty")
    tp_size = _int(name, "tp_size", fields, least=1)
    rank = ParallelRank(
        dp=_int(name, "dp_rank", fields, default=0),
        tp=_int(name, "tp_rank", fields),
        pp=_int(name, "pp_rank", fields, default=0),
    )
    if rank.tp >= tp_size:
        raise ValueError(f"runtime_v1 tp_rank of {name} must be below {tp_size}, got {rank.tp}")
    dtype = fields.get("dtype")
    if type(dtype) is not str or not dtype:
        raise ValueError(f"runtime_v1 dtype of {name} must be a non-empty string")
    return _Share(
        fields=fields,
        tensor_id=name,
        local_shape=shape,
        dtype=dtype,
        itemsize=_itemsize(name, fields, shape),
        dim=_dim(name, fields, len(shape)),
        tp_size=tp_size,
        rank=rank,
    )


def _fields(record: Any) -> dict[str, Any]:
    """The record's fields under their first names; both names of one field must agree."""
    if isinstance(record, Mapping):
        unknown = sorted(set(map(str, record)) - _FIELDS - set(_SYNONYMS))
        if unknown:
            raise ValueError(f"unknown runtime_v1 fields: {', '.join(unknown)}")
        given = dict(record)
    else:
        given = {
            name: getattr(record, name) for name in (*_FIELDS, *_SYNONYMS) if hasattr(record, name)
        }
    fields = {name: value for name, value in given.items() if name not in _SYNONYMS}
    for synonym, name in _SYNONYMS.items():
        if synonym not in given:
            continue
        if name in fields and fields[name] != given[synonym]:
            raise ValueError(
                f"runtime_v1 {synonym} and {name} conflict: {given[synonym]!r} and {fields[name]!r}"
            )
        fields[name] = given[synonym]
    return fields


def _int(
    name: str, field: str, fields: Mapping[str, Any], *, least: int = 0, default: Any = None
) -> int:
    value = fields.get(field, default)
    if type(value) is not int:
        raise ValueError(f"runtime_v1 {field} of {name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"runtime_v1 {field} of {name} must be at least {least}, got {value}")
    return value


def _ints(name: str, field: str, fields: Mapping[str, Any], *, least: int = 0) -> tuple[int, ...]:
    values = fields.get(field)
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise ValueError(f"runtime_v1 {field} of {name} must contain integers, got {values!r}")
    return tuple(_int(name, field, {field: value}, least=least) for value in values)


def _itemsize(name: str, fields: Mapping[str, Any], shape: tuple[int, ...]) -> int:
    elements = math.prod(shape)
    nbytes = None
    if fields.get("nbytes") is not None:
        nbytes = _int(name, "nbytes", fields, least=1)
    if fields.get("itemsize") is not None:
        itemsize = _int(name, "itemsize", fields, least=1)
    elif nbytes is not None and nbytes % elements == 0:
        itemsize = nbytes // elements
    else:
        raise ValueError(
            f"runtime_v1 record of {name} needs an itemsize, or nbytes that its shape {shape} "
            f"divides, got {nbytes}"
        )
    if nbytes is not None and nbytes != itemsize * elements:
        raise ValueError(
            f"runtime_v1 nbytes of {name} conflicts with its shape: expected "
            f"{itemsize * elements}, got {nbytes}"
        )
    return itemsize


def _dim(name: str, fields: Mapping[str, Any], rank: int) -> Optional[int]:
    """The dimension that tp cuts, from either notation or both."""
    if "partition_dim" not in fields and "shard_dims" not in fields:
        raise ValueError(f"runtime_v1 record of {name} needs partition_dim or shard_dims")
    dims = []
    if "partition_dim" in fields:
        value = fields["partition_dim"]
        dims.append(None if value is None else _int(name, "partition_dim", fields))
    if "shard_dims" in fields:
        given = _ints(name, "shard_dims", fields)
        if len(given) > 1:
            raise ValueError(
                f"runtime_v1 shard_dims of {name} must have at most one dimension, got {given}"
            )
        dims.append(given[0] if given else None)
    if len(set(dims)) > 1:
        raise ValueError(
            f"runtime_v1 partition_dim and shard_dims of {name} conflict: "
            f"{fields['partition_dim']!r} and {tuple(fields['shard_dims'])!r}"
        )
    if dims[0] is not None and dims[0] >= rank:
        raise ValueError(
            f"runtime_v1 partition_dim of {name} is out of range: {dims[0]} of {rank} dimensions"
        )
    return dims[0]


# ---- joining the ranks ----


def _agreed(field: str, group: list[_Share], value_of: Any) -> Any:
    first = value_of(group[0])
    for share in group:
        if value_of(share) != first:
            raise ValueError(
                f"runtime_v1 {field} differs between records of {group[0].tensor_id} and "
                f"{share.tensor_id}: {first!r} and {value_of(share)!r}"
            )
    return first


def _participants(shares: list[_Share]) -> dict[str, ParallelRank]:
    participants: dict[str, ParallelRank] = {}
    for share in shares:
        known = participants.setdefault(share.participant_id, share.rank)
        if known != share.rank:
            raise ValueError(
                f"runtime_v1 participant {share.participant_id} has two ranks: {known} and "
                f"{share.rank}"
            )
    return participants


def _boxes(
    tensor_id: str, group: list[_Share]
) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """tp rank -> (offset, shape): shares lie one after the other in the order of the ranks."""
    dim = _agreed("partition_dim", group, lambda share: share.dim)
    shapes: dict[int, tuple[int, ...]] = {}
    for share in group:
        known = shapes.setdefault(share.rank.tp, share.local_shape)
        if known != share.local_shape:
            raise ValueError(
                f"runtime_v1 replicas of {tensor_id} differ in shape at tp rank {share.rank.tp}: "
                f"{known} and {share.local_shape}"
            )
    missing = sorted(set(range(group[0].tp_size)) - set(shapes))
    if missing:
        raise ValueError(f"runtime_v1 records of {tensor_id} lack tp ranks {missing}")
    boxes = {}
    begin = 0
    for tp in sorted(shapes):
        shape, first = shapes[tp], shapes[0]
        if len(shape) != len(first) or any(
            a != b for d, (a, b) in enumerate(zip(shape, first, strict=True)) if d != dim
        ):
            raise ValueError(
                f"runtime_v1 shapes of {tensor_id} differ apart from dimension {dim}: {first} at "
                f"tp rank 0, {shape} at tp rank {tp}"
            )
        offset = [0] * len(shape)
        if dim is not None:
            offset[dim] = begin
            begin += shape[dim]
        boxes[tp] = (tuple(offset), shape)
    return boxes


def _descriptor(
    tensor_id: str,
    group: list[_Share],
    boxes: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]],
    topology: ParallelTopology,
) -> TensorDescriptor:
    dim = group[0].dim
    shape = list(boxes[0][1])
    if dim is not None:
        shape[dim] = sum(extents[dim] for _, extents in boxes.values())
    split = dim is not None and topology.tp_size > 1
    axes: list[Any] = []
    if topology.dp_size > 1:
        axes.append(ReplicatedAxis("dp"))
    if topology.pp_size > 1:
        axes.append(OwnershipAxis("pp"))
    if topology.tp_size > 1:
        axes.append(SplitAxis("tp", dim) if split else ReplicatedAxis("tp"))
    return TensorDescriptor(
        tensor_id=tensor_id,
        global_shape=tuple(shape),
        dtype=_agreed("dtype", group, lambda share: share.dtype),
        itemsize=_agreed("itemsize", group, lambda share: share.itemsize),
        shard_dims=(dim,) if split else (),
        layout_fingerprint=_agreed(
            "layout_fingerprint",
            group,
            lambda share: share.fields.get("layout_fingerprint", "runtime-v1"),
        ),
        parallel_axes=axes,
        layer_id=_agreed("layer_id", group, lambda share: share.fields.get("layer_id")),
        expert_id=_agreed("expert_id", group, lambda share: share.fields.get("expert_id")),
    )


def _fragment(
    share: _Share, box: tuple[tuple[int, ...], tuple[int, ...]], tensor: TensorDescriptor
) -> PlacementFragment:
    derived = {"global_shape": tensor.global_shape, "global_offset": box[0]}
    for field, expected in derived.items():
        given = share.fields.get(field)
        if given is not None and tuple(given) != expected:
            raise ValueError(
                f"runtime_v1 {field} of {share.tensor_id} conflicts with the local shapes at tp "
                f"rank {share.rank.tp}: expected {expected}, got {tuple(given)}"
            )
    return PlacementFragment(
        tensor_id=share.tensor_id,
        global_offset=box[0],
        local_shape=box[1],
        nbytes=share.nbytes,
        rank=share.rank,
        pipeline_stage_id=share.fields.get("pipeline_stage_id"),
        aliases=tuple(share.fields.get("aliases") or ()),
    )


def _runtime_fragment(share: _Share, placement_fragment_id: str) -> RuntimeBindingFragment:
    address = _int(share.tensor_id, "address", share.fields, least=1)
    return RuntimeBindingFragment(
        placement_fragment_id=placement_fragment_id,
        fragment_id=share.fields.get(
            "fragment_id", f"{share.participant_id}:{placement_fragment_id}"
        ),
        address=address,
        nbytes=share.nbytes,
        worker_id=share.fields.get("worker_id", share.participant_id),
        endpoint=share.fields.get("endpoint", "localhost"),
        device=share.fields.get("device", "cpu"),
        itemsize=share.itemsize,
        local_shape=share.local_shape,
        strides_bytes=canonical_strides_bytes(share.local_shape, share.itemsize),
        storage_address=address,
        storage_nbytes=share.nbytes,
        storage_offset_bytes=0,
    )

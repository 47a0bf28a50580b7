"""What the demo's worker processes do: publish one rank's share, load one rank's share."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy
import torch

from mooncake.reshard.adapters import CheckpointAdapter, ParallelLayout, layout_placement
from mooncake.reshard.weight import WeightIdentity, WeightProgress, WeightStore, bind_tensors

from .fleet import Rank
from .models import Model

__all__ = ["LoadResult", "PublishResult", "load", "publish"]


@dataclass
class PublishResult:
    bytes_uploaded: int
    seconds_copy: float  # inside the puts
    seconds: float  # from begin to READY


@dataclass
class LoadResult:
    tensors: int
    regions: int
    bytes_needed: int
    bytes_moved: int
    seconds: list[float]  # each load, from a common start
    copy_seconds: list[float]  # each plain copy of the same bytes
    plan_seconds: float  # of the first load
    bytes_checked: int
    embeddings: Optional[Any] = None
    wrong: list[str] = field(default_factory=list)


def publish(
    rank: Rank, target: str, model: Model, layout: ParallelLayout, identity: WeightIdentity
) -> PublishResult:
    adapter = CheckpointAdapter(identity, layout, participants=[rank.participant])
    last: list[WeightProgress] = []
    with WeightStore(target, threads=rank.threads) as store:
        adapter.placement(model)
        rank.meet()
        started = time.monotonic()
        with store.weight_put(model, adapter, progress=last.append) as writer:
            for tensor_id, tensor in adapter.tensors(model):
                writer.weight_put_tensor(tensor_id, tensor)
        seconds = time.monotonic() - started
    return PublishResult(last[-1].bytes_moved, last[-1].stage_seconds["copy"], seconds)


def load(
    rank: Rank,
    target: str,
    model: Model,
    layout: ParallelLayout,
    identity: WeightIdentity,
    repeat: int,
    sentences: Sequence[str],
) -> LoadResult:
    torch.set_num_threads(rank.threads)
    placement = layout_placement(model.tensors, layout, identity)
    part = next(p for p in placement.parts if p.participant_id == rank.participant)
    dtypes = {t.tensor_id: getattr(torch, t.dtype) for t in part.tensors}
    # Final buffers, touched before the clock starts.
    buffers = {
        f.tensor_id: torch.zeros(f.local_shape, dtype=dtypes[f.tensor_id]).contiguous()
        for f in part.fragments
    }
    binding = bind_tensors(placement, rank.participant, buffers)
    last: list[WeightProgress] = []
    seconds = []
    plan_seconds = 0.0
    with WeightStore(target, threads=rank.threads) as store:
        for _ in range(repeat):
            for buffer in buffers.values():
                _bytes(buffer).fill_(0xA5)
            rank.meet()
            started = time.monotonic()
            store.weight_get(identity, placement, binding, progress=last.append)
            rank.meet()
            seconds.append(time.monotonic() - started)
            # Later loads reuse the plan: the first one's time is the plan's.
            plan_seconds = plan_seconds or last[-1].stage_seconds["plan"]
    copies = _plain_copies(rank, buffers, repeat)
    done = last[-1]
    result = LoadResult(
        tensors=done.tensors,
        regions=done.regions,
        bytes_needed=done.bytes_needed,
        bytes_moved=done.bytes_moved,
        seconds=seconds,
        copy_seconds=copies,
        plan_seconds=plan_seconds,
        bytes_checked=0,
    )
    for fragment in part.fragments:
        expected = model.read(fragment.tensor_id, fragment.global_offset, fragment.local_shape)
        if not torch.equal(_bytes(buffers[fragment.tensor_id]), _bytes(expected)):
            result.wrong.append(fragment.tensor_id)
        result.bytes_checked += fragment.nbytes
    if sentences and hasattr(model, "embeddings"):
        result.embeddings = model.embeddings(buffers, sentences).numpy()
    return result


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _plain_copies(rank: Rank, buffers: dict[str, torch.Tensor], repeat: int) -> list[float]:
    """Seconds of copying the same bytes between two buffers of this process, all ranks at once."""
    copies = {name: torch.zeros_like(buffer) for name, buffer in buffers.items()}
    seconds = []
    for _ in range(repeat):
        rank.meet()
        started = time.monotonic()
        for name, buffer in buffers.items():
            copies[name].copy_(buffer)
        rank.meet()
        seconds.append(time.monotonic() - started)
    return seconds


def fleet_seconds(rounds: Sequence[Sequence[float]]) -> float:
    """Median over the rounds of the slowest rank; `rounds[rank][round]`."""
    return statistics.median(max(of_round) for of_round in zip(*rounds, strict=True))


def equal_bits(a: Any, b: Any) -> bool:
    return a.shape == b.shape and numpy.array_equal(
        numpy.ascontiguousarray(a).view(numpy.uint8), numpy.ascontiguousarray(b).view(numpy.uint8)
    )

"""Transfer regions: one strided N-D copy between two fragments, however many runs it has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from operator import mul
from typing import Generic, TypeVar, Union

from mooncake import _core
from mooncake.reshard.contracts import TensorId
from mooncake.reshard.weight.storage_manifest import StoredFragment
from mooncake.reshard.weight.types import PlacementFragment

SourceT = TypeVar("SourceT")
TargetT = TypeVar("TargetT")


@dataclass(frozen=True)
class TransferRegion(Generic[SourceT, TargetT]):
    """The overlap of two fragments as nested loops over one contiguous run.

    Byte offsets and strides are relative to the start of each fragment's own dense row-major
    buffer: `inner_bytes` at a time, repeated by `outer_loop_counts`, outermost first. The form is
    canonical: trailing dimensions are folded into the run while both sides are dense.
    """

    tensor_id: TensorId
    source: SourceT
    target: TargetT
    overlap_offset: tuple[int, ...]
    overlap_shape: tuple[int, ...]
    source_base_offset: int
    target_base_offset: int
    inner_bytes: int
    outer_loop_counts: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]

    def __post_init__(self) -> None:
        _core.check_transfer_region(self)

    @property
    def segment_count(self) -> int:
        """The number of contiguous runs."""
        return math.prod(self.outer_loop_counts)

    @property
    def total_bytes(self) -> int:
        return self.inner_bytes * self.segment_count

    @property
    def source_offset(self) -> int:
        return self.source_base_offset

    @property
    def target_offset(self) -> int:
        return self.target_base_offset

    @property
    def nbytes(self) -> int:
        """Bytes of one run."""
        return self.inner_bytes

    @property
    def repeat(self) -> int:
        return self.segment_count

    @property
    def source_stride(self) -> int:
        return _only_stride(self.source_strides, "source")

    @property
    def target_stride(self) -> int:
        return _only_stride(self.target_strides, "target")

    def iter_segments(self, *, max_segments: int) -> Iterator[tuple[int, int, int]]:
        """Every run as (source offset, target offset, bytes), the last loop fastest.

        ValueError on the first `next` when there are more than `max_segments`.
        """
        if type(max_segments) is not int or max_segments < 1:
            raise ValueError("max_segments must be a positive integer")
        if self.segment_count > max_segments:
            raise ValueError(
                f"transfer region exceeds max_segments: {self.segment_count} > {max_segments}"
            )
        index = [0] * len(self.outer_loop_counts)
        for _ in range(self.segment_count):
            yield (
                self.source_base_offset + sum(map(mul, index, self.source_strides)),
                self.target_base_offset + sum(map(mul, index, self.target_strides)),
                self.inner_bytes,
            )
            for loop in reversed(range(len(index))):
                index[loop] += 1
                if index[loop] < self.outer_loop_counts[loop]:
                    break
                index[loop] = 0

    def validate_bounds(self) -> None:
        """ValueError unless every run lies in both fragments."""
        _core.check_transfer_region_bounds(self)


LogicalTransferOperation = TransferRegion[
    Union[PlacementFragment, StoredFragment], PlacementFragment
]


def _only_stride(strides: tuple[int, ...], side: str) -> int:
    if len(strides) > 1:
        raise ValueError(f"N-D transfer region has multiple {side} strides")
    return strides[0] if strides else 0

"""What a framework writes once so that its weights can be stored: the adapter Protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from .management import WeightIdentity
from .placement import WeightPlacementManifest

__all__ = ["WeightAdapter"]

SnapshotT = TypeVar("SnapshotT", contravariant=True)


class WeightAdapter(Protocol[SnapshotT]):
    """Turns a framework's snapshot of its weights into the contracts of this package.

    A *snapshot* is whatever the framework has: a state dict, a checkpoint folder, a live model. It
    must not change while a put is running. Every rank of a job answers `placement` alike; the other
    methods answer for the calling process only.
    """

    def identity(self, snapshot: SnapshotT) -> WeightIdentity:
        """The revision that the snapshot is to become."""

    def placement(self, snapshot: SnapshotT) -> WeightPlacementManifest:
        """How all participants together hold the model, without addresses."""

    def participants(self, snapshot: SnapshotT) -> Sequence[str]:
        """The participants of the placement that this process acts for (possibly none)."""

    def tensors(self, snapshot: SnapshotT) -> Iterable[tuple[str, Any]]:
        """(tensor id, local tensor) of what this process holds, for `weight_put_tensor`."""

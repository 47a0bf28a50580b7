"""`WeightWriter`: this process's part of one publish."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

from .bind import check_fragment_memory
from .core import metadata_of, open_cores, store_errors
from .errors import WeightInvalidArgumentError, WeightStoreError
from .management import WeightIdentity, WeightProgress, WeightRevisionMetadata
from .memory import memory_of
from .placement import WeightPlacementManifest

__all__ = ["ProgressCallback", "WeightWriter"]

logger = logging.getLogger("mooncake.weight")

ProgressCallback = Callable[[WeightProgress], Any]

_CANDIDATES_SHOWN = 8


class WeightWriter:
    """The publish of one revision by this process: a context manager from `weight_put`.

    Each tensor's bytes are in the store when `weight_put_tensor` returns, so the tensor may be
    reused then. Methods may be called from several threads.
    """

    def __init__(
        self,
        importer: Any,
        identity: WeightIdentity,
        placement: WeightPlacementManifest,
        participants: Sequence[str],
        timeout: float,
        progress: Optional[ProgressCallback],
        started: float,
    ) -> None:
        self._core = importer
        open_cores.add(self)
        self._identity = identity
        self._placement = placement
        self._timeout = timeout
        self._progress = progress
        self._started = started
        self._metadata: Optional[WeightRevisionMetadata] = None
        self._bytes_put = 0
        self._descriptors: dict[str, Any] = {}
        self._fragments: dict[str, list[tuple[str, Any]]] = {}
        local = set(participants)
        for part in placement.parts:
            if part.participant_id not in local:
                continue
            for tensor in part.tensors:
                self._descriptors[tensor.tensor_id] = tensor
            for fragment in part.fragments:
                self._fragments.setdefault(fragment.tensor_id, []).append(
                    (part.participant_id, fragment)
                )
        wanted = {
            fragment_id
            for participant in participants
            for fragment_id in importer.wanted_fragments(participant)
        }
        self._wanted = wanted
        self._bytes_needed = sum(
            fragment.nbytes
            for pairs in self._fragments.values()
            for _, fragment in pairs
            if fragment.placement_fragment_id in wanted
        )

    @property
    def identity(self) -> WeightIdentity:
        return self._identity

    @property
    def already_published(self) -> bool:
        """The revision is READY already; this publish only checks that the bytes are the same."""
        return self._core.already_published()

    @property
    def policy_note(self) -> str:
        """How the storage policy was resolved; "" when there is nothing to say."""
        return self._core.policy_note()

    @property
    def metadata(self) -> WeightRevisionMetadata:
        """The committed revision; RuntimeError before the ``with`` block has ended well."""
        if self._metadata is None:
            raise RuntimeError("the revision is not committed yet")
        return self._metadata

    def weight_put_tensor(
        self,
        tensor_id: str,
        tensor: Any,
        *,
        participant_id: Optional[str] = None,
        placement_fragment_id: Optional[str] = None,
    ) -> None:
        """Hands in this process's share of a tensor.

        `tensor` has the local shape of the participant's fragment, or the tensor's global shape
        (each fragment is then cut from it). It must be host memory of the placement's dtype, of any
        strides that are not negative: torch, numpy, DLPack or the buffer protocol. Shares that the
        upload plan takes from another rank are only compared with it, or ignored, so every rank may
        hand in all it holds. `participant_id` chooses among several local participants,
        `placement_fragment_id` among a participant's several fragments of the tensor.

        INVALID_ARGUMENT names the tensor and both values, or the fragments that it could be; the
        writer stays usable.
        """
        pairs = self._local_fragments(tensor_id, participant_id, placement_fragment_id)
        descriptor = self._descriptors[tensor_id]
        try:
            memory = memory_of(tensor)
            whole = memory.shape == tuple(descriptor.global_shape)
            if not whole:
                shapes = {tuple(fragment.local_shape) for _, fragment in pairs}
                boxes = {(tuple(f.global_offset), tuple(f.local_shape)) for _, f in pairs}
                if len(boxes) > 1 and memory.shape in shapes:
                    raise ValueError(
                        f"{tensor_id} has {len(boxes)} different local fragments: pass the whole "
                        "tensor, or name the participant_id or placement_fragment_id: "
                        + _candidates(pairs)
                    )
            for _, fragment in pairs:
                if not whole:
                    check_fragment_memory(fragment, descriptor, memory, strided=True)
            if whole:
                check_fragment_memory(_whole(descriptor), descriptor, memory, strided=True)
        except ValueError as error:
            text = str(error)
            named = text if tensor_id in text else f"{tensor_id}: {text}"
            raise WeightInvalidArgumentError(named) from None
        for participant, fragment in pairs:
            if fragment.placement_fragment_id not in self._wanted:
                continue
            address = memory.address
            strides = () if memory.contiguous and not whole else memory.strides_bytes
            if whole:
                address += sum(o * s for o, s in zip(fragment.global_offset, strides, strict=True))
            with store_errors():
                self._core.put_fragment(
                    participant,
                    fragment.placement_fragment_id,
                    address,
                    fragment.nbytes,
                    strides,
                )
            self._bytes_put += fragment.nbytes
        self._report("copy")

    def _local_fragments(
        self, tensor_id: str, participant_id: Optional[str], placement_fragment_id: Optional[str]
    ) -> list[tuple[str, Any]]:
        """(participant, fragment) of what the caller means; never none."""
        local = self._fragments.get(tensor_id, ())
        of_participant = [
            pair for pair in local if participant_id is None or pair[0] == participant_id
        ]
        where = "this process" if participant_id is None else participant_id
        if not of_participant:
            raise WeightInvalidArgumentError(f"{where} holds no fragment of tensor {tensor_id}")
        if placement_fragment_id is None:
            return of_participant
        for participant, fragment in of_participant:
            if fragment.placement_fragment_id == placement_fragment_id:
                return [(participant, fragment)]
        raise WeightInvalidArgumentError(
            f"{where} holds no fragment {placement_fragment_id} of tensor {tensor_id}, but "
            + _candidates(of_participant)
        )

    def __enter__(self) -> WeightWriter:
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if kind is not None:
            try:
                with store_errors():
                    self._core.abort(f"{kind.__name__}: {error}")
            except WeightStoreError as abort_error:
                # The publisher's own exception matters more; the import's lease ends it anyway.
                logger.warning("abort of %s failed: %s", self._identity, abort_error)
            return
        self._report("commit")
        with store_errors():
            report = self._core.finish(self._timeout)
        self._metadata = metadata_of(report.pop("metadata"))
        if self._progress is not None:
            self._progress(
                WeightProgress(
                    stage="done",
                    bytes_moved=report["bytes_uploaded"],
                    bytes_needed=self._bytes_needed,
                    seconds=time.monotonic() - self._started,
                    stage_seconds=report["stage_seconds"],
                    done=True,
                )
            )

    def _report(self, stage: str) -> None:
        if self._progress is not None:
            self._progress(
                WeightProgress(
                    stage=stage,
                    bytes_moved=self._bytes_put,
                    bytes_needed=self._bytes_needed,
                    seconds=time.monotonic() - self._started,
                )
            )


def _candidates(pairs: Sequence[tuple[str, Any]]) -> str:
    """For messages: each fragment with its participant and box."""
    shown = [
        f"{fragment.placement_fragment_id} of {participant} (offset "
        f"{tuple(fragment.global_offset)}, shape {tuple(fragment.local_shape)})"
        for participant, fragment in pairs[:_CANDIDATES_SHOWN]
    ]
    if len(pairs) > len(shown):
        shown.append(f"{len(pairs) - len(shown)} more")
    return ", ".join(shown)


def _whole(descriptor: Any) -> Any:
    """A stand-in fragment that covers the whole tensor, for the shape and dtype checks."""

    class Whole:
        tensor_id = descriptor.tensor_id
        local_shape = tuple(descriptor.global_shape)

    return Whole

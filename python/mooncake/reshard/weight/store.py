"""`WeightStore`: publish, find, load and remove complete weight revisions.

The store takes a revision in the publisher's layout and fills any other layout's final tensors from
it. Semantics are the management RFC's; bytes move in C++ with the GIL released.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Optional, Union

from mooncake import _core

from .adapter import WeightAdapter
from .arguments import (
    MS_MAX,
    UINT64_MAX,
    check_callback,
    check_kind,
    check_secret,
    check_threads,
    check_whole,
    replica_scope,
    timeout_seconds,
)
from .core import metadata_of, open_cores, store_errors
from .errors import WeightInvalidArgumentError
from .management import (
    WeightAvailability,
    WeightIdentity,
    WeightListPage,
    WeightProgress,
    WeightRevisionMetadata,
    WeightRevisionView,
    WeightStoragePolicy,
)
from .placement import WeightPlacementManifest
from .runtime import WeightRuntimeBindingManifest
from .storage_manifest import WeightManifest
from .writer import ProgressCallback, WeightWriter

__all__ = ["VerifyReplicas", "WeightStore", "WeightWriter", "identity_fields", "store_errors"]

VerifyReplicas = Union[bool, Literal["all"]]


def identity_fields(identity: WeightIdentity) -> tuple[str, str, str, int, str]:
    if not isinstance(identity, WeightIdentity):
        raise WeightInvalidArgumentError(
            f"identity must be a WeightIdentity, got {type(identity).__name__}"
        )
    return (
        identity.namespace,
        identity.resource_id,
        identity.revision,
        identity.weight_generation,
        identity.tenant_id,
    )


def _policy(policy: Optional[WeightStoragePolicy]) -> Optional[tuple[str, float, str]]:
    if policy is None:
        return None
    if not isinstance(policy, WeightStoragePolicy):
        raise WeightInvalidArgumentError(
            f"policy must be a WeightStoragePolicy, got {type(policy).__name__}"
        )
    return (
        policy.preferred_residency.value,
        float(policy.mixed_hot_ratio),
        policy.migration_mode.value,
    )


class WeightStore:
    """A client of one store.

    `target` is ``"mooncake://host:port"`` (a running cluster) or ``"file:///folder"`` (Master and
    node inside this process, durable in that folder; one process at a time). `default_policy` is
    used by `weight_put` when it gets none; without either, the cluster's default holds. `threads`
    is how many threads copy (0: one per processor, at most 8). `capacity_bytes` limits an embedded
    store (0: its default). The TTLs, in milliseconds, say how long a dead process's lease or
    unfinished publish survives it; `retry_ms` for how long a Master or node that cannot be reached,
    or does not answer, is asked again.

    `token` is shown to a Master that asks who calls; with `tls_ca`, the path of a PEM file, the
    Master is asked over TLS and must have a certificate that those authorities signed. What is not
    given comes from MOONCAKE_TOKEN or MOONCAKE_TOKEN_FILE, MOONCAKE_TLS_CA, and (for a Master that
    asks for a certificate too) MOONCAKE_TLS_CERT and MOONCAKE_TLS_KEY (docs/security.md).

    Use it as a context manager, or let it be collected, to release what it holds. Methods may be
    called from any thread. Errors are `WeightStoreError`s; arguments of a wrong kind are
    `WeightInvalidArgumentError`s, which are `ValueError`s too.
    """

    def __init__(
        self,
        target: str,
        *,
        default_policy: Optional[WeightStoragePolicy] = None,
        threads: int = 0,
        lease_ttl_ms: int = 10_000,
        import_ttl_ms: int = 10_000,
        retry_ms: int = 15_000,
        capacity_bytes: int = 0,
        token: Optional[str] = None,
        tls_ca: Optional[Union[str, os.PathLike[str]]] = None,
    ) -> None:
        check_kind("target", target, str)
        check_threads(threads)
        check_whole("lease_ttl_ms", lease_ttl_ms, 1, MS_MAX)
        check_whole("import_ttl_ms", import_ttl_ms, 1, MS_MAX)
        check_whole("retry_ms", retry_ms, 0, MS_MAX)
        check_whole("capacity_bytes", capacity_bytes, 0, UINT64_MAX)
        check_secret("token", token)
        with store_errors():
            self._core = _core.StoreClient(
                target,
                default_policy=_policy(default_policy),
                threads=threads,
                lease_ttl_ms=lease_ttl_ms,
                import_ttl_ms=import_ttl_ms,
                retry_ms=retry_ms,
                capacity_bytes=capacity_bytes,
                token=token or "",
                tls_ca=os.fspath(tls_ca) if tls_ca is not None else "",
            )
        self._target = target
        open_cores.add(self)

    def __repr__(self) -> str:
        return f"WeightStore({self._target!r})"

    def __enter__(self) -> WeightStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._core.close()

    # ---- publish ----

    def weight_put(
        self,
        snapshot: Any,
        adapter: WeightAdapter,
        *,
        tenant_id: str = "default",
        policy: Optional[WeightStoragePolicy] = None,
        verify_replicas: VerifyReplicas = True,
        timeout: float = 600.0,
        progress: Optional[ProgressCallback] = None,
    ) -> WeightWriter:
        """Begins the publish of `snapshot` and returns its writer, to be used in a ``with`` block.

        Space for the whole revision is reserved here or not at all. Inside the block hand every
        local tensor to `weight_put_tensor`; leaving it commits: the block ends when the revision
        is READY, also in the ranks that did not commit it themselves, within `timeout` seconds.
        Leaving it by an exception aborts, and nothing becomes discoverable.

        `verify_replicas`: ranks that hold a box which another rank uploads (norms, KV heads,
        redundant experts inside the published data-parallel replica) digest theirs, and a
        difference is a CONFLICT that names tensor, box and ranks, in every rank; the publish waits
        for all of them. "all": the other data-parallel replicas too. False: only the ranks that
        upload take part. The same in every rank (docs/replicas.md).

        Errors: EXHAUSTED (needed and free bytes), CONFLICT (the identity has other content, or
        replicas differ), STALE_GENERATION (it was removed), POLICY_UNSATISFIABLE. Publishing the
        same content again is recognised and changes nothing.
        """
        scope = replica_scope(verify_replicas)
        timeout = timeout_seconds(timeout)
        check_callback("progress", progress)
        identity = adapter.identity(snapshot)
        identity_fields(identity)
        identity = replace(identity, tenant_id=tenant_id)
        placement = adapter.placement(snapshot)
        if not isinstance(placement, WeightPlacementManifest):
            raise WeightInvalidArgumentError(
                "the adapter's placement must be a WeightPlacementManifest, "
                f"got {type(placement).__name__}"
            )
        participants = tuple(adapter.participants(snapshot))
        started = time.monotonic()
        with store_errors():
            importer = self._core.begin_import(
                identity_fields(identity), placement, participants, _policy(policy), scope
            )
        return WeightWriter(importer, identity, placement, participants, timeout, progress, started)

    # ---- load ----

    def weight_get(
        self,
        identity: WeightIdentity,
        target_placement: WeightPlacementManifest,
        target_bindings: (WeightRuntimeBindingManifest | Iterable[WeightRuntimeBindingManifest]),
        *,
        verify: bool = True,
        threads: int = 0,
        progress: Optional[ProgressCallback] = None,
    ) -> WeightManifest:
        """Loads the revision into the bound tensors of this process and returns its manifest.

        `target_placement` is the whole target layout; `target_bindings` are the participants that
        this process fills (one or several; see `bind_tensors`). A read lease protects the revision
        meanwhile. `verify` checks the digest of every block read. `progress` gets `WeightProgress`
        values; if it raises, the load is cancelled and the exception goes on.

        Errors: NOT_FOUND, NOT_READY (with the reason), INVALID_ARGUMENT (nothing was written),
        CORRUPT (object and block are named), LEASE_EXPIRED, CANCELLED. After an error that came
        while bytes moved the message says that the targets are invalid.
        """
        if isinstance(target_bindings, WeightRuntimeBindingManifest):
            target_bindings = (target_bindings,)
        bindings = tuple(target_bindings)
        check_threads(threads)
        check_kind("verify", verify, bool)
        check_callback("progress", progress)
        if not isinstance(target_placement, WeightPlacementManifest):
            raise WeightInvalidArgumentError(
                "target_placement must be a WeightPlacementManifest, "
                f"got {type(target_placement).__name__}"
            )
        for binding in bindings:
            if not isinstance(binding, WeightRuntimeBindingManifest):
                raise WeightInvalidArgumentError(
                    "target_bindings must be WeightRuntimeBindingManifests, "
                    f"got {type(binding).__name__}"
                )
        started = time.monotonic()
        watch = _Progress(progress, started)
        with store_errors(), watch:
            report, manifest = self._core.load(
                identity_fields(identity),
                target_placement,
                bindings,
                verify,
                threads,
                watch.copying,
            )
        if progress is not None:
            progress(
                WeightProgress(
                    stage="done",
                    bytes_moved=report["bytes_moved"],
                    bytes_needed=report["bytes_needed"],
                    tensors=report["tensors"],
                    regions=report["regions"],
                    copies=report["copies"],
                    seconds=time.monotonic() - started,
                    stage_seconds=report["stage_seconds"],
                    done=True,
                )
            )
        return manifest

    # ---- discovery ----

    def weight_is_exist(self, identity: WeightIdentity) -> bool:
        """True only when exactly this revision is READY. Extends and changes nothing."""
        with store_errors():
            return self._core.exists(identity_fields(identity))

    def weight_get_metadata(self, identity: WeightIdentity) -> WeightRevisionView:
        """What the Master keeps of the revision, a tombstone too. NOT_FOUND when unknown."""
        with store_errors():
            fields, physical_bytes = self._core.get_metadata(identity_fields(identity))
        return WeightRevisionView(metadata_of(fields), physical_bytes)

    def weight_get_size(self, identity: WeightIdentity) -> int:
        """Logical payload bytes of a committed revision, as validated at commit."""
        with store_errors():
            return self._core.get_size(identity_fields(identity))

    def weight_list(
        self,
        namespace: Optional[str] = None,
        resource_id: Optional[str] = None,
        *,
        tenant_id: str = "default",
        availability: Sequence[WeightAvailability] = (),
        page_size: int = 100,
        page_token: str = "",
    ) -> WeightListPage:
        """A page of the tenant's revisions in identity order, without reading any manifest.

        Without `availability`: READY and DEGRADED ones. `page_size` is 1 .. 1000; pass the page's
        `next_page_token` to get the next.
        """
        check_whole("page_size", page_size, 1, 1000)
        fields = {"namespace": namespace or "", "resource_id": resource_id or ""}
        fields |= {"tenant_id": tenant_id, "page_token": page_token}
        for field, value in fields.items():
            check_kind(field, value, str)
        try:
            states = [WeightAvailability(state).value for state in availability]
        except ValueError as error:
            raise WeightInvalidArgumentError(f"availability: {error}") from None
        with store_errors():
            revisions, token = self._core.list(
                tenant_id, namespace or "", resource_id or "", states, page_size, page_token
            )
        return WeightListPage(
            tuple(WeightRevisionView(metadata_of(fields), size) for fields, size in revisions),
            token,
        )

    # ---- removal ----

    def weight_remove(
        self,
        identity: WeightIdentity,
        *,
        expected_metadata_generation: Optional[int] = None,
        timeout: float = 600.0,
    ) -> WeightRevisionMetadata:
        """Deletes the whole revision and returns its tombstone. Repeating it is harmless.

        BUSY while a reader holds a lease; STALE_GENERATION when `expected_metadata_generation` is
        not the revision's. The identity cannot be published again.
        """
        if expected_metadata_generation is not None:
            check_whole("expected_metadata_generation", expected_metadata_generation, 0, UINT64_MAX)
        seconds = timeout_seconds(timeout)
        with store_errors():
            return metadata_of(
                self._core.remove(identity_fields(identity), expected_metadata_generation, seconds)
            )


class _Progress:
    """Feeds a progress callback from the copy loop; carries its exception out of the core."""

    def __init__(self, callback: Optional[ProgressCallback], started: float) -> None:
        self._callback = callback
        self._started = started
        self._error: Optional[BaseException] = None

    def copying(self, bytes_moved: int, bytes_needed: int) -> bool:
        if self._callback is None:
            return True
        try:
            self._callback(
                WeightProgress(
                    stage="copy",
                    bytes_moved=bytes_moved,
                    bytes_needed=bytes_needed,
                    seconds=time.monotonic() - self._started,
                )
            )
        except BaseException as error:
            self._error = error
            return False
        return True

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind, error, traceback) -> None:
        if self._error is not None:
            raise self._error from error

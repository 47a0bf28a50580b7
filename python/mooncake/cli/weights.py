"""``mooncake weights``: list, show, put, get and remove revisions."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from mooncake import _core

from ..reshard.adapters import Checkpoint, CheckpointAdapter, TensorInfo, layout_placement
from ..reshard.adapters.layout import ParallelLayout
from ..reshard.weight import WeightManifest, bind_tensors
from ..reshard.weight.management import WeightAvailability, WeightIdentity, WeightProgress
from ..reshard.weight.store import WeightStore
from .tables import bytes_text, print_json, print_table

__all__ = ["add_commands", "read_file", "read_manifest"]

_Parsed = TypeVar("_Parsed")


def add_commands(commands: Any) -> None:
    weights = commands.add_parser("weights", help="list, show, put, get and remove revisions")
    actions = weights.add_subparsers(dest="action", required=True, metavar="ACTION")

    command = actions.add_parser("list", help="revisions that can be read")
    command.add_argument("--namespace")
    command.add_argument("--resource")
    command.add_argument("--tenant", default="default")
    command.add_argument("--all", action="store_true", help="also importing, deleting, deleted")
    command.set_defaults(run=_list, needs_store=True)

    command = actions.add_parser("show", help="one revision's metadata")
    _add_identity(command)
    command.set_defaults(run=_show, needs_store=True)

    command = actions.add_parser("put", help="publish a safetensors file or checkpoint folder")
    command.add_argument("checkpoint", type=Path)
    _add_identity(command)
    command.add_argument("--skip", action="append", default=[], metavar="TENSOR")
    command.set_defaults(run=_put, needs_store=True)

    command = actions.add_parser("get", help="load a revision into one safetensors file")
    _add_identity(command)
    command.add_argument("output", type=Path)
    command.add_argument("--force", action="store_true", help="replace an existing file")
    command.set_defaults(run=_get, needs_store=True)

    command = actions.add_parser("rm", help="delete a revision; its identity is not used again")
    _add_identity(command)
    command.set_defaults(run=_remove, needs_store=True)


def _add_identity(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "identity",
        type=_identity,
        metavar="IDENTITY",
        help="[tenant:]namespace/resource/revision/generation",
    )


def _identity(text: str) -> WeightIdentity:
    try:
        return WeightIdentity.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _list(arguments: argparse.Namespace) -> int:
    states = tuple(WeightAvailability) if arguments.all else ()
    found = []
    with WeightStore(arguments.store) as store:
        token = ""
        while True:
            page = store.weight_list(
                arguments.namespace,
                arguments.resource,
                tenant_id=arguments.tenant,
                availability=states,
                page_size=1000,
                page_token=token,
            )
            found += [view.metadata for view in page]
            token = page.next_page_token
            if not token:
                break
    if arguments.json:
        print_json(found)
        return 0
    print_table(
        ("revision", "state", "residency", "size", "objects", "leases", "created"),
        (
            (
                m.identity,
                m.availability.name,
                m.observed_residency.name,
                bytes_text(m.logical_payload_bytes),
                m.payload_count,
                m.active_lease_count,
                m.created_at,
            )
            for m in found
        ),
    )
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with WeightStore(arguments.store) as store:
        view = store.weight_get_metadata(arguments.identity)
    if arguments.json:
        print_json(view)
        return 0
    metadata = view.metadata
    policy = metadata.policy
    rows = [
        ("identity", metadata.identity),
        ("state", f"{metadata.availability.name}, {metadata.observed_residency.name}"),
        ("reason", metadata.state_reason or "-"),
        (
            "policy",
            f"{policy.preferred_residency.name}, hot ratio {policy.mixed_hot_ratio}, "
            f"{policy.migration_mode.name}",
        ),
        (
            "size",
            f"{bytes_text(metadata.logical_payload_bytes)}, "
            f"{bytes_text(view.physical_bytes)} charged to nodes",
        ),
        ("payload", f"{metadata.payload_count} objects in {metadata.affinity_count} units"),
        ("metadata generation", f"#{metadata.metadata_generation}"),
        ("active leases", f"{metadata.active_lease_count}"),
        ("created", metadata.created_at),
        ("manifest", metadata.manifest_key or "-"),
        ("manifest SHA-256", metadata.manifest_sha256 or "-"),
        ("digests root", metadata.digests_root_sha256 or "-"),
        ("source placement", metadata.placement_id),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name.ljust(width)}  {value}")
    return 0


class _Bar:
    """One line of progress on a terminal; nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()

    def __call__(self, progress: WeightProgress) -> None:
        if not self._shown:
            return
        share = progress.bytes_moved / progress.bytes_needed if progress.bytes_needed else 1.0
        end = "\n" if progress.done else ""
        print(
            f"\r{self._what} {share:4.0%} {bytes_text(progress.bytes_moved)} "
            f"{progress.seconds:.1f} s   ",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def _put(arguments: argparse.Namespace) -> int:
    checkpoint = Checkpoint(arguments.checkpoint)
    adapter = CheckpointAdapter(arguments.identity, skip=arguments.skip)
    with WeightStore(arguments.store) as store:
        writer = store.weight_put(
            checkpoint,
            adapter,
            tenant_id=arguments.identity.tenant_id,
            progress=_Bar(f"put {arguments.identity}"),
        )
        with writer:
            for tensor_id, tensor in adapter.tensors(checkpoint):
                writer.weight_put_tensor(tensor_id, tensor)
        metadata = writer.metadata
    if arguments.json:
        print_json(metadata)
        return 0
    state = "was there already, equal" if writer.already_published else metadata.availability.name
    print(f"{metadata.identity} {state}, {bytes_text(metadata.logical_payload_bytes)}")
    if metadata.state_reason:
        print(metadata.state_reason)
    return 0


def _get(arguments: argparse.Namespace) -> int:
    import torch
    from safetensors.torch import save_file

    if arguments.output.exists() and not arguments.force:
        raise FileExistsError(f"{arguments.output} exists; --force replaces it")
    identity = arguments.identity
    manifest = read_manifest(arguments.store, identity)
    infos = {t.tensor_id: TensorInfo(t.global_shape, t.dtype, t.itemsize) for t in manifest.tensors}
    fingerprints = {t.layout_fingerprint for t in manifest.tensors}
    if len(fingerprints) > 1:
        raise ValueError(f"the revision mixes layouts {sorted(fingerprints)}; load it by program")
    unknown = sorted({i.dtype for i in infos.values() if not hasattr(torch, i.dtype)})
    if unknown:
        raise ValueError(f"torch has no dtype {', '.join(unknown)}")
    tensors = {
        name: torch.empty(info.shape, dtype=getattr(torch, info.dtype))
        for name, info in infos.items()
    }
    placement = layout_placement(
        infos, ParallelLayout(), identity, layout_fingerprint=fingerprints.pop()
    )
    binding = bind_tensors(placement, placement.parts[0].participant_id, tensors)
    with WeightStore(arguments.store) as store:
        store.weight_get(identity, placement, binding, progress=_Bar(f"get {identity}"))
    partial = arguments.output.with_name(f".{arguments.output.name}.{os.getpid()}.partial")
    try:
        save_file(tensors, str(partial), metadata={"weight_identity": str(identity)})
        os.replace(partial, arguments.output)
    finally:
        partial.unlink(missing_ok=True)
    size = sum(info.nbytes for info in infos.values())
    if arguments.json:
        print_json({"output": str(arguments.output), "tensors": len(tensors), "bytes": size})
    else:
        print(f"{arguments.output}: {len(tensors)} tensors, {bytes_text(size)}")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    with WeightStore(arguments.store) as store:
        metadata = store.weight_remove(arguments.identity)
    if arguments.json:
        print_json(metadata)
    else:
        print(f"{metadata.identity} {metadata.availability.name}")
    return 0


def read_manifest(store: str, identity: WeightIdentity) -> WeightManifest:
    """The revision's stored manifest, its SHA-256 checked."""
    from ..reshard.weight.store import identity_fields, store_errors

    with store_errors():
        client = _core.StoreClient(store)
        try:
            return client.read_manifest(identity_fields(identity))
        finally:
            client.close()


def read_file(path: Path, parse: Callable[[str], _Parsed]) -> _Parsed:
    """What `parse` makes of a UTF-8 text file; ValueError names the file."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def manifest_of(arguments: argparse.Namespace, source: str) -> WeightManifest:
    """`source` is a JSON file of a manifest, or an identity in the store."""
    path = Path(source)
    if path.is_file():
        return read_file(path, WeightManifest.from_json)
    if not arguments.store:
        raise ValueError(f"{source} is no file, and no --store is given to look it up in")
    return read_manifest(arguments.store, WeightIdentity.parse(source))


def is_manifest_file(path: Path) -> bool:
    """A stored manifest rather than a placement, by its keys."""
    document = read_file(path, json.loads)
    return isinstance(document, dict) and "manifest_key" in document

"""Safetensors files and Hugging Face checkpoint folders as sources of a revision."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional

from ..weight.management import WeightIdentity
from ..weight.placement import WeightPlacementManifest
from .layout import ParallelLayout, TensorInfo, layout_placement

__all__ = ["Checkpoint", "CheckpointAdapter"]

# safetensors' dtype codes: (contract name, bytes per element).
_DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F32": ("float32", 4),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
    "F64": ("float64", 8),
    "C64": ("complex64", 8),
}
_HEADER_BYTES_MAX = 100 * 1024 * 1024  # the format's own limit


class Checkpoint:
    """The tensors of a ``.safetensors`` file, or of a folder of them, read by the box.

    Only headers are read until `read` is called. A folder with ``model.safetensors.index.json``
    holds what the index names; without it, every ``*.safetensors`` file counts.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.tensors: dict[str, TensorInfo] = {}
        self._files: dict[str, Path] = {}
        for file, names in self._inventory():
            header = _header(file)
            for name in names if names is not None else header:
                if name not in header:
                    raise ValueError(f"{file.name} has no tensor {name}, which the index names")
                if name in self.tensors:
                    raise ValueError(
                        f"tensor {name} is in {self._files[name].name} and {file.name}"
                    )
                self.tensors[name] = _info(name, header[name])
                self._files[name] = file

    def _inventory(self) -> Iterable[tuple[Path, Optional[list[str]]]]:
        if self.path.is_file():
            return [(self.path, None)]
        index = self.path / "model.safetensors.index.json"
        if index.is_file():
            by_file: dict[str, list[str]] = {}
            for name, file in json.loads(index.read_text())["weight_map"].items():
                by_file.setdefault(file, []).append(name)
            return [(self.path / file, names) for file, names in sorted(by_file.items())]
        files = sorted(self.path.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"no safetensors file at {self.path}")
        return [(file, None) for file in files]

    def read(
        self,
        tensor_id: str,
        offset: Optional[Sequence[int]] = None,
        shape: Optional[Sequence[int]] = None,
    ) -> Any:
        """The tensor, or the box of it at `offset` with `shape` (elements), as a torch tensor."""
        from safetensors import safe_open

        with safe_open(self._files[tensor_id], framework="pt") as file:
            if offset is None or shape is None or not self.tensors[tensor_id].shape:
                return file.get_tensor(tensor_id)
            box = tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))
            return file.get_slice(tensor_id)[box].contiguous()


class CheckpointAdapter:
    """Publishes a `Checkpoint` in a `ParallelLayout` (an adapter for `weight_put`).

    `participants` are the ranks that this process plays (default: all of them). Scalars and empty
    tensors are refused by name, unless `skip` (tensor ids) leaves them out.
    """

    def __init__(
        self,
        identity: WeightIdentity,
        layout: Optional[ParallelLayout] = None,
        *,
        participants: Optional[Sequence[str]] = None,
        skip: Iterable[str] = (),
    ) -> None:
        self._identity = identity
        self._layout = layout or ParallelLayout()
        self._participants = participants
        self._skip = frozenset(skip)
        self._made: Optional[tuple[Any, WeightPlacementManifest]] = None

    def identity(self, snapshot: Checkpoint) -> WeightIdentity:
        return self._identity

    def placement(self, snapshot: Checkpoint) -> WeightPlacementManifest:
        if self._made is None or self._made[0] is not snapshot:
            tensors = {k: v for k, v in snapshot.tensors.items() if k not in self._skip}
            for name, info in tensors.items():
                if not info.shape or 0 in info.shape:
                    what = "a scalar" if not info.shape else f"empty (shape {info.shape})"
                    raise ValueError(
                        f"tensor {name} is {what}: the base contract has no form for it; "
                        "leave it out with skip="
                    )
            self._made = (snapshot, layout_placement(tensors, self._layout, self._identity))
        return self._made[1]

    def participants(self, snapshot: Checkpoint) -> Sequence[str]:
        if self._participants is not None:
            return self._participants
        return [p.participant_id for p in self.placement(snapshot).topology.participants]

    def tensors(self, snapshot: Checkpoint) -> Iterable[tuple[str, Any]]:
        """One participant: its local shards. Several: whole tensors, which the writer cuts."""
        local = set(self.participants(snapshot))
        parts = [p for p in self.placement(snapshot).parts if p.participant_id in local]
        if len(parts) == 1:
            for fragment in parts[0].fragments:
                yield (
                    fragment.tensor_id,
                    snapshot.read(fragment.tensor_id, fragment.global_offset, fragment.local_shape),
                )
            return
        for name in sorted({f.tensor_id for part in parts for f in part.fragments}):
            yield name, snapshot.read(name)


def _header(file: Path) -> dict[str, dict]:
    with open(file, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= _HEADER_BYTES_MAX:
            raise ValueError(f"{file.name} is not a safetensors file: header of {length} bytes")
        raw = stream.read(length)
    if len(raw) != length:
        raise ValueError(f"{file.name} is cut short: header of {length} bytes, {len(raw)} there")
    header = json.loads(raw)
    header.pop("__metadata__", None)
    return header


def _info(name: str, entry: dict) -> TensorInfo:
    dtype = entry["dtype"]
    if dtype not in _DTYPES:
        raise ValueError(f"tensor {name} has safetensors dtype {dtype}, which is not known here")
    contract_name, itemsize = _DTYPES[dtype]
    return TensorInfo(tuple(entry["shape"]), contract_name, itemsize)

"""Stored manifests: where the one stored copy of a revision lies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mooncake import _core
from mooncake.reshard.contracts import (
    ResourceId,
    ResourceKind,
    RevisionId,
    StoredFragmentId,
    TensorId,
)
from mooncake.reshard.lazy_tuple import LazyTuple
from mooncake.reshard.weight.serde import decoded_json
from mooncake.reshard.weight.types import TensorDescriptor


@dataclass(frozen=True)
class StoredFragment:
    """A box of a tensor: `nbytes` at `object_offset` of a payload object, dense and row-major."""

    fragment_id: StoredFragmentId
    tensor_id: TensorId
    global_offset: tuple[int, ...]
    local_shape: tuple[int, ...]
    object_key: str
    object_offset: int
    nbytes: int
    aliases: tuple[TensorId, ...] = ()

    def __post_init__(self) -> None:
        _core.check_stored_fragment(self)


@dataclass(frozen=True)
class StoredManifestIdentity:
    """What names one exact stored manifest."""

    namespace: str
    resource_id: ResourceId
    revision: RevisionId
    weight_generation: int
    group_id: str
    manifest_key: str
    content_sha256: str

    def __post_init__(self) -> None:
        _core.check_stored_manifest_identity(self)


@dataclass(frozen=True)
class WeightManifest:
    """One stored copy of every tensor of a revision, by payload object and byte range.

    The order of tensors and fragments is the caller's and part of `manifest_digest` (SHA-256 of the
    JSON). Also known as StoredWeightManifest.
    """

    namespace: str
    resource_id: ResourceId
    revision: RevisionId
    weight_generation: int
    group_id: str
    manifest_key: str
    tensors: tuple[TensorDescriptor, ...]
    fragments: tuple[StoredFragment, ...]
    created_at: str
    manifest_digest: str = field(init=False)

    def __post_init__(self) -> None:
        handle = _core.make_stored_manifest(self)
        vars(self).update(manifest_digest=handle.manifest_digest, _handle=handle)

    @classmethod
    def _of(cls, handle: _core.StoredManifest) -> WeightManifest:
        """The Python face of a checked C++ manifest; its items are made on access."""
        self = object.__new__(cls)
        fields: dict[str, Any] = handle.fields()
        fields["tensors"] = LazyTuple.over(handle.tensor_count, handle.tensors)
        fields["fragments"] = LazyTuple.over(handle.fragment_count, handle.fragments)
        vars(self).update(fields, manifest_digest=handle.manifest_digest, _handle=handle)
        return self

    @property
    def resource_kind(self) -> ResourceKind:
        return ResourceKind.MODEL_WEIGHT

    @property
    def manifest_identity(self) -> StoredManifestIdentity:
        return StoredManifestIdentity(
            namespace=self.namespace,
            resource_id=self.resource_id,
            revision=self.revision,
            weight_generation=self.weight_generation,
            group_id=self.group_id,
            manifest_key=self.manifest_key,
            content_sha256=self.manifest_digest,
        )

    def to_json(self) -> str:
        """Canonical JSON; `manifest_digest` is the SHA-256 of its UTF-8."""
        text: str = vars(self)["_handle"].to_json()
        return text

    @classmethod
    def from_json(cls, value: str | bytes | bytearray) -> WeightManifest:
        """The manifest in `value`, fully checked again."""
        return cls._of(_core.stored_manifest_from_json(decoded_json(value, "weight manifest")))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> WeightManifest:
        """The manifest in parsed JSON, fully checked again."""
        if not isinstance(value, Mapping):
            raise ValueError("weight manifest must be a JSON object")
        try:
            text = json.dumps(dict(value), ensure_ascii=False, default=_plain)
        except (TypeError, RecursionError) as error:
            raise ValueError(f"weight manifest is not valid JSON: {error}") from error
        return cls.from_json(text)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        equal: bool = vars(self)["_handle"] == vars(other)["_handle"]
        return equal

    def __hash__(self) -> int:
        return hash((self.manifest_key, self.manifest_digest))  # the digest covers all content

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.to_json(),)


def _plain(value: object) -> Any:
    """Other containers that JSON has a form for."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def validate_weight_manifest_snapshot(manifest: WeightManifest) -> WeightManifest:
    """`manifest` built anew from its fields, so that every check runs again."""
    if not isinstance(manifest, WeightManifest):
        raise ValueError("weight manifest snapshot is invalid")
    return WeightManifest(
        namespace=manifest.namespace,
        resource_id=manifest.resource_id,
        revision=manifest.revision,
        weight_generation=manifest.weight_generation,
        group_id=manifest.group_id,
        manifest_key=manifest.manifest_key,
        tensors=manifest.tensors,
        fragments=manifest.fragments,
        created_at=manifest.created_at,
    )


# The management RFC's name of the same class.
StoredWeightManifest = WeightManifest

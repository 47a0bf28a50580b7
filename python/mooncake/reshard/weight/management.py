"""Values of the management plane: identity, policy, states and what a store says of a revision."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

__all__ = [
    "WeightAvailability",
    "WeightIdentity",
    "WeightListPage",
    "WeightMigrationMode",
    "WeightProgress",
    "WeightResidencyState",
    "WeightRevisionMetadata",
    "WeightRevisionView",
    "WeightStoragePolicy",
]


class WeightAvailability(str, Enum):
    """Whether a revision is complete and can be discovered and read."""

    IMPORTING = "importing"
    READY = "ready"
    DEGRADED = "degraded"
    DELETING = "deleting"
    DELETED = "deleted"


class WeightResidencyState(str, Enum):
    """Where the payloads of a revision are, taken together."""

    UNKNOWN = "unknown"
    HOT = "hot"
    COLD = "cold"
    MIXED = "mixed"
    ABSENT = "absent"


class WeightMigrationMode(str, Enum):
    """What may move a revision after it first reached its preferred residency."""

    PINNED = "pinned"
    MANUAL = "manual"
    AUTO = "auto"


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class WeightIdentity:
    """The five values that name one weight revision.

    Strings are non-empty UTF-8; `weight_generation` is 0 .. 2**64-1 and grows within a lineage
    (the identity without the generation).
    """

    namespace: str
    resource_id: str
    revision: str
    weight_generation: int
    tenant_id: str = "default"

    def __post_init__(self) -> None:
        for name in ("namespace", "resource_id", "revision", "tenant_id"):
            value = getattr(self, name)
            _require(
                type(value) is str and value != "",
                f"{name} must be a non-empty string, got {value!r}",
            )
        value = self.weight_generation
        _require(
            type(value) is int and 0 <= value < 2**64,
            f"weight_generation must be an integer of 0 .. 2**64-1, got {value!r}",
        )

    def __str__(self) -> str:
        return (
            f"{self.tenant_id}:{self.namespace}/{self.resource_id}"
            f"/{self.revision}/{self.weight_generation}"
        )

    @classmethod
    def parse(cls, text: str) -> WeightIdentity:
        """The identity that `str` printed: ``[tenant:]namespace/resource/revision/generation``.

        Only for parts without "/" and, in the tenant, ":"; other identities are built by name.
        """
        tenant, colon, rest = text.partition(":")
        if not colon:
            tenant, rest = "default", text
        parts = rest.split("/")
        _require(
            len(parts) == 4 and parts[3].isdecimal(),
            "a weight identity reads [tenant:]namespace/resource/revision/generation, "
            f"got {text!r}",
        )
        return cls(parts[0], parts[1], parts[2], int(parts[3]), tenant)


@dataclass(frozen=True)
class WeightStoragePolicy:
    """Where a revision should live and what may move it (management RFC, "Residency Policy").

    `mixed_hot_ratio` is hot logical payload bytes / all logical payload bytes, 0 < ratio < 1; it
    counts only when MIXED is preferred.
    """

    preferred_residency: WeightResidencyState = WeightResidencyState.MIXED
    mixed_hot_ratio: float = 0.5
    migration_mode: WeightMigrationMode = WeightMigrationMode.AUTO

    def __post_init__(self) -> None:
        preferred = self.preferred_residency
        _require(
            isinstance(preferred, WeightResidencyState)
            and preferred.value in ("hot", "cold", "mixed"),
            f"preferred_residency must be HOT, COLD or MIXED, got {preferred!r}",
        )
        ratio = self.mixed_hot_ratio
        _require(
            isinstance(ratio, (int, float)) and not isinstance(ratio, bool) and 0 < ratio < 1,
            f"mixed_hot_ratio must be above 0 and below 1, got {ratio!r}",
        )
        _require(
            isinstance(self.migration_mode, WeightMigrationMode),
            f"migration_mode must be a WeightMigrationMode, got {self.migration_mode!r}",
        )


@dataclass(frozen=True)
class WeightRevisionMetadata:
    """What the Store Master keeps of one revision; never a tensor, fragment or address.

    Digests are 64 lowercase hex characters, "" before commit. `logical_payload_bytes` counts the
    model's bytes once, however they are stored.
    """

    identity: WeightIdentity
    availability: WeightAvailability
    observed_residency: WeightResidencyState
    policy: WeightStoragePolicy
    metadata_generation: int
    group_id: str
    manifest_key: str
    manifest_sha256: str
    payload_keys_sha256: str
    payload_count: int
    logical_payload_bytes: int
    affinity_count: int
    affinity_sha256: str
    digests_root_sha256: str
    placement_id: str
    created_at: str
    observed_hot_ratio: float
    active_lease_count: int
    last_access_ms: int
    state_reason: str = ""
    operation_id: Optional[int] = None


@dataclass(frozen=True)
class WeightRevisionView:
    """One look at a revision, as the Master had it when it answered.

    `physical_bytes` is what its nodes are charged: payloads rounded up, METADATA objects included.
    """

    metadata: WeightRevisionMetadata
    physical_bytes: int

    @property
    def identity(self) -> WeightIdentity:
        return self.metadata.identity


@dataclass(frozen=True)
class WeightListPage:
    """A page of `weight_list`; an empty `next_page_token` ends the listing."""

    revisions: tuple[WeightRevisionView, ...]
    next_page_token: str = ""

    def __iter__(self):
        return iter(self.revisions)

    def __len__(self) -> int:
        return len(self.revisions)


@dataclass(frozen=True)
class WeightProgress:
    """Where a long put or get is. The last call has `done=True` and the final figures.

    `stage` is one of resolve, plan, copy, commit, done. Seconds are wall time since the start;
    `stage_seconds` has the finished stages' own. `bytes_moved` counts bytes written to targets
    (get) or to the store (put); `bytes_needed` is the total the plan asks for. `regions` are the
    plan's; `copies` are what they were executed as, neighbours in one buffer fused (get).
    """

    stage: str
    bytes_moved: int = 0
    bytes_needed: int = 0
    tensors: int = 0
    regions: int = 0
    seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    done: bool = False
    copies: int = 0

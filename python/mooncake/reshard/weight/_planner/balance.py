"""Balance: which of several byte-equal sources a plan reads from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mooncake import _core
from mooncake.reshard.contracts import ParticipantId
from mooncake.reshard.weight.runtime import WeightRuntimeBindingManifest

__all__ = ["Balance"]


@dataclass(frozen=True, eq=False)
class Balance:
    """Reads are spread evenly over byte-equal replicas, the reader's own host first.

    The two maps name the host of each participant that is known to be on one. A box that several
    participants hold is read from one on the reader's host where there is one, else from the one
    that sends the fewest bytes so far. Deterministic; a plan with another balance is another plan
    (`geometry_digest`). A plan for one participant spreads that participant's own reads.
    """

    source_hosts: Mapping[ParticipantId, str] = field(default_factory=dict)
    target_hosts: Mapping[ParticipantId, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("source_hosts", "target_hosts"):
            hosts = getattr(self, name)
            if not isinstance(hosts, Mapping):
                raise ValueError(f"balance {name} must be a mapping of participants to hosts")
            object.__setattr__(self, name, dict(hosts))
        _core.balance_digest(self.source_hosts, self.target_hosts)

    @classmethod
    def of_bindings(
        cls,
        source: Iterable[WeightRuntimeBindingManifest] = (),
        target: Iterable[WeightRuntimeBindingManifest] = (),
    ) -> Balance:
        """Hosts as the bindings' endpoints tell them ("host" or "host:port").

        A participant whose fragments are not all on one host is on no known one.
        """
        return cls(_hosts(source), _hosts(target))

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of both maps: what tells balances apart."""
        digest: str = _core.balance_digest(self.source_hosts, self.target_hosts)
        return digest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Balance):
            return NotImplemented
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _hosts(bindings: Iterable[WeightRuntimeBindingManifest]) -> dict[ParticipantId, str]:
    hosts = {}
    for binding in bindings:
        host = _core.host_of_binding(binding)
        if host is not None:
            hosts[binding.participant_id] = host
    return hosts

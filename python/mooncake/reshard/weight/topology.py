"""Who takes part in a parallel run, and at which rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from mooncake import _core
from mooncake.reshard.contracts import ParticipantId, TopologyId
from mooncake.reshard.weight.types import ParallelRank


@dataclass(frozen=True)
class TopologyParticipant:
    """One process of a parallel run."""

    participant_id: ParticipantId
    rank: ParallelRank

    def __post_init__(self) -> None:
        _core.check_topology_participant(self)


@dataclass(frozen=True, kw_only=True)
class ParallelTopology:
    """The axis sizes of a parallel run and its participants, sorted by id.

    `topology_id` is derived; one that is given must equal it.
    """

    tp_size: int
    pp_size: int
    ep_size: int
    dp_size: int
    participants: tuple[TopologyParticipant, ...]
    topology_id: Optional[TopologyId] = None

    def __post_init__(self) -> None:
        _core.check_parallel_topology(self)

    @property
    def world_size(self) -> int:
        """The number of participants; axes may share workers, so never a product of sizes."""
        return len(self.participants)

    def participant(self, participant_id: str) -> TopologyParticipant:
        """ValueError when there is none of that id."""
        for participant in self.participants:
            if participant.participant_id == participant_id:
                return participant
        raise ValueError(f"unknown topology participant: {participant_id}")

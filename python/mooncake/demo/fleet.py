"""Worker processes that start together: one for each rank of a layout."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

__all__ = ["Fleet", "Rank"]

_STEP_SECONDS = 900.0


@dataclass
class Rank:
    """What a worker knows of its fleet."""

    participant: str
    index: int
    size: int
    barrier: Any

    @property
    def threads(self) -> int:
        """Copy threads, so that the fleet together uses the machine once."""
        return max(1, len(os.sched_getaffinity(0)) // self.size)

    def meet(self) -> None:
        """Waits until every rank is here."""
        self.barrier.wait(_STEP_SECONDS)


class Fleet:
    """Forks workers from a server process that has imported torch once."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))

    def run(
        self, work: Callable[..., Any], participants: Sequence[str], *arguments: Any
    ) -> list[Any]:
        """`work(rank, *arguments)` in one process a participant; their results in order.

        RuntimeError carries the traceback of the first rank that failed, or the exit status of one
        that died; the others are stopped.
        """
        barrier = self._context.Barrier(len(participants))
        workers = []
        for index, participant in enumerate(participants):
            ours, theirs = self._context.Pipe(duplex=False)
            rank = Rank(participant, index, len(participants), barrier)
            process = self._context.Process(
                target=_work, args=(theirs, work, rank, arguments), daemon=True
            )
            process.start()
            theirs.close()
            workers.append((participant, process, ours))
        try:
            return self._collect(workers)
        finally:
            for _, process, pipe in workers:
                if process.is_alive():
                    process.kill()
                process.join()
                pipe.close()

    def _collect(self, workers: list[tuple[str, Any, Connection]]) -> list[Any]:
        results: dict[str, Any] = {}
        pipes = {pipe: (participant, process) for participant, process, pipe in workers}
        while pipes:
            for pipe in wait(list(pipes)):
                participant, process = pipes.pop(pipe)
                try:
                    ok, value = pipe.recv()
                except EOFError:
                    process.join()
                    ok, value = False, f"died with status {process.exitcode}"
                if not ok:
                    raise RuntimeError(f"{participant}: {value}")
                process.join()
                results[participant] = value
        return [results[participant] for participant, _, _ in workers]


def _work(pipe: Connection, work: Callable[..., Any], rank: Rank, arguments: tuple) -> None:
    try:
        pipe.send((True, work(rank, *arguments)))
    except BaseException:
        rank.barrier.abort()
        pipe.send((False, traceback.format_exc()))
    finally:
        pipe.close()

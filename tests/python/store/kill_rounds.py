"""Rounds of real processes that are killed or stopped at any moment, and what must hold after.

`kill_rounds.py --rounds 200` runs as many and prints what it saw; `./x test` runs a few
(test_kill_rounds.py). The seed is printed and chooses victims and moments; what the machine does in
between it does not choose.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from kill_worker import identity_of
from models import LAYOUTS, load_and_check, transformer
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.weight import WeightAvailability, WeightStore
from mooncake.reshard.weight.errors import WeightNotFoundError
from polling import wait_until

HERE = Path(__file__).parent


class Worker:
    """One kill_worker.py; started again under another number after each death."""

    def __init__(self, target: str, role: str, place: int, rng: random.Random, seen: Seen) -> None:
        self.name = f"{role} {place}"
        self._target, self._role, self._place = target, role, place
        self._rng, self._seen = rng, seen
        self._lives = 0

    def start(self) -> None:
        self._lives += 1
        number = self._place * 100_000 + self._lives
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "kill_worker.py"), self._target, self._role, str(number)]
            + [str(self._rng.randrange(2**31))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(self.process,))
        self._listener.start()

    def _listen(self, process: subprocess.Popen) -> None:
        for line in process.stdout:
            self._seen.add(line.split())

    def end(self) -> None:
        """Kills it. AssertionError: it had ended by itself, so it saw something wrong."""
        by_itself = self.process.poll()
        self.process.kill()
        self._listener.join()
        errors = self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.wait()
        assert by_itself is None, f"{self.name} ended with {by_itself}: {errors}"


class Seen:
    """What the workers were told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.told: dict[int, int] = {}  # generation: deaths of nodes before
        self.removing: set[int] = set()
        self.removed: set[int] = set()
        self.node_deaths = 0

    def add(self, words: list[str]) -> None:
        with self._lock:
            self.counts[words[0]] += 1
            if words[0] == "told":
                self.told[int(words[1])] = self.node_deaths
            elif words[0] == "removing":
                self.removing.add(int(words[1]))
            elif words[0] == "removed":
                self.removed.add(int(words[1]))
            elif words[0] == "failed":
                self.counts[f"failed {words[1]}"] += 1

    def lines(self) -> int:
        with self._lock:
            return sum(n for kind, n in self.counts.items() if " " not in kind)


class Rounds:
    def __init__(self, cluster: LocalCluster, rng: random.Random) -> None:
        self.cluster, self.rng, self.seen = cluster, rng, Seen()
        self.workers = [
            Worker(cluster.target, role, place, rng, self.seen)
            for role in ("publisher", "reader")
            for place in (1, 2)
        ]
        self.done: Counter[str] = Counter()

    def run(self, rounds: int) -> None:
        for worker in self.workers:
            worker.start()
        try:
            for _ in range(rounds):
                self._await_lines(self.rng.randrange(1, 25))
                self._one()
            self._await_lines(20)
        finally:
            for worker in self.workers:
                worker.end()

    def _await_lines(self, more: int) -> None:
        begin = self.seen.lines()
        wait_until(lambda: self.seen.lines() >= begin + more, 120)

    def _one(self) -> None:
        kind = self.rng.choice(["kill", "kill", "kill", "stop"])
        victim = self.rng.choice([self.cluster.master, *self.cluster.nodes, *self.workers])
        name = re.sub(r" \d+$", "", victim.name)
        self.done[f"{kind} {name}"] += 1
        if kind == "stop":
            victim.process.send_signal(signal.SIGSTOP)
            try:
                # Longer than leases last, now and then.
                self._stand_still(self.rng.choice([0.1, 0.5, 4.0]))
            finally:
                victim.process.send_signal(signal.SIGCONT)
            if victim in self.cluster.nodes:
                self.seen.node_deaths += 1  # perhaps taken for dead meanwhile
        elif isinstance(victim, Worker):
            victim.end()
            victim.start()
        else:
            if victim in self.cluster.nodes:
                self.seen.node_deaths += 1
            victim.kill()
            victim.start()
            if victim is self.cluster.master:
                assert victim.match.group(1) == self.cluster.address

    def _stand_still(self, seconds: float) -> None:
        # The length of the pause is what is tried; nothing waits for it to be long enough.
        threading.Event().wait(seconds)

    def check(self) -> dict[str, int]:
        """Everything that was told holds. Returns how many revisions are in which state."""
        states: Counter[str] = Counter()
        with WeightStore(self.cluster.target) as store:
            for generation, deaths in sorted(self.seen.told.items()):
                identity = identity_of(generation)
                if generation in self.seen.removed:
                    self._check_gone(store, identity)
                    states["removed"] += 1
                    continue
                if generation in self.seen.removing:
                    continue
                metadata = wait_until(lambda i=identity: self._settled(store, i))
                states[metadata.availability.name] += 1
                if metadata.availability is WeightAvailability.DEGRADED:
                    assert deaths < self.seen.node_deaths, (generation, metadata.state_reason)
                    continue
                assert metadata.availability is WeightAvailability.READY, metadata
                load_and_check(store, transformer(generation), LAYOUTS["tp3-unequal"], identity)
        return dict(states)

    @staticmethod
    def _check_gone(store: WeightStore, identity) -> None:
        assert not store.weight_is_exist(identity), f"{identity} is there again"

    @staticmethod
    def _settled(store: WeightStore, identity):
        try:
            return store.weight_get_metadata(identity).metadata
        except WeightNotFoundError as error:
            raise AssertionError(f"{identity} was told READY and is lost") from error


def run(rounds: int, seed: int, folder: Path) -> dict[str, object]:
    """Returns what was done and seen; AssertionError: something did not hold."""
    with LocalCluster(nodes=2, capacity="512MiB", folder=folder, log_level="warning") as cluster:
        work = Rounds(cluster, random.Random(seed))
        work.run(rounds)
        states = work.check()
        return {
            "seed": seed,
            "rounds": dict(sorted(work.done.items())),
            "told READY": len(work.seen.told),
            "loads with every element right": work.seen.counts["read"],
            "failures told as such": {
                kind.removeprefix("failed "): n
                for kind, n in sorted(work.seen.counts.items())
                if kind.startswith("failed ")
            },
            "in the end": states,
            "acknowledged and lost": 0,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mooncake-kills-") as folder:
        for key, value in run(arguments.rounds, arguments.seed, Path(folder)).items():
            print(f"{key}: {value}")


if __name__ == "__main__":
    main()

"""A publisher or a reader that works until it is killed: `kill_worker.py TARGET ROLE NUMBER SEED`.

Says what it was told on standard output, a line each: `told G`, `removing G`, `removed G`,
`read G`, `failed CODE`. A byte that is wrong ends it with status 1.
"""

from __future__ import annotations

import random
import sys

from models import LAYOUTS, load_and_check, publish, transformer
from mooncake.reshard.weight import WeightAvailability, WeightIdentity, WeightStore
from mooncake.reshard.weight.errors import WeightCorruptError, WeightStoreError

# Of one publisher that stay; older ones are removed.
KEPT = 4


def identity_of(generation: int) -> WeightIdentity:
    return WeightIdentity("kills", "model", "main", generation)


def say(*words: object) -> None:
    print(*words, flush=True)


def publish_on(store: WeightStore, number: int, rng: random.Random) -> None:
    # Generations of publishers that were killed and started again never meet.
    generation = number * 1_000_000
    kept: list[int] = []
    while True:
        generation += 1
        layout = LAYOUTS[rng.choice(["tp1", "tp2-pp2", "tp4-dp2"])]
        try:
            publish(store, transformer(generation), layout, identity_of(generation))
            say("told", generation)
            kept.append(generation)
            if len(kept) > KEPT:
                oldest = kept.pop(0)
                say("removing", oldest)
                store.weight_remove(identity_of(oldest))
                say("removed", oldest)
        except WeightStoreError as error:
            say("failed", type(error).__name__)


def read_on(store: WeightStore, rng: random.Random) -> None:
    while True:
        try:
            ready = [
                view.identity.weight_generation
                for view in store.weight_list("kills")
                if view.metadata.availability is WeightAvailability.READY
            ]
            if not ready:
                say("failed", "nothing")
                continue
            generation = rng.choice(ready)
            layout = LAYOUTS[rng.choice(["tp1", "tp3-unequal", "tp4-across"])]
            load_and_check(store, transformer(generation), layout, identity_of(generation))
            say("read", generation)
        except WeightCorruptError:
            raise
        except WeightStoreError as error:
            say("failed", type(error).__name__)


def main() -> None:
    target, role, number, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    with WeightStore(target, retry_ms=5_000, lease_ttl_ms=3_000, import_ttl_ms=3_000) as store:
        if role == "publisher":
            publish_on(store, int(number), rng)
        else:
            read_on(store, rng)


if __name__ == "__main__":
    main()

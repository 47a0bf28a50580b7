"""Run as a process: publishes the test model, and kills somebody when a step is passed.

usage: publisher.py TARGET SALT REVISION GENERATION STEP COUNT PID
"""

from __future__ import annotations

import os
import signal
import sys

from models import LAYOUTS, publish, transformer
from mooncake import _core
from mooncake.reshard.weight import WeightIdentity, WeightStore
from mooncake.reshard.weight import store as store_module


def kill_at(step: str, count: int, pid: int):
    seen = 0

    def observe(passed: str) -> None:
        nonlocal seen
        if passed == step:
            seen += 1
            if seen == count:
                os.kill(pid or os.getpid(), signal.SIGKILL)

    return observe


def main() -> None:
    target, salt, revision, generation, step, count, pid = sys.argv[1:]
    observer = kill_at(step, int(count), int(pid))

    class Core:
        StoreError = _core.StoreError

        @staticmethod
        def StoreClient(*arguments, **options):
            return _core.StoreClient(*arguments, step_observer=observer, **options)

    store_module._core = Core
    with WeightStore(target, import_ttl_ms=1000) as store:
        identity = WeightIdentity("tests", "model", revision, int(generation))
        writer = publish(store, transformer(int(salt)), LAYOUTS["tp2-pp2"], identity)
        print(writer.metadata.manifest_sha256)


if __name__ == "__main__":
    main()

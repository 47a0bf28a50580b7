"""What `./x bench load` and `./x bench publish` share: a cluster, a model, interleaved rounds.

One process publishes or loads a whole model through a running cluster. In every round each variant
(digests on, digests off, plain copies of the same bytes) runs once, beginning with another one each
time; all memory is touched before the clock starts. Figures are medians; a ratio is the median of
the rounds' own ratios to the fastest plain copy of that round.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from mooncake import _core

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_LIBC.memcpy.restype = ctypes.c_void_p


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--gib", type=float, default=4.0, help="size of the model (default 4)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2], help="default 1 2")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    return parser.parse_args()


def model_tensors(gib: float) -> dict[str, torch.Tensor]:
    """float32 tensors of 64 MiB, touched; each element tells tensor and position."""
    count = max(1, round(gib * 16))
    pattern = torch.arange(1 << 24, dtype=torch.int32)
    return {f"layers.{i}.weight": (pattern + i * 7919).view(4096, 4096) for i in range(count)}


def plain_copies(
    targets: dict[str, torch.Tensor], sources: dict[str, torch.Tensor], threads: int
) -> dict[str, Callable[[], None]]:
    """Three ways to copy the same bytes between two buffers, with the same number of threads."""
    pool = ThreadPoolExecutor(threads)
    chunk = 4 << 20

    def memcpy() -> None:
        def part(number: int) -> None:
            for name, target in targets.items():
                for at in range(number * chunk, target.nbytes, threads * chunk):
                    size = min(chunk, target.nbytes - at)
                    _LIBC.memcpy(target.data_ptr() + at, sources[name].data_ptr() + at, size)

        list(pool.map(part, range(threads)))

    def torch_copy() -> None:
        torch.set_num_threads(threads)
        for name, target in targets.items():
            target.copy_(sources[name])

    def streamed() -> None:
        for name, target in targets.items():
            address = sources[name].data_ptr()
            _core.copy_strided(target.data_ptr(), address, target.nbytes, [], [], [], threads)

    return {"memcpy": memcpy, "torch copy_": torch_copy, "non-temporal copy": streamed}


class AnonymousPeak:
    """Highest RssAnon of this process while the block runs, above its start, in bytes (sampled)."""

    def __enter__(self) -> AnonymousPeak:
        self._before = self._now()
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            self.peak = max(self.peak, self._now() - self._before)

    @staticmethod
    def _now() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no RssAnon in /proc/self/status")


def interleave(
    variants: dict[str, Callable[[], None]],
    rounds: int,
    before: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each variant in each round, after one round that is not counted.

    `before` runs ahead of every variant, off the clock.
    """
    names = list(variants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for index in range(len(names)):
            name = names[(index + number) % len(names)]
            before()
            started = time.perf_counter()
            variants[name]()
            if number:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def report(
    title: str, nbytes: int, threads: int, seconds: dict[str, list[float]], plain: list[str]
) -> list[dict]:
    """Prints a table; ratios are to the fastest plain copy of the same round."""
    best = [min(seconds[name][i] for name in plain) for i in range(len(seconds[plain[0]]))]
    print(f"\n{title}, {threads} thread{'s' if threads > 1 else ''}, {nbytes / 1e9:.2f} GB")
    print(f"{'':<22} {'s':>8} {'GB/s':>7} {'ratio':>6}")
    rows = []
    for name, values in seconds.items():
        median = statistics.median(values)
        ratio = statistics.median(b / v for b, v in zip(best, values, strict=True))
        print(f"{name:<22} {median:8.3f} {nbytes / median / 1e9:7.2f} {ratio:6.2f}")
        rows.append(
            {
                "case": title,
                "threads": threads,
                "variant": name,
                "seconds": values,
                "gb_per_s": nbytes / median / 1e9,
                "ratio_to_best_plain_copy": ratio,
            }
        )
    return rows


def write_json(path: Path | None, rows: list[dict]) -> None:
    if path is not None:
        path.write_text(json.dumps(rows, indent=1) + "\n")

"""The strided copy engine against torch's `copy_` of the same elements between the same tensors.

Runs of a given length are every other one of a tensor's rows (gather: from there into a dense
tensor; scatter: the other way round). Figures are medians over interleaved rounds, after one that
is not counted; a ratio is the median of the rounds' own ratios. All memory is touched before.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch
from end_to_end import interleave
from mooncake import _core

RUNS = (64, 128, 1024, 65536)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--mib", type=int, default=1024, help="bytes copied per case (default 1024)"
    )
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    parser.add_argument("--threads", type=int, default=2, help="with 1, 2, 4 ... up to this many")
    parser.add_argument("--huge-pages", action="store_true", help="no meaning for torch's memory")
    parser.add_argument("--only", default="", help="only the cases whose name holds this text")
    parser.add_argument("--json", type=Path, help="add the figures to this file")
    options = parser.parse_args()
    nbytes = options.mib << 20
    dense = torch.ones(nbytes, dtype=torch.uint8)
    other = torch.zeros(nbytes, dtype=torch.uint8)
    spread = torch.ones(2 * nbytes, dtype=torch.uint8)
    cases = [("contiguous", other, dense)]
    for run in RUNS:
        rows = nbytes // run
        thinned = spread[: 2 * rows * run].view(rows, 2, run)[:, 0]
        packed = dense[: rows * run].view(rows, run)
        cases.append((f"gather, runs of {run} B", packed, thinned))
        cases.append((f"scatter, runs of {run} B", thinned, packed))
    print(f"\n{'against torch copy_':<26} threads  ours GB/s  torch GB/s  ratio")
    rows = []
    threads = 1
    while threads <= options.threads:
        for name, target, source in cases:
            if options.only in name:
                rows.append(measure(name, target, source, threads, options.rounds))
        threads *= 2
    if options.json is not None:
        known = json.loads(options.json.read_text()) if options.json.exists() else []
        options.json.write_text(json.dumps([known, rows], indent=1) + "\n")


def measure(name: str, target, source, threads: int, rounds: int) -> dict:
    inner = source.shape[-1]
    counts = list(source.shape[:-1])

    def ours() -> None:
        _core.copy_strided(
            target.data_ptr(),
            source.data_ptr(),
            inner,
            counts,
            list(target.stride()[:-1]),
            list(source.stride()[:-1]),
            threads,
        )

    def torch_copy() -> None:
        torch.set_num_threads(threads)
        target.copy_(source)

    target.zero_()
    ours()
    if not torch.equal(target, source):
        raise SystemExit(f"{name}: the copy differs from its source")
    seconds = interleave({"ours": ours, "torch": torch_copy}, rounds)
    speed = {
        who: source.numel() / statistics.median(values) / 1e9 for who, values in seconds.items()
    }
    ratio = statistics.median(t / o for o, t in zip(seconds["ours"], seconds["torch"], strict=True))
    print(f"{name:<26} {threads:7} {speed['ours']:10.1f} {speed['torch']:11.1f} {ratio:6.2f}")
    return {"case": name, "threads": threads, "gb_per_s": speed, "ratio_to_torch": ratio}


if __name__ == "__main__":
    main()

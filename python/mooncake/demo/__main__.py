"""Publishes a model from eight processes and loads it into other layouts, every byte checked."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

from mooncake.local_cluster import LocalCluster, host_memory_bytes
from mooncake.reshard.adapters import ParallelLayout
from mooncake.reshard.weight import WeightIdentity, WeightStore

from . import work
from .fleet import Fleet
from .models import MiniLM, Model, SyntheticQwen3Moe, content_revision

_SENTENCES = (
    "The weights arrived in another layout.",
    "Nobody gathered them on the way.",
    "Every byte is where it should be.",
)
_GIB = 1 << 30


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"a size reads like 512MiB or 4GiB, got {text!r}")
    return int(
        float(match.group(1)) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": _GIB}[match.group(2)]
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x demo", description=__doc__)
    parser.add_argument("--synthetic", choices=["qwen3-moe"], help="a made-up model instead")
    parser.add_argument("--size", type=_size, default=4 * _GIB, help="of it (default 4GiB)")
    parser.add_argument("--repeat", type=int, default=3, help="loads per layout (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    arguments = parser.parse_args()
    if arguments.repeat < 1:
        parser.error(f"--repeat must be at least 1, got {arguments.repeat}")
    return arguments


def main() -> int:
    arguments = _arguments()
    model: Model = SyntheticQwen3Moe(arguments.size) if arguments.synthetic else MiniLM()
    # The store's copy, a rank's buffers and the plain copy's.
    if 3.5 * model.nbytes > host_memory_bytes():
        print(
            f"the demo needs about {3.5 * model.nbytes / _GIB:.1f} GiB of memory, "
            f"{host_memory_bytes() / _GIB:.1f} GiB are free: give a smaller --size",
            file=sys.stderr,
        )
        return 2
    capacity = f"{max(1, -(-2 * model.nbytes // _GIB))}GiB"
    with LocalCluster(nodes=2, capacity=capacity) as cluster:
        print(
            f"Store Master on {cluster.address}, two nodes of {capacity} "
            f"(pids {cluster.master.pid}, {', '.join(str(n.pid) for n in cluster.nodes)})\n"
        )
        return _run(cluster, model, arguments)


def _run(cluster: LocalCluster, model: Model, arguments: argparse.Namespace) -> int:
    fleet = Fleet(["mooncake.demo.work"])
    identity = WeightIdentity("demo", model.name.replace(" ", "-"), content_revision(model), 1)
    source = model.source_layout()
    print(
        f"{model.name}: {len(model.tensors)} tensors, {_mib(model.nbytes)}\n"
        f"publish as {source} from {source.tp * source.pp * source.dp} processes ..."
    )
    published = fleet.run(
        work.publish, _participants(source), cluster.target, model, source, identity
    )
    uploaded = sum(p.bytes_uploaded for p in published)
    wrote = sum(1 for p in published if p.bytes_uploaded)
    seconds = max(p.seconds for p in published)
    print(
        f"  READY after {seconds:.2f} s: {_mib(uploaded)} from {wrote} processes, "
        f"{len(published) - wrote} replicas sent nothing"
    )
    with WeightStore(cluster.target) as store:
        metadata = store.weight_get_metadata(identity).metadata
        print(
            f"  {metadata.group_id}: {metadata.payload_count} objects in {metadata.affinity_count} "
            f"units, {metadata.observed_residency.name}"
        )
        if metadata.state_reason:
            print(f"  {metadata.state_reason}")
    figures = {
        "model": model.name,
        "bytes": model.nbytes,
        "publish": {"bytes": uploaded, "seconds": seconds},
        "loads": [],
    }
    failures = 0
    print()
    print(_ROW.format(*_HEADINGS))
    for layout in model.target_layouts():
        row, wrong = _load(fleet, cluster, model, layout, identity, arguments.repeat)
        figures["loads"].append(row)
        failures += wrong
    print(
        "\nplan and load are the slowest rank's; load and copy are medians of "
        f"{arguments.repeat}, the plan is the first load's"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    print("every byte equals the checkpoint's" if not failures else f"{failures} loads were WRONG")
    return 1 if failures else 0


_HEADINGS = (
    "layout",
    "ranks",
    "tensors",
    "regions",
    "needed",
    "moved",
    "plan",
    "load",
    "GB/s",
    "copy GB/s",
    "checked",
)
_ROW = "{:<20} {:>5} {:>7} {:>7} {:>10} {:>10} {:>8} {:>8} {:>6} {:>9} {:>10}"


def _load(
    fleet: Fleet,
    cluster: LocalCluster,
    model: Model,
    layout: ParallelLayout,
    identity: WeightIdentity,
    repeat: int,
) -> tuple[dict, bool]:
    participants = _participants(layout)
    sentences = _SENTENCES if len(participants) == 1 else ()
    results = fleet.run(
        work.load, participants, cluster.target, model, layout, identity, repeat, sentences
    )
    seconds = work.fleet_seconds([r.seconds for r in results])
    copy = work.fleet_seconds([r.copy_seconds for r in results])
    moved = sum(r.bytes_moved for r in results)
    wrong = sorted({name for r in results for name in r.wrong})
    row = {
        "layout": str(layout),
        "ranks": len(results),
        "tensors": sum(r.tensors for r in results),
        "regions": sum(r.regions for r in results),
        "bytes_needed": sum(r.bytes_needed for r in results),
        "bytes_moved": moved,
        "seconds_plan": max(r.plan_seconds for r in results),
        "seconds": seconds,
        "gb_per_s": moved / seconds / 1e9,
        "copy_gb_per_s": moved / copy / 1e9,
        "bytes_checked": sum(r.bytes_checked for r in results),
        "wrong": wrong,
    }
    print(
        _ROW.format(
            row["layout"],
            row["ranks"],
            row["tensors"],
            row["regions"],
            _mib(row["bytes_needed"]),
            _mib(moved),
            f"{row['seconds_plan'] * 1e3:.1f} ms",
            f"{seconds * 1e3:.0f} ms",
            f"{row['gb_per_s']:.2f}",
            f"{row['copy_gb_per_s']:.2f}",
            "WRONG" if wrong else _mib(row["bytes_checked"]),
        ),
        flush=True,
    )
    for name in wrong[:10]:
        print(f"  wrong bytes: {name}")
    if results[0].embeddings is not None:
        original = model.embeddings({name: model.read(name) for name in model.tensors}, sentences)
        equal = work.equal_bits(results[0].embeddings, original.numpy())
        row["embeddings_equal"] = equal
        print(
            f"  the loaded model's embeddings of {len(sentences)} sentences "
            f"{'equal the original`s' if equal else 'DIFFER from the original'}".replace("`", "'")
        )
        return row, bool(wrong) or not equal
    return row, bool(wrong)


def _participants(layout: ParallelLayout) -> list[str]:
    return [p.participant_id for p in layout.topology().participants]


def _mib(nbytes: int) -> str:
    return f"{nbytes / _GIB:.2f} GiB" if nbytes >= _GIB else f"{nbytes / (1 << 20):.1f} MiB"


if __name__ == "__main__":
    started = time.monotonic()
    status = main()
    print(f"total {time.monotonic() - started:.1f} s")
    raise SystemExit(status)

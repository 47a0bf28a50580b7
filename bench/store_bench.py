"""Ordinary objects beside Redis: put and get of several sizes, single and in batches, by one client
and by eight, over the same host's path and over loopback TCP.

Clients are processes; each keeps its own connection and its own keys, which exist already: a put
replaces (ours: upsert, new bytes first; Redis: SET). Every cell runs ours and Redis one after the
other for the same time, beginning with another one each round; figures are medians of the rounds,
a ratio is the median of the rounds' own ratios. Both keep objects in memory alone; ours are
acknowledged before the Master's log is flushed, as the Python face does it.
Needs `redis-server` (Debian's package) and the Python packages redis and hiredis.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mooncake.local_cluster import LocalCluster

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, MIB, 64 * MIB)
BATCH = 32
CLIENTS = (1, 8)


def keys_of(client: int, size: int, batch: int) -> list[str]:
    count = batch if batch > 1 else (2 if size > MIB else 32)
    return [f"bench/{client}/{size}/{i}" for i in range(count)]


class Ours:
    """One client of the store: puts from and gets into memory of its own."""

    def __init__(self, target: str, remote: bool) -> None:
        from mooncake import _core
        from mooncake.store import ReplicateConfig

        # A client of another host, as far as the store knows, reaches the node by TCP.
        self._store = _core.ObjectStore(target, host_id="elsewhere" if remote else "")
        self._config = ReplicateConfig()

    def prepare(self, size: int, batch: int) -> None:
        self._memory = ctypes.create_string_buffer(b"\x5a" * (size * batch), size * batch)
        address = ctypes.addressof(self._memory)
        self._addresses = [address + i * size for i in range(batch)]
        self._sizes = [size] * batch

    def put(self, keys: list[str]) -> None:
        results = self._store.put_pointers(keys, self._addresses, self._sizes, self._config, True)
        if any(results):
            raise RuntimeError(f"put: {results}")

    def get(self, keys: list[str]) -> None:
        results = self._store.get_pointers(keys, self._addresses, self._sizes)
        if any(result != size for result, size in zip(results, self._sizes, strict=True)):
            raise RuntimeError(f"get: {results}")


class Redis:
    """One client of Redis: bytes in, bytes out, a pipeline for a batch."""

    def __init__(self, where: dict[str, Any]) -> None:
        import redis

        self._redis = redis.Redis(**where)

    def prepare(self, size: int, batch: int) -> None:
        self._values = [b"\x5a" * size] * batch

    def put(self, keys: list[str]) -> None:
        if len(keys) == 1:
            self._redis.set(keys[0], self._values[0])
        else:
            self._redis.mset(dict(zip(keys, self._values, strict=True)))

    def get(self, keys: list[str]) -> None:
        values = [self._redis.get(keys[0])] if len(keys) == 1 else self._redis.mget(keys)
        if any(value is None or len(value) != len(self._values[0]) for value in values):
            raise RuntimeError("get: a value is missing")


def serve(pipe: Connection, number: int, make: Callable[[], Any]) -> None:
    """A client process: runs what it is told for so long, from a common start on."""
    client = make()
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        op, size, batch, start, seconds = order
        client.prepare(size, batch)
        keys = keys_of(number, size, batch)
        groups = [keys] if batch > 1 else [[key] for key in keys]
        act = client.put if op in ("fill", "put") else client.get
        if op == "fill":
            for group in groups:
                act(group)
            pipe.send(None)
            continue
        act(groups[0])  # connections, mappings, pages
        time.sleep(max(0.0, start - time.perf_counter()))
        took: list[float] = []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end or not took:
            act(groups[len(took) % len(groups)])
            took.append(time.perf_counter() - begun)
        pipe.send((len(took) * batch, sum(took), statistics.median(took)))


class Fleet:
    """The client processes of one system over one path."""

    def __init__(self, make: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(max(CLIENTS)):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, number, make), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def run(self, op: str, size: int, batch: int, clients: int, seconds: float) -> dict[str, float]:
        """Objects and bytes per second of all clients together, and the median call."""
        start = time.perf_counter() + 0.05
        for pipe in self._pipes[:clients]:
            pipe.send((op, size, batch, start, seconds))
        replies = [pipe.recv() for pipe in self._pipes[:clients]]
        if op == "fill":
            return {}
        rate = sum(objects / took for objects, took, _ in replies)
        return {
            "per_second": rate,
            "gb_per_second": rate * size / 1e9,
            "p50_us": statistics.median(p50 for _, _, p50 in replies) * 1e6,
        }

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(10)


def start_redis(stack: ExitStack, folder: Path) -> dict[str, dict[str, Any]]:
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("redis-server is not installed: apt-get install redis-server")
    socket = folder / "redis.sock"
    port = "0"
    # Redis takes no port 0 for "any": one that is free now.
    import socket as sockets

    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [program, "--save", "", "--appendonly", "no", "--unixsocket", str(socket)]
    command += ["--port", port, "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no"]
    log = open(folder / "redis.log", "w")  # noqa: SIM115: the process has it as long as it lives
    process = subprocess.Popen(command, stdout=log, stderr=log)
    stack.callback(lambda: (process.terminate(), process.wait(10)))
    import redis

    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            redis.Redis(unix_socket_path=str(socket)).ping()
            break
        except redis.exceptions.ConnectionError:
            time.sleep(0.02)
    return {
        "same host": {"unix_socket_path": str(socket)},
        "loopback TCP": {"host": "127.0.0.1", "port": int(port)},
    }


def cells(sizes: list[int]) -> list[tuple[str, int, int, int]]:
    made = []
    for size in sizes:
        for batch in (1, BATCH) if size <= MIB else (1,):
            for clients in CLIENTS:
                for op in ("put", "get"):
                    made.append((op, size, batch, clients))
    return made


def text_of(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="store-bench-")))
        places = start_redis(stack, folder)
        cluster = stack.enter_context(
            LocalCluster(
                nodes=1,
                capacity="6GiB",
                log_level="warning",
                node_arguments=("--listen", "127.0.0.1:0"),
            )
        )
        for path, place in places.items():
            remote = path != "same host"
            ours = Fleet(lambda remote=remote: Ours(cluster.target, remote))
            theirs = Fleet(lambda place=place: Redis(place))
            fleets = {"ours": ours, "redis": theirs}
            for op, size, batch, clients in cells(options.sizes):
                for fleet in fleets.values():
                    fleet.run("fill", size, batch, clients, 0)
                seen: dict[str, list[dict[str, float]]] = {name: [] for name in fleets}
                for number in range(options.rounds):
                    names = list(fleets) if number % 2 == 0 else list(reversed(fleets))
                    for name in names:
                        figures = fleets[name].run(op, size, batch, clients, options.seconds)
                        seen[name].append(figures)
                row: dict[str, Any] = {
                    "path": path,
                    "op": op,
                    "size": size,
                    "batch": batch,
                    "clients": clients,
                }
                for name, figures in seen.items():
                    for key in figures[0]:
                        row[f"{name}_{key}"] = statistics.median(one[key] for one in figures)
                row["ratio"] = statistics.median(
                    a["per_second"] / b["per_second"]
                    for a, b in zip(seen["ours"], seen["redis"], strict=True)
                )
                rows.append(row)
                print(
                    f"{path:12} {op} {text_of(size):>7} x{batch:<3} {clients} clients: "
                    f"{row['ours_per_second']:10.0f}/s {row['ours_gb_per_second']:6.2f} GB/s "
                    f"p50 {row['ours_p50_us']:8.0f} us | Redis {row['redis_per_second']:10.0f}/s "
                    f"{row['redis_gb_per_second']:6.2f} GB/s p50 {row['redis_p50_us']:8.0f} us | "
                    f"ratio {row['ratio']:.2f}",
                    flush=True,
                )
            ours.end()
            theirs.end()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=0.25, help="of one run (default 0.25)")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=list(SIZES), help="bytes (default 4 KiB to 64 MiB)"
    )
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    # Without hiredis Redis's client would be the slower one.
    missing = [name for name in ("redis", "hiredis") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"not installed: pip install {' '.join(missing)}")
    rows = measure(options)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()

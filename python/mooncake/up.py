"""``./x up``: a Store Master and store nodes on this host until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import threading

from .local_cluster import LocalCluster

_TOUR = """\
Store Master  {target}
Store nodes   {nodes}, {capacity} of memory each
Monitoring    {admin_url}/metrics and {admin_url}/status
Logs          {folder}

  from mooncake.reshard.weight import WeightStore
  store = WeightStore("{target}")
  print(store.weight_list())

  mooncake --store {target} weights list

Ctrl-C stops it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="./x up", description=__doc__)
    parser.add_argument("--nodes", type=int, default=2, help="store nodes (default 2)")
    parser.add_argument("--capacity", default="4GiB", help="memory of each node (default 4GiB)")
    parser.add_argument(
        "--folder",
        help="where the store lives; kept (default: a temporary one, removed at the end)",
    )
    arguments = parser.parse_args()
    if arguments.nodes < 1:
        parser.error(f"--nodes must be at least 1, got {arguments.nodes}")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    cluster = LocalCluster(
        nodes=arguments.nodes,
        capacity=arguments.capacity,
        folder=arguments.folder,
        monitored=True,
    )
    with cluster:
        print(
            _TOUR.format(
                target=cluster.target,
                admin_url=cluster.admin_url,
                nodes=arguments.nodes,
                capacity=arguments.capacity,
                folder=cluster.folder,
            ),
            flush=True,
        )
        while not stop.wait(1.0):
            for program in [cluster.master, *cluster.nodes]:
                if program.process.poll() is not None:
                    print(f"{program.name} ended by itself, see {program.log}", flush=True)
                    return 1
        print("\nstopping", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

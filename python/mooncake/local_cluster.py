"""A Store Master and store nodes on this host, as child processes: for the demo, `up` and tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional

__all__ = ["LocalCluster", "find_program"]

_READY_SECONDS = 30.0


def find_program(name: str) -> Path:
    """The store's own program `name`: installed in the package, in the build, or on PATH.

    FileNotFoundError lists where it was looked for.
    """
    import mooncake._core as core

    # A wheel has them beside the module; a build folder in bin/, with the module two folders down.
    module = Path(core.__file__).resolve()
    candidates = [module.parent / "bin" / name, module.parents[2] / "bin" / name]
    on_path = shutil.which(name)
    if on_path:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{name} is not at {', '.join(map(str, candidates))}, nor on PATH")


class Program:
    """One child process whose first line of output says that it is ready."""

    def __init__(self, name: str, arguments: list[str], ready: str, log: Path) -> None:
        self.name = name
        self._command = [str(find_program(name)), *arguments]
        self._ready = re.compile(ready)
        self.log = log
        self.process: Optional[subprocess.Popen] = None
        self.match: Optional[re.Match] = None

    def start(self) -> re.Match:
        """Starts it and waits for its ready line. RuntimeError has the log's end if it dies."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches us, and we stop them in order
            )
        watchdog = _Alarm(self.process, _READY_SECONDS)
        line = self.process.stdout.readline().decode(errors="replace")
        watchdog.cancel()
        self.match = self._ready.search(line)
        if self.match is None:
            self.kill()
            tail = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self.name} did not start: {line.strip()!r}\n{tail}")
        return self.match

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self, timeout: float = 10.0) -> int:
        """SIGTERM, and SIGKILL after `timeout` seconds. Returns the exit status."""
        if self.process is None or self.process.poll() is not None:
            return self.process.returncode if self.process else 0
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def kill(self) -> None:
        """SIGKILL, now."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


class _Alarm:
    """Kills a process that has not been cancelled after some seconds."""

    def __init__(self, process: subprocess.Popen, seconds: float) -> None:
        import threading

        self._timer = threading.Timer(seconds, process.kill)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()


class LocalCluster:
    """One Master and `nodes` store nodes, on OS-assigned ports, in `folder`.

    Without a `folder` a temporary one is made and removed at the end. A context manager; `target`
    is what `WeightStore` takes. `capacity` is each node's memory, e.g. "8GiB"; `prepare` how much
    of it is kept ready for the next publish (default: a quarter). With `monitored` the Master
    serves /metrics and /status at `admin_url`.
    """

    def __init__(
        self,
        *,
        nodes: int = 2,
        capacity: str = "4GiB",
        prepare: Optional[str] = None,
        folder: Optional[str | Path] = None,
        master_arguments: tuple[str, ...] = (),
        node_arguments: tuple[str, ...] = (),
        log_level: str = "info",
        monitored: bool = False,
    ) -> None:
        self._own_folder = folder is None
        if folder is None:
            folder = tempfile.mkdtemp(prefix="mooncake-")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._capacity = capacity
        self._prepare = prepare
        self._log_level = log_level
        self._node_count = nodes
        self._node_arguments = node_arguments
        self.master = Program(
            "mooncake-master",
            [
                "--folder",
                str(self.folder / "master"),
                "--log-level",
                log_level,
                *(("--http-port", "0") if monitored else ()),
                *master_arguments,
            ],
            r"listening on (\S+) folder=.*?(?: admin=(\S+))?$",
            self.folder / "master.log",
        )
        self.nodes: list[Program] = []
        self.address = ""
        self.admin_url = ""  # empty: not served

    @property
    def target(self) -> str:
        return f"mooncake://{self.address}"

    def start(self) -> LocalCluster:
        try:
            started = self.master.start()
            self.address, self.admin_url = started.group(1), started.group(2) or ""
            for index in range(self._node_count):
                node = self.node_program(index)
                self.nodes.append(node)
                node.start()
        except BaseException:
            self.stop()
            raise
        return self

    def node_program(self, index: int) -> Program:
        return Program(
            "mooncake-node",
            [
                "--master",
                self.address,
                "--folder",
                str(self.folder / f"node{index}"),
                "--capacity",
                self._capacity,
                *(["--prepare", self._prepare] if self._prepare is not None else []),
                "--log-level",
                self._log_level,
                *self._node_arguments,
            ],
            r"ready|serving|registered",
            self.folder / f"node{index}.log",
        )

    def stop(self) -> None:
        for program in [*reversed(self.nodes), self.master]:
            status = program.stop()
            if status not in (0, None):
                print(
                    f"{program.name} ended with status {status}, see {program.log}", file=sys.stderr
                )
                self._own_folder = False  # keep the logs
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def running_pids(cluster: LocalCluster) -> list[int]:
    """Pids of the cluster's processes that are alive."""
    programs = [cluster.master, *cluster.nodes]
    return [p.pid for p in programs if p.process is not None and p.process.poll() is None]


def host_memory_bytes() -> int:
    """Memory that new work can take now (MemAvailable)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

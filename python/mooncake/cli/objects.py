"""``mooncake store``: put, get, list, look at and remove ordinary objects."""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mooncake import _core

from ..store import ReplicateConfig, SoftPinAction, _codes
from .tables import bytes_text, print_json, print_table

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    store = commands.add_parser("store", help="put, get, list and remove ordinary objects")
    actions = store.add_subparsers(dest="action", required=True, metavar="ACTION")

    command = _add(actions, "put", _put, "store a file under a key")
    command.add_argument("key")
    command.add_argument("file", help="- for standard input")
    command.add_argument("--replace", action="store_true", help="also an object that is there")
    command.add_argument("--replicas", type=int, default=1, help="copies, on different nodes")
    command.add_argument("--group", default="", help="objects of a group are evicted together")
    command.add_argument("--pin", action="store_true", help="never evict it")
    command.add_argument("--soft-pin", action="store_true", help="evict it after all others")

    command = _add(actions, "get", _get, "write an object to a file")
    command.add_argument("key")
    command.add_argument("file", help="- for standard output")
    command.add_argument("--force", action="store_true", help="replace an existing file")

    command = _add(actions, "ls", _list, "keys and sizes, sorted by key")
    command.add_argument("prefix", nargs="?", default="", help="only keys that begin so")

    command = _add(actions, "stat", _stat, "what the Master knows of an object")
    command.add_argument("key")

    command = _add(actions, "rm", _remove, "remove objects")
    command.add_argument("keys", nargs="*", metavar="KEY")
    command.add_argument("--regex", metavar="PATTERN", help="all in whose keys it is found")
    command.add_argument("--all", action="store_true", help="all of the tenant")
    command.add_argument("--force", action="store_true", help="also what is being read")


def _add(actions: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    command = actions.add_parser(name, help=text)
    command.add_argument("--tenant", default="default", help="whose objects (default: default)")
    command.set_defaults(run=run, needs_store=True)
    return command


@contextlib.contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator[_core.ObjectStore]:
    from ..reshard.weight.store import store_errors

    with store_errors():
        store = _core.ObjectStore(arguments.store, tenant_id=arguments.tenant)
        try:
            yield store
        finally:
            del store


@contextlib.contextmanager
def _working(what: str, size: int) -> Iterator[None]:
    """On a terminal: a line that shows that long work goes on."""
    done = threading.Event()
    begin = time.monotonic()

    def show() -> None:
        shown = False
        while not done.wait(0.5):
            seconds = time.monotonic() - begin
            print(f"\r{what}, {bytes_text(size)}, {seconds:.1f} s ", end="", file=sys.stderr)
            sys.stderr.flush()
            shown = True
        if shown:
            print(file=sys.stderr)

    thread = threading.Thread(target=show, daemon=True)
    if sys.stderr is not None and sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()


def _refuse(key: str, code: int) -> None:
    raise OSError(f"object {key!r}: {_codes.name_of(code)} ({code})")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _config(arguments: argparse.Namespace) -> ReplicateConfig:
    if arguments.replicas < 1:
        raise ValueError(f"--replicas must be at least 1, got {arguments.replicas}")
    config = ReplicateConfig()
    config.replica_num = arguments.replicas
    config.with_hard_pin = arguments.pin
    if arguments.soft_pin:
        config.soft_pin_action = SoftPinAction.ENABLE
    if arguments.group:
        config.group_ids = [arguments.group]
    return config


def _content(name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of a file, mapped; or all of standard input."""
    if name == "-":
        return np.frombuffer(sys.stdin.buffer.read(), dtype=np.uint8)
    with open(name, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return np.empty(0, dtype=np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)


def _put(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    content = _content(arguments.file)
    if content.size == 0:
        raise ValueError(f"{arguments.file}: is empty, and an object has at least one byte")
    key = arguments.key
    with _opened(arguments) as store:
        if not arguments.replace and store.exists([key], renew=False)[0] == 1:
            raise ValueError(f"object {key!r} exists; --replace replaces it")
        with _working(f"put {key}", content.size):
            pointers = [content.ctypes.data], [content.size]
            [code] = store.put_pointers([key], *pointers, config, arguments.replace)
        if code != 0:
            _refuse(key, code)
    if arguments.json:
        print_json({"key": key, "bytes": int(content.size)})
    else:
        print(f"{key}, {bytes_text(content.size)}", file=sys.stdout)
    return 0


def _get(arguments: argparse.Namespace) -> int:
    key = arguments.key
    path = Path(arguments.file)
    if arguments.file != "-" and path.exists() and not arguments.force:
        raise ValueError(f"{path} exists; --force replaces it")
    with _opened(arguments) as store:
        [size] = store.sizes([key])
        if size < 0:
            _refuse(key, size)
        content = np.empty(size, dtype=np.uint8)
        with _working(f"get {key}", size):
            [got] = store.get_pointers([key], [content.ctypes.data], [content.size])
        if got < 0:
            _refuse(key, got)
    content = content[:got]
    if arguments.file == "-":
        sys.stdout.buffer.write(content)
        return 0
    # A file that is there is replaced as a whole or not at all.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        content.tofile(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    if arguments.json:
        print_json({"key": key, "bytes": got, "file": str(path)})
    else:
        print(f"{path}, {bytes_text(got)}")
    return 0


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "key": _text(info["key"]), "group_id": _text(info["group_id"])}


def _list(arguments: argparse.Namespace) -> int:
    with _opened(arguments) as store:
        found = [_plain(info) for info in store.list(arguments.prefix)]
    if arguments.json:
        print_json(found)
        return 0
    print_table(
        ("key", "size", "copies", "pinned", "leased", "age"),
        (
            (
                info["key"],
                bytes_text(info["bytes"]),
                len(info["node_ids"]),
                _pin(info),
                f"{info['lease_left_ms'] / 1000:.1f} s" if info["lease_left_ms"] else "-",
                f"{info['age_ms'] / 1000:.0f} s",
            )
            for info in found
        ),
    )
    return 0


def _pin(info: dict[str, Any]) -> str:
    if info["hard_pin"]:
        return "hard"
    return f"soft, {info['soft_pin_left_ms'] // 1000} s" if info["soft_pin_left_ms"] else "-"


def _stat(arguments: argparse.Namespace) -> int:
    with _opened(arguments) as store:
        [info] = store.describe([arguments.key])
    if isinstance(info, int):
        _refuse(arguments.key, info)
    info = _plain(info)
    if arguments.json:
        print_json(info)
        return 0
    rows = [
        ("key", info["key"]),
        ("size", f"{info['bytes']} bytes"),
        ("object", f"#{info['object_id']}"),
        ("copies", ", ".join(info["node_ids"])),
        ("group", info["group_id"] or "-"),
        ("pinned", _pin(info)),
        ("leased", f"{info['lease_left_ms'] / 1000:.1f} s more" if info["lease_left_ms"] else "-"),
        ("readable for", f"{info['age_ms'] / 1000:.1f} s"),
    ]
    for name, value in rows:
        print(f"{name.ljust(12)}  {value}")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    ways = [bool(arguments.keys), arguments.regex is not None, arguments.all]
    if sum(ways) != 1:
        raise ValueError("what to remove? give keys, --regex PATTERN, or --all")
    failed: dict[str, int] = {}
    with _opened(arguments) as store:
        if arguments.all:
            removed = store.remove_all(arguments.force)
        elif arguments.regex is not None:
            removed = store.remove_by_regex(arguments.regex, arguments.force)
        else:
            codes = store.remove(arguments.keys, arguments.force)
            failed = {k: c for k, c in zip(arguments.keys, codes, strict=True) if c != 0}
            removed = len(codes) - len(failed)
        if removed < 0:
            raise OSError(f"nothing was removed: {_codes.name_of(removed)} ({removed})")
    if arguments.json:
        print_json({"removed": removed, "failed": failed})
    else:
        print(f"{removed} removed")
    for key, code in failed.items():
        print(f"mooncake: object {key!r}: {_codes.name_of(code)} ({code})", file=sys.stderr)
    return 1 if failed else 0

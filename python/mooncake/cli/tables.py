"""Plain text tables and byte counts for people."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

__all__ = ["bytes_text", "print_json", "print_table"]


def bytes_text(count: int) -> str:
    """1536 -> "1.5 KiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns as wide as their widest cell; numbers and byte counts to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [
        max([len(heading), *(len(row[i]) for row in cells)]) for i, heading in enumerate(headings)
    ]
    right = [bool(cells) and all(row[i][:1].isdigit() for row in cells) for i in range(len(widths))]

    def line(row: Sequence[str]) -> str:
        texts = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ]
        return "  ".join(texts).rstrip()

    print(line(list(headings)))
    for row in cells:
        print(line(row))


def print_json(value: Any) -> None:
    """Dataclasses as objects, enums as their values; escaped where the locale has no letter."""
    text = json.dumps(_plain(value), indent=1, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(_plain(value), indent=1)
    print(text)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value

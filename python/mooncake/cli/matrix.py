"""Who sends how much to whom, as a matrix: in the terminal and as a picture."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .tables import bytes_text, print_table

__all__ = ["Matrix", "draw_matrix", "print_matrix"]

NUMBERS_MAX = 8  # columns that are printed with byte counts
SHADES_MAX = 48  # ranks a side that have a row or column of their own
SHADES = " \u00b7\u2591\u2592\u2593\u2588"
ASCII_SHADES = " .-+*#"


@dataclass(frozen=True)
class Matrix:
    """cells[i][j]: bytes that sources[i] sends to targets[j]."""

    sources: list[str]
    targets: list[str]
    cells: list[list[int]]

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str, int]]) -> Matrix:
        """Rows and columns in the order of their names, numbers in them counted as numbers."""
        sums: dict[tuple[str, str], int] = {}
        for source, target, nbytes in pairs:
            sums[source, target] = sums.get((source, target), 0) + nbytes
        sources = sorted({source for source, _ in sums}, key=_natural)
        targets = sorted({target for _, target in sums}, key=_natural)
        return cls(sources, targets, [[sums.get((s, t), 0) for t in targets] for s in sources])

    def grouped(self, most: int) -> Matrix:
        """At most `most` rows and columns: neighbours added up."""
        rows, columns = _groups(len(self.sources), most), _groups(len(self.targets), most)
        return Matrix(
            [_span(self.sources, group) for group in rows],
            [_span(self.targets, group) for group in columns],
            [[sum(sum(self.cells[i][c.start : c.stop]) for i in r) for c in columns] for r in rows],
        )

    def sent(self) -> list[int]:
        """Per source."""
        return [sum(row) for row in self.cells]

    def received(self) -> list[int]:
        """Per target."""
        return [sum(column) for column in zip(*self.cells, strict=True)]


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """worker-9 before worker-10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
        if part
    )


def _groups(count: int, most: int) -> list[range]:
    groups = min(count, most)
    return [range(g * count // groups, (g + 1) * count // groups) for g in range(groups)]


def _span(names: list[str], group: range) -> str:
    first, last = names[group.start], names[group.stop - 1]
    return first if len(group) == 1 else f"{first} .. {last} ({len(group)})"


def print_matrix(matrix: Matrix) -> None:
    """Byte counts for a few columns, shades for some dozens, groups of ranks beyond."""
    if len(matrix.targets) <= NUMBERS_MAX and len(matrix.sources) <= SHADES_MAX:
        _print_numbers(matrix)
    else:
        _print_shades(matrix.grouped(SHADES_MAX))


def _print_numbers(matrix: Matrix) -> None:
    def cell(nbytes: int) -> str:
        return bytes_text(nbytes) if nbytes else "0"

    rows = [
        (source, *map(cell, row), cell(sum(row)))
        for source, row in zip(matrix.sources, matrix.cells, strict=True)
    ]
    received = matrix.received()
    print_table(
        ("", *matrix.targets, "sends"),
        [*rows, ("receives", *map(cell, received), cell(sum(received)))],
    )


def _print_shades(matrix: Matrix) -> None:
    shades = SHADES
    try:
        shades.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        shades = ASCII_SHADES
    largest = max(max(row) for row in matrix.cells) or 1

    def shade(nbytes: int) -> str:
        # Anything at all is seen: only nothing is blank.
        return shades[-(-nbytes * (len(shades) - 1) // largest)]

    width = max(len(source) for source in matrix.sources)
    columns = range(len(matrix.targets))
    for line in (
        "".join(str(c // 10) if c % 10 == 0 else " " for c in columns),
        "".join(str(c % 10) for c in columns),
    ):
        print(f"{'':{width}}  {line}".rstrip())
    for source, row, sent in zip(matrix.sources, matrix.cells, matrix.sent(), strict=True):
        print(f"{source:{width}}  {''.join(map(shade, row))}  sends {bytes_text(sent)}")
    print(f"{shades[-1]} is {bytes_text(largest)}, {shades[1]} at most a fifth of that")
    print()
    print_table(
        ("column", "to", "receives"),
        (
            (column, target, bytes_text(nbytes))
            for column, target, nbytes in zip(
                columns, matrix.targets, matrix.received(), strict=True
            )
        ),
    )


def draw_matrix(matrix: Matrix, path: Path) -> None:
    """The matrix as a picture in `path`. ValueError when matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(f"--png needs matplotlib (pip install matplotlib): {error}") from error
    rows, columns = len(matrix.sources), len(matrix.targets)
    figure = Figure(
        figsize=(4 + min(columns, 64) * 0.22, 3 + min(rows, 64) * 0.22), layout="constrained"
    )
    axes = figure.add_subplot()
    gib = [[nbytes / 2**30 for nbytes in row] for row in matrix.cells]
    image = axes.imshow(gib, cmap="viridis", aspect="auto", interpolation="nearest", vmin=0)
    figure.colorbar(image, label="GiB")
    axes.set_xlabel(f"to ({columns})")
    axes.set_ylabel(f"from ({rows})")
    if columns <= SHADES_MAX:
        axes.set_xticks(range(columns), matrix.targets, rotation=90)
    if rows <= SHADES_MAX:
        axes.set_yticks(range(rows), matrix.sources)
    axes.set_title(f"{bytes_text(sum(matrix.sent()))} in all")
    canvas = FigureCanvasAgg(figure)
    try:
        canvas.print_png(str(path))
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error}") from error

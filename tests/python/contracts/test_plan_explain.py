"""What `mooncake plan explain` adds up and how it draws it."""

import sys

import pytest
from contract_samples import refused
from mooncake.cli.matrix import Matrix, draw_matrix, print_matrix
from mooncake.cli.plan import summarize
from mooncake.reshard.weight import plan_placement_transfer
from test_balance import replicas


def square(count, nbytes=lambda i, j: 2**20):
    return Matrix.of_pairs(
        (f"w{i}", f"r{j}", nbytes(i, j)) for i in range(count) for j in range(count)
    )


def test_summary_adds_up():
    plan = plan_placement_transfer(replicas(3, (6, 5, 4)), replicas(2, (6, 5, 4)), balance=True)
    summary = summarize(plan)
    assert summary["bytes"] == plan.total_bytes == 60
    for table in ("pairs", "per_tensor"):
        for field in ("regions", "runs", "bytes"):
            assert sum(row[field] for row in summary[table]) == summary[field]
    assert {pair["target"] for pair in summary["pairs"]} == {"w0", "w1"}
    worst = summary["worst_region"]
    assert (worst["runs"], worst["run_bytes"]) == (1, 8)
    assert worst["source"]["shape"] == worst["target"]["shape"] == worst["shape"] == (4,)
    assert worst["source"]["participant"] in ("w0", "w1", "w2")
    assert summary["smallest_runs"]["run_bytes"] == 8


def test_names_are_in_natural_order():
    assert square(12).sources == [f"w{i}" for i in range(12)]


def test_few_columns_are_numbers(capsys):
    print_matrix(square(3, lambda i, j: 2**20 if i == j else 0))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["r0", "r1", "r2", "sends"]
    assert lines[1].split() == ["w0", "1.0", "MiB", "0", "0", "1.0", "MiB"]
    assert lines[4].split() == ["receives", *["1.0", "MiB"] * 3, "3.0", "MiB"]


def test_dozens_are_shades(capsys):
    print_matrix(square(20, lambda i, j: 2**20 if i == j else 2**10 * (j == 0)))
    out = capsys.readouterr().out
    lines = out.splitlines()
    row = next(line for line in lines if line.startswith("w5"))
    cells = row[len("w19") + 2 :][:20]
    assert cells[5] != " " and cells[0] != " " and cells[0] != cells[5]
    assert cells.count(" ") == 18
    assert "sends 1.0 MiB" in row
    assert all(len(line) < 80 for line in lines)
    assert "19  r19" in out


def test_hundreds_are_groups(capsys):
    matrix = square(200)
    grouped = matrix.grouped(48)
    assert (len(grouped.sources), len(grouped.targets)) == (48, 48)
    assert sum(grouped.sent()) == sum(grouped.received()) == 200 * 200 * 2**20
    print_matrix(matrix)
    out = capsys.readouterr().out
    assert "w0 .. w3 (4)" in out
    assert all(len(line) < 100 for line in out.splitlines())


@pytest.mark.parametrize("count", [1, 5, 100])
def test_png(tmp_path, count):
    pytest.importorskip("matplotlib")
    path = tmp_path / "matrix.png"
    draw_matrix(square(count), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_png_without_matplotlib_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with refused("--png needs matplotlib"):
        draw_matrix(square(2), tmp_path / "matrix.png")


def test_png_that_cannot_be_written_is_named(tmp_path):
    pytest.importorskip("matplotlib")
    with refused(f"cannot write {tmp_path / 'none' / 'matrix.png'}"):
        draw_matrix(square(2), tmp_path / "none" / "matrix.png")

"""./x explains itself on one screen and refuses what it does not know."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_x(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "x", *arguments],
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def test_help_fits_on_one_screen() -> None:
    done = run_x()
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) <= 24
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert run_x("--help").stdout == done.stdout


def test_help_names_every_command() -> None:
    script = (ROOT / "x").read_text()
    commands = set(re.findall(r"^cmd_(\w+)\(\)", script, re.M))
    assert set(re.findall(r"^  (\w+)  ", run_x().stdout, re.M)) == commands


@pytest.mark.parametrize("command", ["setup", "build", "test", "bench", "fuzz", "fmt", "tidy"])
def test_every_command_has_help(command: str) -> None:
    done = run_x(command, "--help")
    assert done.returncode == 0
    assert f"usage: ./x {command}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no command 'nothing'"),
        (["build", "--preset", "fast"], "--preset is release, dev, asan or tsan, got 'fast'"),
        (["setup", "now"], "setup takes no arguments, got: now"),
        (["test", "a", "b"], "test takes one filter, got: a b"),
    ],
)
def test_refusals(arguments: list[str], message: str) -> None:
    done = run_x(*arguments)
    assert done.returncode == 2
    assert message in done.stderr

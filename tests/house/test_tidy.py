"""tidy finds what it claims to find, in a small repository with planted faults."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tidy


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/ratchets.txt").write_text("# kept\n")
    monkeypatch.setattr(tidy, "ROOT", tmp_path)
    monkeypatch.setattr(tidy, "RATCHETS", tmp_path / "tools/ratchets.txt")
    tidy.all_files.cache_clear()
    tidy.text_of.cache_clear()
    yield tmp_path
    tidy.all_files.cache_clear()
    tidy.text_of.cache_clear()


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def function(lines: int) -> str:
    return "int F() {\n" + "  G();\n" * (lines - 2) + "}\n"


def test_clean_repository(repository: Path) -> None:
    put(repository, "src/a/a.cc", function(3))
    for check in (tidy.check_lengths, tidy.check_words, tidy.check_sleeps, tidy.check_links):
        assert check() == []


def test_lengths_are_ratchets(repository: Path) -> None:
    put(repository, "src/a/a.cc", function(71))
    put(repository, "src/a/b.cc", "int x;\n" * 601)
    assert tidy.check_lengths() == [
        "src/a/b.cc: file of 601 lines, the limit is 600",
        "src/a/a.cc F: function of 71 lines, the limit is 70",
    ]
    ratchets = repository / "tools/ratchets.txt"
    ratchets.write_text("# kept\nfile 601 src/a/b.cc\nfunction 90 src/a/a.cc F\n")
    assert tidy.check_lengths() == [
        "src/a/a.cc F: function is shorter now: lower tools/ratchets.txt (./x fmt does)"
    ]
    tidy.lower_ratchets()
    assert ratchets.read_text() == "# kept\nfile 601 src/a/b.cc\nfunction 71 src/a/a.cc F\n"
    assert tidy.check_lengths() == []


def test_words(repository: Path) -> None:
    put(repository, "src/a/a.cc", "// TO" + "DO: later\nclass ThingManager {};\n")
    put(repository, "src/a/utils.h", "")
    put(repository, "tools/fetch.sh", "curl http" + "://example.org\n")
    put(repository, "docs/a.md", f"see {repository.parent}/x\n")
    assert tidy.check_words() == [
        "src/a/a.cc:1: unfinished: 'TO" + "DO'",
        "tools/fetch.sh:1: web address in a build file (packages are named, not located)",
        "src/a/a.cc:2: vague name: 'class ThingManager'",
        "src/a/utils.h: vague file name",
        "docs/a.md:1: path of this machine",
    ]


def test_sleeps(repository: Path) -> None:
    nap, pause = "sleep" + "_for", "time" + ".sleep"
    put(repository, "src/a/a.cc", f"void F() {{ {nap}(1); }}\n")
    put(repository, "src/a/a_test.cc", f"TEST(A, B) {{\n  {nap}(1);\n}}\n")
    put(
        repository,
        "tests/python/test_a.py",
        f"def wait_until(f):\n    while not f():\n        {pause}(0.01)\n\n"
        f"def test_a():\n    {pause}(1)\n",
    )
    assert tidy.check_sleeps() == [
        f"src/a/a_test.cc:2: {nap} in a test: wait for a condition with a deadline",
        f"tests/python/test_a.py:6: {pause} in a test: wait for a condition with a deadline",
    ]


def test_links(repository: Path) -> None:
    put(repository, "docs/a.md", "[b](b.md) [c](../c.md#part) [w](https://example.org) [d](#d)\n")
    put(repository, "c.md", "")
    put(repository, "src/a/a.h", "// docs/a.md has it\n")
    put(repository, "src/a/b.h", "// docs/formats/b.md\n")
    assert tidy.check_links() == [
        "src/a/b.h:1: names docs/formats/b.md, which is not there",
        "docs/a.md: link to b.md, which is not there",
    ]

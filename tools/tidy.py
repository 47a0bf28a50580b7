"""./x tidy: everything about the sources that a machine can judge without running them.

Checks layers, formats, lint, lengths, words, sleeps in tests and links of documents; clang-tidy on
files that differ from the last commit (or from upstream), on all with --full. Prints one line a
finding and ends with a line that counts checks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import layers
from source_lengths import functions_of

ROOT = Path(__file__).resolve().parent.parent
RATCHETS = ROOT / "tools" / "ratchets.txt"
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
CPP = (".cc", ".h")
# Hold the words they look for, or text of others.
NOT_OURS = ("LICENSE", "tools/tidy.py", "tests/golden/")

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|not (yet )?implemented|\bfor now\b", re.I)
WEB_ADDRESS = re.compile(r"https?://(?!www\.apache\.org/licenses)", re.I)
VAGUE_NAME = re.compile(
    r"\b(?:class|struct)\s+\w*(?:Manager|Helper|Util|Utils|Common|Misc|Wrapper)\b"
)
VAGUE_FILE = re.compile(r"(^|_)(manager|helpers?|utils?|common|misc)(_test)?\.(cc|h|py)$")
SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|time\.sleep|asyncio\.sleep)\b")
PAGE = re.compile(r"\bdocs/[\w/]+\.md\b|\b[A-Z]{4,}\.md\b")
MARKDOWN_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)


def git_names(*command: str) -> list[str]:
    done = run(["git", *command])
    return [name for name in done.stdout.split("\0") if name] if done.returncode == 0 else []


@cache
def all_files() -> tuple[str, ...]:
    names = git_names("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return tuple(sorted({n for n in names if (ROOT / n).is_file() and not (ROOT / n).is_symlink()}))


def files(*suffixes: str) -> list[str]:
    return [n for n in all_files() if n.endswith(suffixes) and not n.startswith(NOT_OURS)]


@cache
def text_of(name: str) -> str:
    try:
        return (ROOT / name).read_text()
    except UnicodeDecodeError:
        return ""


def lines_matching(
    names: Iterable[str], pattern: re.Pattern[str]
) -> Iterable[tuple[str, int, str]]:
    for name in names:
        text = text_of(name)
        if not pattern.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = pattern.search(line)
            if match:
                yield name, number, match[0]


def check_layers() -> list[str]:
    return layers.check(ROOT)


def batches(names: list[str], size: int = 25) -> list[list[str]]:
    return [names[i : i + size] for i in range(0, len(names), size)]


def check_clang_format() -> list[str]:
    def one(batch: list[str]) -> list[str]:
        done = run(["clang-format", "--dry-run", *batch])
        return sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: warning:", done.stderr, re.M)))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [name for names in pool.map(one, batches(files(*CPP, ".proto"))) for name in names]
    return [f"{name}: not formatted (./x fmt)" for name in found]


def check_ruff_format() -> list[str]:
    done = run(["ruff", "format", "--check", "-q", "--diff", "."])
    names = re.findall(r"^--- (?:a/)?(\S+)", done.stdout, re.M)
    if done.returncode and not names:
        return [done.stderr.strip() or "ruff format failed"]
    return [f"{name}: not formatted (./x fmt)" for name in names]


def check_ruff() -> list[str]:
    done = run(["ruff", "check", "-q", "--output-format", "concise", "."])
    return (done.stdout + done.stderr).strip().splitlines() if done.returncode else []


def read_ratchets() -> dict[tuple[str, str], int]:
    """(kind, place) -> allowed lines. A line: KIND LINES PLACE [FUNCTION]."""
    known = {}
    for line in RATCHETS.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, lines, place = line.split(" ", 2)
            known[(kind, place)] = int(lines)
    return known


def measured_lengths() -> dict[tuple[str, str], int]:
    """What is longer than the limits."""
    long: dict[tuple[str, str], int] = {}
    for name in files(*CPP, ".py"):
        count = text_of(name).count("\n")
        if count > FILE_LINES_MAX:
            long[("file", name)] = count
        for function in functions_of(ROOT / name):
            if function.lines > FUNCTION_LINES_MAX:
                key = ("function", f"{name} {function.name}")
                long[key] = max(long.get(key, 0), function.lines)
    return long


def check_lengths() -> list[str]:
    known, long = read_ratchets(), measured_lengths()
    limits = {"file": FILE_LINES_MAX, "function": FUNCTION_LINES_MAX}
    found = []
    for (kind, place), lines in sorted(long.items()):
        limit = known.get((kind, place), limits[kind])
        if lines > limit:
            found.append(f"{place}: {kind} of {lines} lines, the limit is {limit}")
    for (kind, place), limit in sorted(known.items()):
        if long.get((kind, place), 0) < limit:
            found.append(f"{place}: {kind} is shorter now: lower tools/ratchets.txt (./x fmt does)")
    return found


def lower_ratchets() -> None:
    """Ratchets shrink with the code; only a person makes one grow."""
    long, out = measured_lengths(), []
    for line in RATCHETS.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, lines, place = line.split(" ", 2)
            actual = long.get((kind, place), 0)
            if not actual:
                continue
            line = f"{kind} {min(int(lines), actual)} {place}"
        out.append(line)
    RATCHETS.write_text("\n".join(out) + "\n")


def machine_paths() -> re.Pattern[str] | None:
    """Where this checkout lies, if that says anything: such a path works on one machine only."""
    parent = str(ROOT.parent)
    ordinary = {"/", "/tmp", "/home", "/root", "/opt", "/srv", "/src", "/mnt", "/usr", "/var"}
    return None if parent in ordinary else re.compile(re.escape(parent + "/"))


def check_words() -> list[str]:
    ours = [n for n in all_files() if not n.startswith(NOT_OURS)]
    found = [f"{n}:{i}: unfinished: '{w}'" for n, i, w in lines_matching(ours, UNFINISHED)]
    build_files = [
        n
        for n in ours
        if n.endswith((".sh", ".toml", ".txt", ".cmake", ".json")) or n in ("x", ".ci/run")
    ]
    found += [
        f"{n}:{i}: web address in a build file (packages are named, not located)"
        for n, i, _ in lines_matching(build_files, WEB_ADDRESS)
    ]
    found += [f"{n}:{i}: vague name: '{w}'" for n, i, w in lines_matching(files(*CPP), VAGUE_NAME)]
    found += [f"{n}: vague file name" for n in ours if VAGUE_FILE.search(n.rsplit("/", 1)[-1])]
    paths = machine_paths()
    if paths:
        found += [f"{n}:{i}: path of this machine" for n, i, _ in lines_matching(ours, paths)]
    return found


def check_sleeps() -> list[str]:
    """A sleep in a test is allowed inside a function that waits for a condition (Wait*, wait_*)."""
    tests = [n for n in files(*CPP, ".py") if n.startswith("tests/") or "_test." in n]
    found = []
    for name, number, word in lines_matching(tests, SLEEP):
        waits = any(
            f.line <= number < f.line + f.lines
            and re.match(r"_?wait", f.name.split("::")[-1], re.I)
            for f in functions_of(ROOT / name)
        )
        if not waits:
            found.append(f"{name}:{number}: {word} in a test: wait for a condition with a deadline")
    return found


def check_links() -> list[str]:
    """Links of documents, and the pages that sources point to, lead somewhere."""
    sources = [n for n in files(*CPP, ".py", ".proto", ".txt") if not n.startswith("tests/house/")]
    found = [
        f"{name}:{number}: names {page}, which is not there"
        for name, number, page in lines_matching(sources, PAGE)
        if not (ROOT / page).exists()
    ]
    for name in files(".md"):
        for target, _ in MARKDOWN_LINK.findall(text_of(name)):
            if (
                not re.match(r"[a-z]+:", target)
                and not (ROOT / name).parent.joinpath(target).exists()
            ):
                found.append(f"{name}: link to {target}, which is not there")
    return found


def changed_files() -> set[str]:
    changed = set(git_names("diff", "-z", "--name-only", "HEAD"))
    changed |= set(git_names("ls-files", "-z", "--others", "--exclude-standard"))
    changed |= set(git_names("diff", "-z", "--name-only", "@{upstream}...HEAD"))
    return changed


def compile_commands() -> Path | None:
    made = [ROOT / "build" / p / "compile_commands.json" for p in ("dev", "release")]
    made = [p for p in made if p.is_file()]
    return max(made, key=lambda p: p.stat().st_mtime, default=None)


def include_closure(name: str) -> list[str]:
    """The file and every file of src/ it includes: what a clang-tidy verdict depends on."""
    reached, front = {name}, [name]
    while front:
        for _, _, header in layers.includes_of(ROOT / front.pop()):
            target = f"src/{header}"
            if target not in reached and (ROOT / target).is_file():
                reached.add(target)
                front.append(target)
    return sorted(reached)


def check_clang_tidy(full: bool) -> list[str]:
    database = compile_commands()
    if database is None:
        print("clang-tidy: no build yet (./x build), skipped")
        return []
    built = {os.path.relpath(e["file"], ROOT) for e in json.loads(database.read_text())}
    wanted = [n for n in files(".cc") if n in built]
    if not full:
        changed = changed_files()
        wanted = [n for n in wanted if n in changed or n[:-3] + ".h" in changed]
    seen = database.parent / "clang_tidy_clean"
    seen.mkdir(exist_ok=True)
    config = (ROOT / ".clang-tidy").read_bytes()

    def one(name: str) -> list[str]:
        digest = hashlib.sha256(config)
        for part in include_closure(name):
            digest.update((ROOT / part).read_bytes())
        mark = seen / digest.hexdigest()
        if mark.exists():
            return []
        # GCC's own -Wno- flags stand in the compile commands.
        extra = "--extra-arg=-Wno-unknown-warning-option"
        done = run(["clang-tidy", "--quiet", extra, "-p", str(database.parent), name])
        if done.returncode == 0:
            mark.touch()
            return []
        lines = re.findall(r"^.*: (?:warning|error): .*$", done.stdout + done.stderr, re.M)
        return [line.replace(f"{ROOT}/", "") for line in lines] or [f"{name}: clang-tidy failed"]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sorted({line for found in pool.map(one, wanted) for line in found})


def fix() -> int:
    for batch in batches(files(*CPP, ".proto")):
        subprocess.run(["clang-format", "-i", *batch], cwd=ROOT, check=True)
    subprocess.run(["ruff", "check", "--fix", "-q", "."], cwd=ROOT, check=False)
    subprocess.run(["ruff", "format", "-q", "."], cwd=ROOT, check=True)
    lower_ratchets()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./x tidy", description=__doc__)
    parser.add_argument("--full", action="store_true", help="clang-tidy on every file")
    parser.add_argument("--no-clang-tidy", action="store_true", help="leave clang-tidy out")
    parser.add_argument("--fix", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fix:
        return fix()
    checks: dict[str, Callable[[], list[str]]] = {
        "layers": check_layers,
        "clang-format": check_clang_format,
        "ruff format": check_ruff_format,
        "ruff": check_ruff,
        "lengths": check_lengths,
        "words": check_words,
        "sleeps": check_sleeps,
        "links": check_links,
    }
    if not arguments.no_clang_tidy:
        checks["clang-tidy"] = lambda: check_clang_tidy(arguments.full)
    failed = []
    for title, check in checks.items():
        found = check()
        for line in found:
            print(f"{title}: {line}")
        if found:
            failed.append(title)
    print(
        f"tidy: {len(checks) - len(failed)} checks passed, {len(failed)} failed"
        + (f" ({', '.join(failed)})" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

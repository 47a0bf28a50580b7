"""Proves layers.txt: who includes whom in src/, and what each folder's CMakeLists.txt links.

Run alone: python tools/layers.py [--root FOLDER]. Prints one line a violation; exit 1 if any.
A folder made by mooncake_library links what it includes by name; programs and the Python module may
rely on what their libraries link. Benchmarks keep to the edges, but may use any outside library.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
PROTO_HEADER = re.compile(r"^mooncake/v\d+/.*\.pb\.h$")
POLICY, MECHANISM = 2, 3


@dataclass
class Layers:
    """layers.txt as read."""

    level: dict[str, int] = field(default_factory=dict)
    allowed: dict[str, set[str]] = field(default_factory=dict)
    never: dict[str, set[str]] = field(default_factory=dict)
    only: dict[str, set[str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def read_layers(path: Path) -> Layers:
    layers = Layers()
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"(L\d+|never|only)\s+([\w./]+):\s*(.*)", line)
        if not match:
            layers.errors.append(f"{path.name}:{number}: cannot read '{line}'")
            continue
        kind, name, rest = match[1], match[2], set(match[3].split())
        if kind == "never":
            layers.never[name] = rest
        elif kind == "only":
            layers.only[name] = rest
        else:
            layers.level[name] = int(kind[1:])
            layers.allowed[name] = rest
    return layers


def closure(edges: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    front = [start]
    while front:
        for target in edges.get(front.pop(), ()):
            if target not in reached:
                reached.add(target)
                front.append(target)
    return reached


def check_table(layers: Layers) -> list[str]:
    """The table itself: levels, the L2 | L3 wall, what must never be reached."""
    errors = list(layers.errors)
    for folder, targets in layers.allowed.items():
        for target in sorted(targets):
            if target not in layers.level:
                errors.append(f"layers.txt: {folder} names the unknown folder {target}")
                continue
            here, there = layers.level[folder], layers.level[target]
            if there > here:
                errors.append(f"layers.txt: {folder} (L{here}) looks up to {target} (L{there})")
            if {here, there} == {POLICY, MECHANISM}:
                errors.append(
                    f"layers.txt: policy and mechanism meet: {folder} (L{here}) includes "
                    f"{target} (L{there})"
                )
            if here == there == POLICY and (folder, target) != ("reshard", "manifest"):
                errors.append(f"layers.txt: inside L2 {folder} may not include {target}")
    for folder in layers.allowed:
        if folder in closure(layers.allowed, folder):
            errors.append(f"layers.txt: {folder} is part of a cycle")
    for folder, forbidden in layers.never.items():
        for target in sorted(forbidden & closure(layers.allowed, folder)):
            errors.append(f"layers.txt: {folder} may never reach {target}, but the edges allow it")
    return errors


def includes_of(path: Path) -> list[tuple[int, str, str]]:
    """(line, quote, header) of every #include of a file."""
    found = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match[1], match[2]))
    return found


def outside_rule(layers: Layers, header: str) -> str | None:
    for name in layers.only:
        if header == name or (name.endswith("/") and header.startswith(name)):
            return name
    return None


def target_folder(layers: Layers, header: str) -> str | None:
    """The folder of the house that a header belongs to; None for an outside one."""
    if PROTO_HEADER.match(header):
        return "proto"
    first = header.split("/", 1)[0]
    return first if "/" in header and first in layers.level else None


def strip_cmake_comments(text: str) -> str:
    return re.sub(r"#[^\n]*", "", text)


def cmake_calls(text: str, function: str) -> list[tuple[str, dict[str, list[str]]]]:
    """(name, keyword -> values) of each call of a mooncake_* function."""
    calls = []
    for match in re.finditer(rf"\b{function}\s*\(([^)]*)\)", strip_cmake_comments(text)):
        words = match[1].split()
        if not words:
            continue
        keywords: dict[str, list[str]] = {}
        current = None
        for word in words[1:]:
            if word in ("SOURCES", "DEPS", "LINK"):
                current = keywords.setdefault(word, [])
            elif current is not None:
                current.append(word)
        calls.append((words[0], keywords))
    return calls


def scan_sources(layers: Layers, src: Path) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Edges seen in #include lines (folder -> target -> first place), and what is wrong there."""
    seen: dict[str, dict[str, str]] = {}
    errors = []
    for path in sorted(src.rglob("*")):
        if path.suffix not in (".h", ".cc") or not path.is_file():
            continue
        folder = path.relative_to(src).parts[0]
        place = path.relative_to(src.parent)
        if folder not in layers.level:
            errors.append(f"{place}: folder {folder} is not in layers.txt")
            continue
        for number, quote, header in includes_of(path):
            rule = outside_rule(layers, header)
            bench = path.stem.endswith("_bench")
            if rule and folder not in layers.only[rule] and not bench:
                errors.append(
                    f"{place}:{number}: <{header}> is for {' '.join(sorted(layers.only[rule]))} "
                    f"only, not for {folder}"
                )
            target = target_folder(layers, header)
            if target is None:
                if quote == '"' and "/" not in header:
                    errors.append(f'{place}:{number}: "{header}" is no folder/file of src/')
                continue
            if target == folder:
                continue
            seen.setdefault(folder, {}).setdefault(target, f"{place}:{number}")
            if target not in layers.allowed[folder]:
                errors.append(
                    f'{place}:{number}: {folder} may not include {target} ("{header}"); it may: '
                    f"{' '.join(sorted(layers.allowed[folder])) or 'nothing'}"
                )
    return seen, errors


def scan_links(layers: Layers, src: Path, seen: dict[str, dict[str, str]]) -> list[str]:
    """CMake's DEPS and LINK against layers.txt and against the includes."""
    errors = []
    linked: dict[str, set[str]] = {}
    libraries = set()
    for cmake in sorted(src.glob("*/CMakeLists.txt")):
        folder, place = cmake.parent.name, cmake.relative_to(src.parent)
        text = cmake.read_text()
        for name, _ in cmake_calls(text, "mooncake_library"):
            if "add_executable" not in text:
                libraries.add(folder)
            if name != folder:
                errors.append(f"{place}: mooncake_library({name}) in folder {folder}")
        words = set(re.findall(r"\bmooncake_(\w+)", strip_cmake_comments(text)))
        for function in ("mooncake_library", "mooncake_bench"):
            for _, keywords in cmake_calls(text, function):
                words |= set(keywords.get("DEPS", ()))
        linked[folder] = (words & set(layers.level)) - {folder}
    for folder, targets in sorted(linked.items()):
        place = f"src/{folder}/CMakeLists.txt"
        included = seen.get(folder, {})
        for target in sorted(targets - layers.allowed.get(folder, set())):
            errors.append(f"{place}: {folder} may not link {target}")
        for target in sorted(targets - set(included) - {"proto"}):
            errors.append(f"{place}: {folder} links {target}, but no file of it includes it")
        at_hand = targets if folder in libraries else closure(linked, folder)
        for target, where in sorted(included.items()):
            if target not in at_hand:
                errors.append(f"{where}: {folder} includes {target}, but {place} does not link it")
    return errors


def scan_source_lists(src: Path) -> list[str]:
    """Explicit source lists: a file that no list names is never compiled, a test never run."""
    errors = []
    for path in sorted(src.glob("*/**/*.cc")):
        cmake = src / path.relative_to(src).parts[0] / "CMakeLists.txt"
        name = str(path.relative_to(cmake.parent))
        words = strip_cmake_comments(cmake.read_text()).replace(")", " ").replace("(", " ").split()
        if name not in words:
            errors.append(f"{path.relative_to(src.parent)}: not in {cmake.relative_to(src.parent)}")
    return errors


def check(root: Path) -> list[str]:
    src = root / "src"
    layers = read_layers(root / "layers.txt")
    errors = check_table(layers)
    seen, include_errors = scan_sources(layers, src)
    errors += include_errors
    real = {folder: set(targets) for folder, targets in seen.items()}
    for folder, forbidden in layers.never.items():
        for target in sorted(forbidden & closure(real, folder)):
            errors.append(f"src/{folder}: reaches {target} through its includes")
    for folder, targets in layers.allowed.items():
        if folder != "proto" and not (src / folder).is_dir():
            errors.append(f"layers.txt: there is no src/{folder}")
        for target in sorted(targets - real.get(folder, set())):
            errors.append(f"layers.txt: the edge {folder} -> {target} is not used")
    errors += scan_links(layers, src, seen)
    errors += scan_source_lists(src)
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    errors = check(parser.parse_args().root)
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

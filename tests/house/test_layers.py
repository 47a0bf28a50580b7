"""The layers check finds planted violations, each by its own message, and passes a clean tree."""

from __future__ import annotations

from pathlib import Path

import layers
import pytest

LAYERS = """
L0 base:
L1 env: base
L1 geometry: base
L2 manifest: base geometry
L2 reshard: base manifest
L2 weights: base
L3 oplog: base
L5 master: base weights oplog
never master: manifest geometry reshard
only sqlite3.h: oplog
"""

# folder -> (DEPS, includes of its one source)
CLEAN = {
    "base": ([], ["<string>"]),
    "env": (["base"], ['"base/base.h"']),
    "geometry": (["base"], ['"base/base.h"']),
    "manifest": (["base", "geometry"], ['"base/base.h"', '"geometry/geometry.h"']),
    "reshard": (["base", "manifest"], ['"base/base.h"', '"manifest/manifest.h"']),
    "weights": (["base"], ['"base/base.h"']),
    "oplog": (["base"], ['"base/base.h"', "<sqlite3.h>"]),
    "master": (
        ["base", "weights", "oplog"],
        ['"base/base.h"', '"weights/weights.h"', '"oplog/oplog.h"'],
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "layers.txt").write_text(LAYERS)
    for folder, (deps, includes) in CLEAN.items():
        home = tmp_path / "src" / folder
        home.mkdir(parents=True)
        (home / f"{folder}.cc").write_text("".join(f"#include {i}\n" for i in includes))
        (home / "CMakeLists.txt").write_text(
            f"mooncake_library({folder} SOURCES {folder}.cc\n  DEPS {' '.join(deps)})\n"
        )
    return tmp_path


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def edit(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_clean_tree_passes(tree: Path) -> None:
    assert layers.check(tree) == []


def test_this_repository_names_every_folder() -> None:
    root = Path(layers.__file__).resolve().parent.parent
    named = layers.read_layers(root / "layers.txt").level
    assert {p.name for p in (root / "src").iterdir() if p.is_dir()} | {"proto"} == set(named)


def test_upward_include(tree: Path) -> None:
    append(tree / "src/base/base.cc", '#include "env/env.h"\n')
    assert (
        'src/base/base.cc:2: base may not include env ("env/env.h"); it may: nothing'
        in layers.check(tree)
    )


def test_test_files_are_looked_at(tree: Path) -> None:
    (tree / "src/weights/weights_test.cc").write_text('#include "oplog/oplog.h"\n')
    append(tree / "src/weights/CMakeLists.txt", "mooncake_test(weights SOURCES weights_test.cc)\n")
    errors = layers.check(tree)
    assert any(
        e.startswith("src/weights/weights_test.cc:1: weights may not include") for e in errors
    )


def test_sideways_edge_inside_policy(tree: Path) -> None:
    edit(tree / "layers.txt", "L2 weights: base", "L2 weights: base manifest")
    errors = layers.check(tree)
    assert "layers.txt: inside L2 weights may not include manifest" in errors


def test_policy_and_mechanism_never_meet(tree: Path) -> None:
    edit(tree / "layers.txt", "L3 oplog: base", "L3 oplog: base weights")
    errors = layers.check(tree)
    assert "layers.txt: policy and mechanism meet: oplog (L3) includes weights (L2)" in errors


def test_transitive_reach_is_found(tree: Path) -> None:
    edit(tree / "layers.txt", "L3 oplog: base", "L3 oplog: base geometry")
    append(tree / "src/oplog/oplog.cc", '#include "geometry/geometry.h"\n')
    edit(tree / "src/oplog/CMakeLists.txt", "DEPS base", "DEPS base geometry")
    errors = layers.check(tree)
    assert "layers.txt: master may never reach geometry, but the edges allow it" in errors
    assert "src/master: reaches geometry through its includes" in errors


def test_link_without_include_and_include_without_link(tree: Path) -> None:
    edit(tree / "src/master/CMakeLists.txt", "DEPS base weights oplog", "DEPS base weights env")
    errors = layers.check(tree)
    assert "src/master/CMakeLists.txt: master may not link env" in errors
    assert "src/master/CMakeLists.txt: master links env, but no file of it includes it" in errors
    assert (
        "src/master/master.cc:3: master includes oplog, but src/master/CMakeLists.txt "
        "does not link it" in errors
    )


def test_outside_library_behind_its_door(tree: Path) -> None:
    append(tree / "src/weights/weights.cc", "#include <sqlite3.h>\n")
    assert (
        "src/weights/weights.cc:2: <sqlite3.h> is for oplog only, not for weights"
        in layers.check(tree)
    )


def test_source_that_no_list_names(tree: Path) -> None:
    (tree / "src/env/lost_test.cc").write_text("")
    assert "src/env/lost_test.cc: not in src/env/CMakeLists.txt" in layers.check(tree)


def test_unused_edge_and_unknown_folder(tree: Path) -> None:
    edit(tree / "layers.txt", "L1 env: base", "L1 env: base ether")
    errors = layers.check(tree)
    assert "layers.txt: env names the unknown folder ether" in errors
    assert "layers.txt: the edge env -> ether is not used" in errors


def test_cycle(tree: Path) -> None:
    edit(tree / "layers.txt", "L1 geometry: base", "L1 geometry: base env")
    edit(tree / "layers.txt", "L1 env: base", "L1 env: base geometry")
    errors = layers.check(tree)
    assert "layers.txt: env is part of a cycle" in errors
    assert "layers.txt: geometry is part of a cycle" in errors

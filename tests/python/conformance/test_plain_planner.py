"""The pure-Python planner of bench/ and ours give the same regions: two programs, one contract."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from mooncake.reshard.conformance import (
    LAYOUTS,
    MODELS,
    reference_placement,
    unsupported,
)
from mooncake.reshard.weight import plan_placement_transfer

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
plain_planner = pytest.importorskip("plain_planner")


def is_base(placement):
    """Says all with the base contract's axes (padding and sections may be there)."""
    return not any(getattr(tensor, "ownership", ()) for tensor in placement.tensors)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_same_regions(model):
    small = model.small()
    made = {}
    for layout in LAYOUTS:
        if unsupported(small, layout) is None:
            placement = reference_placement(small, layout)
            if is_base(placement) and not placement.omitted_tensors:
                made[layout] = placement
    pairs = 0
    for source, target in itertools.product(made, made):
        if source.vocabulary != target.vocabulary:
            continue
        ours = [
            (
                o.target.fragment_id,
                o.target_base_offset,
                o.source.fragment_id,
                o.source_base_offset,
                o.inner_bytes,
                o.outer_loop_counts,
                o.source_strides,
                o.target_strides,
            )
            for o in plan_placement_transfer(made[source], made[target]).operations
        ]
        plain = plain_planner.plan(plain_planner.PlainSource(made[source]), made[target])
        assert ours == plain, (source.name, target.name)
        pairs += 1
    assert pairs > 0

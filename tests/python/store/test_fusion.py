"""Loads execute neighbouring regions of one buffer as one copy."""

import pytest
import torch
from mooncake.reshard.adapters import StateDictAdapter
from mooncake.reshard.weight import WeightIdentity, WeightStore, bind_tensors

COUNT, ELEMENTS = 40, 24


def model():
    """Small tensors, which share a pack; every element is its own number."""
    numbers = torch.arange(COUNT * ELEMENTS, dtype=torch.int32).view(COUNT, ELEMENTS)
    return {f"layers.{i:02}.bias": numbers[i].clone() for i in range(COUNT)}


@pytest.mark.parametrize("verify", [True, False])
def test_targets_that_lie_as_the_pack_does_are_one_copy(tmp_path, verify):
    identity = WeightIdentity("tests", "small", "r", 1)
    source = model()
    adapter = StateDictAdapter(identity)
    with WeightStore(f"file://{tmp_path / 'store'}") as store:
        with store.weight_put(source, adapter) as writer:
            for name, tensor in adapter.tensors(source):
                writer.weight_put_tensor(name, tensor)
        placement = adapter.placement(source)
        as_stored = [fragment.tensor_id for fragment in placement.parts[0].fragments]
        buffer = torch.full((COUNT, ELEMENTS), -1, dtype=torch.int32)
        apart = {name: torch.full((ELEMENTS,), -1, dtype=torch.int32) for name in source}
        copies = {}
        for title, targets in (
            ("one buffer", dict(zip(as_stored, buffer, strict=True))),
            ("apart", apart),
        ):
            seen = []
            store.weight_get(
                identity,
                placement,
                bind_tensors(placement, placement.parts[0].participant_id, targets),
                verify=verify,
                progress=seen.append,
            )
            assert all(torch.equal(targets[name], source[name]) for name in source)
            assert seen[-1].done and seen[-1].regions == COUNT
            copies[title] = seen[-1].copies
    assert copies["one buffer"] < COUNT // 10
    assert copies["apart"] == COUNT

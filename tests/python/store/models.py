"""Small models whose every element tells where it belongs, and an oracle that cuts them."""

from __future__ import annotations

import numpy
import torch
from mooncake.reshard.adapters import ParallelLayout, TensorInfo, TensorRule, layout_placement
from mooncake.reshard.weight import bind_tensors


class IndexModel:
    """int32 tensors in which each element is its own global index plus a number of its tensor."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], salt: int = 0) -> None:
        self.tensors = {name: TensorInfo(shape, "int32", 4) for name, shape in shapes.items()}
        self._numbers = {name: i * 1_000_003 + salt for i, name in enumerate(sorted(shapes))}

    def whole(self, tensor_id: str) -> torch.Tensor:
        shape = self.tensors[tensor_id].shape
        count = int(numpy.prod(shape))
        values = numpy.arange(count, dtype=numpy.int64) + self._numbers[tensor_id]
        return torch.from_numpy(values.astype(numpy.int32).reshape(shape))

    def read(self, tensor_id, offset=None, shape=None) -> torch.Tensor:
        whole = self.whole(tensor_id)
        if offset is None:
            return whole
        return whole[
            tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))
        ].contiguous()


def transformer(salt: int = 0) -> IndexModel:
    """Two layers, some tensors above the packing threshold of 256 KiB and most below."""
    shapes = {"embed.weight": (515, 64), "norm.weight": (64,)}
    for layer in range(2):
        shapes[f"layers.{layer}.qkv.weight"] = (192, 64)
        shapes[f"layers.{layer}.out.weight"] = (64, 64)
        shapes[f"layers.{layer}.up.weight"] = (1300, 256)
        shapes[f"layers.{layer}.norm.weight"] = (64,)
    return IndexModel(shapes, salt)


RULES = (
    TensorRule(r".*qkv\.weight", 0),
    TensorRule(r".*out\.weight", 1),
    TensorRule(r".*up\.weight", 0),
    TensorRule(r"embed\.weight", 0),
    TensorRule(r"norm\.weight", stage=-1),
)
ACROSS = (
    TensorRule(r".*qkv\.weight", 1),
    TensorRule(r".*out\.weight", 0),
    TensorRule(r".*up\.weight", 1),
    TensorRule(r"embed\.weight", 1),
)
UNEQUAL = (
    TensorRule(r".*qkv\.weight", 0, (0, 1, 100, 192)),
    TensorRule(r".*out\.weight", 1, (0, 31, 33, 64)),
    TensorRule(r".*up\.weight", 0, (0, 1298, 1299, 1300)),
    TensorRule(r"embed\.weight", 0, (0, 257, 258, 515)),
)
LAYOUTS = {
    "tp1": ParallelLayout(),
    "tp4-dp2": ParallelLayout(tp=4, dp=2, rules=RULES),
    "tp2-pp2": ParallelLayout(tp=2, pp=2, rules=RULES),
    "tp3-unequal": ParallelLayout(tp=3, rules=UNEQUAL),
    "tp4-across": ParallelLayout(tp=4, rules=ACROSS),
}


def publish(store, model, layout, identity, **options):
    """All ranks of the layout from this process; returns the finished writer."""
    from mooncake.reshard.adapters import CheckpointAdapter

    adapter = CheckpointAdapter(identity, layout)
    with store.weight_put(model, adapter, tenant_id=identity.tenant_id, **options) as writer:
        for tensor_id, tensor in adapter.tensors(model):
            writer.weight_put_tensor(tensor_id, tensor)
    return writer


def load_and_check(store, model, layout, identity, **options):
    """Loads every rank of the layout and compares each element; returns the manifest."""
    placement = layout_placement(model.tensors, layout, identity)
    manifest = None
    for part in placement.parts:
        buffers = {
            f.tensor_id: torch.full(f.local_shape, -1, dtype=torch.int32) for f in part.fragments
        }
        binding = bind_tensors(placement, part.participant_id, buffers)
        manifest = store.weight_get(identity, placement, binding, **options)
        for f in part.fragments:
            expected = model.read(f.tensor_id, f.global_offset, f.local_shape)
            assert torch.equal(buffers[f.tensor_id], expected), (part.participant_id, f.tensor_id)
    return manifest

"""Memory as engines lay it out: one buffer for fused weights, fragments are views of it."""

from __future__ import annotations

import math
from typing import Any

import torch
from mooncake.reshard.weight import WeightPlacementManifest

DTYPES = {
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float8_e4m3fn": torch.float8_e4m3fn,
}


def engine_memory(placement: WeightPlacementManifest, participant: str) -> dict[str, torch.Tensor]:
    """A tensor for each of the participant's fragments, by id, filled with what is in no model.

    Gate and up of one fused tensor lie row by row in turn; q, k and v rows by KV group, as in
    Megatron's linear_qkv, where the rank has a fragment a group; a padded embedding's
    rows are the first of a longer buffer; the others are dense.
    """
    part = next(p for p in placement.parts if p.participant_id == participant)
    descriptors = {tensor.tensor_id: tensor for tensor in part.tensors}
    made: dict[str, torch.Tensor] = {}
    by_tensor: dict[str, list[Any]] = {}
    for fragment in part.fragments:
        by_tensor.setdefault(fragment.tensor_id, []).append(fragment)
    for name, fragments in by_tensor.items():
        fragments.sort(key=lambda f: (f.slot or 0 if hasattr(f, "slot") else 0, f.global_offset))
        descriptor = descriptors[name]
        sections = getattr(descriptor, "sections", None)
        is_gated = sections is not None and sections.parts[0].name == "gate"
        if is_gated and len(fragments) % 2 == 0:
            for gate, up in zip(fragments[::2], fragments[1::2], strict=True):
                made |= _in_turn((gate, up), descriptor, sections.dim)
        elif getattr(descriptor, "padded_shape", None) and len(fragments) == 1:
            rows = fragments[0].local_shape[0]
            buffer = _filled((rows + 5, *fragments[0].local_shape[1:]), descriptor)
            made[fragments[0].fragment_id] = buffer[:rows]
        elif name.endswith(".q_proj.weight") and len(fragments) > 1:
            module = name[: -len("q_proj.weight")]
            keys, values = (by_tensor[f"{module}{x}_proj.weight"] for x in "kv")
            made |= _by_group(fragments, keys, values, descriptor)
        else:
            for fragment in fragments:
                if fragment.fragment_id not in made:
                    made[fragment.fragment_id] = _filled(fragment.local_shape, descriptor)
    # Megatron's k and v came with their q; what was made twice belongs to q's buffer.
    return made


def _filled(shape: tuple[int, ...], descriptor: Any) -> torch.Tensor:
    nbytes = math.prod(shape) * descriptor.itemsize
    return torch.full((nbytes,), 0x5A, dtype=torch.uint8).view(DTYPES[descriptor.dtype]).view(shape)


def _in_turn(pair: tuple[Any, Any], descriptor: Any, dim: int) -> dict[str, torch.Tensor]:
    shape = list(pair[0].local_shape)
    shape.insert(dim + 1, 2)
    buffer = _filled(tuple(shape), descriptor)
    return {f.fragment_id: buffer.select(dim + 1, i) for i, f in enumerate(pair)}


def _by_group(
    queries: list[Any], keys: list[Any], values: list[Any], descriptor: Any
) -> dict[str, torch.Tensor]:
    groups = zip(
        queries, *(sorted(x, key=lambda f: f.global_offset) for x in (keys, values)), strict=True
    )
    columns = queries[0].local_shape[1]
    rows = sum(f.local_shape[0] for f in (*queries, *keys, *values))
    buffer = _filled((rows, columns), descriptor)
    made, row = {}, 0
    for group in groups:
        for fragment in group:
            made[fragment.fragment_id] = buffer[row : row + fragment.local_shape[0]]
            row += fragment.local_shape[0]
    return made

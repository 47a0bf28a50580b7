"""Tensor families: all tensors of a model, as the few patterns that they follow.

A family is one tensor for each layer and expert it names, all of one shape and cut alike, so that a
layout decides once for thousands of tensors. What may be cut, and between which units (heads, rows,
experts), is the model's; who holds what is the layout's (layouts.py).

Two vocabularies name the same weights. `CHECKPOINT`: the published checkpoint's names, one tensor
an expert; every framework can speak it, whatever it fuses in memory. `FUSED`: what vLLM and SGLang
hold: query, key and value as one tensor with sections, gate and up too, all experts of a layer as
one tensor. Plans are made within one vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Optional

from .configurations import Experts, ModelConfiguration

__all__ = [
    "CHECKPOINT",
    "FUSED",
    "Part",
    "TensorFamily",
    "parameter_count",
    "tensor_families",
]

CHECKPOINT = "checkpoint"
FUSED = "fused"


@dataclass(frozen=True)
class Part:
    """A run of the dimension that TP cuts, which it cuts by itself (q, k and v of a fused tensor).

    `units` are the equal pieces between which it may be cut: heads, or elements. `replicable` ones
    (KV heads) are held by several ranks when there are fewer than ranks. `groups` are the runs in
    which an engine that interleaves (Megatron's QKV) lays the units out.
    """

    name: str
    extent: int
    units: int
    replicable: bool = False
    groups: int = 1


@dataclass(frozen=True)
class TensorFamily:
    """Tensors `pattern.format(layer=..., expert=...)` of one shape (elements).

    `cut_dim` None: never cut by TP. `role` is what engines decide by: embedding, head, attention,
    dense, expert, shared_expert, vision, or other. A family without `layers` is at the first or the
    last pipeline stage. `scales` is the pattern of the tensors of its block scales, whose own
    family has it as `scale_of`.
    """

    pattern: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    role: str
    cut_dim: Optional[int] = None
    parts: tuple[Part, ...] = ()
    layers: tuple[int, ...] = ()
    experts: int = 0  # tensors a layer, one for each expert
    expert_dim: Optional[int] = None  # the dimension that counts experts
    last_stage: bool = False
    draft: bool = False
    fused: bool = False  # the parts are sections
    scales: Optional[str] = None
    block_shape: Optional[tuple[int, ...]] = None
    scale_of: Optional[TensorFamily] = None
    tied_with: Optional[str] = None

    def names(self) -> list[str]:
        """All tensors, by layer and then expert."""
        return [
            self.pattern.format(layer=layer, expert=expert)
            for layer in self.layers or (0,)
            for expert in range(self.experts or 1)
        ]


def tensor_families(model: ModelConfiguration, vocabulary: str = CHECKPOINT) -> list[TensorFamily]:
    """All families of `model`, scales included."""
    if vocabulary not in (CHECKPOINT, FUSED):
        raise ValueError(f"a vocabulary is {CHECKPOINT} or {FUSED}, got {vocabulary}")
    return list(_Architecture(model, vocabulary == FUSED).families())


class _Architecture:
    """Walks the modules of one model."""

    def __init__(self, model: ModelConfiguration, fused: bool) -> None:
        self.model = model
        self.fused = fused

    def families(self) -> Iterator[TensorFamily]:
        model = self.model
        prefix = model.language_prefix
        tied = "lm_head.weight" if model.tied_embeddings else None
        embedding = self._plain(
            f"{prefix}embed_tokens.weight", (model.vocabulary, model.hidden_size), "embedding", 0
        )
        yield replace(embedding, tied_with=tied)
        yield self._plain(f"{prefix}norm.weight", (model.hidden_size,), last=True)
        head = self._plain("lm_head.weight", (model.vocabulary, model.hidden_size), "head", 0)
        yield replace(head, last_stage=True, tied_with=embedding.pattern if tied else None)
        layer = f"{prefix}layers.{{layer}}."
        every = tuple(range(model.layers))
        expert_layers = model.expert_layers
        yield from self._norms(layer, every)
        yield from self._attention(layer, model.full_attention_layers)
        if model.linear:
            full = set(model.full_attention_layers)
            yield from self._linear_attention(layer, tuple(i for i in every if i not in full))
        dense = tuple(i for i in every if i not in set(expert_layers))
        if dense:
            yield from self._mlp(f"{layer}mlp.", model.mlp_width, dense, "dense")
        if model.experts:
            yield from self._experts(
                f"{layer}{model.experts.module}.", model.experts, expert_layers
            )
        if model.draft_layers:
            for family in self._draft():
                yield replace(family, draft=True, last_stage=True)
        if model.vision:
            yield from self._vision()

    # --- one tensor each ---------------------------------------------------------------------

    def _plain(
        self,
        pattern: str,
        shape: tuple[int, ...],
        role: str = "other",
        cut_dim: Optional[int] = None,
        layers: tuple[int, ...] = (),
        last: bool = False,
        dtype: str = "bfloat16",
    ) -> TensorFamily:
        parts = () if cut_dim is None else (Part("", shape[cut_dim], shape[cut_dim]),)
        itemsize = 2 if dtype == "bfloat16" else 4
        return TensorFamily(
            pattern, shape, dtype, itemsize, role, cut_dim, parts, layers, last_stage=last
        )

    def _matrix(
        self,
        module: str,
        role: str,
        layers: tuple[int, ...],
        rows: tuple[Part, ...],
        columns: Part,
        cut: Optional[int],
        experts: int = 0,
        quantised: bool = True,
        bias: bool = False,
    ) -> Iterator[TensorFamily]:
        """The weight of a linear module, its block scales and its bias."""
        model = self.model
        shape = (sum(part.extent for part in rows), columns.extent)
        block = model.fp8_block if quantised else 0
        weight = TensorFamily(
            f"{module}.weight",
            shape,
            "float8_e4m3fn" if block else "bfloat16",
            1 if block else 2,
            role,
            cut,
            () if cut is None else rows if cut == 0 else (columns,),
            layers,
            experts,
            fused=len(rows) > 1,
        )
        if len(rows) > 1 and cut is None:
            weight = replace(weight, parts=rows)
        if block:
            yield from self._quantised(weight, (block, block), f"{module}.weight_scale_inv", rows)
        else:
            yield weight
        if bias:
            yield replace(
                weight,
                pattern=f"{module}.bias",
                shape=shape[:1],
                cut_dim=0 if cut == 0 else None,
                parts=rows if cut == 0 else (),
            )

    @staticmethod
    def _quantised(
        weight: TensorFamily, block: tuple[int, ...], scales: str, rows: tuple[Part, ...]
    ) -> Iterator[TensorFamily]:
        """The weight, and the tensor of its scales. Blocks begin anew in each part of the rows."""
        weight = replace(weight, scales=scales, block_shape=block)
        yield weight
        row_dim = len(block) - 2
        shape = [-(-extent // size) for extent, size in zip(weight.shape, block, strict=True)]
        shape[row_dim] = sum(-(-part.extent // block[row_dim]) for part in rows)
        yield replace(
            weight,
            pattern=scales,
            shape=tuple(shape),
            dtype="float32",
            itemsize=4,
            fused=False,
            scales=None,
            block_shape=None,
            scale_of=weight,
        )

    # --- modules -----------------------------------------------------------------------------

    def _norms(self, layer: str, layers: tuple[int, ...]) -> Iterator[TensorFamily]:
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield self._plain(f"{layer}{name}.weight", (self.model.hidden_size,), layers=layers)

    def _attention(self, layer: str, layers: tuple[int, ...]) -> Iterator[TensorFamily]:
        model = self.model
        module = f"{layer}self_attn."
        hidden = _whole(model.hidden_size)
        if model.latent:
            yield from self._latent_attention(module, layers)
            return
        query_width = model.heads * model.head_dim * (2 if model.gated_queries else 1)
        query = Part("q", query_width, model.heads, groups=model.kv_heads)
        key, value = (
            Part(name, model.kv_heads * model.head_dim, model.kv_heads, True, model.kv_heads)
            for name in "kv"
        )
        fused = {f"{module}qkv_proj": (query, key, value)}
        apart = {f"{module}{part.name}_proj": (part,) for part in (query, key, value)}
        for name, rows in (fused if self.fused else apart).items():
            yield from self._matrix(name, "attention", layers, rows, hidden, 0, bias=model.qkv_bias)
        out = Part("", model.heads * model.head_dim, model.heads)
        yield from self._matrix(f"{module}o_proj", "attention", layers, (hidden,), out, 1)
        if model.qk_norm:
            for name in ("q_norm", "k_norm"):
                yield self._plain(f"{module}{name}.weight", (model.head_dim,), layers=layers)

    def _latent_attention(self, module: str, layers: tuple[int, ...]) -> Iterator[TensorFamily]:
        model, latent = self.model, self.model.latent
        hidden = _whole(model.hidden_size)
        query_a = _whole(latent.q_lora_rank, "q_a")
        key_value_a = _whole(latent.kv_lora_rank + latent.rope_head_dim, "kv_a")
        if self.fused:
            name = f"{module}fused_qkv_a_proj"
            yield from self._matrix(name, "attention", layers, (query_a, key_value_a), hidden, None)
        else:
            for name, rows in (("q_a_proj", query_a), ("kv_a_proj_with_mqa", key_value_a)):
                yield from self._matrix(
                    f"{module}{name}", "attention", layers, (rows,), hidden, None
                )
        for name, rank in (("q_a", latent.q_lora_rank), ("kv_a", latent.kv_lora_rank)):
            yield self._plain(f"{module}{name}_layernorm.weight", (rank,), layers=layers)
        heads = model.heads
        query_b = Part("", heads * (latent.nope_head_dim + latent.rope_head_dim), heads)
        key_value_b = Part("", heads * (latent.nope_head_dim + latent.value_head_dim), heads)
        out = Part("", heads * latent.value_head_dim, heads)
        for name, rows, columns, cut in (
            ("q_b_proj", query_b, _whole(latent.q_lora_rank), 0),
            ("kv_b_proj", key_value_b, _whole(latent.kv_lora_rank), 0),
            ("o_proj", hidden, out, 1),
        ):
            yield from self._matrix(f"{module}{name}", "attention", layers, (rows,), columns, cut)

    def _linear_attention(self, layer: str, layers: tuple[int, ...]) -> Iterator[TensorFamily]:
        """Gated delta net. Its heads are cut in groups: one key head and its value heads."""
        model, linear = self.model, self.model.linear
        module = f"{layer}linear_attn."
        hidden = _whole(model.hidden_size)
        groups = linear.key_heads
        keys = groups * linear.key_head_dim
        values = linear.value_heads * linear.value_head_dim
        if linear.fused:
            inputs = {
                "in_proj_qkvz": (Part("", 2 * keys + 2 * values, groups),),
                "in_proj_ba": (Part("", 2 * linear.value_heads, groups),),
            }
        else:
            inputs = {
                "in_proj_qkv": _stacked(groups, q=keys, k=keys, v=values),
                "in_proj_z": (Part("", values, groups),),
                "in_proj_b": (Part("", linear.value_heads, groups),),
                "in_proj_a": (Part("", linear.value_heads, groups),),
            }
        for name, rows in inputs.items():
            for family in self._matrix(module + name, "attention", layers, rows, hidden, 0):
                yield replace(family, fused=False)
        out = Part("", values, groups)
        yield from self._matrix(f"{module}out_proj", "attention", layers, (hidden,), out, 1)
        parts = _stacked(groups, q=keys, k=keys, v=values)
        convolution = self._plain(
            f"{module}conv1d.weight", (2 * keys + values, 1, linear.kernel), "attention", 0, layers
        )
        yield replace(convolution, parts=parts)
        for name in ("dt_bias", "A_log"):
            heads = self._plain(module + name, (linear.value_heads,), "attention", 0, layers)
            yield replace(heads, parts=(Part("", linear.value_heads, groups),))
        yield self._plain(f"{module}norm.weight", (linear.value_head_dim,), layers=layers)

    def _mlp(
        self, module: str, width: int, layers: tuple[int, ...], role: str
    ) -> Iterator[TensorFamily]:
        hidden = _whole(self.model.hidden_size)
        gate, up = _whole(width, "gate"), _whole(width, "up")
        fused = {"gate_up_proj": (gate, up)}
        apart = {"gate_proj": (gate,), "up_proj": (up,)}
        for name, rows in (fused if self.fused else apart).items():
            yield from self._matrix(module + name, role, layers, rows, hidden, 0)
        yield from self._matrix(f"{module}down_proj", role, layers, (hidden,), _whole(width), 1)

    def _experts(
        self, module: str, experts: Experts, layers: tuple[int, ...]
    ) -> Iterator[TensorFamily]:
        hidden = _whole(self.model.hidden_size)
        router = (experts.count, self.model.hidden_size)
        yield self._plain(f"{module}gate.weight", router, layers=layers)
        if experts.router_bias:
            bias = f"{module}gate.e_score_correction_bias"
            yield self._plain(bias, (experts.count,), layers=layers, dtype="float32")
        if experts.shared_width:
            shared = f"{module}{experts.shared_name}."
            yield from self._mlp(shared, experts.shared_width, layers, "shared_expert")
        if experts.shared_gate:
            gate = f"{module}{experts.shared_name}_gate.weight"
            yield self._plain(gate, (1, self.model.hidden_size), layers=layers)
        gate, up = _whole(experts.width, "gate"), _whole(experts.width, "up")
        if self.fused:
            yield from self._grouped(f"{module}experts.w13_weight", layers, (gate, up), hidden, 1)
            down = _whole(experts.width)
            yield from self._grouped(f"{module}experts.w2_weight", layers, (hidden,), down, 2)
            return
        for name, rows in zip(experts.projections, (gate, up, None), strict=True):
            columns, cut = (hidden, 0) if rows else (_whole(experts.width), 1)
            yield from self._matrix(
                f"{module}experts.{{expert}}.{name}",
                "expert",
                layers,
                (rows or hidden,),
                columns,
                cut,
                experts.count,
            )

    def _grouped(
        self, name: str, layers: tuple[int, ...], rows: tuple[Part, ...], columns: Part, cut: int
    ) -> Iterator[TensorFamily]:
        """All experts of a layer in one tensor of three dimensions."""
        block = self.model.fp8_block
        weight = TensorFamily(
            name,
            (self.model.experts.count, sum(part.extent for part in rows), columns.extent),
            "float8_e4m3fn" if block else "bfloat16",
            1 if block else 2,
            "expert",
            cut,
            rows if cut == 1 else (columns,),
            layers,
            expert_dim=0,
            fused=len(rows) > 1,
        )
        if block:
            yield from self._quantised(weight, (1, block, block), f"{name}_scale_inv", rows)
        else:
            yield weight

    def _draft(self) -> Iterator[TensorFamily]:
        """Multi-token prediction: a decoder layer whose input joins an embedding and a hidden."""
        model = self.model
        hidden = model.hidden_size
        if model.latent:  # DeepSeek: one more layer, with copies of embedding and head
            layers = tuple(range(model.layers, model.layers + model.draft_layers))
            layer = "model.layers.{layer}."
            for name in ("enorm", "hnorm", "shared_head.norm"):
                yield self._plain(f"{layer}{name}.weight", (hidden,), layers=layers)
            for name, role in (("embed_tokens", "embedding"), ("shared_head.head", "head")):
                shape = (model.vocabulary, hidden)
                yield self._plain(f"{layer}{name}.weight", shape, role, 0, layers)
            yield self._plain(f"{layer}eh_proj.weight", (hidden, 2 * hidden), layers=layers)
        else:  # Qwen: modules of their own
            layers, layer = tuple(range(model.draft_layers)), "mtp.layers.{layer}."
            for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
                yield self._plain(f"mtp.{name}.weight", (hidden,))
            yield self._plain("mtp.fc.weight", (hidden, 2 * hidden))
        yield from self._norms(layer, layers)
        yield from self._attention(layer, layers)
        yield from self._experts(f"{layer}{model.experts.module}.", model.experts, layers)

    def _vision(self) -> Iterator[TensorFamily]:
        vision = self.model.vision
        width = vision.hidden_size
        blocks = tuple(range(vision.depth))
        block = "model.visual.blocks.{layer}."

        def vector(name: str, extent: int, layers: tuple[int, ...] = ()) -> TensorFamily:
            return self._plain(name, (extent,), "vision", layers=layers)

        def linear(
            name: str,
            rows: int,
            columns: int,
            cut: int,
            layers: tuple[int, ...] = (),
            units: int = 0,
        ) -> Iterator[TensorFamily]:
            extent = rows if cut == 0 else columns
            parts = (Part("", extent, units or extent),)
            weight = self._plain(f"{name}.weight", (rows, columns), "vision", cut, layers)
            yield replace(weight, parts=parts)
            bias = self._plain(f"{name}.bias", (rows,), "vision", 0 if cut == 0 else None, layers)
            yield replace(bias, parts=parts if cut == 0 else ())

        temporal, patch = vision.temporal_patch, vision.patch
        patches = (width, vision.channels, temporal, patch, patch)
        yield self._plain("model.visual.patch_embed.proj.weight", patches, "vision")
        if not vision.gated:
            yield vector("model.visual.patch_embed.proj.bias", width)
            yield self._plain("model.visual.pos_embed.weight", (vision.positions, width), "vision")
        for norm in ("norm1", "norm2"):
            yield vector(f"{block}{norm}.weight", width, blocks)
            if not vision.gated:
                yield vector(f"{block}{norm}.bias", width, blocks)
        for family in linear(f"{block}attn.qkv", 3 * width, width, 0, blocks):
            yield replace(family, parts=_stacked(vision.heads, q=width, k=width, v=width))
        yield from linear(f"{block}attn.proj", width, width, 1, blocks, vision.heads)
        up = ("gate_proj", "up_proj") if vision.gated else ("linear_fc1",)
        for name in up:
            yield from linear(f"{block}mlp.{name}", vision.mlp_width, width, 0, blocks)
        down = "down_proj" if vision.gated else "linear_fc2"
        yield from linear(f"{block}mlp.{down}", width, vision.mlp_width, 1, blocks)
        merged = width * vision.merge**2
        norm, first, second = (
            ("ln_q", "mlp.0", "mlp.2") if vision.gated else ("norm", "linear_fc1", "linear_fc2")
        )
        yield vector(f"model.visual.merger.{norm}.weight", width)
        if not vision.gated:
            yield vector(f"model.visual.merger.{norm}.bias", width)
        out = self.model.hidden_size
        yield from linear(f"model.visual.merger.{first}", merged, merged, 0)
        yield from linear(f"model.visual.merger.{second}", out, merged, 1)


def _whole(extent: int, name: str = "") -> Part:
    return Part(name, extent, extent)


def _stacked(units: int, **extents: int) -> tuple[Part, ...]:
    return tuple(Part(name, extent, units) for name, extent in extents.items())


def parameter_count(families: Iterable[TensorFamily]) -> int:
    """Elements of all tensors, tied ones twice, block scales not at all."""
    return sum(
        math.prod(family.shape) * len(family.layers or (0,)) * (family.experts or 1)
        for family in families
        if family.scale_of is None
    )

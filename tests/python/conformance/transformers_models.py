"""Models of `transformers` made from the published configurations, and their tensors by the
vocabularies' names.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch
import transformers
from mooncake.reshard.conformance import (
    CHECKPOINT,
    FUSED,
    ModelConfiguration,
    TensorFamily,
    tensor_families,
)

CLASSES = {
    "qwen3": ("Qwen3Config", "AutoModelForCausalLM"),
    "qwen3_moe": ("Qwen3MoeConfig", "AutoModelForCausalLM"),
    "qwen3_5": ("Qwen3_5Config", "Qwen3_5ForConditionalGeneration"),
    "qwen3_5_moe": ("Qwen3_5MoeConfig", "Qwen3_5MoeForConditionalGeneration"),
    "qwen3_next": ("Qwen3NextConfig", "AutoModelForCausalLM"),
    "deepseek_v3": ("DeepseekV3Config", "AutoModelForCausalLM"),
    "llama": ("LlamaConfig", "AutoModelForCausalLM"),
    "mistral": ("MistralConfig", "AutoModelForCausalLM"),
    "mixtral": ("MixtralConfig", "AutoModelForCausalLM"),
    "qwen2_5_vl": ("Qwen2_5_VLConfig", "Qwen2_5_VLForConditionalGeneration"),
}


def missing_class(model: ModelConfiguration) -> str | None:
    """The class that this transformers lacks for `model`, if it does."""
    for name in CLASSES[model.model_type]:
        if not hasattr(transformers, name):
            return f"transformers {transformers.__version__} has no {name}"
    return None


def make_model(model: ModelConfiguration) -> Any:
    """The real class with the configuration's numbers, random weights, in eval mode."""
    config_name, class_name = CLASSES[model.model_type]
    config = getattr(transformers, config_name)(**_arguments(model))
    config.dtype = dtype = torch.bfloat16
    kind = getattr(transformers, class_name)
    made = (
        kind.from_config(config, dtype=dtype)
        if class_name.startswith("Auto")
        else kind._from_config(config, dtype=dtype)
    )
    # Some classes keep routers in float32 that checkpoints have in bfloat16.
    dtypes = {n: f.dtype for f in main_families(model, CHECKPOINT) for n in f.names()}
    for name, parameter in made.state_dict(keep_vars=True).items():
        wanted = getattr(torch, dtypes.get(name, "bfloat16"))
        if parameter.dtype != wanted:
            parameter.data = parameter.data.to(wanted)
    return made.eval()


def _arguments(model: ModelConfiguration) -> dict[str, Any]:
    text: dict[str, Any] = {
        "vocab_size": model.vocabulary,
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "tie_word_embeddings": model.tied_embeddings,
        # Ids of special tokens lie within small vocabularies.
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 512,
    }
    if model.mlp_width:
        text["intermediate_size"] = model.mlp_width
    if model.linear:
        linear = model.linear
        text |= {
            "linear_num_key_heads": linear.key_heads,
            "linear_num_value_heads": linear.value_heads,
            "linear_key_head_dim": linear.key_head_dim,
            "linear_value_head_dim": linear.value_head_dim,
            "linear_conv_kernel_dim": linear.kernel,
            "full_attention_interval": linear.interval,
        }
    if model.latent:
        latent = model.latent
        del text["head_dim"]
        text |= {
            "q_lora_rank": latent.q_lora_rank,
            "kv_lora_rank": latent.kv_lora_rank,
            "qk_nope_head_dim": latent.nope_head_dim,
            "qk_rope_head_dim": latent.rope_head_dim,
            "v_head_dim": latent.value_head_dim,
        }
    if model.experts:
        text |= _expert_arguments(model)
    if model.vision is None:
        return text
    # M-RoPE splits half a head's rotary dimensions into three runs.
    half = model.head_dim // (8 if model.linear else 2)
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [half - 2 * (half // 3), half // 3, half // 3],
        "partial_rotary_factor": 0.25 if model.linear else 1.0,
    }
    vision = model.vision
    tower: dict[str, Any] = {
        "depth": vision.depth,
        "hidden_size": vision.hidden_size,
        "intermediate_size": vision.mlp_width,
        "num_heads": vision.heads,
        "in_channels": vision.channels,
        "patch_size": vision.patch,
        "temporal_patch_size": vision.temporal_patch,
        "spatial_merge_size": vision.merge,
        "out_hidden_size": model.hidden_size,
    }
    if vision.positions:
        tower["num_position_embeddings"] = vision.positions
    return {
        "text_config": text,
        "vision_config": tower,
        "tie_word_embeddings": model.tied_embeddings,
        # Image placeholders outside of small vocabularies would not matter: texts have none.
    }


def _expert_arguments(model: ModelConfiguration) -> dict[str, Any]:
    experts = model.experts
    if model.model_type == "mixtral":
        return {"num_local_experts": experts.count, "intermediate_size": experts.width}
    arguments = {"moe_intermediate_size": experts.width, "num_experts_per_tok": 2}
    if model.model_type == "deepseek_v3":
        return arguments | {
            "n_routed_experts": experts.count,
            "n_shared_experts": experts.shared_width // experts.width,
            "first_k_dense_replace": experts.dense_layers,
            "n_group": 4,
            "topk_group": 2,
        }
    arguments["num_experts"] = experts.count
    if experts.shared_width:
        arguments["shared_expert_intermediate_size"] = experts.shared_width
    return arguments


def main_families(model: ModelConfiguration, vocabulary: str) -> list[TensorFamily]:
    """What the class of `transformers` has: no draft layers, no block scales, plain weights."""
    plain = replace(model, fp8_block=0)
    return [family for family in tensor_families(plain, vocabulary) if not family.draft]


def tensors_of(
    model: ModelConfiguration, state: dict[str, torch.Tensor], vocabulary: str
) -> dict[str, torch.Tensor]:
    """The state dict's weights under the vocabulary's names: views of it, or joined copies."""
    return {
        name: _tensor(model, state, family, name, vocabulary)
        for family in main_families(model, vocabulary)
        for name in family.names()
    }


def _tensor(
    model: ModelConfiguration,
    state: dict[str, torch.Tensor],
    family: TensorFamily,
    name: str,
    vocabulary: str,
) -> torch.Tensor:
    if name in state:
        return state[name]
    if model.experts:
        name = name.replace(f".{model.experts.module}.", ".mlp.")
    if name in state:
        return state[name]
    if family.role == "expert":
        module = name[: name.index(".experts.") + len(".experts.")]
        gate_up, down = state[f"{module}gate_up_proj"], state[f"{module}down_proj"]
        if vocabulary == FUSED:
            return gate_up if name.endswith("w13_weight") else down
        expert, projection = re.fullmatch(r".*\.experts\.(\d+)\.(\w+)\.weight", name).groups()
        width = model.experts.width
        return {
            model.experts.projections[0]: gate_up[int(expert), :width],
            model.experts.projections[1]: gate_up[int(expert), width:],
            model.experts.projections[2]: down[int(expert)],
        }[projection]
    for fused, apart in JOINED.items():
        if fused in name:
            return torch.cat([state[name.replace(fused, part)] for part in apart])
    raise KeyError(name)


JOINED = {
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}


def put_back(
    model: ModelConfiguration, loaded: dict[str, torch.Tensor], state: dict[str, torch.Tensor]
) -> None:
    """Copies joined tensors (FUSED) into the state dict's own; views are there already."""
    for family in main_families(model, FUSED):
        for name in family.names():
            source = loaded[name]
            own = _tensor(model, state, family, name, FUSED) if "qkv_a" not in name else None
            if own is not None and own.data_ptr() in {t.data_ptr() for t in state.values()}:
                own.copy_(source)
                continue
            fused, apart = next((f, a) for f, a in JOINED.items() if f in name)
            row = 0
            for part in apart:
                target = state[name.replace(fused, part)]
                target.copy_(source[row : row + target.shape[0]])
                row += target.shape[0]


def logits_of(model: Any, vocabulary: int) -> torch.Tensor:
    """The model's logits for a fixed text of 12 tokens."""
    tokens = torch.arange(12).reshape(1, 12) * 7 % (vocabulary - 10) + 5
    with torch.inference_mode():
        return model(input_ids=tokens, use_cache=False).logits

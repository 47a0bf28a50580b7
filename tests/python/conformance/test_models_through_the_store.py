"""Small models of `transformers`, published from one engine's layout, loaded into another's and
back into the framework's state dict: the same logits, bit for bit.
"""

from __future__ import annotations

import threading

import pytest
import torch
from engine_memory import DTYPES, engine_memory
from mooncake.reshard.conformance import (
    CHECKPOINT,
    FUSED,
    ConformanceSuite,
    Fsdp2,
    ModelConfiguration,
    index_bytes,
    layout_named,
    model_named,
    reference_placement,
    tensor_families,
)
from mooncake.reshard.weight import (
    WeightIdentity,
    WeightPlacementManifest,
    WeightStore,
    bind_tensors,
)
from transformers_models import (
    logits_of,
    main_families,
    make_model,
    missing_class,
    put_back,
    tensors_of,
)

PAIRS = {
    "qwen3-8b": ("megatron-tp4-pp2", "sglang-tp16"),
    "qwen3-4b": ("fsdp2-dp8", "vllm-tp4"),
    "qwen3-235b-a22b": ("megatron-tp2-pp2-dp4-ep4", "sglang-tp4-ep4-dp2-rebalanced"),
    "qwen3.5-9b": ("fsdp2-dp4-tp2", "vllm-tp4-dp2"),
    "qwen3.5-35b-a3b": ("fsdp2-hsdp-2x4", "sglang-tp8-ep4"),
    "qwen3-next-80b-a3b": ("megatron-tp2-dp4-ep8", "sglang-tp8-ep8-dp-attention"),
    "deepseek-v3": ("fsdp2-dp8", "vllm-tp2-dp4-ep8"),
    "llama-3-8b": ("fsdp2-dp24", "megatron-tp4-pp2"),
    "llama-3-70b": ("vllm-tp4-fused", "sglang-tp2-pp2-fused"),
    "mistral-7b": ("megatron-tp2-pp2-interleaved", "fsdp2-dp8"),
    "mixtral-8x7b": ("sglang-tp8-ep8-redundant-fused", "vllm-tp2-dp2-ep4-rebalanced-fused"),
    "qwen2.5-vl-7b": ("vllm-tp2-pp4", "megatron-tp2-pp2-dp2"),
}


def box(fragment):
    return tuple(
        slice(o, o + n) for o, n in zip(fragment.global_offset, fragment.local_shape, strict=True)
    )


class Rank:
    """One participant that publishes the memory of its own fragments."""

    def __init__(self, placement: WeightPlacementManifest, participant: str) -> None:
        self.made, self.participant = placement, participant

    def identity(self, snapshot):
        return WeightIdentity("default", self.made.resource_id, self.made.revision, 1)

    def placement(self, snapshot):
        return self.made

    def participants(self, snapshot):
        return [self.participant]

    def tensors(self, snapshot):
        return snapshot.items()

    def publish(self, store, memory):
        names = {f.fragment_id: f.tensor_id for f in self.made.fragments}
        with store.weight_put(memory, self) as writer:
            for fragment_id, tensor in self.tensors(memory):
                writer.weight_put_tensor(
                    names[fragment_id], tensor, placement_fragment_id=fragment_id
                )


def publish(store, placement, memory_of_rank):
    """Every participant is a writer of its own, all at once, as ranks are."""
    errors = []

    def run(participant):
        try:
            memory = memory_of_rank.get(participant, {})
            Rank(placement, participant).publish(store, memory)
        except Exception as error:
            errors.append((participant, error))

    threads = [
        threading.Thread(target=run, args=(part.participant_id,)) for part in placement.parts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    return WeightIdentity("default", placement.resource_id, placement.revision, 1)


def filled_memory(placement, whole):
    """participant -> each of its fragments in engine memory, cut from whole tensors."""
    filled = {}
    for part in placement.parts:
        memory = filled[part.participant_id] = engine_memory(placement, part.participant_id)
        for fragment in part.fragments:
            memory[fragment.fragment_id].copy_(whole[fragment.tensor_id][box(fragment)])
    return filled


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(a, b)


def load(store, identity, placement):
    """participant -> the memory of each of its fragments, filled."""
    filled = {}
    for part in placement.parts:
        if not any(fragment.nbytes for fragment in part.fragments):
            continue
        memory = engine_memory(placement, part.participant_id)
        binding = bind_tensors(placement, part.participant_id, memory)
        store.weight_get(identity, placement, binding)
        filled[part.participant_id] = memory
    return filled


def assemble(placement, filled):
    """Whole tensors from every rank's memory; each rank's replica must say the same."""
    whole = {
        t.tensor_id: torch.zeros(t.global_shape, dtype=DTYPES[t.dtype]) for t in placement.tensors
    }
    seen = {name: torch.zeros(tensor.shape, dtype=torch.bool) for name, tensor in whole.items()}
    for part in placement.parts:
        for fragment in part.fragments:
            at, got = box(fragment), filled[part.participant_id][fragment.fragment_id]
            if seen[fragment.tensor_id][at].all():
                assert same_bytes(whole[fragment.tensor_id][at], got), fragment
            whole[fragment.tensor_id][at] = got
            seen[fragment.tensor_id][at] = True
    assert all(each.all() for each in seen.values())
    return whole


def with_draft_layers(model: ModelConfiguration, tensors):
    """The class of transformers has no draft layers: random ones beside its weights."""
    return tensors | {
        name: torch.randn(family.shape, dtype=DTYPES[family.dtype])
        for family in tensor_families(model)
        if family.draft
        for name in family.names()
    }


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_the_same_logits(tmp_path, name):
    model = model_named(name).small()
    lacks = missing_class(model)
    if lacks:
        pytest.skip(f"{name}: {lacks}")
    if model.fp8_block:  # the class computes with plain weights
        model = ModelConfiguration(**{**vars(model), "fp8_block": 0})
    source, target = (layout_named(layout) for layout in PAIRS[name])
    vocabulary = source.vocabulary
    torch.manual_seed(7)
    original = make_model(model)
    logits = logits_of(original, model.vocabulary)
    tensors = tensors_of(model, original.state_dict(), vocabulary)
    if vocabulary == CHECKPOINT:
        tensors = with_draft_layers(model, tensors)
    other = make_model(model)
    with torch.no_grad():
        for parameter in other.state_dict().values():
            parameter.fill_(0.01)
    assert not torch.equal(logits_of(other, model.vocabulary), logits)

    with WeightStore(f"file://{tmp_path / 'store'}", capacity_bytes=64 << 20) as store:
        placement = reference_placement(model, source)
        identity = publish(store, placement, filled_memory(placement, tensors))
        placement = reference_placement(model, target)
        filled = load(store, identity, placement)
        whole = assemble(placement, filled)
        assert {n for f in main_families(model, vocabulary) for n in f.names()} <= set(whole)
        for tensor_id, tensor in whole.items():
            assert same_bytes(tensor, tensors[tensor_id]), tensor_id

        # From the second layout on, into the state dict of a model with other weights.
        identity = publish(store, reference_placement(model, target, revision="r2"), filled)
        state = other.state_dict()
        mine = tensors_of(model, state, vocabulary)
        one = reference_placement(model, whole_layout(vocabulary), revision="r2")
        views = {f.fragment_id: mine[f.tensor_id][box(f)] for f in one.fragments}
        store.weight_get(identity, one, bind_tensors(one, RANK, views))
        if vocabulary == FUSED:
            put_back(model, mine, state)
        assert torch.equal(logits_of(other, model.vocabulary), logits)


def whole_layout(vocabulary):
    """One rank that has everything but draft layers."""
    return Fsdp2("one", vocabulary=vocabulary, draft=False)


RANK = "dp0-pp0-tp0"


def index_tensors(placement):
    """Tensors whose content names each element's place."""
    return {
        t.tensor_id: torch.from_numpy(index_bytes(t.tensor_id, t.global_shape, t.itemsize))
        .view(DTYPES[t.dtype])
        .view(t.global_shape)
        for t in placement.tensors
    }


@pytest.mark.parametrize(
    "pair",
    [
        ("megatron-tp2-pp2-dp4-ep4", "sglang-tp8-ep8-redundant"),
        ("fsdp2-dp24", "vllm-tp2-dp4-ep8"),
        ("vllm-tp16-fused", "sglang-tp8-ep8-redundant-fused"),
    ],
    ids=" to ".join,
)
def test_block_scales_through_the_store(tmp_path, pair):
    """DeepSeek's fp8 weights and scales: shards that begin inside a block share its scale."""
    model = model_named("deepseek-v3").small()
    source, target = (reference_placement(model, layout_named(name)) for name in pair)
    with WeightStore(f"file://{tmp_path / 'store'}", capacity_bytes=64 << 20) as store:
        identity = publish(store, source, filled_memory(source, index_tensors(source)))
        filled = load(store, identity, target)
    suite = ConformanceSuite([model])
    for participant, memory in filled.items():
        assert suite.check_content(target, participant, memory) == []
    # The check itself: one byte of one element.
    participant, memory = next(iter(filled.items()))
    fragment_id = next(key for key, tensor in memory.items() if tensor.is_contiguous())
    memory[fragment_id].view(torch.uint8).view(-1)[0] ^= 1
    (finding,) = suite.check_content(target, participant, memory)
    assert finding.check == "content" and finding.rank == participant
    assert "1 elements differ" in finding.got

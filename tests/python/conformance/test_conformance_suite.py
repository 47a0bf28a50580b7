"""The fixtures themselves, and that the suite finds what an exporter gets wrong."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from mooncake.reshard.conformance import (
    CHECKPOINT,
    FUSED,
    LAYOUTS,
    MODELS,
    ConformanceSuite,
    Sglang,
    UnsupportedLayout,
    Vllm,
    layout_named,
    model_named,
    reference_placement,
    tensor_families,
    unsupported,
    what_is_wrong_with_plan,
    what_is_wrong_with_regions,
)
from mooncake.reshard.weight import (
    WeightPlacementManifest,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    weight_placement_to_json,
)
from transformers_models import main_families, make_model, missing_class, tensors_of


def layouts_of(model):
    return [layout for layout in LAYOUTS if unsupported(model, layout) is None]


def check_names_and_shapes(model):
    """Against the class of transformers, on the meta device: no memory."""
    lacks = missing_class(model)
    if lacks:
        pytest.skip(f"{model.name}: {lacks}")
    with torch.device("meta"):
        state = make_model(model).state_dict()
    for vocabulary in (CHECKPOINT, FUSED):
        tensors = tensors_of(model, state, vocabulary)
        for family in main_families(model, vocabulary):
            for name in family.names():
                assert tuple(tensors[name].shape) == family.shape, name
    elements = sum(t.numel() for t in tensors_of(model, state, CHECKPOINT).values())
    assert elements == sum(tensor.numel() for tensor in state.values())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_published_sizes_are_those_of_the_transformers_classes(model):
    """Full size but for the number of layers, and of experts, which all are alike."""
    experts = model.experts and replace(model.experts, count=min(model.experts.count, 16))
    check_names_and_shapes(replace(model, layers=4, experts=experts))


@pytest.mark.soak
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_whole_models_are_those_of_the_transformers_classes(model):
    check_names_and_shapes(model)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_ids_do_not_depend_on_the_order_of_rows(model):
    """Under other layouts in every run: the seed is printed where one fails."""
    seed = random.randrange(1 << 32)
    small = model.small()
    for layout in random.Random(seed).sample(layouts_of(small), 6):
        made = reference_placement(small, layout)
        again = reference_placement(small, layout, shuffle=seed)
        assert (again.placement_id, again.digest) == (made.placement_id, made.digest), (
            f"seed {seed}: {layout}"
        )


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("qwen3-235b-a22b", "megatron-tp2-pp2-dp4-ep4"),
        ("deepseek-v3", "vllm-tp2-dp4-ep8-fused"),
        ("llama-3-70b", "fsdp2-dp24"),
        ("qwen2.5-vl-7b", "vllm-tp4"),
    ],
)
def test_full_size(model, layout):
    placement = reference_placement(model_named(model), layout_named(layout))
    rank = placement.parts[-1].participant_id
    plan = plan_placement_transfer_to_local_target(placement, placement, rank)
    assert what_is_wrong_with_regions(plan, rank) == []


@pytest.mark.soak
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_everything_at_full_size(model):
    report = ConformanceSuite([model], peers=2).run()
    assert report.ok, report.findings[0]


def test_every_pair_of_layouts_of_one_family():
    model = model_named("qwen3-8b-small")
    made = {layout: reference_placement(model, layout) for layout in layouts_of(model)}
    for source, target in itertools.product(made, made):
        if source.vocabulary == target.vocabulary:
            plan = plan_placement_transfer(made[source], made[target])
            wrong = what_is_wrong_with_plan(plan)
            assert not wrong, (source.name, target.name, wrong[0])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_some_pairs_of_layouts(model):
    """Other pairs in every run: the seed is printed where one fails."""
    seed = random.randrange(1 << 32)
    small = model.small()
    chosen = random.Random(seed).sample(layouts_of(small), 3)
    report = ConformanceSuite([small], peers=1, seed=seed).run(layouts=chosen)
    assert report.ok, f"seed {seed}: {report.findings[0]}"


@pytest.mark.soak
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_pair_of_layouts(model):
    report = ConformanceSuite([model.small()], peers=None).run()
    assert report.ok, report.findings[0]


# --- what an exporter gets wrong -----------------------------------------------------------------


def remade(placement, change):
    """The placement of (tensors, fragments) as `change` makes them."""
    tensors = {tensor.tensor_id: tensor for tensor in placement.tensors}
    fragments = list(placement.fragments)
    tensors, fragments = change(tensors, fragments)
    return WeightPlacementManifest.from_fragments(
        resource_id=placement.resource_id,
        revision=placement.revision,
        weight_generation=placement.weight_generation,
        placement_set_id=placement.placement_set_id,
        topology=placement.topology,
        tensors=list(tensors.values()),
        fragments=fragments,
    )


def findings_of(change, model="llama-3-8b-small", layout="vllm-tp4", **options):
    def exporter(model, layout):
        return remade(reference_placement(model, layout), change)

    return ConformanceSuite([model_named(model)], **options).check(exporter, model, layout).findings


def without_id(fragment, **changes):
    return replace(fragment, placement_fragment_id=None, **changes)


def test_a_wrong_cut_is_named_with_tensor_rank_and_both_boxes():
    name = "model.layers.1.mlp.down_proj.weight"

    def swap_ranks(tensors, fragments):
        held = [f for f in fragments if f.tensor_id == name]
        boxes = {f.rank.tp: (f.global_offset, f.local_shape) for f in held}
        for f in held:
            offset, shape = boxes[f.rank.tp ^ 1]
            fragments.remove(f)
            fragments.append(without_id(f, global_offset=offset, local_shape=shape))
        return tensors, fragments

    findings = [f for f in findings_of(swap_ranks) if f.check == "boxes"]
    # Both directions of each of four ranks: what it lacks, and what it has too much.
    assert len(findings) == 8 and {f.tensor for f in findings} == {name}
    first = findings[0]
    assert first.rank == "dp0 pp0 ep0 tp0" and first.box == "[0:48, 0:16]"
    assert first.expected == "[0:48, 0:16]" and first.got == "[0:48, 16:32]"
    assert f"{name} dp0 pp0 ep0 tp0 [0:48, 0:16]: expected" in str(first)


def test_missing_tensors_and_wrong_types_are_named():
    def change(tensors, fragments):
        name = "model.layers.0.input_layernorm.weight"
        del tensors[name]
        fragments = [f for f in fragments if f.tensor_id != name]
        other = "model.layers.0.post_attention_layernorm.weight"
        tensors[other] = replace(tensors[other], dtype="float16")
        return tensors, fragments

    findings = findings_of(change, peers=1)
    assert any(
        f.check == "tensors" and f.tensor.endswith("input_layernorm.weight") and f.got == "missing"
        for f in findings
    )
    (dtype,) = [f for f in findings if f.check == "descriptor"]
    assert (dtype.expected, dtype.got) == ("dtype bfloat16", "dtype float16")
    assert any(f.check == "plan" and "missing tensors" in f.got for f in findings)


def test_an_exporter_that_raises_or_wavers_is_a_finding():
    suite = ConformanceSuite([model_named("llama-3-8b-small")], peers=0)

    def raises(model, layout):
        raise KeyError("q_proj")

    (finding,) = suite.check(raises, "llama-3-8b-small", "vllm-tp4").findings
    assert finding.check == "exporter" and finding.got == "KeyError: 'q_proj'"
    revisions = iter(("r1", "r2"))

    def wavers(model, layout):
        return reference_placement(model, layout, revision=next(revisions))

    (finding,) = suite.check(wavers, "llama-3-8b-small", "vllm-tp4").findings
    assert finding.check == "determinism"


def test_what_engines_refuse():
    with pytest.raises(UnsupportedLayout, match="28 units .*q_proj.weight do not divide by TP8"):
        reference_placement(model_named("qwen2.5-vl-7b"), layout_named("sglang-tp8"))
    with pytest.raises(UnsupportedLayout, match="2 query groups do not divide by TP4"):
        reference_placement(model_named("qwen3-next-80b-a3b"), layout_named("megatron-tp4-pp2"))
    with pytest.raises(UnsupportedLayout, match="vLLM's EP is TP x DP = 8, got 4"):
        reference_placement(model_named("mixtral-8x7b"), Vllm("x", tp=4, dp=2, ep=4))
    with pytest.raises(UnsupportedLayout, match="TP6 .*|do not divide by TP6"):
        reference_placement(model_named("llama-3-8b"), Sglang("x", tp=6))
    with pytest.raises(ValueError, match="no model nothing; there are: qwen3-8b"):
        model_named("nothing")
    with pytest.raises(ValueError, match="no layout nothing; there are: sglang-tp8"):
        layout_named("nothing")


def test_layouts_say_what_they_are_known_for():
    """A few numbers by hand, independent of how shares are computed."""
    llama = model_named("llama-3-8b")

    def rows(model, layout, name, tp, **rank):
        placement = reference_placement(model_named(model), layout_named(layout))
        return sorted(
            (f.global_offset[0], f.global_offset[0] + f.local_shape[0])
            for f in placement.fragments
            if f.tensor_id == name
            and f.rank.tp == tp
            and all(getattr(f.rank, axis) == value for axis, value in rank.items())
        )

    key = "model.layers.0.self_attn.k_proj.weight"
    # 8 KV heads of 128 rows on 16 ranks: two ranks hold each.
    assert rows("llama-3-8b", "sglang-tp16", key, 5) == [(256, 384)]
    # Fused: q 4096, k 1024, v 1024 rows; rank 3 of 4.
    assert rows("llama-3-8b", "vllm-tp4-fused", "model.layers.0.self_attn.qkv_proj.weight", 3) == [
        (3072, 4096),
        (4864, 5120),
        (5888, 6144),
    ]
    # Megatron: 2 of 8 groups a rank, four query heads of 128 rows each.
    query = "model.layers.0.self_attn.q_proj.weight"
    assert rows("llama-3-8b", "megatron-tp4-pp2", query, 1) == [(1024, 1536), (1536, 2048)]
    # 151936 rows padded to 128 x 4: the last rank has 37760 of 38016.
    embed = "model.embed_tokens.weight"
    assert rows("qwen3-8b", "megatron-tp4-pp2", embed, 3, pp=0) == [(114048, 151936)]
    # FSDP2: ceil(4096 / 24) = 171 rows; the last rank has 163.
    norm = "model.norm.weight"
    assert rows("llama-3-8b", "fsdp2-dp24", norm, 0, dp=23) == [(3933, 4096)]
    # Strided order: the second dp shard of the second tp half.
    assert rows("llama-3-8b", "fsdp2-dp4-tp2", key, 1, dp=1) == [(640, 768)]
    cuts = layout_named("vllm-tp2-pp4").stage_cuts(replace(llama, layers=30))
    assert cuts == (0, 7, 15, 23, 30)
    assert layout_named("sglang-tp4-pp2").stage_cuts(replace(llama, layers=61)) == (0, 30, 61)
    # Interleaved: runs of 8 of 32 layers, in turn.
    norm_of = "model.layers.{}.input_layernorm.weight".format
    placement = reference_placement(llama, layout_named("megatron-tp2-pp2-interleaved"))
    stages = {f.tensor_id: f.rank.pp for f in placement.fragments}
    assert [stages[norm_of(i)] for i in (0, 7, 8, 15, 16, 23, 24, 31)] == [0, 0, 1, 1, 0, 0, 1, 1]
    # 128 + 16 slots on 8 ranks: the last rank's end with the first 16 again.
    placement = reference_placement(
        model_named("qwen3-235b-a22b"), layout_named("sglang-tp8-ep8-redundant-fused")
    )
    slots = {
        f.slot: f.global_offset[0]
        for f in placement.fragments
        if f.tensor_id == "model.layers.7.mlp.experts.w2_weight" and f.rank.tp == 7
    }
    assert slots == {slot: (126 + slot) % 128 for slot in range(18)}


def test_draft_layers_are_left_out_by_name():
    model = model_named("deepseek-v3").small()
    serving = reference_placement(model, layout_named("sglang-tp8"))
    names = {n for f in tensor_families(model) if f.draft for n in f.names()}
    assert set(serving.omitted_tensors) == names and "model.layers.5.eh_proj.weight" in names
    assert not reference_placement(model, layout_named("sglang-tp8-draft")).omitted_tensors


# --- the command ---------------------------------------------------------------------------------

EXPORTER = """
from dataclasses import replace
from mooncake.reshard.conformance import reference_placement

def right(model, layout):
    return reference_placement(model, layout)

def wrong(model, layout):
    return reference_placement(replace(model, mlp_width=model.mlp_width // 2), layout)
"""


def command(*arguments, status=0, **options):
    done = subprocess.run(
        [sys.executable, "-m", "mooncake.cli", "conformance", *arguments],
        text=True,
        capture_output=True,
        check=False,
        **options,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stdout + done.stderr


def test_the_command(tmp_path):
    (tmp_path / "my_exporter.py").write_text(EXPORTER)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    run = {"env": os.environ | {"PYTHONPATH": path}}
    only = ("--model", "llama-3-8b", "--layout", "vllm-tp4", "--peers", "1")
    assert "1 placements, 2 plans, 0 findings" in command(
        *only, "--exporter", "my_exporter:right", **run
    )
    found = json.loads(command(*only, "--exporter", "my_exporter:wrong", "--json", status=1, **run))
    first = found["findings"][0]
    assert not found["ok"] and first["check"] == "descriptor"
    assert first["tensor"] == "model.layers.0.mlp.down_proj.weight"
    assert first["expected"] == "global_shape (48, 64)" and first["got"] == "global_shape (48, 32)"
    table = command(*only, "--exporter", "my_exporter:wrong", status=1, **run)
    assert "model.layers.0.mlp.down_proj.weight" in table and "findings" in table
    assert "no_such" in command("--exporter", "no_such:thing", status=1, **run)
    placement = reference_placement(model_named("llama-3-8b-small"), layout_named("vllm-tp4"))
    file = tmp_path / "placement.json"
    file.write_text(weight_placement_to_json(placement))
    assert "0 findings" in command(*only, "--placement", str(file))
    assert "--placement needs one --model" in command("--placement", str(file), status=1)
    listed = command("--list")
    assert "deepseek-v3" in listed and "fsdp2-hsdp-2x4" in listed

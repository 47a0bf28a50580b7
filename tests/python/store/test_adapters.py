"""Layouts and adapters against oracles that know nothing of them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap

import numpy
import pytest
import torch
from models import LAYOUTS, load_and_check, transformer
from mooncake.reshard.adapters import (
    Checkpoint,
    CheckpointAdapter,
    ParallelLayout,
    StateDictAdapter,
    TensorInfo,
    TensorRule,
    balanced_cuts,
    layout_placement,
)
from mooncake.reshard.weight import WeightIdentity, WeightStore, bind_tensors
from safetensors.torch import save_file


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_layouts_cover_every_element_as_often_as_there_are_replicas(name, identity):
    model, layout = transformer(), LAYOUTS[name]
    placement = layout_placement(model.tensors, layout, identity)
    for tensor in placement.tensors:
        counts = numpy.zeros(tensor.global_shape, dtype=int)
        for f in placement.fragments:
            if f.tensor_id == tensor.tensor_id:
                box = tuple(
                    slice(o, o + n) for o, n in zip(f.global_offset, f.local_shape, strict=True)
                )
                counts[box] += 1
        split = any(type(axis).__name__ == "SplitAxis" for axis in tensor.parallel_axes)
        assert (counts == layout.dp * (1 if split else layout.tp)).all(), tensor.tensor_id


def test_cuts():
    assert balanced_cuts(5, 4) == (0, 2, 3, 4, 5)
    assert balanced_cuts(0, 2) == (0, 0, 0)


@pytest.mark.parametrize(
    ("tp", "rule", "rows"),
    [
        (8, TensorRule("kv", 0, blocks=2), [(0, 3)] * 4 + [(3, 6)] * 4),
        (4, TensorRule("kv", 0, blocks=3), [(0, 2), (0, 2), (2, 4), (4, 6)]),
        (2, TensorRule("kv", 0, blocks=3), [(0, 4), (4, 6)]),
        (8, TensorRule("kv", 0), [(r, r + 1) for r in range(6)] + [None, None]),
        (3, TensorRule("kv", 0, (0, 4, 4, 6)), [(0, 4), None, (4, 6)]),
    ],
)
def test_fewer_pieces_than_ranks(identity, tp, rule, rows):
    layout = ParallelLayout(tp=tp, dp=2, rules=(rule,))
    placement = layout_placement({"kv": TensorInfo((6, 5), "int16", 2)}, layout, identity)
    for part in placement.parts:
        held = [(f.global_offset[0], f.global_offset[0] + f.local_shape[0]) for f in part.fragments]
        assert held == [row for row in [rows[part.rank.tp]] if row is not None]
    assert placement.extended == (tp != 2)


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (TensorRule("w", 2), r"w has shape \(6, 4\).*dimension 2"),
        (TensorRule("w", 0, (0, 3, 5)), r"cuts of w.*0 to 6.*\(0, 3, 5\)"),
        (TensorRule("w", 0, (0, 7, 6)), r"cuts of w must ascend, got \(0, 7, 6\)"),
        (TensorRule("w", 0, blocks=7), "blocks of w must be from 1 to 6 and without cuts, got 7"),
        (TensorRule("w", 0, (0, 3, 6), blocks=2), "and without cuts"),
        (TensorRule("w", stage=3), "stage of w must be below 1, got 3"),
    ],
)
def test_rules_that_cannot_apply_name_the_tensor(identity, rule, match):
    with pytest.raises(ValueError, match=match):
        layout_placement(
            {"w": TensorInfo((6, 4), "int32", 4)}, ParallelLayout(tp=2, rules=(rule,)), identity
        )


def test_checkpoint_reads_boxes_of_files_and_sharded_folders(tmp_path, store, identity):
    model = transformer()
    names = sorted(model.tensors)
    halves = [names[::2], names[1::2]]
    for index, half in enumerate(halves):
        save_file({n: model.whole(n) for n in half}, str(tmp_path / f"part-{index}.safetensors"))
    weight_map = {n: f"part-{i}.safetensors" for i, half in enumerate(halves) for n in half}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.tensors == model.tensors
    assert torch.equal(
        checkpoint.read("embed.weight", (3, 5), (2, 7)), model.whole("embed.weight")[3:5, 5:12]
    )
    adapter = CheckpointAdapter(identity, LAYOUTS["tp2-pp2"])
    with store.weight_put(checkpoint, adapter) as writer:
        for tensor_id, tensor in adapter.tensors(checkpoint):
            writer.weight_put_tensor(tensor_id, tensor)
    load_and_check(store, model, LAYOUTS["tp3-unequal"], identity)


def test_damaged_checkpoints_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no safetensors file"):
        Checkpoint(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(ValueError, match="a.safetensors is not a safetensors file"):
        Checkpoint(tmp_path)
    save_file({"x": torch.zeros(3)}, str(tmp_path / "a.safetensors"))
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(whole[:20])
    with pytest.raises(ValueError, match="cut short"):
        Checkpoint(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(whole)
    save_file({"x": torch.zeros(3)}, str(tmp_path / "b.safetensors"))
    with pytest.raises(ValueError, match="tensor x is in"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.zeros(4, 6).t(), "non-contiguous"),
        (torch.zeros(8)[::2], "non-contiguous"),
    ],
)
def test_what_cannot_be_published_is_refused_by_name(identity, value, reason):
    with pytest.raises(ValueError, match=f"the.culprit.*{reason}"):
        StateDictAdapter(identity).placement({"fine": torch.zeros(2), "the.culprit": value})


_JOB = textwrap.dedent(
    """
    import sys
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )
    from mooncake.reshard.adapters import StateDictAdapter
    from mooncake.reshard.weight import WeightIdentity, WeightStore

    target, kind = sys.argv[1:]
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    model = torch.nn.Sequential(torch.nn.Linear(12, 10), torch.nn.Linear(10, 7, bias=False))
    whole = {k: v.detach().clone() for k, v in model.state_dict().items()}
    if kind == "fsdp2":
        mesh = init_device_mesh("cpu", (4,))
        fully_shard(model, mesh=mesh)
        state = model.state_dict()
    elif kind == "fsdp2-over-tp":  # both cut rows of "0.weight"; oddities beside them
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        state = model.state_dict()
        whole["three"] = torch.arange(3.0)
        state["three"] = distribute_tensor(whole["three"], mesh, [Shard(0), Shard(0)])
        whole["grid"] = torch.arange(15.0).reshape(3, 5)
        state["grid"] = distribute_tensor(whole["grid"], mesh, [Shard(0), Shard(1)])
        whole["step"] = state["step"] = torch.tensor(77.0)
        whole["none"] = state["none"] = torch.zeros(0, 3)
    else:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "tp"))
        cut = {"0.weight": Shard(0), "0.bias": Shard(0), "1.weight": Shard(1)}
        state = {k: distribute_tensor(v, mesh, [Replicate(), cut[k]]) for k, v in whole.items()}
    identity = WeightIdentity("tests", kind, "r", 1)
    adapter = StateDictAdapter(identity)
    with WeightStore(target) as store:
        with store.weight_put(state, adapter) as writer:
            for name, tensor in adapter.tensors(state):
                writer.weight_put_tensor(name, tensor)
    if dist.get_rank() == 0:
        torch.save(whole, sys.argv[0] + ".whole")
    dist.destroy_process_group()
    """
)


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp2-over-tp", "tp-replicas"])
def test_torch_jobs_publish_their_dtensors(cluster, tmp_path, kind):
    script = tmp_path / "job.py"
    script.write_text(_JOB)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(4):
        environment = os.environ | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": "4",
            "OMP_NUM_THREADS": "1",
        }
        ranks.append(
            subprocess.Popen(
                [sys.executable, str(script), cluster.target, kind],
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for process in ranks:
            _, errors = process.communicate(timeout=150)
            assert process.returncode == 0, errors
    finally:
        for process in ranks:
            process.kill()
    whole = torch.load(f"{script}.whole")
    identity = WeightIdentity("tests", kind, "r", 1)
    adapter = StateDictAdapter(identity)
    loaded = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
    placement = adapter.placement(loaded)
    with WeightStore(cluster.target) as store:
        store.weight_get(identity, placement, bind_tensors(placement, "rank00000", loaded))
    for name, tensor in whole.items():
        assert torch.equal(loaded[name], tensor), name

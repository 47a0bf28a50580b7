"""Limits that the caller sets, and what is said to a caller who asks for the impossible."""

from __future__ import annotations

import functools
import os
import signal
import time
import warnings
from pathlib import Path

import numpy
import pytest
import torch
from models import LAYOUTS, load_and_check, publish, transformer
from mooncake import _core
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.adapters import StateDictAdapter, TensorInfo, layout_placement, state_dict
from mooncake.reshard.adapters.layout import ParallelLayout
from mooncake.reshard.weight import WeightIdentity, WeightStore, bind_tensors
from mooncake.reshard.weight.errors import (
    WeightExhaustedError,
    WeightInvalidArgumentError,
    WeightNotFoundError,
    WeightNotReadyError,
    WeightOutcomeUnknownError,
    WeightUnavailableError,
)
from polling import wait_until


def stop(pid):
    """SIGSTOP, and until no thread of the process runs any more: a busy host takes its time."""
    os.kill(pid, signal.SIGSTOP)

    def states():
        stats = Path(f"/proc/{pid}/task").glob("*/stat")
        return {stat.read_text().rsplit(")", 1)[1].split()[0] for stat in stats}

    wait_until(lambda: states() == {"T"})


def test_a_stopped_node_holds_nobody_up_for_longer_than_asked(tmp_path):
    identity = WeightIdentity("tests", "model", "r", 1)
    model = transformer()
    with LocalCluster(nodes=1, capacity="256MiB", folder=tmp_path, log_level="warning") as cluster:
        with WeightStore(cluster.target) as store:
            publish(store, model, LAYOUTS["tp1"], identity)
        with WeightStore(cluster.target, retry_ms=1_000) as store:
            stop(cluster.nodes[0].pid)
            try:
                begin = time.monotonic()
                with pytest.raises((WeightUnavailableError, WeightNotReadyError)) as error:
                    load_and_check(store, model, LAYOUTS["tp1"], identity)
                # The limit, a release and the wait for a slow machine: far from a minute.
                assert time.monotonic() - begin < 20, error.value
                assert "no byte of a target was written" in str(error.value)
                begin = time.monotonic()
                with pytest.raises((WeightUnavailableError, WeightExhaustedError)) as error:
                    publish(store, model, LAYOUTS["tp1"], WeightIdentity("tests", "m", "r", 2))
                assert time.monotonic() - begin < 20, error.value
            finally:
                os.kill(cluster.nodes[0].pid, signal.SIGCONT)
            wait_until(lambda: store.weight_is_exist(identity))
            load_and_check(store, model, LAYOUTS["tp1"], identity)


def test_a_stopped_master_holds_nobody_up_for_longer_than_asked(tmp_path):
    identity = WeightIdentity("tests", "model", "r", 1)
    model = transformer()
    with LocalCluster(nodes=1, capacity="256MiB", folder=tmp_path, log_level="warning") as cluster:
        store = WeightStore(cluster.target, retry_ms=1_000)
        publish(store, model, LAYOUTS["tp1"], identity)
        stop(cluster.master.pid)
        try:
            begin = time.monotonic()
            for call in (
                lambda: store.weight_is_exist(identity),
                lambda: load_and_check(store, model, LAYOUTS["tp1"], identity),
                lambda: store.weight_remove(identity),
                lambda: WeightStore(cluster.target, retry_ms=1_000),
            ):
                with pytest.raises((WeightUnavailableError, WeightOutcomeUnknownError)):
                    call()
            with store:
                pass
            # Five limits of a second each, and the wait for a slow machine.
            assert time.monotonic() - begin < 30
        finally:
            os.kill(cluster.master.pid, signal.SIGCONT)


def test_a_node_takes_no_other_clusters_folder(tmp_path):
    identity = WeightIdentity("tests", "model", "r", 1)
    options = {"nodes": 1, "capacity": "256MiB", "log_level": "warning"}
    with LocalCluster(folder=tmp_path / "a", **options) as first:
        with WeightStore(first.target) as store:
            publish(store, transformer(), LAYOUTS["tp1"], identity)
    (tmp_path / "b").mkdir()
    os.rename(tmp_path / "a" / "node0", tmp_path / "b" / "node0")
    kept = sorted(path for path in (tmp_path / "b" / "node0" / "metadata").rglob("*"))
    assert len(kept) >= 4
    with pytest.raises(RuntimeError, match="has the folder of cluster [0-9a-f]{32}, this is"):
        LocalCluster(folder=tmp_path / "b", **options).start()
    assert sorted(path for path in (tmp_path / "b" / "node0" / "metadata").rglob("*")) == kept


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("retry_ms", -1),
        ("retry_ms", 1.5),
        ("retry_ms", 2**70),
        ("lease_ttl_ms", -5),
        ("lease_ttl_ms", "10"),
        ("import_ttl_ms", 0),
        ("import_ttl_ms", True),
        ("capacity_bytes", -1),
        ("threads", None),
        ("target", 5),
    ],
)
def test_impossible_options_are_named(tmp_path, field, value):
    options = {"target": f"file://{tmp_path / 'store'}", field: value}
    with pytest.raises(WeightInvalidArgumentError) as error:
        WeightStore(**options)
    assert field in str(error.value) and repr(value) in str(error.value)
    assert not (tmp_path / "store").exists()


def test_impossible_arguments_are_named(store, identity):
    model = transformer()

    def refused(text, call, *arguments, **options):
        with pytest.raises(WeightInvalidArgumentError) as error:
            call(*arguments, **options)
        assert text in str(error.value)

    for timeout in ("soon", float("nan"), None, True):
        refused(
            f"timeout must be a number of seconds (negative: for ever), got {timeout!r}",
            publish,
            store,
            model,
            LAYOUTS["tp1"],
            identity,
            timeout=timeout,
        )
        refused(f"got {timeout!r}", store.weight_remove, identity, timeout=timeout)
    publish(store, model, LAYOUTS["tp1"], identity, timeout=float("inf"))
    for generation in (-1, 2**64, "1"):
        refused(
            f"expected_metadata_generation must be 0 .. {2**64 - 1}, got {generation!r}",
            store.weight_remove,
            identity,
            expected_metadata_generation=generation,
        )
    refused("namespace must be a str, got int 7", store.weight_list, 7)
    refused("page_token must be a str, got int 7", store.weight_list, page_token=7)
    refused("availability: 'gone'", store.weight_list, availability=["gone"])
    refused("page_size must be 1 .. 1000, got 0", store.weight_list, page_size=0)
    refused(
        "verify must be a bool, got int 1",
        load_and_check,
        store,
        model,
        LAYOUTS["tp1"],
        identity,
        verify=1,
    )
    refused(
        "progress must be callable, got 5",
        load_and_check,
        store,
        model,
        LAYOUTS["tp1"],
        identity,
        progress=5,
    )
    with pytest.raises(_core.StoreError, match="threads must be 1 to 1024, got 0"):
        _core.copy_strided(0, 0, 0, [], [], [], 0)
    store.weight_remove(identity, timeout=-1)


class NotATensor:
    pass


@functools.cache
def _strange_values():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about its own future
        return list(_make_strange_values())


def _make_strange_values():
    dense = torch.ones(2, 3, dtype=torch.complex64)
    yield "sparse", torch.eye(3).to_sparse(), "layout torch.sparse_coo has no plain memory"
    yield "csr", torch.eye(3).to_sparse_csr(), "layout torch.sparse_csr has no plain memory"
    yield "conjugate", dense.conj(), "a pending conjugate or negation has no plain memory"
    yield "negative", dense.conj().imag, "a pending conjugate or negation has no plain memory"
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    yield "quantized", quantized, "a quantized tensor (torch.qint8)"
    yield "elsewhere", torch.empty(3, device="meta"), "must be in host memory, got device meta"


@pytest.mark.parametrize(
    ("name", "value", "why"), _strange_values(), ids=[v[0] for v in _strange_values()]
)
def test_a_tensor_that_is_not_its_memory_is_named(name, value, why):
    identity = WeightIdentity("tests", "model", "r", 1)
    entry = f"layer.{name}"
    with pytest.raises(ValueError) as error:
        StateDictAdapter(identity).placement({"a": torch.ones(3), entry: value})
    assert str(error.value).startswith(f"{entry}: ") and why in str(error.value)
    infos = {entry: TensorInfo((3,), "float32", 4)}
    placement = layout_placement(infos, ParallelLayout(), identity)
    with pytest.raises(ValueError) as error:
        bind_tensors(placement, placement.parts[0].participant_id, {entry: value})
    assert str(error.value).startswith(f"{entry}: ") and why in str(error.value)


@pytest.mark.parametrize("value", [None, 3, [1.0], NotATensor(), numpy.ones(3)])
def test_a_value_that_is_no_tensor_is_named(value):
    adapter = StateDictAdapter(WeightIdentity("tests", "model", "r", 1))
    with pytest.raises(ValueError, match=r"layer\.extra must be a torch tensor, got .*\."):
        adapter.placement({"a": torch.ones(3), "layer.extra": value})
    with pytest.raises(ValueError, match="names of a state dict must be strings, got 5"):
        adapter.placement({5: torch.ones(3)})


def test_a_put_names_the_tensor_that_has_no_memory(store, identity):
    state = {"a.weight": torch.ones(3, 3)}
    adapter = StateDictAdapter(identity)
    with pytest.raises(KeyboardInterrupt):
        with store.weight_put(state, adapter) as writer:
            for value in (torch.eye(3).to_sparse(), object(), torch.empty(3, 3, device="meta")):
                with pytest.raises(WeightInvalidArgumentError, match=r"a\.weight: a tensor"):
                    writer.weight_put_tensor("a.weight", value)
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["模" * 85, "p" * 256, "..", "a/b %", "\U0001f9e9" * 64])
def test_any_participant_name_within_the_limit_works(store, identity, name, monkeypatch):
    monkeypatch.setattr(state_dict, "_participant", lambda rank: name)
    state = {"w": torch.arange(12, dtype=torch.float32).reshape(3, 4)}
    adapter = StateDictAdapter(identity)
    with store.weight_put(state, adapter) as writer:
        writer.weight_put_tensor("w", state["w"])
    placement = adapter.placement(state)
    target = {"w": torch.zeros(3, 4)}
    store.weight_get(identity, placement, bind_tensors(placement, name, target))
    assert torch.equal(target["w"], state["w"])


@pytest.mark.parametrize("name", ["模" * 86, "p" * 257])
def test_a_participant_name_over_the_limit_is_refused_before_anything(
    store, identity, name, monkeypatch
):
    monkeypatch.setattr(state_dict, "_participant", lambda rank: name)
    with pytest.raises(WeightInvalidArgumentError) as error:
        store.weight_put({"w": torch.ones(3)}, StateDictAdapter(identity))
    assert "participant_id" in str(error.value) and "256" in str(error.value)
    assert str(len(name.encode())) in str(error.value)
    with pytest.raises(WeightNotFoundError):
        store.weight_get_metadata(identity)

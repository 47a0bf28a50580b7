"""Publish in one layout, load into every other; what is refused changes nothing."""

from __future__ import annotations

import random
import threading

import numpy
import pytest
import torch
from models import LAYOUTS, load_and_check, publish, transformer
from mooncake.reshard.adapters import (
    CheckpointAdapter,
    ParallelLayout,
    StateDictAdapter,
    TensorInfo,
    layout_placement,
)
from mooncake.reshard.weight import (
    StoredWeightManifest,
    WeightAvailability,
    WeightIdentity,
    WeightManifest,
    WeightMigrationMode,
    WeightResidencyState,
    WeightStoragePolicy,
    WeightStore,
    bind_tensors,
)
from mooncake.reshard.weight.errors import (
    WeightConflictError,
    WeightExhaustedError,
    WeightInvalidArgumentError,
    WeightNotFoundError,
    WeightPolicyUnsatisfiableError,
    WeightStaleGenerationError,
    WeightUnavailableError,
)


@pytest.mark.parametrize("source", ["tp4-dp2", "tp2-pp2", "tp3-unequal", "tp4-across"])
def test_every_layout_from_every_layout(store, identity, source):
    model = transformer()
    writer = publish(store, model, LAYOUTS[source], identity)
    assert writer.metadata.availability is WeightAvailability.READY
    assert writer.metadata.observed_residency is WeightResidencyState.HOT
    size = sum(info.nbytes for info in model.tensors.values())
    assert writer.metadata.logical_payload_bytes == store.weight_get_size(identity) == size
    for layout in LAYOUTS.values():
        manifest = load_and_check(store, model, layout, identity)
        assert isinstance(manifest, WeightManifest) and StoredWeightManifest is WeightManifest
        assert manifest.manifest_digest == writer.metadata.manifest_sha256
    assert store.weight_get_metadata(identity).metadata.active_lease_count == 0


def test_several_participants_in_one_load(store, identity):
    model = transformer()
    publish(store, model, LAYOUTS["tp4-dp2"], identity)
    placement = layout_placement(model.tensors, LAYOUTS["tp2-pp2"], identity)
    buffers, bindings = {}, []
    for part in placement.parts:
        mine = {f.tensor_id: torch.zeros(f.local_shape, dtype=torch.int32) for f in part.fragments}
        buffers[part.participant_id] = mine
        bindings.append(bind_tensors(placement, part.participant_id, mine))
    seen = []
    store.weight_get(identity, placement, bindings, progress=seen.append)
    for part in placement.parts:
        for f in part.fragments:
            expected = model.read(f.tensor_id, f.global_offset, f.local_shape)
            assert torch.equal(buffers[part.participant_id][f.tensor_id], expected)
    assert seen[-1].done and seen[-1].bytes_moved == seen[-1].bytes_needed > 0


def test_dtypes_and_tied_embeddings_are_bit_exact(store, identity):
    def bits(dtype, count):
        generator = numpy.random.default_rng(7)
        raw = torch.from_numpy(
            generator.integers(0, 256, count * dtype.itemsize, dtype=numpy.uint8)
        )
        return raw.view(dtype)

    embedding = bits(torch.bfloat16, 40 * 8).reshape(40, 8)  # NaN patterns included
    state = {
        "embed": embedding,
        "lm_head": embedding,
        "scale": bits(torch.float8_e4m3fn, 64).reshape(8, 8),
        "wide": bits(torch.float8_e5m2, 3 * 7).reshape(3, 7),
        "codes": bits(torch.int8, 33),
        "mask": torch.tensor([[True, False], [False, True], [True, True]]),
        "phase": bits(torch.complex64, 9).reshape(3, 3),
        "large": bits(torch.float64, 1 << 17).reshape(2, 1 << 16),
    }
    adapter = StateDictAdapter(identity)
    with store.weight_put(state, adapter) as writer:
        for tensor_id, tensor in adapter.tensors(state):
            writer.weight_put_tensor(tensor_id, tensor)
    placement = adapter.placement(state)
    assert next(f for f in placement.fragments if f.tensor_id == "embed").aliases == (
        "embed",
        "lm_head",
    )
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    store.weight_get(identity, placement, bind_tensors(placement, "rank00000", loaded))
    for name, tensor in state.items():
        raw, got = (t.contiguous().reshape(-1).view(torch.uint8) for t in (tensor, loaded[name]))
        assert torch.equal(raw, got), name


def test_numpy_and_buffers_are_tensors_too(store, identity):
    model = transformer()
    adapter = CheckpointAdapter(identity)
    with store.weight_put(model, adapter) as writer:
        for index, (tensor_id, tensor) in enumerate(adapter.tensors(model)):
            array = tensor.numpy()
            writer.weight_put_tensor(tensor_id, array if index % 2 else memoryview(array))
    load_and_check(store, model, LAYOUTS["tp2-pp2"], identity)


def test_the_same_publish_again_is_recognised(store, target, identity):
    model = transformer()
    first = publish(store, model, LAYOUTS["tp2-pp2"], identity)
    assert not first.already_published
    again = publish(store, model, LAYOUTS["tp2-pp2"], identity)
    assert again.already_published
    assert again.metadata == first.metadata


def test_an_embedded_store_outlives_its_process(tmp_path, identity):
    uri = f"file://{tmp_path / 'store'}"
    model = transformer()
    with WeightStore(uri) as store:
        first = publish(store, model, LAYOUTS["tp2-pp2"], identity).metadata
        with pytest.raises(WeightUnavailableError, match=str(tmp_path)):
            WeightStore(uri, retry_ms=0)
    with WeightStore(uri) as store:
        assert store.weight_get_metadata(identity).metadata == first
        load_and_check(store, model, LAYOUTS["tp3-unequal"], identity)
        assert publish(store, model, LAYOUTS["tp2-pp2"], identity).already_published


def test_other_bytes_or_another_layout_under_the_same_name_conflict(store, identity):
    model = transformer()
    publish(store, model, LAYOUTS["tp2-pp2"], identity)
    with pytest.raises(WeightConflictError):
        publish(store, transformer(salt=1), LAYOUTS["tp2-pp2"], identity)
    with pytest.raises(WeightConflictError):
        publish(store, model, LAYOUTS["tp3-unequal"], identity)
    load_and_check(store, model, LAYOUTS["tp1"], identity)


def test_two_publishers_race_and_never_blend(store, identity):
    models = [transformer(), transformer(salt=5)]
    outcomes: list = [None, None]
    start = threading.Barrier(2)

    def run(index):
        start.wait(30)
        try:
            outcomes[index] = publish(store, models[index], LAYOUTS["tp2-pp2"], identity)
        except WeightConflictError as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    conflicts = [isinstance(outcome, WeightConflictError) for outcome in outcomes]
    assert sorted(conflicts) == [False, True], outcomes
    load_and_check(store, models[conflicts.index(False)], LAYOUTS["tp4-across"], identity)


def test_a_publisher_that_raises_leaves_nothing(store, identity):
    model = transformer()
    adapter = CheckpointAdapter(identity)
    with pytest.raises(RuntimeError, match="out of coffee"):
        with store.weight_put(model, adapter) as writer:
            writer.weight_put_tensor("embed.weight", model.whole("embed.weight"))
            assert not store.weight_is_exist(identity)
            raise RuntimeError("out of coffee")
    assert not store.weight_is_exist(identity)
    with pytest.raises(WeightNotFoundError):
        store.weight_get_metadata(identity)
    publish(store, model, LAYOUTS["tp1"], identity)
    load_and_check(store, model, LAYOUTS["tp2-pp2"], identity)


def test_a_forgotten_tensor_is_named_and_aborts(store, identity):
    model = transformer()
    adapter = CheckpointAdapter(identity)
    with pytest.raises(WeightInvalidArgumentError, match="layers.1.up.weight"):
        with store.weight_put(model, adapter) as writer:
            for tensor_id, tensor in adapter.tensors(model):
                if tensor_id != "layers.1.up.weight":
                    writer.weight_put_tensor(tensor_id, tensor)
    assert not store.weight_is_exist(identity)
    publish(store, model, LAYOUTS["tp1"], identity)


def test_wrong_tensors_are_refused_and_the_writer_goes_on(store, identity):
    model = transformer()
    adapter = CheckpointAdapter(identity)
    with store.weight_put(model, adapter) as writer:
        whole = model.whole("embed.weight")
        with pytest.raises(
            WeightInvalidArgumentError, match=r"embed.weight.*\(515, 64\).*\(64, 515\)"
        ):
            writer.weight_put_tensor("embed.weight", whole.t().contiguous())
        with pytest.raises(WeightInvalidArgumentError, match="embed.weight.*int32.*float32"):
            writer.weight_put_tensor("embed.weight", whole.float())
        with pytest.raises(WeightInvalidArgumentError, match="embed.weight.*non-contiguous"):
            writer.weight_put_tensor("embed.weight", whole.numpy()[::-1])
        with pytest.raises(WeightInvalidArgumentError, match="no fragment of tensor nobody"):
            writer.weight_put_tensor("nobody", whole)
        with pytest.raises(WeightInvalidArgumentError, match="buffer protocol"):
            writer.weight_put_tensor("embed.weight", [1, 2])
        for tensor_id, tensor in adapter.tensors(model):
            if tensor_id == "embed.weight":
                tensor = tensor.t().contiguous().t()  # strided memory is read as it lies
            writer.weight_put_tensor(tensor_id, tensor)
    load_and_check(store, model, LAYOUTS["tp1"], identity)


def test_targets_that_do_not_fit_are_refused_untouched(store, identity):
    model = transformer()
    publish(store, model, LAYOUTS["tp2-pp2"], identity)

    def attempt(
        tensors, layout=LAYOUTS["tp1"], of=identity, expect=WeightInvalidArgumentError, match=""
    ):
        placement = layout_placement(tensors, layout, of)
        part = placement.parts[0]
        dtypes = {t.tensor_id: getattr(torch, t.dtype) for t in part.tensors}
        buffers = {
            f.tensor_id: torch.full(f.local_shape, 3, dtype=dtypes[f.tensor_id])
            for f in part.fragments
        }
        with pytest.raises(expect, match=match):
            store.weight_get(
                identity, placement, bind_tensors(placement, part.participant_id, buffers)
            )
        assert all(bool((b == 3).all()) for b in buffers.values()), "a refused target was written"

    good = dict(model.tensors)
    attempt({**good, "norm.weight": TensorInfo((65,), "int32", 4)}, match="norm.weight")
    attempt({**good, "norm.weight": TensorInfo((64,), "float32", 4)}, match="norm.weight")
    attempt({**good, "stranger": TensorInfo((4,), "int32", 4)}, match="stranger")
    attempt(good, of=WeightIdentity("tests", "model", "other", 1), match="revision")
    attempt(good, of=WeightIdentity("tests", "model", identity.revision, 2), match="generation")


def test_overlapping_target_buffers_are_refused(store, identity):
    model = transformer()
    publish(store, model, LAYOUTS["tp1"], identity)
    placement = layout_placement(model.tensors, LAYOUTS["tp1"], identity)
    part = placement.parts[0]
    buffers = {f.tensor_id: torch.full(f.local_shape, 3, dtype=torch.int32) for f in part.fragments}
    buffers["layers.1.up.weight"] = buffers["layers.0.up.weight"]
    with pytest.raises(WeightInvalidArgumentError, match="overlap"):
        store.weight_get(identity, placement, bind_tensors(placement, part.participant_id, buffers))
    assert all(bool((b == 3).all()) for b in buffers.values())


def test_unknown_removed_and_reused_identities(store, identity):
    model = transformer()
    with pytest.raises(WeightNotFoundError):
        load_and_check(store, model, LAYOUTS["tp1"], identity)
    publish(store, model, LAYOUTS["tp1"], identity)
    assert store.weight_is_exist(identity)
    generation = store.weight_get_metadata(identity).metadata.metadata_generation
    with pytest.raises(WeightStaleGenerationError, match=str(generation + 7)):
        store.weight_remove(identity, expected_metadata_generation=generation + 7)
    tombstone = store.weight_remove(identity, expected_metadata_generation=generation)
    assert tombstone.availability is WeightAvailability.DELETED
    assert tombstone.observed_residency is WeightResidencyState.ABSENT
    assert store.weight_remove(identity) == tombstone
    assert not store.weight_is_exist(identity)
    assert store.weight_get_metadata(identity).metadata == tombstone
    with pytest.raises(WeightStaleGenerationError):
        publish(store, model, LAYOUTS["tp1"], identity)


def test_listing_pages_in_order_and_sees_only_ready(store, identity):
    model = transformer()
    name = identity.revision
    wanted = [WeightIdentity("pages-" + name, "m", "r", g) for g in (1, 2, 3, 10)]
    for each in wanted:
        publish(store, model, LAYOUTS["tp1"], each)
    found, token = [], ""
    while True:
        page = store.weight_list("pages-" + name, page_size=3, page_token=token)
        assert len(page) <= 3
        found += [view.identity for view in page]
        token = page.next_page_token
        if not token:
            break
    assert found == wanted
    store.weight_remove(wanted[1])
    assert [v.identity for v in store.weight_list("pages-" + name)] == wanted[:1] + wanted[2:]
    deleted = store.weight_list("pages-" + name, availability=[WeightAvailability.DELETED])
    assert [v.identity for v in deleted] == [wanted[1]]
    assert len(store.weight_list("pages-" + name, tenant_id="somebody-else")) == 0


def test_a_full_store_refuses_and_is_unchanged(tmp_path, identity):
    with WeightStore(f"file://{tmp_path / 'small'}", capacity_bytes=4 << 20) as store:
        model = transformer()
        publish(store, model, LAYOUTS["tp1"], identity)
        big = {"w": torch.zeros(1 << 21)}
        other = WeightIdentity("tests", "big", "r", 1)
        adapter = StateDictAdapter(other)
        with pytest.raises(WeightExhaustedError, match=r"\d+.*bytes.*\d+.*free"):
            store.weight_put(big, adapter)
        assert not store.weight_is_exist(other)
        load_and_check(store, model, LAYOUTS["tp2-pp2"], identity)
        store.weight_remove(identity)
        publish(store, model, LAYOUTS["tp1"], WeightIdentity("tests", "model", "again", 1))


def test_what_a_removal_frees_is_there_for_the_next_publish(tmp_path):
    chance = random.Random(20261130)
    tensors = {"w": torch.arange(700_000, dtype=torch.int32)}
    with WeightStore(f"file://{tmp_path / 'small'}", capacity_bytes=4 << 20) as store:
        for number in range(15):
            identity = WeightIdentity("tests", "turns", f"r{number}", 1)
            adapter = StateDictAdapter(identity)
            with store.weight_put(tensors, adapter) as writer:
                writer.weight_put_tensor("w", tensors["w"])
            store.weight_remove(identity)
            for _ in range(chance.randrange(300)):  # to anywhere between two reports of the node
                assert not store.weight_is_exist(identity)


def test_policies(store, identity):
    model = transformer()
    metadata = publish(store, model, LAYOUTS["tp1"], identity).metadata
    assert metadata.policy.preferred_residency is WeightResidencyState.HOT
    assert "HOT" in metadata.state_reason
    with pytest.raises(WeightPolicyUnsatisfiableError):
        publish(
            store,
            model,
            LAYOUTS["tp1"],
            WeightIdentity("tests", "model", identity.revision + "-cold", 1),
            policy=WeightStoragePolicy(WeightResidencyState.COLD),
        )
    hot = WeightStoragePolicy(WeightResidencyState.HOT, migration_mode=WeightMigrationMode.PINNED)
    other = WeightIdentity("tests", "model", identity.revision + "-hot", 1)
    assert publish(store, model, LAYOUTS["tp1"], other, policy=hot).metadata.policy == hot
    with pytest.raises(ValueError, match="mixed_hot_ratio"):
        WeightStoragePolicy(mixed_hot_ratio=1.0)


def test_a_progress_callback_that_raises_cancels(store, identity):
    model = transformer()
    publish(store, model, LAYOUTS["tp1"], identity)
    placement = layout_placement(model.tensors, ParallelLayout(), identity)
    part = placement.parts[0]
    buffers = {f.tensor_id: torch.zeros(f.local_shape, dtype=torch.int32) for f in part.fragments}

    def refuse(progress):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        store.weight_get(
            identity,
            placement,
            bind_tensors(placement, part.participant_id, buffers),
            progress=refuse,
        )
    assert store.weight_get_metadata(identity).metadata.active_lease_count == 0
    store.weight_remove(identity)


def test_public_methods_are_the_rfcs(store):
    allowed = {
        "weight_put",
        "weight_get",
        "weight_is_exist",
        "weight_get_metadata",
        "weight_get_size",
        "weight_list",
        "weight_remove",
    }
    assert {name for name in dir(store) if not name.startswith("_")} == allowed


@pytest.mark.parametrize(
    "uri", ["", "localhost:1", "http://x", "mooncake://", "mooncake://host", "file://relative"]
)
def test_bad_targets_are_named(uri):
    with pytest.raises(WeightInvalidArgumentError, match=repr(uri)[1:-1] or "empty"):
        WeightStore(uri)

"""Replicas of one box are compared at publish; a fragment is chosen among several by its id."""

from __future__ import annotations

import math
import threading

import numpy
import pytest
import torch
from mooncake.reshard.adapters import ParallelLayout, TensorInfo, TensorRule, layout_placement
from mooncake.reshard.weight import (
    ParallelRank,
    ParallelTopology,
    PlacementFragment,
    TopologyParticipant,
    WeightPlacementManifest,
    WeightStore,
    bind_tensors,
)
from mooncake.reshard.weight.errors import WeightConflictError, WeightInvalidArgumentError
from mooncake.reshard.weight.extended import ExtendedTensor, OwnedBox

SHAPES = {"norm": (7,), "table": (300, 300), "w": (64, 8)}
RULES = (TensorRule("w", 0),)


def whole(name):
    count = math.prod(SHAPES[name])
    return torch.arange(count, dtype=torch.int32).reshape(SHAPES[name])


class Ranks:
    """An adapter for some participants of a tp x dp layout; `flip` is whose bytes are wrong."""

    def __init__(self, identity, ranks, flip=("", ""), dp=1):
        infos = {name: TensorInfo(shape, "int32", 4) for name, shape in SHAPES.items()}
        layout = ParallelLayout(tp=2, dp=dp, rules=RULES)
        self._identity, self._made = identity, layout_placement(infos, layout, identity)
        self._ranks, self._flip = ranks, flip

    def identity(self, snapshot):
        return self._identity

    def placement(self, snapshot):
        return self._made

    def participants(self, snapshot):
        ids = [part.participant_id for part in self._made.parts]
        return ids if self._ranks is None else [ids[rank] for rank in self._ranks]

    def tensors(self, snapshot):
        raise NotImplementedError("the tests hand in each participant's own")

    def put(self, writer):
        for part in self._made.parts:
            if part.participant_id not in self.participants(None):
                continue
            for fragment in part.fragments:
                box = zip(fragment.global_offset, fragment.local_shape, strict=True)
                local = whole(fragment.tensor_id)[tuple(slice(o, o + e) for o, e in box)].clone()
                if (part.participant_id, fragment.tensor_id) == self._flip:
                    local.view(-1)[-1] ^= 1 << 20
                writer.weight_put_tensor(
                    fragment.tensor_id, local, participant_id=part.participant_id
                )


def publish(store, adapter, **options):
    with store.weight_put(None, adapter, **options) as writer:
        adapter.put(writer)
    return writer.metadata


def participant_ids(identity, dp=1):
    return Ranks(identity, None, dp=dp).participants(None)


@pytest.mark.parametrize("name", ["norm", "table"])
def test_a_flipped_byte_is_every_ranks_conflict(cluster, identity, name):
    ids = participant_ids(identity)
    errors: list = [None, None]

    def run(rank, flip):
        try:
            with WeightStore(cluster.target) as store:
                publish(store, Ranks(identity, [rank], flip))
        except WeightConflictError as error:
            errors[rank] = error

    def run_both(flip):
        threads = [threading.Thread(target=run, args=(rank, flip)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run_both((ids[1], name))
    assert str(errors[0]) == str(errors[1])
    for part in (f"tensor {name}, box", ids[0], ids[1], "tp=1"):
        assert part in str(errors[0])
    with WeightStore(cluster.target) as store:
        assert not store.weight_is_exist(identity)
        errors[:] = [None, None]
        run_both(("", ""))
        assert errors == [None, None] and store.weight_is_exist(identity)


def test_scopes(store, identity):
    ids = participant_ids(identity, dp=2)
    other_dp = Ranks(identity, None, (ids[2], "w"), dp=2)
    with pytest.raises(WeightConflictError, match=f"tensor w, box .*{ids[2]}"):
        publish(store, other_dp, verify_replicas="all")
    published = publish(store, other_dp)  # not looked at
    assert publish(store, Ranks(identity, None, dp=2)).manifest_sha256 == published.manifest_sha256
    with pytest.raises(WeightConflictError, match="verify_replicas"):
        publish(store, other_dp, verify_replicas=False)


def test_ranks_of_replicas_need_not_come_without_comparing(store, identity):
    # Both ranks own rows of w; with dp=2 the second replica is nobody's to wait for.
    publish(store, Ranks(identity, [0, 1], dp=2))
    assert store.weight_is_exist(identity)


@pytest.mark.parametrize("value", ["none", "ALL", 1, 0, None, [], b"all"])
def test_values_that_mean_nothing(store, identity, value):
    with pytest.raises(WeightInvalidArgumentError, match="verify_replicas must be True, False or"):
        store.weight_put(None, Ranks(identity, None), verify_replicas=value)


# ---- several fragments of one tensor on one participant ----


class Experts:
    """Four experts: w0 has 0, 2 and 3, w1 has 1 and 3 again."""

    HELD = (("w0", 0), ("w0", 2), ("w0", 3), ("w1", 1), ("w1", 3))

    def __init__(self, identity):
        ranks = {"w0": ParallelRank(tp=0), "w1": ParallelRank(tp=1)}
        box = {expert: ((expert, 0), (1, 6)) for expert in range(4)}
        owners = {expert: [w for w, held in self.HELD if held == expert] for expert in range(4)}
        tensor = ExtendedTensor(
            "experts",
            (4, 6),
            "int32",
            4,
            (),
            "v1",
            (),
            ownership=(tuple(OwnedBox(*box[e], tuple(owners[e])) for e in range(4)),),
        )
        self.fragments = [
            PlacementFragment("experts", *box[expert], 24, ranks[worker])
            for worker, expert in self.HELD
        ]
        self._identity = identity
        self.made = WeightPlacementManifest.from_fragments(
            resource_id=identity.resource_id,
            revision=identity.revision,
            weight_generation=identity.weight_generation,
            placement_set_id="s",
            topology=ParallelTopology(
                tp_size=2,
                pp_size=1,
                ep_size=1,
                dp_size=1,
                participants=[TopologyParticipant(w, rank) for w, rank in ranks.items()],
            ),
            tensors=[tensor],
            fragments=self.fragments,
        )

    def identity(self, snapshot):
        return self._identity

    def placement(self, snapshot):
        return self.made

    def participants(self, snapshot):
        return ["w0", "w1"]

    def tensors(self, snapshot):
        raise NotImplementedError


def expert(number):
    return numpy.full((1, 6), number * 11, numpy.int32)


def test_fragments_are_put_by_their_ids(store, identity):
    adapter = Experts(identity)
    with store.weight_put(None, adapter) as writer:
        for (_, number), fragment in zip(adapter.HELD, adapter.fragments, strict=True):
            writer.weight_put_tensor(
                "experts",
                expert(number),
                placement_fragment_id=fragment.placement_fragment_id,
            )
    buffers = {f.placement_fragment_id: numpy.zeros((1, 6), numpy.int32) for f in adapter.fragments}
    for worker in ("w0", "w1"):
        mine = {
            f.placement_fragment_id: buffers[f.placement_fragment_id]
            for (w, _), f in zip(adapter.HELD, adapter.fragments, strict=True)
            if w == worker
        }
        store.weight_get(identity, adapter.made, bind_tensors(adapter.made, worker, mine))
    for (_, number), fragment in zip(adapter.HELD, adapter.fragments, strict=True):
        assert (buffers[fragment.placement_fragment_id] == number * 11).all()


def test_a_replica_expert_with_other_bytes(store, identity):
    adapter = Experts(identity)
    with (
        pytest.raises(WeightConflictError, match=r"tensor experts, box .*participant w[01] "),
        store.weight_put(None, adapter) as writer,
    ):
        for i, ((_, number), fragment) in enumerate(
            zip(adapter.HELD, adapter.fragments, strict=True)
        ):
            writer.weight_put_tensor(
                "experts",
                expert(number + (i == 4)),
                placement_fragment_id=fragment.placement_fragment_id,
            )


def test_what_is_ambiguous_or_unknown_names_the_candidates(store, identity):
    adapter = Experts(identity)
    ids = [fragment.placement_fragment_id for fragment in adapter.fragments]
    writer = store.weight_put(None, adapter)

    def refused(**choice):
        with pytest.raises(WeightInvalidArgumentError) as info:
            writer.weight_put_tensor("experts", expert(0), **choice)
        return str(info.value)

    ambiguous = refused(participant_id="w0")
    assert "3 different local fragments" in ambiguous
    for fragment_id in ids[:3]:
        assert f"{fragment_id} of w0 (offset " in ambiguous
    assert ids[3] not in ambiguous and ids[3] in refused()
    unknown = refused(placement_fragment_id="sha256:nothing")
    assert "this process holds no fragment sha256:nothing of tensor experts, but" in unknown
    assert all(fragment_id in unknown for fragment_id in ids)
    elsewhere = refused(placement_fragment_id=ids[0], participant_id="w1")
    assert f"w1 holds no fragment {ids[0]} of tensor experts, but " in elsewhere
    assert f"{ids[3]} of w1 (offset (1, 0), shape (1, 6))" in elsewhere
    assert ids[1] not in elsewhere
    with pytest.raises(WeightInvalidArgumentError, match="shape of experts"):
        writer.weight_put_tensor(
            "experts", numpy.zeros((2, 6), numpy.int32), placement_fragment_id=ids[0]
        )
    # The whole tensor is never ambiguous.
    everything = numpy.concatenate([expert(number) for number in range(4)])
    with writer:
        writer.weight_put_tensor("experts", everything)

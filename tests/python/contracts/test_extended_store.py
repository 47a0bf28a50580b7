"""The extended forms through an embedded store: published once, loaded into other layouts."""

import itertools

import numpy
import pytest
from contract_samples import placement, tensor
from mooncake.reshard.weight import (
    ParallelRank,
    WeightIdentity,
    WeightStore,
    bind_tensors,
)
from mooncake.reshard.weight.extended import (
    BlockScales,
    ExtendedFragment,
    ExtendedTensor,
    Section,
    Sections,
    omit_tensors,
    own_boxes,
)

IDENTITY = WeightIdentity("d", "m", "r", 1)


class Snapshot:
    """An adapter of whole tensors, publishing for every participant."""

    def __init__(self, made, tensors):
        self.made, self.whole = made, tensors

    def identity(self, snapshot):
        return IDENTITY

    def placement(self, snapshot):
        return self.made

    def participants(self, snapshot):
        return [part.participant_id for part in self.made.parts]

    def tensors(self, snapshot):
        return self.whole.items()


def extended(tensor_id, shape, **forms):
    base = vars(tensor(tensor_id, axes=(), dtype="int16"))
    return ExtendedTensor(**(base | {"global_shape": shape} | forms))


def piece(tensor_id, offset, shape, tp=0, slot=None, **changes):
    nbytes = 2
    for extent in shape:
        nbytes *= extent
    return ExtendedFragment(
        tensor_id, offset, shape, nbytes, ParallelRank(tp=tp), slot=slot, **changes
    )


def owned(tensor_id, shape, held, **forms):
    """Tensor and fragments of what each rank (by number) holds."""
    tiling, cells = own_boxes({f"w{tp}": boxes for tp, boxes in held.items()})
    fragments = [
        piece(tensor_id, offset, extents, tp) for tp in held for offset, extents in cells[f"w{tp}"]
    ]
    return extended(tensor_id, shape, ownership=(tiling,), **forms), fragments


def layout(ranks):
    """KV heads with replicas, uneven rows, a fused and a quantised tensor, oddities, tied names."""
    heads = (
        {r: [((3 * (r * 2 // ranks), 0), (3, 5))] for r in range(ranks)}
        if ranks > 1
        else {0: [((0, 0), (6, 5))]}
    )
    chunk = -(-5 // ranks)
    rows = {
        r: [((r * chunk, 0), (min(5, (r + 1) * chunk) - r * chunk, 4))]
        for r in range(ranks)
        if r * chunk < 5
    }
    sections = Sections(0, (Section("q", 0, 8), Section("k", 8, 12)))
    fused = {
        r: [((r * 8 // ranks, 0), (8 // ranks, 3)), ((8 + r * 4 // ranks, 0), (4 // ranks, 3))]
        for r in range(ranks)
    }
    edges = [round(10 * r / ranks) for r in range(ranks + 1)]
    weight = {r: [((a, 0), (b - a, 4))] for r, (a, b) in enumerate(itertools.pairwise(edges))}
    scales = {
        r: [((a // 4, 0), (-(-b // 4) - a // 4, 1))]
        for r, (a, b) in enumerate(itertools.pairwise(edges))
    }
    everyone = {r: [((), ())] for r in range(ranks)}
    made = [
        owned("kv", (6, 5), heads),
        owned("rows", (5, 4), rows),
        owned("fused", (12, 3), fused, sections=sections),
        owned("weight", (10, 4), weight, block_scales=BlockScales("scale", (4, 4))),
        owned("scale", (3, 1), scales),
        owned("step", (), everyone),
        (extended("none", (0, 3)), [piece("none", (0, 0), (0, 3), r) for r in range(ranks)]),
    ]
    tensors = [descriptor for descriptor, _ in made]
    fragments = [f for _, group in made for f in group]
    for name in ("embed", "head"):
        box = ((0, 0), (4, 4))
        descriptor, held = owned(name, (4, 4), {ranks - 1: [box]})
        tensors.append(descriptor)
        fragments += [
            piece(f.tensor_id, f.global_offset, f.local_shape, f.rank.tp, aliases=("embed", "head"))
            for f in held
        ]
    return placement(tensors, fragments, [ParallelRank(tp=r) for r in range(ranks)])


def whole_tensors():
    random = numpy.random.default_rng(7)

    def numbers(*shape):
        return random.integers(-30000, 30000, shape, numpy.int16)

    state = {
        "kv": numbers(6, 5),
        "rows": numbers(5, 4),
        "fused": numbers(12, 3),
        "weight": numbers(10, 4),
        "scale": numbers(3, 1),
        "step": numpy.array(77, numpy.int16),
        "none": numpy.zeros((0, 3), numpy.int16),
        "embed": numbers(4, 4),
    }
    return state | {"head": state["embed"]}


def load(store, target, participant):
    """The participant's fragments, by (tensor, offset), each in memory of its own."""
    part = next(p for p in target.parts if p.participant_id == participant)
    buffers = {
        f.placement_fragment_id: numpy.full(f.local_shape, -1, numpy.int16) for f in part.fragments
    }
    store.weight_get(IDENTITY, target, bind_tensors(target, participant, buffers))
    return {
        (f.tensor_id, f.global_offset, f.local_shape): buffers[f.placement_fragment_id]
        for f in part.fragments
    }


@pytest.mark.parametrize("source_ranks", [1, 4])
def test_published_once_and_loaded_into_other_layouts(tmp_path, source_ranks):
    state = whole_tensors()
    with WeightStore(f"file://{tmp_path / 'store'}", capacity_bytes=64 << 20) as store:
        adapter = Snapshot(layout(source_ranks), state)
        with store.weight_put(state, adapter) as writer:
            for name, value in adapter.tensors(state):
                writer.weight_put_tensor(name, value)
        for ranks in (1, 2, 4):
            target = layout(ranks)
            for part in target.parts:
                loaded = load(store, target, part.participant_id)
                assert len(loaded) == len(part.fragments)
                for (name, offset, shape), got in loaded.items():
                    cut = tuple(slice(o, o + e) for o, e in zip(offset, shape, strict=True))
                    numpy.testing.assert_array_equal(got, state[name][cut])
        stored = store.weight_get(
            IDENTITY,
            layout(1),
            bind_tensors(
                layout(1),
                "w0",
                {
                    f.placement_fragment_id: numpy.empty(f.local_shape, numpy.int16)
                    for f in layout(1).fragments
                },
            ),
        )
        ranges = {
            (f.object_key, f.object_offset)
            for f in stored.fragments
            if f.tensor_id in ("embed", "head")
        }
        assert len(ranges) == 1  # tied weights are stored once


def test_strided_targets_and_omitted_tensors(tmp_path):
    state = whole_tensors()
    made = layout(1)
    with WeightStore(f"file://{tmp_path / 'store'}", capacity_bytes=64 << 20) as store:
        with store.weight_put(state, Snapshot(made, state)) as writer:
            for name, value in state.items():
                writer.weight_put_tensor(name, value)
        kept = ("kv", "fused")
        target = placement(
            [t for t in made.tensors if t.tensor_id in kept],
            [f for f in made.fragments if f.tensor_id in kept],
            [ParallelRank()],
        )
        target = omit_tensors(target, [n for n in state if n not in kept])
        buffer = numpy.full((8, 2, 4), -1, numpy.int16)  # q and k rows interleaved, padded
        turned = numpy.zeros((5, 6), numpy.int16)
        views = {}
        for f in target.fragments:
            if f.tensor_id == "kv":
                views[f.placement_fragment_id] = turned.T
            else:
                row = int(f.global_offset[0] >= 8)
                views[f.placement_fragment_id] = buffer[: f.local_shape[0], row, :3]
        store.weight_get(IDENTITY, target, bind_tensors(target, "w0", views))
        numpy.testing.assert_array_equal(turned.T, state["kv"])
        numpy.testing.assert_array_equal(buffer[:, 0, :3], state["fused"][:8])
        numpy.testing.assert_array_equal(buffer[:4, 1, :3], state["fused"][8:])
        assert (buffer[:, :, 3] == -1).all() and (buffer[4:, 1] == -1).all()
        # A name that the revision does not have either changes nothing.
        more = omit_tensors(target, [n for n in state if n not in kept] + ["mtp.0.weight"])
        turned[:] = 0
        store.weight_get(IDENTITY, more, bind_tensors(more, "w0", views))
        numpy.testing.assert_array_equal(turned.T, state["kv"])

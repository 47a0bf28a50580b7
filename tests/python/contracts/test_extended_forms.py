"""The extended forms from Python: values, JSON, refusals, helpers, and the page about them."""

import dataclasses
import hashlib
import itertools
import json
import pickle
import re
from pathlib import Path

import numpy
import pytest
from contract_samples import fragment, placement, refused, single_placement, tensor
from mooncake.reshard.adapters.state_dict import MeshShard, shard_box
from mooncake.reshard.weight import (
    ParallelRank,
    PlacementFragment,
    RuntimeBindingFragment,
    StoredFragment,
    TensorDescriptor,
    WeightManifest,
    WeightPlacementManifest,
    bind_tensors,
    plan_placement_transfer,
    plan_placement_transfer_to_local_target,
    validate_runtime_binding,
    weight_placement_from_json,
    weight_placement_to_json,
)
from mooncake.reshard.weight.extended import (
    BlockScales,
    ExtendedFragment,
    ExtendedTensor,
    OwnedBox,
    Packing,
    Section,
    Sections,
    SharedStoredFragment,
    StridedBindingFragment,
    logical_box,
    omit_tensors,
    own_boxes,
    packed_box,
)

PAGE = Path(__file__).parents[3] / "docs" / "extended_forms.md"


def extended(tensor_id="w", shape=(4, 2), **forms):
    base = vars(tensor(tensor_id, axes=()))
    return ExtendedTensor(**(base | {"global_shape": shape} | forms))


def held(offset, shape, tp=0, tensor_id="w", **changes):
    base = fragment(offset, [max(1, e) for e in shape], ParallelRank(tp=tp), tensor_id)
    empty = {"local_shape": shape, "nbytes": 0} if 0 in shape else {}
    return ExtendedFragment(**(vars(base) | {"placement_fragment_id": None} | empty | changes))


TILING = (OwnedBox((0, 0), (2, 2), ("w0", "w1")), OwnedBox((2, 0), (2, 2), ("w1",)))
RANKS = [ParallelRank(tp=0), ParallelRank(tp=1)]


def owned_placement(**changes):
    pieces = [
        fragment((0, 0), (2, 2), RANKS[0]),
        fragment((0, 0), (2, 2), RANKS[1]),
        fragment((2, 0), (2, 2), RANKS[1]),
    ]
    return placement([extended(ownership=(TILING,))], pieces, RANKS, **changes)


def test_extended_values_are_their_bases_everywhere():
    for child, base in [
        (ExtendedTensor, TensorDescriptor),
        (ExtendedFragment, PlacementFragment),
        (SharedStoredFragment, StoredFragment),
        (StridedBindingFragment, RuntimeBindingFragment),
    ]:
        assert issubclass(child, base)
        names = [field.name for field in dataclasses.fields(base)]
        assert [field.name for field in dataclasses.fields(child)][: len(names)] == names
        assert child.__dataclass_params__.frozen
    value = extended(ownership=[[TILING[1], TILING[0]]], padded_shape=[8, 2])
    assert value.ownership == (TILING,)  # canonical order, tuples
    assert value.padded_shape == (8, 2)
    assert pickle.loads(pickle.dumps(value)) == value
    assert hash(dataclasses.replace(value)) == hash(value)
    assert dataclasses.replace(value, padded_shape=None) != value
    assert extended() != tensor(axes=())  # nothing changes meaning: another class, another value
    with refused("padded_shape must not be smaller than global_shape"):
        dataclasses.replace(value, padded_shape=(1, 2))


def test_json_and_ids():
    made = owned_placement()
    text = weight_placement_to_json(made)
    document = json.loads(text)
    assert json.dumps(document, sort_keys=True, separators=(",", ":")) == text
    assert document["extended_form"] == 1 and document["omitted_tensors"] == []
    assert made.extended and not single_placement().extended
    assert made.digest == hashlib.sha256(text.encode()).hexdigest()
    read = weight_placement_from_json(text)
    assert read == made and read.tensors == made.tensors and read.fragments == made.fragments
    assert isinstance(read.tensors[0], ExtendedTensor)
    assert pickle.loads(pickle.dumps(made)) == made
    # The base form of the same resource has no trace of the extended one.
    assert "extended" not in weight_placement_to_json(single_placement())


def test_base_classes_refuse_what_only_the_extended_form_can_say():
    with refused("global_shape must not be empty"):
        tensor(shape=(), axes=())
    with refused("global_shape must be at least 1"):
        tensor(shape=(0, 2), axes=())
    with refused("local_shape must be at least 1"):
        PlacementFragment("w", (0, 0), (0, 2), 0, ParallelRank())
    with refused("slot is for fragments of extended tensors"):
        placement([tensor(axes=())], [held((0, 0), (4, 2), slot=0)], [ParallelRank()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OwnedBox("ab", (1,), ("a",)), "offset must contain integers"),
        (lambda: OwnedBox((0,), (0,), ("a",)), "shape must be at least 1"),
        (lambda: OwnedBox((0,), (1,), (3,)), "owners must be a non-empty string"),
        (lambda: Section("q", True, 2), "section begin must be an integer"),
        (lambda: Sections(0, ("q",)), "sections parts must contain Section"),
        (lambda: BlockScales("s", (1,), 1), "shareable must be true or false"),
        (lambda: BlockScales("", (1,)), "scale_tensor_id must be a non-empty string"),
        (lambda: Packing(0, 4, 1), "packing factor must be at least 2"),
        (lambda: extended(ownership=(TILING[0],)), "ownership must be a sequence"),
        (lambda: extended(ownership=((TILING[0],),)), "does not tile the tensor exactly"),
        (lambda: extended(sections=3), "sections must be Sections"),
        (lambda: extended(packing=Packing(1, 5, 2)), "packing does not match global_shape"),
        (lambda: held((0,), (2,), slot=-1), "slot must be at least 0"),
    ],
)
def test_refusals(make, message):
    with refused(message):
        make()


def test_ownership_against_fragments():
    with refused("explicit ownership names an unknown participant: w: w7"):
        box = OwnedBox((0, 0), (4, 2), ("w0", "w7"))
        placement([extended(ownership=((box,),))], [fragment((0, 0), (4, 2))], RANKS[:1])
    with refused("explicit ownership and fragments differ: w: w1"):
        placement(
            [extended(ownership=(TILING,))],
            [fragment((0, 0), (2, 2), RANKS[0]), fragment((2, 0), (2, 2), RANKS[1])],
            RANKS,
        )


def test_omitted_tensors():
    names = ("a", "b", "mtp")
    tensors = {n: tensor(n, (2,), axes=()) for n in names}
    pieces = {n: fragment((0,), (2,), tensor_id=n) for n in names}

    def made(*kept):
        return placement([tensors[n] for n in kept], [pieces[n] for n in kept], [ParallelRank()])

    source, target = made(*names), made("a", "b")
    with refused("target manifests are missing tensors: mtp"):
        plan_placement_transfer(source, target)
    asked = omit_tensors(target, ["mtp"])
    assert asked.omitted_tensors == ("mtp",) and asked.placement_id != target.placement_id
    assert len(plan_placement_transfer(source, asked).operations) == 2
    assert weight_placement_from_json(weight_placement_to_json(asked)) == asked
    with refused("target manifests are missing tensors: mtp"):
        plan_placement_transfer(source, omit_tensors(target, ["mpt"]))
    assert len(plan_placement_transfer(target, asked).operations) == 2
    with refused("omitted tensor is in the placement: a"):
        omit_tensors(target, ["a"])
    assert omit_tensors(asked, []) == target


def test_scalars_and_empty_tensors_and_plans_of_them():
    tensors = [extended("scalar", ()), extended("empty", (0, 3)), tensor("w", (2,), axes=())]
    pieces = [
        fragment((), (), tensor_id="scalar"),
        held((0, 0), (0, 3), tensor_id="empty"),
        fragment((0,), (2,), tensor_id="w"),
    ]
    made = placement(tensors, pieces, [ParallelRank()])
    plan = plan_placement_transfer(made, made)
    assert sorted(o.tensor_id for o in plan.operations) == ["scalar", "w"]
    scalar = next(o for o in plan.operations if o.tensor_id == "scalar")
    assert (scalar.overlap_shape, scalar.inner_bytes, scalar.segment_count) == ((), 2, 1)
    assert list(scalar.iter_segments(max_segments=1)) == [(0, 0, 2)]
    assert dataclasses.replace(plan) == plan  # every check runs again
    assert pickle.loads(pickle.dumps(plan)) == plan
    only_empty = placement(tensors[1:2], pieces[1:2], [ParallelRank()])
    with refused("local target manifest has no fragments"):
        plan_placement_transfer_to_local_target(only_empty, only_empty)


def stored(shared=True):
    kind = SharedStoredFragment if shared else StoredFragment
    group = "weights/d/m/r/1"
    return WeightManifest(
        namespace="d",
        resource_id="m",
        revision="r",
        weight_generation=1,
        group_id=group,
        manifest_key=f"{group}/manifest",
        tensors=[tensor(n, (4, 2), axes=()) for n in ("w", "x")],
        fragments=[
            kind(f"f{n}", n, (0, 0), (4, 2), f"{group}/payload/0", 0, 16, ("w", "x"))
            for n in ("w", "x")
        ],
        created_at="now",
    )


def test_shared_ranges():
    made = stored()
    read = WeightManifest.from_json(made.to_json())
    assert read == made and read.fragments == made.fragments
    assert all(isinstance(f, SharedStoredFragment) for f in read.fragments)
    document = json.loads(made.to_json())
    assert document["extended_form"] == 1
    assert WeightManifest.from_dict(document) == made
    assert pickle.loads(pickle.dumps(made)) == made
    with refused("stored fragment object ranges overlap"):
        stored(shared=False)


def interleaved(dtype):
    """Gate and up of (4, 3), to be bound to interleaved rows."""
    return placement(
        [tensor(n, (4, 3), axes=(), dtype=dtype) for n in ("gate", "up")],
        [fragment((0, 0), (4, 3), tensor_id=n) for n in ("gate", "up")],
        [ParallelRank()],
    )


def test_strided_tensors_are_bound_as_views():
    made = interleaved("int16")
    buffer = numpy.zeros((4, 2, 4), numpy.int16)  # rows interleaved, one element of padding a row

    def bound(gate, up):
        return bind_tensors(made, "w0", {"gate": gate, "up": up})

    binding = bound(buffer[:, 0, :3], buffer[:, 1, :3])
    validate_runtime_binding(made, binding)
    assert all(isinstance(f, StridedBindingFragment) for f in binding.fragments)
    assert {f.strides_bytes for f in binding.fragments} == {(16, 2)}
    assert {(f.storage_address, f.storage_nbytes) for f in binding.fragments} == {
        (buffer.ctypes.data, 64)
    }
    assert pickle.loads(pickle.dumps(binding)) == binding
    with refused("runtime binding address ranges overlap"):
        validate_runtime_binding(made, bound(buffer[:, 0, :3], buffer[:, 0, 1:]))
    with refused("gate is a non-contiguous view"):
        bound(buffer[::-1, 0, :3], buffer[:, 1, :3])
    unmarked = [RuntimeBindingFragment(**vars(f)) for f in binding.fragments]
    with refused("runtime binding stride does not describe a canonical contiguous view"):
        validate_runtime_binding(made, dataclasses.replace(binding, fragments=unmarked))


def test_views_of_one_torch_storage():
    torch = pytest.importorskip("torch")
    made = interleaved("bfloat16")
    buffer = torch.zeros(4, 2, 4, dtype=torch.bfloat16)
    views = {"gate": buffer[:, 0, :3], "up": buffer[:, 1, :3]}
    validate_runtime_binding(made, bind_tensors(made, "w0", views))


def test_own_boxes_cuts_what_several_hold():
    tiling, cells = own_boxes({"a": [((0, 0), (2, 1))], "b": [((1, 0), (2, 1))]})
    assert tiling == (
        OwnedBox((0, 0), (1, 1), ("a",)),
        OwnedBox((1, 0), (1, 1), ("a", "b")),
        OwnedBox((2, 0), (1, 1), ("b",)),
    )
    assert cells == {
        "a": [((0, 0), (1, 1)), ((1, 0), (1, 1))],
        "b": [((1, 0), (1, 1)), ((2, 0), (1, 1))],
    }
    # Boxes that are equal or apart stay whole; one that holds a box twice is named twice.
    whole, _ = own_boxes({"a": [((0,), (2,)), ((0,), (2,))], "b": [((2,), (2,))]})
    assert whole == (OwnedBox((0,), (2,), ("a", "a")), OwnedBox((2,), (2,), ("b",)))
    assert own_boxes({"a": [((), ())], "b": [((), ())]})[0] == (OwnedBox((), (), ("a", "b")),)


def test_boxes_of_padding_and_packing():
    assert logical_box((10, 4), (8, 0), (4, 4)) == ((8, 0), (2, 4))
    assert logical_box((10, 4), (12, 0), (4, 4)) is None
    assert packed_box(Packing(1, 7, 2), (0, 2), (3, 5)) == ((0, 1), (3, 3))
    with refused("a cut at element 3 of dimension 1 is inside an item of 2 elements"):
        packed_box(Packing(1, 7, 2), (0, 3), (3, 4))


def test_the_pages_documents_are_what_we_read():
    """Every complete document on the page is canonical, and has the ids it says."""
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    placements = [b.strip() for b in blocks if '"placement_id"' in b]
    manifests = [b.strip() for b in blocks if '"manifest_key"' in b]
    assert placements and manifests
    for text in placements:
        assert weight_placement_to_json(weight_placement_from_json(text)) == text
        assert weight_placement_from_json(text).digest in PAGE.read_text(encoding="utf-8")
    for text in manifests:
        assert WeightManifest.from_json(text).to_json() == text


def test_geometry_digest_forgets_the_generation():
    one, two = owned_placement(), owned_placement(weight_generation=2, revision="q")
    assert one.geometry_digest == two.geometry_digest and one.digest != two.digest
    assert one.geometry_digest != single_placement().geometry_digest
    assert isinstance(one, WeightPlacementManifest)


def test_shard_boxes_fill_the_tensor_whatever_cuts_it():
    kinds = [None, *(MeshShard(dim, strided) for dim in (0, 1) for strided in (False, True))]
    for shape, mesh in [((7, 5), (2, 3)), ((3, 4), (4, 2)), ((5, 1), (3, 2))]:
        for shards in itertools.product(kinds, repeat=2):
            counts = numpy.zeros(shape, int)
            for coordinate in itertools.product(*map(range, mesh)):
                offset, extents = shard_box(shape, mesh, shards, coordinate)
                counts[tuple(slice(o, o + e) for o, e in zip(offset, extents, strict=True))] += 1
            copies = [size for size, shard in zip(mesh, shards, strict=True) if shard is None]
            assert (counts == numpy.prod(copies, initial=1)).all(), (shape, mesh, shards)
    # FSDP2 over tp: rank (dp, tp) holds a chunk of tp's chunk.
    strided = (MeshShard(0, strided=True), MeshShard(0))
    assert shard_box((8,), (2, 2), strided, (1, 0)) == ((2,), (2,))
    assert shard_box((8,), (2, 2), (MeshShard(0), MeshShard(0)), (1, 0)) == ((4,), (2,))


def test_own_boxes_against_elements():
    random = numpy.random.default_rng(int.from_bytes(b"seed"))
    for _ in range(200):
        held = {}
        for name in "abc":
            corners = numpy.sort(random.integers(0, 5, (random.integers(0, 3), 2, 2)), axis=1)
            held[name] = [
                (tuple(map(int, low)), tuple(map(int, high - low + 1))) for low, high in corners
            ]
        tiling, cells = own_boxes(held)
        counts = dict.fromkeys(held, 0)
        seen = numpy.zeros((6, 6), int)
        for box in tiling:
            cut = tuple(slice(o, o + e) for o, e in zip(box.offset, box.shape, strict=True))
            seen[cut] += 1
            for name in held:
                copies = box.owners.count(name)
                assert cells[name].count((box.offset, box.shape)) == copies
                holds = numpy.zeros((6, 6), int)
                for offset, shape in held[name]:
                    holds[tuple(slice(o, o + e) for o, e in zip(offset, shape, strict=True))] += 1
                assert (holds[cut] == copies).all(), (held, box)
                counts[name] += copies * int(numpy.prod(box.shape))
        assert seen.max(initial=0) <= 1
        for name, boxes in held.items():
            assert counts[name] == sum(int(numpy.prod(shape)) for _, shape in boxes)

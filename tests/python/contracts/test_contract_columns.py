"""placement_from_columns builds what from_fragments builds."""

import array
import dataclasses
import math
import time

import pytest
from contract_samples import fragment, mini_placement, placement, refused, tensor, topology
from hypothesis import given
from hypothesis import strategies as st
from mooncake.reshard.lazy_tuple import LazyTuple
from mooncake.reshard.weight import (
    OwnershipAxis,
    ParallelRank,
    PlacementFragment,
    SplitAxis,
    TensorDescriptor,
)
from mooncake.reshard.weight.columns import (
    ExtendedKind,
    FragmentColumns,
    TensorColumns,
    TensorKind,
    placement_from_columns,
)
from mooncake.reshard.weight.extended import (
    BlockScales,
    ExtendedFragment,
    ExtendedTensor,
    OwnedBox,
    Packing,
    Section,
    Sections,
    omit_tensors,
)

TP = [ParallelRank(tp=0), ParallelRank(tp=1)]
SPLIT = TensorKind("bfloat16", 2, "v1", (SplitAxis("tp", 0),))
TENSORS = TensorColumns(
    tensor_ids=["w"], ranks=[2], shapes=[4, 2], kinds=[SPLIT], kind_of=[0], layer_ids=[0]
)
FRAGMENTS = FragmentColumns(
    tensor_of=[0, 0], participant_of=[1, 0], offsets=[2, 0, 0, 0], shapes=[2, 2, 2, 2]
)


def build(tensors=TENSORS, fragments=FRAGMENTS, ranks=TP, **changes):
    fields = {
        "resource_id": "m",
        "revision": "r",
        "weight_generation": 1,
        "placement_set_id": "s",
        "topology": topology(ranks),
    }
    return placement_from_columns(**(fields | changes), tensors=tensors, fragments=fragments)


def test_the_same_placement():
    made = build()
    assert made == mini_placement() and made.digest == mini_placement().digest
    assert type(made.fragments) is LazyTuple and not made.fragments._made


def test_omitted_tensors():
    made = build(omitted_tensors=("mtp.1", "mtp.0"))
    assert made == omit_tensors(mini_placement(), ["mtp.0", "mtp.1"])
    with refused("omitted tensor is in the placement: w"):
        build(omitted_tensors=["w"])
    with refused("omitted_tensors must be"):
        build(omitted_tensors=3)


@pytest.mark.parametrize("letter", "bBhHiIlLqQ")
def test_integer_buffers(letter):
    shapes = array.array(letter, FRAGMENTS.shapes)
    offsets = memoryview(array.array(letter, FRAGMENTS.offsets))
    tensors = dataclasses.replace(TENSORS, ranks=array.array(letter, [2]))
    fragments = dataclasses.replace(FRAGMENTS, shapes=shapes, offsets=offsets)
    assert build(tensors, fragments) == mini_placement()


def test_numpy_columns():
    numpy = pytest.importorskip("numpy")
    for dtype in ("int8", "uint16", "int32", "int64", "uint64", "<i8"):
        fragments = dataclasses.replace(
            FRAGMENTS,
            shapes=numpy.array(FRAGMENTS.shapes, dtype),
            offsets=numpy.array(FRAGMENTS.offsets, dtype),
        )
        assert build(fragments=fragments) == mini_placement()
    for wrong in (
        numpy.array(FRAGMENTS.shapes, "float64"),
        numpy.array(FRAGMENTS.shapes, "bool"),
        numpy.array(FRAGMENTS.shapes, ">i8"),
        numpy.array(FRAGMENTS.shapes).reshape(2, 2),
        numpy.zeros((4, 2), int)[:, 0],
    ):
        with refused("fragment shapes must be"):
            build(fragments=dataclasses.replace(FRAGMENTS, shapes=wrong))


def test_every_column():
    ranks = [ParallelRank(pp=0), ParallelRank(pp=1)]
    kinds = [
        TensorKind("float32", 4, "a", (OwnershipAxis("pp"),)),
        TensorKind("int8", 1, "b", (OwnershipAxis("pp"),)),
    ]
    tensors = TensorColumns(
        tensor_ids=("x", "y", "z"),
        ranks=[1, 3, 1],
        shapes=[5, 2, 3, 4, 5],
        kinds=kinds,
        kind_of=[0, 1, 0],
        layer_ids=[-1, 7, -1],
        expert_ids=[-1, 3, -1],
    )
    fragments = FragmentColumns(
        tensor_of=[0, 1, 2],
        participant_of=[0, 1, 0],
        offsets=[0, 0, 0, 0, 0],
        shapes=[5, 2, 3, 4, 5],
        pipeline_stage_ids=[-1, 1, -1],
        alias_groups=[("z", "x")],
        alias_group_of=[0, -1, 0],
    )

    def descriptor(name, shape, kind, **ids):
        return TensorDescriptor(
            name,
            shape,
            kind.dtype,
            kind.itemsize,
            (),
            kind.layout_fingerprint,
            kind.parallel_axes,
            **ids,
        )

    wanted = placement(
        [
            descriptor("x", (5,), kinds[0]),
            descriptor("y", (2, 3, 4), kinds[1], layer_id=7, expert_id=3),
            descriptor("z", (5,), kinds[0]),
        ],
        [
            fragment((0,), (5,), ranks[0], "x", 4, aliases=("x", "z")),
            fragment((0, 0, 0), (2, 3, 4), ranks[1], "y", 1, pipeline_stage_id=1),
            fragment((0,), (5,), ranks[0], "z", 4, aliases=("x", "z")),
        ],
        ranks,
    )
    made = build(tensors, fragments, ranks)
    assert made == wanted
    assert made.tensors == wanted.tensors and made.fragments == wanted.fragments
    assert made.parts == wanted.parts


COLUMN_ERRORS = [
    ({"tensor_ids": ["w", "x"]}, {}, "ranks must have 2 rows, got 1"),
    ({"tensor_ids": "w"}, {}, "tensor_ids must be a sequence"),
    ({"tensor_ids": [1]}, {}, "tensor_id must be a non-empty string"),
    ({"ranks": [3]}, {}, "tensor shapes is too short: 2 numbers"),
    ({"ranks": [1]}, {}, "tensor shapes is too long: 2 numbers, 1 are used"),
    ({"ranks": [-1]}, {}, "ranks[0] must be at least 0"),
    ({"ranks": [True]}, {}, "ranks must be an integer"),
    ({"shapes": [4, 0]}, {}, "global_shape must be at least 1"),
    ({"kind_of": [1]}, {}, "kind_of[0] must be at least 0 and less than 1, got 1"),
    ({"kinds": [TensorKind("", 2, "v1")]}, {}, "dtype must be a non-empty string"),
    ({"kinds": [TensorKind("x", 0, "v1")]}, {}, "itemsize must be at least 1"),
    ({"layer_ids": [-2]}, {}, "layer_id must be at least 0"),
    ({"layer_ids": []}, {}, "layer_ids must have 1 rows, got 0"),
    ({}, {"tensor_of": [0, 1]}, "tensor_of[1] must be at least 0 and less than 1, got 1"),
    ({}, {"participant_of": [0, -1]}, "participant_of[1] must be at least 0 and less than 2"),
    ({}, {"participant_of": [0]}, "participant_of must have 2 rows, got 1"),
    ({}, {"offsets": [0, 0]}, "fragment offsets is too short"),
    ({}, {"shapes": [2, 2, 2, 2, 2]}, "fragment shapes is too long"),
    ({}, {"shapes": [2, 2, 2, 0]}, "local_shape must be at least 1"),
    ({}, {"shapes": [2, 2, 1 << 62, 1 << 62]}, "nbytes must fit in an unsigned 64-bit integer"),
    ({}, {"offsets": [-2, 0, 0, 0]}, "global_offset must be at least 0"),
    ({}, {"alias_group_of": [0, -1]}, "alias_group_of[0] must be at least 0 and less than 0"),
    ({}, {"pipeline_stage_ids": [0]}, "pipeline_stage_ids must have 2 rows, got 1"),
    ({}, {"offsets": [0, 0, 0, 0]}, "global placement tensor is not fully covered: w"),
    ({}, {"shapes": [1 << 63]}, "fragment shapes must fit in a signed 64-bit integer"),
    ({}, {"shapes": array.array("Q", [1 << 63])}, "must fit in a signed 64-bit integer"),
    ({}, {"shapes": array.array("d", [2.0])}, "fragment shapes must be one-dimensional"),
]


@pytest.mark.parametrize("tensor_changes,fragment_changes,message", COLUMN_ERRORS)
def test_refusals(tensor_changes, fragment_changes, message):
    tensors = dataclasses.replace(TENSORS, **tensor_changes)
    fragments = dataclasses.replace(FRAGMENTS, **fragment_changes)
    with refused(message):
        build(tensors, fragments)


def test_arguments():
    for name in ("resource_id", "revision", "placement_set_id"):
        with refused(f"{name} must be a non-empty string"):
            build(**{name: None})
    with refused("topology must be a ParallelTopology"):
        build(topology=None)
    with refused("weight_generation must be at least 0"):
        build(weight_generation=-1)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_uneven_splits(rows):
    ranks = [ParallelRank(tp=i) for i in range(len(rows))]
    offsets = [sum(rows[:i]) for i in range(len(rows))]
    wanted = placement(
        [tensor("t", (sum(rows), 3))],
        [fragment((o, 0), (n, 3), r, "t") for o, n, r in zip(offsets, rows, ranks, strict=True)],
        ranks,
    )
    tensors = TensorColumns(["t"], [2], [sum(rows), 3], [SPLIT], [0], layer_ids=[0])
    fragments = FragmentColumns(
        tensor_of=[0] * len(rows),
        participant_of=range(len(rows)),
        offsets=[x for o in offsets for x in (o, 0)],
        shapes=[x for n in rows for x in (n, 3)],
    )
    assert build(tensors, fragments, ranks) == wanted


# ---- the extended forms ----

OWNED = ExtendedKind("bfloat16", 2, "v1", owned=True)


def extended_fragment(offset, shape, rank, tensor_id, itemsize=2, slot=None):
    """Of the class that from_fragments takes for it."""
    fields = {
        "tensor_id": tensor_id,
        "global_offset": tuple(offset),
        "local_shape": tuple(shape),
        "nbytes": math.prod(shape, start=itemsize),
        "rank": rank,
    }
    if slot is None and 0 not in shape:
        return PlacementFragment(**fields)
    return ExtendedFragment(**fields, slot=slot)


def same_placement(made, wanted):
    assert made.placement_id == wanted.placement_id and made.digest == wanted.digest
    assert made == wanted
    assert made.tensors == wanted.tensors and made.fragments == wanted.fragments
    assert made.parts == wanted.parts


@st.composite
def tilings(draw, shape):
    """Boxes (offset, shape) that fill `shape`, by cuts in two."""
    boxes = [((0,) * len(shape), tuple(shape))]
    for _ in range(draw(st.integers(0, 4)) if shape else 0):
        at = draw(st.integers(0, len(boxes) - 1))
        dim = draw(st.integers(0, len(shape) - 1))
        offset, extents = boxes[at]
        if extents[dim] < 2:
            continue
        cut = draw(st.integers(1, extents[dim] - 1))
        upper = [*offset]
        upper[dim] += cut
        rest = [*extents]
        rest[dim] -= cut
        first = [*extents]
        first[dim] = cut
        boxes[at] = (offset, tuple(first))
        boxes.append((tuple(upper), tuple(rest)))
    return boxes


@st.composite
def owned_tensors(draw, name, rank_count):
    """Shape, and rows (tiling, offset, shape, participant, slot) of which each holding has one."""
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
    rows = []
    seen = set()
    for tiling in range(draw(st.integers(1, 2))):
        for offset, extents in draw(tilings(shape)):
            owners = draw(st.lists(st.integers(0, rank_count - 1), min_size=1, max_size=4))
            owners = [owner for owner in owners if (offset, extents, owner, tiling - 1) not in seen]
            if not owners:  # a box that only the tiling before has owners for: another one's copy
                free = [
                    owner
                    for owner in range(rank_count)
                    if (offset, extents, owner, tiling - 1) not in seen
                ]
                if not free:
                    return name, shape, [row for row in rows if row[0] < tiling]
                owners = free[:1]
            for slot, owner in enumerate(owners):
                several = owners.count(owner) > 1
                rows.append((tiling, offset, extents, owner, slot if several else -1))
                seen.add((offset, extents, owner, tiling))
    return name, shape, rows


def ownership_of(rows, ranks):
    by_tiling: dict = {}
    for tiling, offset, shape, owner, _ in rows:
        by_tiling.setdefault(tiling, {}).setdefault((offset, shape), []).append(f"w{owner}")
    return tuple(
        tuple(OwnedBox(*box, tuple(owners)) for box, owners in boxes.items())
        for boxes in by_tiling.values()
    )


@given(st.data())
def test_owned_tensors_as_object_by_object(data):
    ranks = [ParallelRank(dp=d, tp=t) for d in range(2) for t in range(2)]
    names = [f"t{i}" for i in range(data.draw(st.integers(1, 3)))]
    owned = [data.draw(owned_tensors(name, len(ranks))) for name in names]
    base = {"dtype": "bfloat16", "itemsize": 2, "shard_dims": (), "layout_fingerprint": "v1"}
    wanted = placement(
        [
            ExtendedTensor(
                name, shape, **base, parallel_axes=(), ownership=ownership_of(rows, ranks)
            )
            for name, shape, rows in owned
        ],
        [
            extended_fragment(offset, shape, ranks[owner], name, slot=None if slot < 0 else slot)
            for name, _, rows in owned
            for _, offset, shape, owner, slot in rows
        ],
        ranks,
    )
    rows = [(t, row) for t, (_, _, rows) in enumerate(owned) for row in rows]
    order = data.draw(st.permutations(range(len(rows))))
    rows = [rows[i] for i in order]
    made = build(
        TensorColumns(
            names,
            [len(shape) for _, shape, _ in owned],
            [extent for _, shape, _ in owned for extent in shape],
            [OWNED],
            [0] * len(names),
        ),
        FragmentColumns(
            tensor_of=[t for t, _ in rows],
            participant_of=[row[3] for _, row in rows],
            offsets=[x for _, row in rows for x in row[1]],
            shapes=[x for _, row in rows for x in row[2]],
            slots=[row[4] for _, row in rows],
            tiling_of=[row[0] for _, row in rows],
        ),
        ranks,
    )
    same_placement(made, wanted)


EVERY_FORM = [  # tensor, participant, offset, shape, slot
    (0, 0, (0, 0), (4, 2), -1),
    (0, 0, (4, 0), (1, 2), -1),
    (0, 0, (5, 0), (1, 2), -1),
    (1, 0, (0, 0), (3, 1), -1),
    (2, 0, (), (), -1),
    (3, 0, (0, 0), (0, 4), -1),
    (4, 0, (0, 0), (1, 2), 0),
    (4, 0, (0, 0), (1, 2), 2),
    (4, 0, (1, 0), (1, 2), 1),
    (4, 1, (0, 0), (1, 2), 0),
    (4, 1, (2, 0), (0, 2), -1),
    (5, 0, (0, 0), (2, 2), -1),
    (5, 1, (2, 0), (2, 2), -1),
]


def test_every_extended_form():
    """Fused, packed, padded, with scales; a redundant expert; a scalar; empty; a base one."""
    boxes = EVERY_FORM
    sections = Sections(0, (Section("q", 0, 4), Section("k", 4, 5), Section("v", 5, 6)))
    fused = {"sections": sections, "padded_shape": (8, 2), "packing": Packing(1, 3, 2)}
    axes = (OwnershipAxis("tp"),)
    kinds = [
        ExtendedKind("bfloat16", 2, "v1", axes, **fused, block_shape=(4, 2)),
        ExtendedKind("bfloat16", 2, "v1", axes),
        OWNED,
        SPLIT,
    ]
    names = ["qkv", "scale", "steps", "none", "experts", "w"]
    shapes = [(6, 2), (3, 1), (), (0, 4), (2, 2), (4, 2)]
    kind_of = [0, 1, 1, 1, 2, 3]
    base = {"dtype": "bfloat16", "itemsize": 2, "shard_dims": (), "layout_fingerprint": "v1"}
    forms: dict = {name: {"parallel_axes": axes} for name in names}
    forms["qkv"] |= fused | {"block_scales": BlockScales("scale", (4, 2))}
    forms["experts"] = {
        "parallel_axes": (),
        "ownership": (
            (
                OwnedBox((0, 0), (1, 2), ("w0", "w0", "w1")),
                OwnedBox((1, 0), (1, 2), ("w0",)),
            ),
        ),
    }
    wanted = placement(
        [
            ExtendedTensor(name, shape, **base, **forms[name])
            for name, shape in zip(names[:5], shapes[:5], strict=True)
        ]
        + [tensor("w", (4, 2), layer_id=None)],
        [
            extended_fragment(offset, shape, TP[at], names[t], slot=None if slot < 0 else slot)
            for t, at, offset, shape, slot in boxes
        ],
        TP,
    )
    made = build(
        TensorColumns(
            names,
            [len(shape) for shape in shapes],
            [extent for shape in shapes for extent in shape],
            kinds,
            kind_of,
            scale_of=[1, -1, -1, -1, -1, -1],
        ),
        FragmentColumns(
            tensor_of=[box[0] for box in boxes],
            participant_of=[box[1] for box in boxes],
            offsets=[x for box in boxes for x in box[2]],
            shapes=[x for box in boxes for x in box[3]],
            slots=[box[4] for box in boxes],
        ),
    )
    same_placement(made, wanted)
    assert made.extended


EXTENDED_ERRORS = [
    ({"kinds": [dataclasses.replace(OWNED, owned=1)]}, {}, "owned must be true or false"),
    ({"kinds": [dataclasses.replace(OWNED, sections=3)]}, {}, "sections must be Sections"),
    ({"kinds": [dataclasses.replace(OWNED, shareable=None)]}, {}, "shareable must be true or"),
    ({"kinds": [dataclasses.replace(OWNED, block_shape=(0, 1))]}, {}, "block_shape must be at"),
    (
        {"kinds": [dataclasses.replace(OWNED, block_shape=(1, 1))]},
        {},
        "scale_of[0] must be a tensor for a kind with block_shape: w",
    ),
    ({"scale_of": [0]}, {}, "scale_of[0] must be -1 for a kind without block_shape: w"),
    ({"scale_of": []}, {}, "scale_of must have 1 rows, got 0"),
    (
        {"kinds": [dataclasses.replace(OWNED, block_shape=(1, 1))], "scale_of": [1]},
        {},
        "scale_of[0] must be at least 0 and less than 1, got 1",
    ),
    (
        {"kinds": [dataclasses.replace(OWNED, parallel_axes=(SplitAxis("tp", 0),))]},
        {},
        "explicit ownership replaces parallel_axes and shard_dims",
    ),
    ({}, {"slots": [0]}, "slots must have 2 rows, got 1"),
    ({}, {"slots": [-2, 0]}, "slot must be at least 0"),
    ({}, {"tiling_of": [0]}, "tiling_of must have 2 rows, got 1"),
    ({}, {"tiling_of": [-1, 0]}, "tiling_of[0] must be at least 0, got -1"),
    ({}, {"tiling_of": [0, 1]}, "explicit ownership does not tile the tensor exactly"),
    ({}, {"shapes": [2, 2, 2, -1]}, "local_shape must be at least 0, got -1"),
    ({}, {"offsets": [0, 0, 0, 0]}, "explicit ownership does not tile the tensor exactly"),
    ({"kinds": [SPLIT]}, {"slots": [0, -1]}, "slot is for fragments of extended tensors"),
    (
        {"kinds": [SPLIT]},
        {"tiling_of": [1, 0]},
        "tiling_of[0] must be 0 for a tensor that is not owned, got 1",
    ),
]


@pytest.mark.parametrize("tensor_changes,fragment_changes,message", EXTENDED_ERRORS)
def test_extended_refusals(tensor_changes, fragment_changes, message):
    tensors = dataclasses.replace(TENSORS, kinds=[OWNED])
    with refused(message):
        build(
            dataclasses.replace(tensors, **tensor_changes),
            dataclasses.replace(FRAGMENTS, **fragment_changes),
        )


def test_a_large_model_is_quick():
    """12,000 expert tensors through columns and through dataclasses; CPU seconds, generously."""
    ranks = [ParallelRank(ep=i) for i in range(4)]
    axes = (OwnershipAxis("ep"),)
    count = 12_000
    names = [f"model.layers.{i // 128}.experts.{i % 128}.gate_proj.weight" for i in range(count)]
    began = time.process_time()
    made = build(
        TensorColumns(
            names,
            [2] * count,
            [1536, 4096] * count,
            [TensorKind("bfloat16", 2, "v1", axes)],
            [0] * count,
        ),
        FragmentColumns(
            range(count), [i % 4 for i in range(count)], [0, 0] * count, [1536, 4096] * count
        ),
        ranks,
    )
    columns = time.process_time() - began
    began = time.process_time()
    same = placement(
        [tensor(name, (1536, 4096), axes, layer_id=None) for name in names],
        [fragment((0, 0), (1536, 4096), ranks[i % 4], name) for i, name in enumerate(names)],
        ranks,
    )
    objects = time.process_time() - began
    assert made == same
    print(f"{count} tensors: {columns:.2f} s from columns, {objects:.2f} s from objects")
    assert columns < 2 and objects < 4

"""Ranks, axes, descriptors, topologies, fragments: fields, checks and dataclass behaviour."""

import array
import dataclasses
import pickle

import pytest
from contract_samples import GOLDEN, Number, Text, fragment, refused, tensor, topology
from mooncake.reshard.lazy_tuple import LazyTuple
from mooncake.reshard.weight import (
    OwnershipAxis,
    ParallelRank,
    ParallelTopology,
    PlacementFragment,
    ReplicatedAxis,
    SplitAxis,
    StoredFragment,
    TensorDescriptor,
    TopologyParticipant,
    WeightPlacementPart,
)
from mooncake.reshard.weight.types import (
    canonical_strides_bytes,
    require_manifest_items,
    require_sha256_digest,
    validate_fragment_geometry,
)

BIG = 1 << 63
RANK = ParallelRank(tp=1)


def stored(**changes):
    fields = {
        "fragment_id": "f",
        "tensor_id": "w",
        "global_offset": (0, 0),
        "local_shape": (4, 2),
        "object_key": "k",
        "object_offset": 0,
        "nbytes": 16,
    }
    return StoredFragment(**(fields | changes))


def part(**changes):
    fields = {
        "resource_id": "m",
        "revision": "r",
        "weight_generation": 1,
        "placement_set_id": "s",
        "topology_id": "t",
        "participant_id": "w0",
        "rank": ParallelRank(),
        "tensors": [tensor()],
        "fragments": [fragment((0, 0), (4, 2))],
    }
    return WeightPlacementPart(**(fields | changes))


def topology_of(**changes):
    fields = {
        "tp_size": 2,
        "pp_size": 1,
        "ep_size": 1,
        "dp_size": 1,
        "participants": [
            TopologyParticipant("b", ParallelRank(tp=1)),
            TopologyParticipant("a", ParallelRank()),
        ],
    }
    return ParallelTopology(**(fields | changes))


def tied(*aliases, **changes):
    return fragment((0, 0), (4, 2), aliases=aliases, **changes)


STRING_FIELDS = [
    (lambda v: TopologyParticipant(v, RANK), "participant_id"),
    (lambda v: tensor(tensor_id=v), "tensor_id"),
    (lambda v: tensor(dtype=v), "dtype"),
    (lambda v: tensor(layout_fingerprint=v), "layout_fingerprint"),
    (lambda v: SplitAxis(v, 0), "parallel axis kind"),
    (lambda v: ReplicatedAxis(v), "parallel axis kind"),
    (lambda v: OwnershipAxis(v), "parallel axis kind"),
    (lambda v: fragment((0,), (1,), tensor_id=v), "tensor_id"),
    (lambda v: stored(fragment_id=v), "fragment_id"),
    (lambda v: stored(tensor_id=v), "tensor_id"),
    (lambda v: stored(object_key=v), "object_key"),
    *[
        (lambda v, name=name: part(**{name: v}), name)
        for name in ("resource_id", "revision", "placement_set_id", "topology_id", "participant_id")
    ],
]


@pytest.mark.parametrize("build,name", STRING_FIELDS)
@pytest.mark.parametrize("value", ["", b"x", 1, None, Text("tp"), ["x"]])
def test_strings_are_exact_and_not_empty(build, name, value):
    with refused(f"{name} must be a non-empty string"):
        build(value)


def test_lone_surrogates_are_refused():
    with pytest.raises(UnicodeEncodeError):  # a ValueError
        tensor(tensor_id="\ud800")


INT_FIELDS = [
    *[
        (lambda v, axis=axis: ParallelRank(**{axis: v}), f"parallel rank {axis}", 0)
        for axis in ("dp", "tp", "pp", "ep")
    ],
    (lambda v: SplitAxis("tp", v), "split axis dim", 0),
    (lambda v: tensor(itemsize=v), "itemsize", 1),
    (lambda v: tensor(layer_id=v), "layer_id", 0),
    (lambda v: tensor(axes=(), expert_id=v), "expert_id", 0),
    *[
        (lambda v, name=name: topology_of(**{name: v}), name, 1)
        for name in ("tp_size", "pp_size", "ep_size", "dp_size")
    ],
    (lambda v: fragment((0,), (1,), pipeline_stage_id=v), "pipeline_stage_id", 0),
]


@pytest.mark.parametrize("build,name,least", INT_FIELDS)
def test_integers_are_exact_and_bounded(build, name, least):
    optional = name in ("layer_id", "expert_id", "pipeline_stage_id")
    for value in (True, 1.0, "1", Number(1), [1], *(() if optional else (None,))):
        with refused(f"{name} must be an integer"):
            build(value)
    for value in (least - 1, -(1 << 80)):
        with refused(f"{name} must be at least {least}"):
            build(value)
    with refused(f"{name} must fit in a signed 64-bit integer"):
        build(BIG)


U64_FIELDS = [
    (lambda v: fragment((0,), (1,), nbytes=v), "nbytes", 1),
    (lambda v: stored(object_offset=v), "object_offset", 0),
    (lambda v: stored(nbytes=v), "nbytes", 1),
    (lambda v: part(weight_generation=v), "weight_generation", 0),
]


@pytest.mark.parametrize("build,name,least", U64_FIELDS)
def test_unsigned_integers(build, name, least):
    for value in (True, 1.0, None, Number(1)):
        with refused(f"{name} must be an integer"):
            build(value)
    with refused(f"{name} must be at least {least}"):
        build(least - 1)
    with refused(f"{name} must fit in an unsigned 64-bit integer"):
        build(1 << 64)
    build((1 << 64) - 1)


INTS_FIELDS = [
    (lambda v: tensor(shape=v, axes=()), "global_shape", 1),
    (lambda v: tensor(shard_dims=v), "shard_dims", 0),
    (lambda v: fragment((0,), (1,), global_offset=v), "global_offset", 0),
    (lambda v: fragment((0,), (1,), local_shape=v), "local_shape", 1),
    (lambda v: stored(global_offset=v), "global_offset", 0),
    (lambda v: stored(local_shape=v), "local_shape", 1),
]


@pytest.mark.parametrize("build,name,least", INTS_FIELDS)
def test_integer_containers_are_sequences(build, name, least):
    for value in ("12", b"12", bytearray(b"12"), {1}, {1: 2}, iter((1,)), 1, None):
        with refused(f"{name} must contain integers"):
            build(value)
    with refused(f"{name} must be an integer"):
        build((1, True))
    with refused(f"{name} must be at least {least}"):
        build([1, least - 1])
    with refused(f"{name} must fit in a signed 64-bit integer"):
        build([1, BIG])


@pytest.mark.parametrize(
    "shape",
    [
        [4, 2],
        range(4, 1, -2),
        array.array("q", [4, 2]),
        memoryview(array.array("q", [4, 2])),
        LazyTuple.over(2, lambda begin, end: [4, 2][begin:end]),
    ],
)
def test_any_sequence_is_stored_as_a_tuple(shape):
    made = tensor(shape=shape)
    assert made.global_shape == (4, 2)
    assert type(made.global_shape) is tuple
    assert type(fragment((0, 0), (4, 2), local_shape=shape).local_shape) is tuple


def test_numpy_arrays_are_no_sequences():
    numpy = pytest.importorskip("numpy")
    with refused("global_shape must contain integers"):
        tensor(shape=numpy.array([4, 2]))
    with refused("global_shape must be an integer"):
        tensor(shape=(numpy.int64(4), 2))


DESCRIPTOR_ERRORS = [
    ({"shape": ()}, "global_shape must not be empty"),
    ({"shard_dims": (0, 0)}, "shard_dims must not contain duplicates"),
    ({"shard_dims": (1, 0)}, "shard_dims must be sorted"),
    ({"shard_dims": (2,)}, "shard_dims contains an out-of-range dimension"),
    ({"shard_dims": (1,)}, "parallel axis split dimensions conflict with shard_dims"),
    ({"parallel_axes": "tp"}, "TensorDescriptor parallel_axes must be a sequence"),
    ({"parallel_axes": {1}}, "TensorDescriptor parallel_axes must be a sequence"),
    (
        {"parallel_axes": ("tp",)},
        "TensorDescriptor parallel_axes must contain explicit axis values",
    ),
    (
        {"axes": (ReplicatedAxis("dp"), OwnershipAxis("dp"))},
        "parallel_axes must not contain duplicate kinds",
    ),
    (
        {"axes": (SplitAxis("tp", 0), SplitAxis("ep", 0)), "shard_dims": (0,)},
        "split axes must not share a dimension",
    ),
    ({"axes": (SplitAxis("tp", 2),), "shard_dims": (0,)}, "split axis dimension is out of range"),
    (
        {"axes": (SplitAxis("ep", 0),), "expert_id": 0},
        "an individually allocated expert requires explicit EP ownership",
    ),
]


@pytest.mark.parametrize("changes,message", DESCRIPTOR_ERRORS)
def test_tensor_descriptor_rules(changes, message):
    with refused(message):
        tensor(**changes)


def test_axes():
    for kind in ("dp", "pp"):
        with refused(f"{kind} cannot use split semantics"):
            SplitAxis(kind, 0)
    with refused("unsupported parallel axis kind: cp"):
        ReplicatedAxis("cp")
    with refused("EP must split the leading logical expert dimension"):
        SplitAxis("ep", 1)
    axes = (SplitAxis("tp", 1), ReplicatedAxis("pp"), OwnershipAxis("dp"), SplitAxis("ep", 0))
    assert [axis.kind for axis in tensor(axes=axes).parallel_axes] == ["dp", "pp", "ep", "tp"]
    given = [SplitAxis("tp", 0)]
    assert tensor(parallel_axes=given).parallel_axes == tuple(given)


def test_field_order():
    def names(kind):
        return [field.name for field in dataclasses.fields(kind)]

    assert names(ParallelRank) == ["dp", "tp", "pp", "ep"]
    assert (
        names(TensorDescriptor)
        == (
            "tensor_id global_shape dtype itemsize shard_dims layout_fingerprint parallel_axes "
            "layer_id expert_id"
        ).split()
    )
    assert (
        names(PlacementFragment)
        == (
            "tensor_id global_offset local_shape nbytes rank pipeline_stage_id aliases "
            "placement_fragment_id"
        ).split()
    )
    assert names(ParallelTopology) == (
        "tp_size pp_size ep_size dp_size participants topology_id".split()
    )
    assert (
        names(WeightPlacementPart)
        == (
            "resource_id revision weight_generation placement_set_id topology_id participant_id "
            "rank tensors fragments"
        ).split()
    )
    assert (
        names(StoredFragment)
        == (
            "fragment_id tensor_id global_offset local_shape object_key object_offset nbytes "
            "aliases"
        ).split()
    )


VALUES = [
    RANK,
    SplitAxis("tp", 0),
    ReplicatedAxis("dp"),
    OwnershipAxis("ep"),
    tensor(),
    TopologyParticipant("a", RANK),
    topology_of(),
    tied("w", "v", pipeline_stage_id=2),
    stored(aliases=("w", "v")),
    part(),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_dataclass_behaviour(value):
    assert dataclasses.is_dataclass(value)
    names = [field.name for field in dataclasses.fields(value)]
    assert list(vars(value)) == names
    twin = type(value)(**vars(value))
    assert twin == value and twin is not value and hash(twin) == hash(value)
    assert dataclasses.replace(value) == value
    assert pickle.loads(pickle.dumps(value)) == value
    assert repr(value).startswith(f"{type(value).__name__}({names[0]}=")
    assert value != vars(value)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, names[0], getattr(value, names[0]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(value, names[0])
    with pytest.raises(TypeError):
        value < twin  # noqa: B015
    with pytest.raises(TypeError):
        type(value)(**vars(value), surprise=1)
    assert dataclasses.asdict(value)[names[0]] == vars(value)[names[0]]


def test_replace_checks_again():
    with refused("nbytes must be at least 1"):
        dataclasses.replace(fragment((0, 0), (4, 2)), nbytes=0)
    original = fragment((0, 0), (4, 2))
    moved = dataclasses.replace(original, global_offset=(4, 0))
    assert moved.placement_fragment_id == original.placement_fragment_id  # kept verbatim


def test_topology():
    made = topology_of()
    assert [p.participant_id for p in made.participants] == ["a", "b"]
    assert made.world_size == 2
    assert made.participant("b").rank == ParallelRank(tp=1)
    with refused("unknown topology participant: c"):
        made.participant("c")
    assert made.topology_id == topology_of(topology_id=made.topology_id).topology_id
    with refused("topology_id does not match canonical topology"):
        topology_of(topology_id="sha256:" + 64 * "0")
    with pytest.raises(TypeError):
        ParallelTopology(2, 1, 1, 1, made.participants)
    sparse = topology([ParallelRank(tp=5), ParallelRank(tp=1)], tp_size=9)
    assert sparse.world_size == 2


TOPOLOGY_ERRORS = [
    ({"participants": []}, "parallel topology participants must not be empty"),
    ({"participants": "ab"}, "must be a sequence"),
    ({"participants": [RANK]}, "must contain TopologyParticipant"),
    (
        {
            "participants": [
                TopologyParticipant("a", RANK),
                TopologyParticipant("a", ParallelRank()),
            ]
        },
        "duplicate topology participant_id",
    ),
    (
        {"participants": [TopologyParticipant("a", RANK), TopologyParticipant("b", RANK)]},
        "duplicate topology parallel rank",
    ),
    ({"tp_size": 1}, "tp rank is out of range for participant b"),
    (
        {"participants": [TopologyParticipant("a", ParallelRank(dp=1))]},
        "dp rank is out of range for participant a",
    ),
]


@pytest.mark.parametrize("changes,message", TOPOLOGY_ERRORS)
def test_topology_rules(changes, message):
    with refused(message):
        topology_of(**changes)


def test_ranks_are_ranks():
    with refused("topology participant rank must be a ParallelRank"):
        TopologyParticipant("a", (0, 0, 0, 0))
    with refused("rank must be a ParallelRank"):
        fragment((0,), (1,), rank={"tp": 0})
    with refused("placement part rank must be a ParallelRank"):
        part(rank=0)


ALIAS_ERRORS = [
    ("wv", "aliases must be a sequence"),
    ({"w", "v"}, "aliases must be a sequence"),
    (("w", ""), "aliases must contain non-empty strings"),
    (("w", 1), "aliases must contain non-empty strings"),
    (("w", Text("v")), "aliases must contain non-empty strings"),
    (("w", "w"), "aliases must not contain duplicates"),
    (("w",), "alias group must contain at least two tensor IDs"),
    (("u", "v"), "alias group must contain the fragment tensor_id"),
]


@pytest.mark.parametrize("aliases,message", ALIAS_ERRORS)
@pytest.mark.parametrize("build", [lambda **c: fragment((0,), (1,), **c), stored])
def test_alias_groups(build, aliases, message):
    with refused(message):
        build(aliases=aliases)


def test_aliases_are_sorted():
    assert tied("w", "a").aliases == ("a", "w")
    assert stored(aliases=["w", "a"]).aliases == ("a", "w")
    assert type(fragment((0,), (1,), aliases=[]).aliases) is tuple


@pytest.mark.parametrize("vector", GOLDEN["fragment_ids"], ids=lambda vector: vector["id"][7:15])
def test_fragment_ids(vector):
    fields = vector["input"] | {"rank": ParallelRank(**vector["input"]["rank"])}
    made = PlacementFragment(**fields)
    assert made.placement_fragment_id == made.fragment_id == vector["id"]
    assert fragment((0,), (1,), placement_fragment_id="mine").fragment_id == "mine"
    with refused("placement_fragment_id must be a non-empty string"):
        fragment((0,), (1,), placement_fragment_id="")


def test_offset_and_shape_may_differ_in_length_until_they_meet_a_tensor():
    made = fragment((0,), (2, 2))
    with refused("fragment rank mismatch"):
        part(fragments=[made])


PART_ERRORS = [
    ({"tensors": "w"}, "WeightPlacementPart tensors must be a sequence"),
    ({"tensors": ["w"]}, "WeightPlacementPart tensors must contain TensorDescriptor"),
    ({"fragments": {1}}, "WeightPlacementPart fragments must be a sequence"),
    ({"fragments": [1]}, "WeightPlacementPart fragments must contain PlacementFragment"),
    ({"rank": RANK}, "placement part fragment rank differs from part rank"),
    (
        {"tensors": [tensor(), tensor("x")]},
        "placement part contains an unreferenced tensor: x",
    ),
    ({"tensors": [tensor(), tensor()]}, "duplicate tensor_id: w"),
    (
        {"fragments": [fragment((0, 0), (2, 2), placement_fragment_id="f")] * 2},
        "duplicate fragment_id: f",
    ),
    (
        {
            "fragments": [
                fragment((0, 0), (2, 2), placement_fragment_id="f"),
                fragment((0, 0), (2, 2), placement_fragment_id="g"),
            ]
        },
        "duplicate logical fragment for tensor and parallel rank: g",
    ),
    ({"tensors": []}, "unknown tensor_id: w"),
    ({"fragments": [fragment((1, 0), (4, 2))]}, "fragment is out of bounds"),
    (
        {"fragments": [fragment((0, 0), (4, 2), nbytes=15, placement_fragment_id="f")]},
        "fragment byte size mismatch: f: expected 16, got 15",
    ),
    (
        {"fragments": [fragment((0, 0), (3, 2)), fragment((2, 0), (2, 2))]},
        "logical fragment boxes overlap for tensor and parallel rank",
    ),
]


@pytest.mark.parametrize("changes,message", PART_ERRORS)
def test_part_rules(changes, message):
    with refused(message):
        part(**changes)


def test_parts_are_sorted_and_may_be_partial_or_empty():
    fragments = [fragment((i, 0), (1, 2), placement_fragment_id=f"f{9 - i}") for i in range(3)]
    made = part(fragments=fragments, tensors=[tensor()])
    assert made.fragments == tuple(reversed(fragments))
    assert type(made.fragments) is tuple and made.fragments[0] is fragments[2]
    assert part(tensors=[], fragments=[]).fragments == ()


def test_functions_of_types():
    descriptor = tensor()
    geometry = {"fragment_id": "f", "global_offset": (0, 0), "local_shape": (2, 2), "nbytes": 8}
    assert validate_fragment_geometry(descriptor, **geometry) is None
    with refused("fragment byte size mismatch: f: expected 8, got 9"):
        validate_fragment_geometry(descriptor, **(geometry | {"nbytes": 9}))
    with refused("fragment is out of bounds: f"):
        validate_fragment_geometry(descriptor, **(geometry | {"global_offset": (3, 0)}))
    assert canonical_strides_bytes((3, 4, 5), 2) == (40, 10, 2)
    assert canonical_strides_bytes([], 2) == ()
    assert require_manifest_items([1, 2], "numbers", int) == (1, 2)
    with refused("numbers must be a sequence"):
        require_manifest_items({1}, "numbers", int)
    with refused("numbers must contain int"):
        require_manifest_items([1, "2"], "numbers", int)
    assert require_sha256_digest(64 * "a", "digest") is None
    for value in (63 * "a", 64 * "A", 64 * "g"):
        with refused("digest must be a lowercase SHA-256 digest"):
            require_sha256_digest(value, "digest")
    with refused("digest must be a non-empty string"):
        require_sha256_digest(None, "digest")

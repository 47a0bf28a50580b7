"""Complete placements: construction, rules of the union, coverage, JSON, ids."""

import dataclasses
import inspect
import json
import pickle

import pytest
from contract_samples import (
    GOLDEN,
    canonical,
    fragment,
    mini_placement,
    placement,
    placement_object,
    rank_object,
    refused,
    sha256,
    single_placement,
    tensor,
    tensor_object,
    topology,
    topology_object,
)
from hypothesis import given
from hypothesis import strategies as st
from mooncake.reshard import ResourceKind
from mooncake.reshard.lazy_tuple import LazyTuple
from mooncake.reshard.weight import (
    OwnershipAxis,
    ParallelRank,
    ReplicatedAxis,
    SplitAxis,
    WeightPlacementManifest,
    WeightPlacementPart,
    weight_placement_from_json,
    weight_placement_to_json,
)

FIELDS = (
    "resource_id placement_id revision weight_generation placement_set_id topology parts tensors "
    "fragments"
).split()


def constructor_fields(of, **changes):
    names = (
        "resource_id",
        "revision",
        "weight_generation",
        "placement_set_id",
        "topology",
        "parts",
    )
    return {name: getattr(of, name) for name in names} | changes


# ---- golden values and ids ----------------------------------------------------------------------


def test_mini_is_golden():
    made, golden = mini_placement(), GOLDEN["mini"]
    assert made.placement_id == golden["placement_id"]
    assert made.topology.topology_id == golden["topology_id"]
    assert made.digest == golden["digest"]
    assert weight_placement_to_json(made) == golden["json"]


@pytest.mark.parametrize("name", ["mini", "source", "target"])
def test_golden_documents(name):
    golden = GOLDEN[name]
    made = weight_placement_from_json(golden["json"])
    assert made.placement_id == golden["placement_id"]
    assert made.topology.topology_id == golden["topology_id"]
    assert made.digest == golden["digest"]
    assert weight_placement_to_json(made) == golden["json"]
    assert canonical(placement_object(made)) == golden["json"]


names = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=8)


@given(names, names, names, names, st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_ids_are_what_json_and_hashlib_make(
    tensor_id, resource, revision, layout, generation, rows
):
    made = single_placement(
        resource_id=resource,
        revision=revision,
        weight_generation=generation,
        tensors=[tensor(tensor_id, (rows, 2), (), layout_fingerprint=layout, layer_id=None)],
        fragments=[fragment((0, 0), (rows, 2), tensor_id=tensor_id)],
    )
    frag = made.fragments[0]
    assert frag.placement_fragment_id == "sha256:" + sha256(
        {
            "schema": "weight-placement-fragment",
            "tensor_id": tensor_id,
            "global_offset": [0, 0],
            "local_shape": [rows, 2],
            "nbytes": rows * 4,
            "rank": rank_object(ParallelRank()),
            "aliases": [],
        }
    )
    value = topology_object(made.topology)
    assert value.pop("topology_id") == "sha256:" + sha256(
        value | {"schema": "weight-parallel-topology"}
    )
    value = placement_object(made)
    assert made.digest == sha256(value)
    assert weight_placement_to_json(made) == canonical(value)
    del value["placement_id"], value["resource_kind"]
    assert made.placement_id == "sha256:" + sha256(value | {"schema": "complete-weight-placement"})


def test_explicit_fragment_ids_change_the_placement_id():
    plain = single_placement()
    named = single_placement(fragments=[fragment((0, 0), (4, 2), placement_fragment_id="f")])
    assert named.placement_id != plain.placement_id
    assert plain.tensors == named.tensors


# ---- the dataclass ------------------------------------------------------------------------------


def test_fields_and_signature():
    fields = dataclasses.fields(WeightPlacementManifest)
    assert [f.name for f in fields] == [*FIELDS, "_digest_cache"]
    cache = fields[-1]
    assert (cache.init, cache.repr, cache.compare) == (False, False, False)
    parameters = inspect.signature(WeightPlacementManifest).parameters
    assert list(parameters) == [
        "resource_id",
        "revision",
        "weight_generation",
        "placement_set_id",
        "topology",
        "parts",
        "placement_id",
    ]
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    "made",
    [mini_placement(), weight_placement_from_json(GOLDEN["mini"]["json"])],
    ids=["built", "read"],
)
def test_dataclass_behaviour(made):
    twin = mini_placement()
    assert made == twin and hash(made) == hash(twin) and repr(made) == repr(twin)
    assert repr(made).startswith("WeightPlacementManifest(resource_id='m', placement_id='sha256:")
    assert "_digest_cache" not in repr(made)
    assert made != mini_placement(revision="q") and made != 1
    assert set(FIELDS) <= set(vars(made))
    assert made.resource_kind is ResourceKind.MODEL_WEIGHT
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.revision = "q"
    with pytest.raises(TypeError):
        dataclasses.replace(made, revision="q")
    assert pickle.loads(pickle.dumps(made)) == made
    assert isinstance(made.parts, tuple) and isinstance(made.fragments, tuple)
    assert made.parts == twin.parts and made.tensors == twin.tensors
    assert made.fragments == twin.fragments and twin.fragments == made.fragments
    assert dataclasses.asdict(made)["tensors"][0]["tensor_id"] == "w"


def test_what_was_given_is_kept():
    parts = tuple(mini_placement().parts)
    made = WeightPlacementManifest(**constructor_fields(mini_placement(), parts=parts[::-1]))
    assert made == mini_placement()
    assert made.parts[0] is parts[0] and type(made.parts) is tuple
    assert made.fragments[0] in parts[0].fragments + parts[1].fragments
    assert type(made.fragments) is tuple
    with refused("placement_id does not match canonical logical content"):
        WeightPlacementManifest(**constructor_fields(made, placement_id="sha256:0"))
    same = WeightPlacementManifest(**constructor_fields(made, placement_id=made.placement_id))
    assert same == made


def test_read_placements_make_items_on_access():
    made = weight_placement_from_json(GOLDEN["source"]["json"])
    for items in (made.parts, made.tensors, made.fragments, made.parts[0].fragments):
        assert type(items) is LazyTuple
        assert not items._made or items is made.parts
    count = len(made.fragments)
    assert not made.fragments._made
    assert made.fragments[count - 1] is made.fragments[-1]
    assert len(made.fragments._made) == 1
    rebuilt = WeightPlacementManifest(**constructor_fields(made))
    assert rebuilt == made and rebuilt.digest == made.digest


def test_input_order_does_not_matter():
    ranks = [ParallelRank(tp=1), ParallelRank(tp=0)]
    fragments = [fragment((2, 0), (2, 2), ranks[0]), fragment((0, 0), (2, 2), ranks[1])]
    made = placement([tensor()], fragments, [ranks[1], ranks[0]])
    assert made == mini_placement() and made.digest == mini_placement().digest


# ---- construction -------------------------------------------------------------------------------

CONSTRUCTOR_ERRORS = [
    ({"resource_id": ""}, "resource_id must be a non-empty string"),
    ({"resource_id": None}, "resource_id must be a non-empty string"),
    ({"revision": 1}, "revision must be a non-empty string"),
    ({"weight_generation": True}, "weight_generation must be an integer"),
    ({"weight_generation": -1}, "weight_generation must be at least 0"),
    ({"weight_generation": 2**64}, "weight_generation must fit in an unsigned 64-bit integer"),
    ({"placement_set_id": ""}, "placement_set_id must be a non-empty string"),
    ({"topology": None}, "topology must be a ParallelTopology"),
    ({"placement_id": ""}, "placement_id must be a non-empty string"),
    ({"placement_id": 5}, "placement_id must be a non-empty string"),
    ({"parts": "p"}, "must be a sequence"),
    ({"parts": [1]}, "must contain WeightPlacementPart"),
]


@pytest.mark.parametrize("changes,message", CONSTRUCTOR_ERRORS)
def test_constructor_checks(changes, message):
    with refused(message):
        WeightPlacementManifest(**constructor_fields(mini_placement(), **changes))


def part_of(made, index=0, **changes):
    return dataclasses.replace(made.parts[index], **changes)


def test_part_set():
    made = mini_placement()
    first, second = made.parts
    cases = [
        ([first, first], "duplicate placement participant"),
        ([second], "missing topology participant: w0"),
        ([first, second, part_of(made, participant_id="w9")], "unknown topology participant: w9"),
        ([first, part_of(made, 1, resource_id="x")], "placement part resource_id differs"),
        ([first, part_of(made, 1, revision="x")], "placement part revision differs"),
        (
            [first, part_of(made, 1, weight_generation=9)],
            "placement part weight_generation differs",
        ),
        (
            [first, part_of(made, 1, placement_set_id="x")],
            "placement part placement_set_id differs",
        ),
        ([first, part_of(made, 1, topology_id="x")], "placement part topology_id differs"),
        (
            [first, part_of(made, 1, rank=ParallelRank(tp=5), tensors=(), fragments=())],
            "placement part rank differs from topology",
        ),
        (
            [first, part_of(made, 1, tensors=[tensor(dtype="float16")])],
            "placement part tensor descriptor mismatch: w",
        ),
    ]
    for parts, message in cases:
        with refused(message):
            WeightPlacementManifest(**constructor_fields(made, parts=parts))


FROM_FRAGMENTS_ERRORS = [
    ({"tensors": {1}}, "placement tensors must be a sequence"),
    ({"tensors": [1]}, "placement tensors must contain TensorDescriptor"),
    ({"fragments": "f"}, "placement fragments must be a sequence"),
    ({"fragments": [tensor()]}, "placement fragments must contain PlacementFragment"),
    ({"tensors": [tensor(axes=())] * 2}, "duplicate tensor_id in placement tensors"),
    (
        {"fragments": [fragment((0,), (1,), tensor_id=name) for name in "zyx"]},
        "unknown tensor_id: x",
    ),
    (
        {"tensors": [tensor(name, axes=()) for name in ("w", "z", "y")]},
        "global placement contains an unreferenced tensor: y",
    ),
    (
        {"fragments": [fragment((0, 0), (4, 2), ParallelRank(pp=3), placement_fragment_id="f")]},
        "placement fragment rank has no topology participant: f",
    ),
    ({"tensors": [], "fragments": []}, "global weight placement must contain tensors"),
]


@pytest.mark.parametrize("changes,message", FROM_FRAGMENTS_ERRORS)
def test_from_fragments_checks(changes, message):
    with refused(message):
        single_placement(**changes)


def test_participants_without_fragments_get_an_empty_part():
    ranks = [ParallelRank(pp=0), ParallelRank(pp=1)]
    made = placement(
        [tensor(axes=(OwnershipAxis("pp"),))], [fragment((0, 0), (4, 2), ranks[0])], ranks
    )
    assert [len(part.fragments) for part in made.parts] == [1, 0]
    assert made.parts[1].tensors == ()
    assert isinstance(made.parts[1], WeightPlacementPart)


# ---- rules of the union -------------------------------------------------------------------------

TP = [ParallelRank(tp=0), ParallelRank(tp=1)]
DP = [ParallelRank(dp=0), ParallelRank(dp=1)]
EP = [ParallelRank(ep=0), ParallelRank(ep=1)]


def halves(ranks, **changes):
    return [fragment((2 * i, 0), (2, 2), rank, **changes) for i, rank in enumerate(ranks)]


def wholes(ranks, **changes):
    return [fragment((0, 0), (4, 2), rank, **changes) for rank in ranks]


COVERAGE_ERRORS = [
    # undeclared axes
    (
        [tensor(axes=())],
        wholes(DP),
        DP,
        "global placement tensor requires explicit parallel semantics for active undeclared dp "
        "axis: w",
    ),
    (
        [tensor(axes=())],
        wholes(TP[:1]),
        TP,
        "global placement tensor requires explicit parallel semantics for active undeclared tp "
        "axis: w",
    ),
    (
        [tensor(axes=())],
        wholes(TP),
        TP,
        "global placement tensor varies across undeclared tp axis: w",
    ),
    (
        [tensor(axes=(SplitAxis("tp", 0),))],
        halves([ParallelRank(tp=0, ep=0), ParallelRank(tp=1, ep=1)])
        + [fragment((2, 0), (2, 2), ParallelRank(tp=1, ep=0))],
        [ParallelRank(tp=0, ep=0), ParallelRank(tp=1, ep=1), ParallelRank(tp=1, ep=0)],
        "global placement tensor varies independently across undeclared ep axis: w",
    ),
    # ownership, replication
    (
        [tensor(axes=(ReplicatedAxis("tp"),))],
        wholes(TP[:1]),
        TP,
        "global placement tensor is not fully covered: missing or unexpected replicated-axis "
        "participant for w",
    ),
    (
        [tensor(axes=(ReplicatedAxis("tp"),))],
        [*wholes(TP[:1]), fragment((0, 0), (3, 2), TP[1])],
        TP,
        "global placement tensor is not fully covered: w",
    ),
    (
        [tensor(axes=(OwnershipAxis("ep"),))],
        halves(EP),
        EP,
        "global placement tensor is not fully covered: w",
    ),
    # splits
    ([tensor()], halves(TP)[:1], TP, "global placement tensor is not fully covered: w"),
    (
        [tensor()],
        wholes(TP[:1]),
        TP,
        "global placement tensor is not fully covered: missing or unexpected split-axis "
        "participant for w",
    ),
    (
        [tensor(axes=(SplitAxis("tp", 1),))],
        halves(TP),
        TP,
        "split-axis rank geometry conflicts with declared dimension: w: tp -> dim 1",
    ),
    # the union
    (
        [tensor()],
        [
            fragment((0, 0), (2, 2), TP[0], placement_fragment_id="f"),
            fragment((2, 0), (2, 2), TP[1], placement_fragment_id="f"),
        ],
        TP,
        "duplicate fragment_id: f",
    ),
]


@pytest.mark.parametrize("tensors,fragments,ranks,message", COVERAGE_ERRORS)
def test_coverage(tensors, fragments, ranks, message):
    with refused(message):
        placement(tensors, fragments, ranks)


def test_layouts_that_are_complete():
    placement([tensor(axes=(ReplicatedAxis("dp"),))], wholes(DP), DP)
    placement([tensor(axes=(OwnershipAxis("ep"),))], wholes(EP[1:]), EP)
    placement([tensor(axes=(OwnershipAxis("ep"),))], wholes(EP), EP)
    # EP that follows from TP on shared workers needs no axis of its own.
    shared = [ParallelRank(tp=0, ep=0), ParallelRank(tp=1, ep=1)]
    placement([tensor()], halves(shared), shared)
    # A rank may own several intervals of the split dimension (fused tensors).
    interleaved = [
        fragment((row, 0), (1, 2), TP[row % 2], placement_fragment_id=f"row{row}")
        for row in range(4)
    ]
    placement([tensor()], interleaved, TP)


def test_alias_groups():
    one = [ParallelRank()]
    pair = [tensor("a", axes=()), tensor("b", axes=())]

    def both(**groups):
        return [
            fragment((0, 0), (4, 2), tensor_id=name, aliases=group)
            for name, group in groups.items()
        ]

    made = placement(pair, both(a=("b", "a"), b=("a", "b")), one)
    assert {f.aliases for f in made.fragments} == {("a", "b")}
    with refused("alias group references unknown tensor: x"):
        placement(pair, both(a=("a", "y", "x"), b=()), one)
    with refused("alias group is not declared consistently for tensor: b"):
        placement(pair, both(a=("a", "b"), b=()), one)


# ---- JSON ---------------------------------------------------------------------------------------


def document(**changes):
    return json.loads(GOLDEN["mini"]["json"]) | changes


def changed(*path, value=..., remove=None):
    """The mini document with one value replaced or one key removed."""
    root = document()
    here = root
    for step in path[:-1]:
        here = here[step]
    if remove is None:
        here[path[-1]] = value
    else:
        del here[path[-1]][remove]
    return json.dumps(root)


def test_json_input_is_free_in_order_space_and_encoding():
    golden = mini_placement()
    root = document()
    shuffled = json.dumps(dict(reversed(root.items())), indent=2)
    assert weight_placement_from_json(shuffled) == golden
    root["parts"].reverse()
    root["topology"]["participants"].reverse()
    assert weight_placement_from_json(json.dumps(root)).digest == golden.digest
    for data in (shuffled.encode(), bytearray(shuffled.encode()), shuffled.encode("utf-16")):
        assert weight_placement_from_json(data) == golden
    assert weight_placement_from_json(shuffled.encode("utf-8-sig")) == golden
    null_stage = changed("parts", 0, "fragments", 0, "pipeline_stage_id", value=None)
    assert weight_placement_from_json(null_stage) == golden


def test_fragment_ids_are_kept_verbatim():
    made = single_placement(fragments=[fragment((0, 0), (4, 2), placement_fragment_id="sha256:ff")])
    again = weight_placement_from_json(weight_placement_to_json(made))
    assert again == made and again.fragments[0].placement_fragment_id == "sha256:ff"


TENSOR, PART, FRAGMENT = ("tensors", 0), ("parts", 0), ("parts", 0, "fragments", 0)
JSON_ERRORS = [
    ("", "placement manifest is not valid JSON"),
    ("{", "placement manifest is not valid JSON"),
    ("[" * 100_000, "placement manifest is not valid JSON"),
    ("{}x", "placement manifest is not valid JSON"),
    ("﻿{}", "placement manifest is not valid JSON"),
    (b"\xff\xfe\xfd", "placement manifest is not valid JSON"),
    (None, "placement manifest is not valid JSON"),
    (7, "placement manifest is not valid JSON"),
    ("[]", "placement manifest must be a JSON object"),
    ("null", "placement manifest must be a JSON object"),
    ('{"weight_generation":NaN}', "non-finite JSON number is unsupported: NaN"),
    ('{"weight_generation":-Infinity}', "non-finite JSON number is unsupported: -Infinity"),
    ('{"weight_generation":Infinity}', "non-finite JSON number is unsupported: Infinity"),
    ('{"a":1,"a":1}', "duplicate JSON field: a"),
    ('{"x":{"b":1,"\\u0062":1}}', "duplicate JSON field: b"),
    ("{}", "placement manifest schema fields do not match contract"),
    (json.dumps(document(extra=1)), "placement manifest schema fields do not match contract"),
    (json.dumps(document(resource_kind="kv_cache")), "resource_kind must be model_weight"),
    (json.dumps(document(weight_generation=1.0)), "must be an integer at least 0"),
    (json.dumps(document(weight_generation=True)), "must be an integer at least 0"),
    (json.dumps(document(weight_generation="1")), "must be an integer at least 0"),
    (json.dumps(document(weight_generation=-1)), "must be an integer at least 0"),
    (json.dumps(document(parts={})), "must be a sequence"),
    (json.dumps(document(parts=[1])), "must be a JSON object"),
    (json.dumps(document(topology=[])), "must be a JSON object"),
    (
        changed("topology", "extra", value=1),
        "parallel topology schema fields do not match contract",
    ),
    (
        changed("topology", "participants", 0, remove="rank"),
        "parallel topology participant 0 schema fields do not match contract",
    ),
    (
        changed("topology", "participants", 1, "rank", remove="ep"),
        "parallel topology rank 1 schema fields do not match contract",
    ),
    (changed(*TENSOR, remove="layer_id"), "placement tensor 0 schema fields do not match contract"),
    (
        changed(*TENSOR, "parallel_axes", 0, "more", value=1),
        "placement tensor parallel axis 0 schema fields do not match contract",
    ),
    (
        changed(*TENSOR, "parallel_axes", 0, "semantics", value="sharded"),
        "unsupported parallel axis semantics: sharded",
    ),
    (
        changed(*TENSOR, "parallel_axes", 0, "semantics", value=1),
        "axis semantics must be a non-empty string",
    ),
    (
        changed(*TENSOR, "parallel_axes", 0, remove="semantics"),
        "axis semantics must be a non-empty string",
    ),
    (changed(*PART, "more", value=1), "placement part 0 schema fields do not match contract"),
    (
        changed(*PART, "rank", remove="dp"),
        "placement part rank 0 schema fields do not match contract",
    ),
    (changed(*FRAGMENT, remove="aliases"), "placement fragment 0 has an invalid schema"),
    (changed(*FRAGMENT, "more", value=1), "placement fragment 0 has an invalid schema"),
    (
        changed(*FRAGMENT, "rank", remove="dp"),
        "placement rank 0 schema fields do not match contract",
    ),
    (
        json.dumps(document(tensors=document()["tensors"] * 2)),
        "duplicate tensor_id in placement JSON",
    ),
    (changed(*FRAGMENT, "tensor_id", value="x"), "unknown tensor_id in placement part: x"),
    (
        json.dumps(document(tensors=[*document()["tensors"], tensor_object(tensor("x"))])),
        "placement JSON contains an unreferenced tensor: x",
    ),
    (
        changed("topology", "topology_id", value="t"),
        "topology_id does not match canonical topology",
    ),
    (changed("placement_id", value="p"), "placement_id does not match canonical logical content"),
    (changed(*FRAGMENT, "nbytes", value=7), "fragment byte size mismatch"),
    (changed(*FRAGMENT, "local_shape", value=[10**30, 2]), "64"),
]


@pytest.mark.parametrize("text,message", JSON_ERRORS)
def test_json_refusals(text, message):
    with refused(message):
        weight_placement_from_json(text)


def test_only_placements_have_json():
    with refused("placement must be a WeightPlacementManifest"):
        weight_placement_to_json(mini_placement().parts[0])


def test_topology_helper_matches_the_contract():
    assert topology(TP).topology_id == GOLDEN["mini"]["topology_id"]

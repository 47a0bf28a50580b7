"""Stored manifests: fields, rules, JSON."""

import dataclasses
import hashlib
import json
import pickle
import types

import pytest
from contract_samples import (
    GOLDEN,
    canonical,
    refused,
    stored,
    stored_fragment,
    tensor,
    tensor_object,
)
from hypothesis import given
from hypothesis import strategies as st
from mooncake.reshard import ResourceKind
from mooncake.reshard.weight import StoredFragment, WeightManifest
from mooncake.reshard.weight.storage_manifest import (
    StoredManifestIdentity,
    validate_weight_manifest_snapshot,
)

IDENTITY = {
    "namespace": "d",
    "resource_id": "m",
    "revision": "r",
    "weight_generation": 1,
    "group_id": "g",
    "manifest_key": "g/manifest",
    "content_sha256": "a" * 64,
}


def halves(**changes):
    return [
        stored_fragment((0, 0), (2, 2), "0", **changes),
        stored_fragment((2, 0), (2, 2), "1", **changes),
    ]


def test_golden():
    made, golden = stored(), GOLDEN["mini_stored"]
    assert made.manifest_digest == golden["manifest_digest"]
    assert made.to_json() == golden["json"]
    read = WeightManifest.from_json(golden["json"])
    assert read == made and read.to_json() == golden["json"]


def stored_object(made):
    value = {
        name: getattr(made, name)
        for name in (
            "namespace",
            "resource_id",
            "revision",
            "weight_generation",
            "group_id",
            "manifest_key",
            "created_at",
        )
    }
    return value | {
        "resource_kind": "model_weight",
        "tensors": [tensor_object(t) for t in made.tensors],
        "fragments": [vars(f) for f in made.fragments],
    }


texts = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=8)


@given(texts, texts, texts, st.integers(0, 2**64 - 1))
def test_json_is_what_json_makes(name, key, created_at, generation):
    frag = stored_fragment(
        (0, 0), (4, 2), tensor_id=name, fragment_id=key, object_key=f"{name}/payload/{key}"
    )
    made = stored(
        [tensor(name)],
        [frag],
        created_at=created_at,
        group_id=name,
        manifest_key=f"{name}/manifest",
        weight_generation=generation,
    )
    text = canonical(stored_object(made), ensure_ascii=False)
    assert made.to_json() == text
    assert made.manifest_digest == hashlib.sha256(text.encode()).hexdigest()
    assert WeightManifest.from_json(text.encode()) == made


def test_dataclass_behaviour():
    made = stored()
    assert [f.name for f in dataclasses.fields(WeightManifest)] == (
        "namespace resource_id revision weight_generation group_id manifest_key tensors fragments "
        "created_at manifest_digest"
    ).split()
    assert made == stored() and hash(made) == hash(stored()) and made != 1
    assert pickle.loads(pickle.dumps(made)) == made
    later = dataclasses.replace(made, created_at="later")
    assert later != made and later.manifest_digest != made.manifest_digest
    with refused("created_at must be a non-empty string"):
        dataclasses.replace(made, created_at="")
    with pytest.raises(ValueError):
        dataclasses.replace(made, manifest_digest="0" * 64)  # init=False
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.revision = "x"
    with pytest.raises(TypeError):
        WeightManifest(**vars(made))
    assert repr(made).startswith("WeightManifest(namespace='d', resource_id='m'")
    assert repr(WeightManifest.from_json(made.to_json())) == repr(made)
    assert made.resource_kind is ResourceKind.MODEL_WEIGHT
    assert type(made.tensors) is tuple and type(made.fragments) is tuple
    assert dataclasses.asdict(made)["fragments"][0]["object_key"].endswith("/payload/0")


def test_order_is_kept_and_counts():
    first = stored(fragments=halves())
    second = stored(fragments=halves()[::-1])
    assert [f.fragment_id for f in second.fragments] == ["f1", "f0"]
    assert first != second and first.manifest_digest != second.manifest_digest


def test_identity():
    made = stored()
    identity = made.manifest_identity
    assert identity == StoredManifestIdentity(
        "d", "m", "r", 1, "weights/d/m/r/1", "weights/d/m/r/1/manifest", made.manifest_digest
    )
    assert list(vars(StoredManifestIdentity(**IDENTITY))) == list(IDENTITY)
    for name in IDENTITY:
        if name != "weight_generation":
            with refused(f"{name} must be a non-empty string"):
                StoredManifestIdentity(**(IDENTITY | {name: ""}))
    with refused("weight_generation must be at least 0"):
        StoredManifestIdentity(**(IDENTITY | {"weight_generation": -1}))
    for digest in ("a" * 63, "A" * 64):
        with refused("content_sha256 must be a SHA-256 hex digest"):
            StoredManifestIdentity(**(IDENTITY | {"content_sha256": digest}))


def pair(aliases, second_shape=(4, 2), key="1", **changes):
    return [
        stored_fragment((0, 0), (4, 2), "0", tensor_id="w", aliases=aliases),
        stored_fragment((0, 0), second_shape, key, tensor_id="v", aliases=aliases, **changes),
    ]


RULES = [
    *[
        ({name: ""}, f"{name} must be a non-empty string")
        for name in (
            "namespace",
            "resource_id",
            "revision",
            "group_id",
            "manifest_key",
            "created_at",
        )
    ],
    ({"tensors": {1}}, "must be a sequence"),
    ({"tensors": [1]}, "must contain TensorDescriptor"),
    ({"fragments": "f"}, "must be a sequence"),
    ({"fragments": [tensor()]}, "must contain StoredFragment"),
    ({"weight_generation": -1}, "weight_generation must be at least 0"),
    ({"weight_generation": "1"}, "weight_generation must be an integer"),
    ({"manifest_key": "k"}, "manifest_key does not belong to manifest group"),
    (
        {"fragments": [stored_fragment((0, 0), (4, 2), object_key="weights/d/m/r/1/payloads/0")]},
        "payload object_key does not belong to manifest group",
    ),
    ({"tensors": [tensor(), tensor()]}, "duplicate tensor_id: w"),
    ({"fragments": [stored_fragment((0, 0), (4, 2))] * 2}, "duplicate fragment_id: f0"),
    ({"tensors": []}, "unknown tensor_id: w"),
    ({"fragments": [stored_fragment((0,), (4,))]}, "fragment rank mismatch: f0"),
    ({"fragments": [stored_fragment((0, 1), (4, 2))]}, "fragment is out of bounds: f0"),
    (
        {"fragments": [stored_fragment((0, 0), (4, 2), nbytes=15)]},
        "fragment byte size mismatch: f0: expected 16, got 15",
    ),
    (
        {"fragments": [stored_fragment((0, 0), (4, 2), aliases=("w", "x"))]},
        "stored alias references unknown tensor: x",
    ),
    (
        {
            "tensors": [tensor(), tensor("v", (2, 2))],
            "fragments": pair(("v", "w"), (2, 2)),
        },
        "stored alias group is incomplete for fragment geometry",
    ),
    (
        {"tensors": [tensor(), tensor("v", dtype="float16")], "fragments": pair(("v", "w"))},
        "stored alias tensor descriptors differ",
    ),
    (
        {"fragments": [stored_fragment((0, 0), (4, 2), k) for k in "01"]},
        "duplicate fragment geometry: w",
    ),
    ({"fragments": halves()[:1]}, "tensor is not fully covered: w"),
    ({"fragments": []}, "tensor is not fully covered: w"),
    (
        {"fragments": [stored_fragment((i, 0), (2, 2), str(i)) for i in (0, 1)]},
        "tensor is not fully covered: w",
    ),
    (
        {"fragments": halves(object_key="weights/d/m/r/1/payload/p")},
        "stored fragment object ranges overlap: f0 and f1 in weights/d/m/r/1/payload/p",
    ),
]


@pytest.mark.parametrize("changes,message", RULES)
def test_rules(changes, message):
    with refused(message):
        stored(**changes)


def test_what_is_accepted():
    assert len(stored([], []).to_json()) > 0
    packed = [
        stored_fragment((0, 0), (2, 2), "0", object_key="weights/d/m/r/1/payload/p"),
        stored_fragment(
            (2, 0), (2, 2), "1", object_key="weights/d/m/r/1/payload/p", object_offset=8
        ),
    ]
    stored(fragments=packed)
    stored([tensor(), tensor("v")], pair(("v", "w")))
    with refused("stored fragment object ranges overlap"):  # aliases are not exempt
        stored([tensor(), tensor("v")], pair(("v", "w"), key="0", fragment_id="f1"))


def document(**changes):
    return json.loads(GOLDEN["mini_stored"]["json"]) | changes


def deep():
    value = here = []
    for _ in range(10_000):
        here.append([])
        here = here[0]
    return value


def inner(name, **changes):
    return {name: [document()[name][0] | changes]}


DOCUMENT_ERRORS = [
    (document(extra=1), "weight manifest schema fields do not match contract"),
    (document(resource_kind="kv_cache"), "weight manifest resource_kind must be model_weight"),
    (document(**inner("tensors", x=1)), "tensor descriptor"),
    (document(**inner("fragments", x=1)), "stored fragment"),
    (document(weight_generation=1.5), "weight_generation"),
    (document(weight_generation=True), "weight_generation"),
    (document(**inner("fragments", nbytes=1 << 70)), "nbytes"),
    (document(tensors={}), "must be a sequence"),
    (document(tensors=[None]), "must be a JSON object"),
    (document(created_at=""), "created_at must be a non-empty string"),
    (document(created_at=object()), "weight manifest is not valid JSON"),
    (document(tensors=deep()), "weight manifest is not valid JSON"),
    ([], "weight manifest must be a JSON object"),
]


@pytest.mark.parametrize("value,message", DOCUMENT_ERRORS)
def test_documents_that_are_refused(value, message):
    with refused(message):
        WeightManifest.from_dict(value)


TEXT_ERRORS = [
    ("", "weight manifest is not valid JSON"),
    ("{", "weight manifest is not valid JSON"),
    (b"\xff", "weight manifest is not valid JSON"),
    (7, "weight manifest is not valid JSON"),
    ("[" * 100_000, "weight manifest is not valid JSON"),
    ("[]", "weight manifest must be a JSON object"),
    ('{"a":NaN}', "non-finite JSON number is unsupported: NaN"),
    ('{"a":1,"a":1}', "duplicate JSON field: a"),
]


@pytest.mark.parametrize("text,message", TEXT_ERRORS)
def test_texts_that_are_refused(text, message):
    with refused(message):
        WeightManifest.from_json(text)


def test_from_dict():
    assert WeightManifest.from_dict(document()) == stored()
    frozen = types.MappingProxyType(document(tensors=tuple(document()["tensors"])))
    assert WeightManifest.from_dict(frozen) == stored()


def test_snapshots_are_built_anew():
    made = stored()
    again = validate_weight_manifest_snapshot(made)
    assert again == made and again is not made
    with refused("weight manifest snapshot is invalid"):
        validate_weight_manifest_snapshot(types.SimpleNamespace(**vars(made)))
    object.__setattr__(made, "revision", "")
    with refused("revision must be a non-empty string"):
        validate_weight_manifest_snapshot(made)
    sly = stored()
    object.__setattr__(sly.fragments[0], "nbytes", 1)
    with refused("fragment byte size mismatch"):
        validate_weight_manifest_snapshot(sly)


def test_stored_fragments_are_values():
    assert stored_fragment((0, 0), (4, 2)) == StoredFragment(
        "f0", "w", (0, 0), (4, 2), "weights/d/m/r/1/payload/0", 0, 16
    )

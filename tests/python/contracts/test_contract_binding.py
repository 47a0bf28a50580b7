"""Runtime bindings: live memory of fragments and whether it fits the placement."""

import copy
import dataclasses
import gc
import pickle
import types
import weakref

import pytest
from contract_samples import (
    Number,
    binding,
    bound,
    fragment,
    mini_placement,
    placement,
    refused,
    single_placement,
    tensor,
)
from mooncake.reshard import ResourceKind
from mooncake.reshard.contracts import validate_resource_binding_identity
from mooncake.reshard.weight import (
    OwnershipAxis,
    ParallelRank,
    RuntimeBindingFragment,
    WeightRuntimeBindingManifest,
    validate_runtime_binding,
    validate_runtime_bindings,
)

MINI = mini_placement()
SINGLE = single_placement()
TOP = (1 << 64) - 1


def live(**changes):
    return bound(SINGLE.fragments[0], **changes)


def bound_parts(of=MINI, address=0x1000, **changes):
    """One binding a participant, their memory apart."""
    made = []
    for part in of.parts:
        fragments = []
        for frag in part.fragments:
            fragments.append(bound(frag, address))
            address += 0x1000
        made.append(binding(of, part.participant_id, fragments, **changes))
    return made


def test_field_order():
    assert [f.name for f in dataclasses.fields(RuntimeBindingFragment)] == (
        "placement_fragment_id fragment_id address nbytes worker_id endpoint device itemsize "
        "local_shape strides_bytes storage_address storage_nbytes storage_offset_bytes owner"
    ).split()
    assert [f.name for f in dataclasses.fields(WeightRuntimeBindingManifest)] == (
        "resource_id placement_id placement_digest instance_id generation lease_id revision "
        "participant_id fragments"
    ).split()


FRAGMENT_ERRORS = [
    *[
        ({name: value}, f"{name} must be a non-empty string")
        for name in ("placement_fragment_id", "fragment_id", "worker_id", "endpoint", "device")
        for value in ("", None, 1)
    ],
    ({"address": 0}, "address must be at least 1"),
    ({"address": True}, "address must be an integer"),
    ({"address": 1 << 64}, "address must fit in an unsigned 64-bit integer"),
    ({"nbytes": 0}, "nbytes must be at least 1"),
    ({"nbytes": 1.0}, "nbytes must be an integer"),
    (
        {"address": TOP, "nbytes": 1},
        "address range must fit in an unsigned 64-bit integer",
    ),
    ({"itemsize": 0}, "runtime itemsize must be at least 1"),
    ({"itemsize": None}, "runtime itemsize must be an integer"),
    ({"local_shape": range(4, 1, -2)}, "runtime local_shape must be a tuple or list"),
    ({"local_shape": "42"}, "runtime local_shape must be a tuple or list"),
    ({"local_shape": (4, 0)}, "runtime local_shape[1] must be at least 1"),
    ({"local_shape": (4, Number(2))}, "runtime local_shape[1] must be an integer"),
    ({"strides_bytes": {4, 2}}, "strides_bytes must be a tuple or list"),
    ({"strides_bytes": (-4, 2)}, "strides_bytes[0] must be at least 0"),
    ({"strides_bytes": (4,)}, "runtime stride rank differs from local_shape"),
    ({"strides_bytes": (0, 2)}, "runtime stride must be positive for non-singleton dimensions"),
    ({"storage_address": 0}, "storage_address must be at least 1"),
    ({"storage_nbytes": 0}, "storage_nbytes must be at least 1"),
    (
        {"storage_address": 0x1000, "storage_nbytes": TOP},
        "address range must fit in an unsigned 64-bit integer",
    ),
    ({"storage_offset_bytes": -1}, "storage_offset_bytes must be at least 0"),
    ({"storage_offset_bytes": TOP}, "normalized runtime address must fit in 64 bits"),
    (
        {"storage_offset_bytes": 1},
        "runtime address must equal storage_address plus storage_offset_bytes",
    ),
    ({"storage_nbytes": 15}, "runtime view exceeds storage allocation bounds"),
]


@pytest.mark.parametrize("changes,message", FRAGMENT_ERRORS)
def test_fragment_rules(changes, message):
    with refused(message):
        live(**changes)


def test_strides_of_singleton_dimensions_are_rewritten():
    made = live(local_shape=[4, 1, 2], strides_bytes=[4, 999, 2])
    assert made.local_shape == (4, 1, 2) and type(made.local_shape) is tuple
    assert made.strides_bytes == (4, 4, 2)
    assert live(local_shape=(), strides_bytes=()).local_shape == ()
    highest = live(address=TOP - 16, storage_address=TOP - 16)
    assert highest.address + highest.nbytes == TOP


def test_owner_is_kept_but_never_compared_shown_or_pickled():
    class Memory:
        pass

    memory = Memory()
    made = live(owner=memory)
    assert made.owner is memory
    assert made == live() and hash(made) == hash(live())
    assert "owner" not in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made
    assert pickle.loads(pickle.dumps(made)).owner is None
    assert copy.copy(made).owner is None

    manifest = binding(SINGLE, "w0", [made])
    alive = weakref.ref(memory)
    del memory, made
    gc.collect()
    assert alive() is manifest.fragments[0].owner
    del manifest
    gc.collect()
    assert alive() is None


def test_pickled_fragments_are_checked_again():
    made = live()
    tampered = copy.copy(made)
    object.__setattr__(tampered, "nbytes", 0)
    with refused("nbytes must be at least 1"):
        pickle.loads(pickle.dumps(tampered))


BINDING_ERRORS = [
    *[
        ({name: ""}, f"{name} must be a non-empty string")
        for name in (
            "resource_id",
            "placement_id",
            "instance_id",
            "lease_id",
            "revision",
            "participant_id",
        )
    ],
    ({"placement_digest": None}, "placement_digest must be a non-empty string"),
    ({"placement_digest": "A" * 64}, "placement_digest must be a lowercase SHA-256 digest"),
    ({"generation": -1}, "generation must be at least 0"),
    ({"generation": 1 << 64}, "generation must fit in an unsigned 64-bit integer"),
    ({"generation": False}, "generation must be an integer"),
    ({"fragments": {1}}, "must be a sequence"),
    ({"fragments": [1]}, "must contain RuntimeBindingFragment"),
    ({"fragments": [live(), live()]}, "duplicate placement fragment in runtime binding"),
    (
        {"fragments": [live(), live(placement_fragment_id="other")]},
        "duplicate runtime fragment_id in runtime binding",
    ),
]


@pytest.mark.parametrize("changes,message", BINDING_ERRORS)
def test_binding_rules(changes, message):
    with refused(message):
        binding(SINGLE, "w0", **({"fragments": [live()]} | changes))


def test_binding_dataclass():
    fragments = [
        live(placement_fragment_id=name, fragment_id=name, owner=name) for name in ("b", "c", "a")
    ]
    made = binding(SINGLE, "w0", fragments)
    assert [f.placement_fragment_id for f in made.fragments] == ["a", "b", "c"]
    assert type(made.fragments) is tuple and made.fragments[0] is fragments[2]
    assert made.resource_kind is ResourceKind.MODEL_WEIGHT
    assert made == binding(SINGLE, "w0", fragments[::-1])
    assert hash(made) == hash(binding(SINGLE, "w0", fragments))
    assert pickle.loads(pickle.dumps(made)) == made
    assert dataclasses.replace(made, generation=5).generation == 5
    with refused("generation must be at least 0"):
        dataclasses.replace(made, generation=-1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.lease_id = "x"
    assert binding(SINGLE, "w0", []).fragments == ()


def test_identity():
    good = binding(SINGLE, "w0", [live()])
    assert validate_resource_binding_identity(SINGLE, good) is None
    kv = types.SimpleNamespace(resource_kind=ResourceKind.KV_CACHE)
    with refused("placement and runtime binding resource_kind differ"):
        validate_resource_binding_identity(SINGLE, kv)
    cases = [
        (
            {"resource_id": "x", "placement_id": "x"},
            "placement and runtime binding resource_id differ",
        ),
        ({"placement_id": "x"}, "placement_id and runtime binding placement_id differ"),
        (
            {"placement_digest": "0" * 64},
            "placement digest and runtime binding placement digest differ",
        ),
    ]
    for changes, message in cases:
        wrong = dataclasses.replace(good, **changes)
        with refused(message):
            validate_resource_binding_identity(SINGLE, wrong)
        with refused(message):
            validate_runtime_binding(SINGLE, wrong)


def test_types_are_exact():
    good = binding(SINGLE, "w0", [live()])
    with refused("placement must be a WeightPlacementManifest"):
        validate_runtime_binding(types.SimpleNamespace(**vars(SINGLE)), good)
    with refused("binding must be a WeightRuntimeBindingManifest"):
        validate_runtime_binding(SINGLE, types.SimpleNamespace(**vars(good)))
    with refused("placement must be a WeightPlacementManifest"):
        validate_runtime_bindings(None, [good])
    with refused("runtime bindings must be a sequence"):
        validate_runtime_bindings(SINGLE, {good})
    with refused("runtime bindings must contain WeightRuntimeBindingManifest"):
        validate_runtime_bindings(SINGLE, [1])


ONE_BINDING_ERRORS = [
    ({"revision": "x"}, {}, "placement and runtime binding revision differ"),
    ({"participant_id": "x"}, {}, "unknown runtime binding participant: x"),
    (
        {},
        {"placement_fragment_id": "x"},
        "unknown placement fragment in runtime binding: x",
    ),
    ({"fragments": []}, {}, "missing placement fragment in runtime binding: "),
    ({}, {"nbytes": 8}, "runtime binding byte size does not match placement: "),
    ({}, {"local_shape": (8, 1), "strides_bytes": (2, 2)}, "local_shape"),
    ({}, {"itemsize": 1, "strides_bytes": (4, 2)}, "itemsize"),
    (
        {},
        {"strides_bytes": (2, 8)},
        "runtime binding stride does not describe a canonical contiguous view: ",
    ),
]


@pytest.mark.parametrize("changes,fragment_changes,message", ONE_BINDING_ERRORS)
def test_one_binding(changes, fragment_changes, message):
    made = binding(SINGLE, "w0", **({"fragments": [live(**fragment_changes)]} | changes))
    with refused(message):
        validate_runtime_binding(SINGLE, made)


def test_address_spaces():
    ranks = [ParallelRank()]
    of = placement(
        [tensor("a", axes=()), tensor("b", axes=())],
        [fragment((0, 0), (4, 2), tensor_id=name) for name in "ab"],
        ranks,
    )
    first, second = of.parts[0].fragments

    def bind(address, **changes):
        return binding(of, "w0", [bound(first, 0x1000), bound(second, address, **changes)])

    validate_runtime_binding(of, bind(0x1010))  # adjacent
    with refused("runtime binding address ranges overlap"):
        validate_runtime_binding(of, bind(0x100F))
    # The same address on another worker or device is other memory; an endpoint is not.
    validate_runtime_binding(of, bind(0x100F, worker_id="other"))
    validate_runtime_binding(of, bind(0x100F, device="cuda:0"))
    with refused("runtime binding address ranges overlap"):
        validate_runtime_binding(of, bind(0x100F, endpoint="other"))
    # Allocations are the same or apart.
    inside = {"storage_address": 0x1008, "storage_nbytes": 0x200, "storage_offset_bytes": 0xF8}
    with refused("runtime binding storage allocation ranges overlap"):
        validate_runtime_binding(of, bind(0x1100, **inside))


def test_declared_aliases_share_memory():
    ranks = [ParallelRank()]

    def tied(*aliases):
        return placement(
            [tensor("a", axes=()), tensor("b", axes=())],
            [fragment((0, 0), (4, 2), tensor_id=name, aliases=aliases) for name in "ab"],
            ranks,
        )

    for of, fails in ((tied("a", "b"), False), (tied(), True)):
        made = binding(of, "w0", [bound(f, 0x1000) for f in of.parts[0].fragments])
        if fails:
            with refused("runtime binding address ranges overlap"):
                validate_runtime_binding(of, made)
        else:
            validate_runtime_binding(of, made)


def test_all_bindings():
    good = bound_parts()
    validate_runtime_bindings(MINI, good)
    validate_runtime_bindings(MINI, tuple(reversed(good)))
    with refused("duplicate runtime binding participant"):
        validate_runtime_bindings(MINI, [good[0], good[0]])
    with refused("missing runtime binding participant: w1"):
        validate_runtime_bindings(MINI, good[:1])
    # One instance: its bindings share address spaces. Two instances: they do not.
    same_address = [
        binding(MINI, part.participant_id, [bound(part.fragments[0])]) for part in MINI.parts
    ]
    with refused("runtime binding address ranges overlap"):
        validate_runtime_bindings(MINI, same_address)
    apart = [dataclasses.replace(b, instance_id=b.participant_id) for b in same_address]
    validate_runtime_bindings(MINI, apart)


def test_participants_without_fragments_need_no_binding():
    ranks = [ParallelRank(pp=0), ParallelRank(pp=1)]
    of = placement(
        [tensor(axes=(OwnershipAxis("pp"),))], [fragment((0, 0), (4, 2), ranks[0])], ranks
    )
    only = binding(of, "w0", [bound(of.parts[0].fragments[0])])
    validate_runtime_bindings(of, [only])

"""Binding: which tensor of this process holds which fragment of a placement."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from ..contracts import RuntimeBindingFragment
from .extended import StridedBindingFragment
from .memory import TensorMemory, memory_of
from .placement import WeightPlacementManifest
from .runtime import WeightRuntimeBindingManifest

__all__ = ["bind_tensors"]


def bind_tensors(
    placement: WeightPlacementManifest,
    participant_id: str,
    tensors: Mapping[str, Any],
    *,
    generation: int = 0,
    lease_id: str = "local",
) -> WeightRuntimeBindingManifest:
    """The binding of `participant_id` to tensors of this process, for `weight_get`.

    `tensors` maps a tensor id to the local tensor (torch, numpy, DLPack, buffer) that shall hold
    the participant's share; a participant with several fragments of one tensor maps each
    placement_fragment_id instead. A non-contiguous tensor is bound as the strided view it is, and
    filled in place. Shape and dtype are checked here, per tensor: ValueError names the tensor and
    both values. Fragments without elements need no tensor. The binding keeps the tensors alive.
    """
    part = next((p for p in placement.parts if p.participant_id == participant_id), None)
    if part is None:
        raise ValueError(f"unknown participant for binding: {participant_id}")
    descriptors = {tensor.tensor_id: tensor for tensor in part.tensors}
    per_tensor: dict[str, int] = {}
    for fragment in part.fragments:
        per_tensor[fragment.tensor_id] = per_tensor.get(fragment.tensor_id, 0) + 1

    used = set()
    bound = []
    for fragment in part.fragments:
        key = fragment.placement_fragment_id
        if key not in tensors:
            key = fragment.tensor_id
            if key not in tensors:
                if fragment.nbytes == 0:
                    continue
                raise ValueError(f"no tensor is given for {fragment.tensor_id}")
            if per_tensor[key] > 1:
                raise ValueError(
                    f"{key} has {per_tensor[key]} fragments on {participant_id}: "
                    "map each placement_fragment_id to its tensor"
                )
        used.add(key)
        try:
            memory = memory_of(tensors[key], writable=True)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
        check_fragment_memory(fragment, descriptors[fragment.tensor_id], memory, strided=True)
        if fragment.nbytes > 0:
            bound.append(_bound(participant_id, fragment, memory))
    unknown = sorted(set(tensors) - used)
    if unknown:
        raise ValueError(f"{participant_id} holds no fragment of: {', '.join(unknown)}")
    return WeightRuntimeBindingManifest(
        resource_id=placement.resource_id,
        placement_id=placement.placement_id,
        placement_digest=placement.digest,
        instance_id=f"pid-{os.getpid()}",
        generation=generation,
        lease_id=lease_id,
        revision=placement.revision,
        participant_id=participant_id,
        fragments=bound,
    )


def _bound(participant_id: str, fragment: Any, memory: TensorMemory) -> RuntimeBindingFragment:
    view = RuntimeBindingFragment if memory.contiguous else StridedBindingFragment
    storage_address, storage_nbytes = memory.storage
    return view(
        placement_fragment_id=fragment.placement_fragment_id,
        fragment_id=f"{participant_id}:{fragment.placement_fragment_id}",
        address=memory.address,
        nbytes=memory.nbytes,
        worker_id=participant_id,
        endpoint=socket.gethostname() or "localhost",
        device=memory.device,
        itemsize=memory.itemsize,
        local_shape=memory.shape,
        strides_bytes=memory.strides_bytes,
        storage_address=storage_address,
        storage_nbytes=storage_nbytes,
        storage_offset_bytes=memory.address - storage_address,
        owner=memory.owner,
    )


def check_fragment_memory(
    fragment: Any, descriptor: Any, memory: TensorMemory, *, strided: bool = False
) -> None:
    """ValueError, naming the tensor and both values, unless `memory` can hold the fragment.

    Non-contiguous memory can where `strided` says so, if no stride is negative.
    """
    name = fragment.tensor_id
    if memory.dtype != descriptor.dtype or memory.itemsize != descriptor.itemsize:
        raise ValueError(
            f"dtype of {name}: the placement says {descriptor.dtype} of {descriptor.itemsize} "
            f"bytes, the tensor is {memory.dtype} of {memory.itemsize}"
        )
    if memory.shape != tuple(fragment.local_shape):
        raise ValueError(
            f"shape of {name}: the placement says {tuple(fragment.local_shape)}, "
            f"the tensor is {memory.shape}"
        )
    if strided and all(stride >= 0 for stride in memory.strides_bytes):
        return
    if not memory.contiguous:
        raise ValueError(
            f"{name} is a non-contiguous view (shape {memory.shape}, strides "
            f"{memory.strides_bytes} bytes): pass a contiguous tensor"
        )

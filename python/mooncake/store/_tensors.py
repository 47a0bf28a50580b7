"""torch tensors as objects (_tensor_format has the form): whole, in shards, from and into memory.

torch is imported when the first of these is called; without it nothing is a tensor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Optional

from . import _codes as codes
from ._client import Key, ReplicateConfig, StoreClient, same_for_all
from ._tensor_format import HEADER_BYTES, TensorHeader

__all__ = ["Tensors"]


def shard_key(key: Key, rank: int, size: int) -> Key:
    """What a shard is called; of one shard the key itself."""
    if size <= 1:
        return key
    suffix = f"_tp_{rank}"
    return key + suffix.encode() if isinstance(key, bytes) else key + suffix


class Tensors(StoreClient):
    # ---- put ----

    def put_tensor(self, key: Key, tensor: Any) -> int:
        """0, also when the key exists (unchanged); -600: no tensor, or a dtype without a code;
        -200: no room in the local buffer or in the pool."""
        return self._put_tensor(key, tensor, None, False)

    def pub_tensor(self, key: Key, tensor: Any, config: Optional[ReplicateConfig] = None) -> int:
        """put_tensor with a config."""
        return self._put_tensor(key, tensor, config, False)

    def upsert_tensor(self, key: Key, tensor: Any) -> int:
        """put_tensor, and replaces what is there."""
        return self._put_tensor(key, tensor, None, True)

    def upsert_pub_tensor(
        self, key: Key, tensor: Any, config: Optional[ReplicateConfig] = None
    ) -> int:
        """upsert_tensor with a config."""
        return self._put_tensor(key, tensor, config, True)

    def batch_put_tensor(self, keys: Sequence[Key], tensors_list: Sequence[Any]) -> list[int]:
        return self._put_tensors(keys, tensors_list, None, False)

    def batch_pub_tensor(
        self,
        keys: Sequence[Key],
        tensors_list: Sequence[Any],
        config: Optional[ReplicateConfig] = None,
    ) -> list[int]:
        return self._put_tensors(keys, tensors_list, config, False)

    def batch_upsert_tensor(self, keys: Sequence[Key], tensors_list: Sequence[Any]) -> list[int]:
        return self._put_tensors(keys, tensors_list, None, True)

    def batch_upsert_pub_tensor(
        self,
        keys: Sequence[Key],
        tensors_list: Sequence[Any],
        config: Optional[ReplicateConfig] = None,
    ) -> list[int]:
        return self._put_tensors(keys, tensors_list, config, True)

    def _put_tensor(
        self, key: Key, tensor: Any, config: Optional[ReplicateConfig], up: bool
    ) -> int:
        return self._put_tensors([key], [tensor], config, up)[0]

    def _put_tensors(
        self,
        keys: Sequence[Key],
        tensors: Sequence[Any],
        config: Optional[ReplicateConfig],
        up: bool,
    ) -> list[int]:
        core = self._core
        answers = same_for_all(keys, codes.INVALID_PARAMS)
        placed, refusal = self._check_config(config, len(answers), True)
        named = placed.preferred_segments
        if (
            core is None
            or len(tensors) != len(answers)
            or (config is not None and named and len(named) != placed.replica_num)
        ):
            return answers
        if refusal:
            return same_for_all(keys, refusal)
        headers = [TensorHeader.of(tensor) for tensor in tensors]
        staged = sum(HEADER_BYTES + h.nbytes for h in headers if h is not None)
        if staged > core.local_buffer_free():
            return [
                codes.NO_AVAILABLE_HANDLE if h is not None else codes.INVALID_PARAMS
                for h in headers
            ]
        held: list[Any] = []  # keeps what the addresses are of
        chosen = [i for i, header in enumerate(headers) if header is not None]
        addresses, sizes = [], []
        for i in chosen:
            data = tensors[i].detach().cpu().contiguous()
            head = ctypes.create_string_buffer(headers[i].pack(), HEADER_BYTES)
            held += [data, head]
            addresses.append([ctypes.addressof(head), data.data_ptr()])
            sizes.append([HEADER_BYTES, headers[i].nbytes])
        if placed.group_ids is not None and len(chosen) < len(answers):
            groups, placed = placed.group_ids, placed.__copy__()
            placed.group_ids = [groups[i] for i in chosen]
        stored = core.put_pieces([keys[i] for i in chosen], addresses, sizes, placed, up)
        for i, answer in zip(chosen, stored, strict=True):
            answers[i] = answer
        return answers

    # ---- get ----

    def get_tensor(self, key: Key) -> Any:
        """A CPU tensor of its own memory; None: there is none, or no room in the local buffer."""
        return self.batch_get_tensor([key])[0]

    def batch_get_tensor(self, keys: Sequence[Key]) -> list[Any]:
        core = self._core
        if core is None:
            return [None] * len(keys)
        tensors = []
        for handle in core.get_handles(keys):
            header = None
            if handle is not None:
                head = bytes(memoryview(handle).cast("B")[:HEADER_BYTES])
                header = TensorHeader.parse(head, len(handle))
            tensors.append(None if header is None else header.view(handle).clone())
        return tensors

    # ---- shards of one dimension ----

    def put_tensor_with_tp(
        self, key: Key, tensor: Any, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """Cuts the whole tensor evenly along `split_dim` and stores every shard, as
        `<key>_tp_<rank>`. -600: it cannot be cut evenly. 0, or the first failing shard's code."""
        return self.pub_tensor_with_tp(key, tensor, None, tp_rank, tp_size, split_dim)

    def pub_tensor_with_tp(
        self,
        key: Key,
        tensor: Any,
        config: Optional[ReplicateConfig] = None,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> int:
        if tp_size <= 1:
            return self._put_tensor(key, tensor, config, False)
        if TensorHeader.of(tensor) is None or not -tensor.dim() <= split_dim < tensor.dim():
            return codes.INVALID_PARAMS
        if tensor.shape[split_dim] % tp_size != 0:
            return codes.INVALID_PARAMS
        shards = tensor.chunk(tp_size, split_dim)
        names = [shard_key(key, rank, tp_size) for rank in range(tp_size)]
        if config is not None and config.group_ids is not None and len(config.group_ids) == 1:
            # The key's group is its shards'.
            group, config = config.group_ids[0], config.__copy__()
            config.group_ids = [group] * tp_size
        stored = self._put_tensors(names, shards, config, False)
        return next((code for code in stored if code), codes.OK)

    def batch_put_tensor_with_tp(
        self,
        base_keys: Sequence[Key],
        tensors_list: Sequence[Any],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        return self.batch_pub_tensor_with_tp(
            base_keys, tensors_list, None, tp_rank, tp_size, split_dim
        )

    def batch_pub_tensor_with_tp(
        self,
        base_keys: Sequence[Key],
        tensors_list: Sequence[Any],
        config: Optional[ReplicateConfig] = None,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        if tp_size <= 1:
            return self._put_tensors(base_keys, tensors_list, config, False)
        if len(base_keys) != len(tensors_list):
            return same_for_all(base_keys, codes.INVALID_PARAMS)
        return [
            self.pub_tensor_with_tp(key, tensor, config, tp_rank, tp_size, split_dim)
            for key, tensor in zip(base_keys, tensors_list, strict=True)
        ]

    def get_tensor_with_tp(
        self, key: Key, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> Any:
        """The shard `<key>_tp_<rank>`, or None."""
        return self.get_tensor(shard_key(key, tp_rank, tp_size))

    def batch_get_tensor_with_tp(
        self, base_keys: Sequence[Key], tp_rank: int = 0, tp_size: int = 1
    ) -> list[Any]:
        return self.batch_get_tensor([shard_key(key, tp_rank, tp_size) for key in base_keys])

    # ---- into the caller's memory, which receives header and data ----

    def get_tensor_into(self, key: Key, buffer_ptr: int, size: int) -> Any:
        """A tensor that views the caller's memory, or None."""
        tensor = self.batch_get_tensor_into([key], [buffer_ptr], [size])[0]
        return None if isinstance(tensor, int) else tensor

    def batch_get_tensor_into(
        self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]
    ) -> list[Any]:
        """Lists of different lengths: -600 for every key."""
        core = self._core
        if core is None or not len(keys) == len(buffer_ptrs) == len(sizes):
            return same_for_all(keys, codes.INVALID_PARAMS)
        tensors = []
        for address, got in zip(
            buffer_ptrs, core.get_pointers(keys, buffer_ptrs, sizes), strict=True
        ):
            header = None if got < HEADER_BYTES else _header_at(int(address), got)
            if header is None:
                tensors.append(None)
            else:
                memory = (ctypes.c_ubyte * got).from_address(int(address))
                tensors.append(header.view(memory))
        return tensors

    def get_tensor_with_tp_into(
        self,
        key: Key,
        buffer_ptr: int,
        size: int,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> Any:
        return self.get_tensor_into(shard_key(key, tp_rank, tp_size), buffer_ptr, size)

    def batch_get_tensor_with_tp_into(
        self,
        base_keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        tp_rank: int = 0,
        tp_size: int = 1,
    ) -> list[Any]:
        names = [shard_key(key, tp_rank, tp_size) for key in base_keys]
        return self.batch_get_tensor_into(names, buffer_ptrs, sizes)

    def get_tensor_into_cuda(self, key: Key, tensor: Any) -> int:
        """-600, as on every full client."""
        return codes.INVALID_PARAMS

    def batch_get_tensor_into_cuda(self, keys: Sequence[Key], tensors: Sequence[Any]) -> list[int]:
        return same_for_all(keys, codes.INVALID_PARAMS)

    # ---- from the caller's memory, which has header and data ----

    def put_tensor_from(self, key: Key, buffer_ptr: int, size: int) -> int:
        """-600: the memory does not begin with the header of a tensor that it holds whole."""
        return self.batch_put_tensor_from([key], [buffer_ptr], [size])[0]

    def batch_put_tensor_from(
        self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        """One that is no tensor: -600 for every key."""
        return self._put_tensors_from(keys, buffer_ptrs, sizes, False)

    def upsert_tensor_from(self, key: Key, buffer_ptr: int, size: int) -> int:
        return self.batch_upsert_tensor_from([key], [buffer_ptr], [size])[0]

    def batch_upsert_tensor_from(
        self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        return self._put_tensors_from(keys, buffer_ptrs, sizes, True)

    def put_tensor_with_tp_from(
        self,
        key: Key,
        buffer_ptr: int,
        size: int,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> int:
        """Stores what the memory holds as the shard `<key>_tp_<rank>`."""
        return self.put_tensor_from(shard_key(key, tp_rank, tp_size), buffer_ptr, size)

    def batch_put_tensor_with_tp_from(
        self,
        base_keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        if not len(base_keys) == len(buffer_ptrs) == len(sizes):
            return same_for_all(base_keys, codes.INVALID_PARAMS)
        return [
            self.put_tensor_with_tp_from(key, address, size, tp_rank, tp_size, split_dim)
            for key, address, size in zip(base_keys, buffer_ptrs, sizes, strict=True)
        ]

    def _put_tensors_from(
        self,
        keys: Sequence[Key],
        addresses: Sequence[int],
        sizes: Sequence[int],
        up: bool,
        config: Optional[ReplicateConfig] = None,
    ) -> list[int]:
        core = self._core
        answers = same_for_all(keys, codes.INVALID_PARAMS)
        placed, refusal = self._check_config(config, len(answers), True)
        if core is None or not len(answers) == len(addresses) == len(sizes):
            return answers
        if refusal:
            return same_for_all(keys, refusal)
        used = []
        for address, size in zip(addresses, sizes, strict=True):
            header = None
            if address and size >= HEADER_BYTES:
                header = _header_at(int(address), int(size))
            if header is None:
                return answers
            used.append(HEADER_BYTES + header.nbytes)
        return core.put_pointers(keys, addresses, used, placed, up)


def _header_at(address: int, size: int) -> Optional[TensorHeader]:
    return TensorHeader.parse(ctypes.string_at(address, HEADER_BYTES), size)

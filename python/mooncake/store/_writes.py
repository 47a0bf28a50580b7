"""put and upsert, of bytes, of memory by address, and of several pieces as one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

from . import _codes as codes
from ._client import Key, ReplicateConfig, StoreClient, same_for_all

__all__ = ["Writes"]


class Writes(StoreClient):
    """A put of a key that has an object, or another writer, is 0 and changes nothing; an upsert
    replaces. Objects have at least one byte, and are readable when all their copies are whole."""

    # ---- Python values ----

    def put(self, key: Key, value: Any, config: Optional[ReplicateConfig] = None) -> int:
        """Stores a bytes-like value; what has items of more than a byte is cut to its count.

        0; -600: empty, or does not fit the local buffer; -200: no room in the pool, now.
        """
        return self._put_value(key, value, config, False)

    def upsert(self, key: Key, value: Any, config: Optional[ReplicateConfig] = None) -> int:
        """As put, and replaces what is there."""
        return self._put_value(key, value, config, True)

    def _put_value(self, key: Key, value: Any, config: Optional[ReplicateConfig], up: bool) -> int:
        core = self._core
        config, refusal = self._check_config(config, 1)
        if core is None or refusal:
            return refusal or codes.INVALID_PARAMS
        return core.put_values([key], [value], config, up)[0]

    def put_parts(self, key: Key, *parts: Any, config: Optional[ReplicateConfig] = None) -> int:
        """Stores the parts, one behind the other, as one object. Nothing in them: 0, not stored.

        TypeError: a part has no buffer; RuntimeError: it is not a row of single bytes.
        """
        return self._put_parts(key, parts, config, False)

    def upsert_parts(self, key: Key, *parts: Any, config: Optional[ReplicateConfig] = None) -> int:
        """As put_parts, and replaces what is there."""
        return self._put_parts(key, parts, config, True)

    def _put_parts(
        self, key: Key, parts: Sequence[Any], config: Optional[ReplicateConfig], up: bool
    ) -> int:
        # The config may come as the last of the parts, as it may in the store's other methods.
        if parts and isinstance(parts[-1], ReplicateConfig):
            *parts, config = parts
        core = self._core
        config, refusal = self._check_config(config, 1)
        if core is None or refusal:
            return refusal or codes.INVALID_PARAMS
        return core.put_parts(key, parts, config, up)

    def put_batch(
        self,
        keys: Sequence[Key],
        values: Sequence[Any],
        config: Optional[ReplicateConfig] = None,
    ) -> int:
        """Stores many: 0, or the first failing key's code (others may be stored).

        -600, and nothing stored: an empty value, lists of different lengths, or values that do
        not fit the local buffer together.
        """
        return self._put_batch(keys, values, config, False)

    def upsert_batch(
        self,
        keys: Sequence[Key],
        values: Sequence[Any],
        config: Optional[ReplicateConfig] = None,
    ) -> int:
        """As put_batch, and replaces what is there."""
        return self._put_batch(keys, values, config, True)

    def _put_batch(
        self,
        keys: Sequence[Key],
        values: Sequence[Any],
        config: Optional[ReplicateConfig],
        up: bool,
    ) -> int:
        core = self._core
        count = len(same_for_all(keys, 0))
        config, refusal = self._check_config(config, count)
        if core is None or len(values) != count:
            return codes.INVALID_PARAMS
        if count == 0:
            return codes.OK
        if refusal:
            return refusal
        for value in values:
            with memoryview(value) as view:
                if view.nbytes == 0:
                    return codes.INVALID_PARAMS
        return next((code for code in core.put_values(keys, values, config, up) if code), codes.OK)

    # ---- memory by address ----

    def put_from(
        self, key: Key, buffer_ptr: int, size: int, config: Optional[ReplicateConfig] = None
    ) -> int:
        """Stores `size` bytes from address `buffer_ptr`. 0 bytes: 0, and nothing is stored."""
        return self._put_from(key, buffer_ptr, size, config, False)

    def upsert_from(
        self, key: Key, buffer_ptr: int, size: int, config: Optional[ReplicateConfig] = None
    ) -> int:
        """As put_from, and replaces what is there."""
        return self._put_from(key, buffer_ptr, size, config, True)

    def _put_from(
        self, key: Key, buffer_ptr: int, size: int, config: Optional[ReplicateConfig], up: bool
    ) -> int:
        core = self._core
        config, refusal = self._check_config(config, 1)
        if core is None or refusal:
            return refusal or codes.INVALID_PARAMS
        if size == 0:
            return codes.OK
        return core.put_pointers([key], [buffer_ptr], [size], config, up)[0]

    def put_from_with_metadata(
        self,
        key: Key,
        buffer_ptr: int,
        metadata_buffer_ptr: int,
        size: int,
        metadata_size: int,
        config: Optional[ReplicateConfig] = None,
    ) -> int:
        """Stores the metadata's bytes and the data's behind them as one object.

        0; a positive code (a code of this store with its sign turned): the store failed; -1:
        prefer_alloc_in_same_node has no meaning here; -600: not set up.
        """
        core = self._core
        if core is None:
            return codes.INVALID_PARAMS
        config, refusal = self._check_config(config, 1)
        if config.prefer_alloc_in_same_node:
            return codes.INTERNAL_ERROR
        if size == 0:
            return codes.OK
        if refusal:
            return -refusal
        pieces = [metadata_buffer_ptr, buffer_ptr]
        return -core.put_pieces([key], [pieces], [[metadata_size, size]], config, False)[0]

    def batch_put_from(
        self,
        keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        config: Optional[ReplicateConfig] = None,
    ) -> list[int]:
        """put_from for many keys: 0 or a code for each. -600 for an entry of 0 bytes; of a key
        that is named more than once the last buffer is stored."""
        return self._put_many("put_pointers", keys, buffer_ptrs, sizes, config, False)

    def batch_upsert_from(
        self,
        keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        config: Optional[ReplicateConfig] = None,
    ) -> list[int]:
        """As batch_put_from, and replaces what is there."""
        return self._put_many("put_pointers", keys, buffer_ptrs, sizes, config, True)

    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        config: Optional[ReplicateConfig] = None,
    ) -> list[int]:
        """Stores, for each key, its pieces one behind the other: 0 or a code for each."""
        if self._core is None:
            return []
        return self._put_many("put_pieces", keys, all_buffer_ptrs, all_sizes, config, False)

    def _put_many(
        self,
        method: str,
        keys: Sequence[Key],
        addresses: Sequence[Any],
        sizes: Sequence[Any],
        config: Optional[ReplicateConfig],
        up: bool,
    ) -> list[int]:
        core = self._core
        refused = same_for_all(keys, codes.INVALID_PARAMS)
        config, refusal = self._check_config(config, len(refused), method == "put_pieces")
        if core is None or len(addresses) != len(refused) or len(sizes) != len(refused):
            return refused
        if refusal:
            return same_for_all(keys, refusal)
        put = getattr(core, method)
        if len(set(keys)) == len(refused):
            return put(keys, addresses, sizes, config, up)
        return _put_last_of_each(put, keys, addresses, sizes, config, up)


def _put_last_of_each(
    put: Callable[..., list[int]],
    keys: Sequence[Key],
    addresses: Sequence[Any],
    sizes: Sequence[Any],
    config: ReplicateConfig,
    up: bool,
) -> list[int]:
    last = {key: i for i, key in enumerate(keys)}
    chosen = list(last.values())
    if config.group_ids is not None:
        groups = config.group_ids
        config = config.__copy__()
        config.group_ids = [groups[i] for i in chosen]
    answers = put(
        list(last), [addresses[i] for i in chosen], [sizes[i] for i in chosen], config, up
    )
    by_key = dict(zip(last, answers, strict=True))
    return [by_key[key] for key in keys]

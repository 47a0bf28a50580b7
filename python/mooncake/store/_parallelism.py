"""Tensors with a parallel layout, as far as what they mean is established: without a layout they
are the plain calls. One that names axes is refused, aloud: what several axes do to a key and to a
shard is written nowhere, and a guess would give other bytes than the writer's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

from ._client import Key, ReplicateConfig
from ._tensors import Tensors

__all__ = ["ParallelAxis", "ParallelTensors", "ReadTarget", "TensorParallelism"]


@dataclasses.dataclass
class ParallelAxis:
    """One axis of a parallel layout: kind "tp", "dp", "ep" or "pp"."""

    kind: str = "tp"
    rank: int = 0
    size: int = 1
    split_dim: Optional[int] = None
    expert_id: Optional[int] = None
    stage_id: Optional[int] = None


@dataclasses.dataclass
class TensorParallelism:
    axes: list[ParallelAxis] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class ReadTarget:
    """mode "as_stored", "shard" or "full"."""

    mode: str = "as_stored"
    parallelism: Optional[TensorParallelism] = None


def _is_plain(layout: Any) -> bool:
    if layout is None:
        return True
    if isinstance(layout, ReadTarget):
        return layout.mode == "as_stored" and _is_plain(layout.parallelism)
    return isinstance(layout, TensorParallelism) and not layout.axes


def _demand_plain(method: str, layouts: Sequence[Any]) -> None:
    """NotImplementedError: one of them has axes, or is of another kind."""
    for layout in layouts:
        if not _is_plain(layout):
            raise NotImplementedError(
                f"{method}: layouts with axes are not supported by this store, got {layout}: use "
                "the *_with_tp methods for shards of one dimension, and "
                "mooncake.reshard.weight.WeightStore for what several axes cut"
            )


class ParallelTensors(Tensors):
    # ---- one ----

    def put_tensor_with_parallelism(
        self,
        key: Key,
        tensor: Any,
        parallelism: Optional[TensorParallelism] = None,
        config: Optional[ReplicateConfig] = None,
        writer_partition: Any = None,
    ) -> int:
        """pub_tensor, where no layout is given; NotImplementedError otherwise, as in all others."""
        _demand_plain("put_tensor_with_parallelism", [parallelism, writer_partition])
        return self._put_tensor(key, tensor, config, False)

    def upsert_tensor_with_parallelism(
        self,
        key: Key,
        tensor: Any,
        parallelism: Optional[TensorParallelism] = None,
        config: Optional[ReplicateConfig] = None,
        writer_partition: Any = None,
    ) -> int:
        """upsert_pub_tensor."""
        _demand_plain("upsert_tensor_with_parallelism", [parallelism, writer_partition])
        return self._put_tensor(key, tensor, config, True)

    def put_tensor_with_parallelism_from(
        self,
        key: Key,
        buffer_ptr: int,
        size: int,
        parallelism: Optional[TensorParallelism] = None,
        config: Optional[ReplicateConfig] = None,
        writer_partition: Any = None,
    ) -> int:
        """put_tensor_from, with a config."""
        _demand_plain("put_tensor_with_parallelism_from", [parallelism, writer_partition])
        return self._put_tensors_from([key], [buffer_ptr], [size], False, config)[0]

    def upsert_tensor_with_parallelism_from(
        self,
        key: Key,
        buffer_ptr: int,
        size: int,
        parallelism: Optional[TensorParallelism] = None,
        config: Optional[ReplicateConfig] = None,
        writer_partition: Any = None,
    ) -> int:
        """upsert_tensor_from, with a config."""
        _demand_plain("upsert_tensor_with_parallelism_from", [parallelism, writer_partition])
        return self._put_tensors_from([key], [buffer_ptr], [size], True, config)[0]

    def get_tensor_with_parallelism(
        self,
        key: Key,
        parallelism: Optional[TensorParallelism] = None,
        target: Optional[ReadTarget] = None,
    ) -> Any:
        """get_tensor."""
        _demand_plain("get_tensor_with_parallelism", [parallelism, target])
        return self.get_tensor(key)

    def get_tensor_with_parallelism_into(
        self,
        key: Key,
        buffer_ptr: int,
        size: int,
        parallelism: Optional[TensorParallelism] = None,
        target: Optional[ReadTarget] = None,
    ) -> Any:
        """get_tensor_into."""
        _demand_plain("get_tensor_with_parallelism_into", [parallelism, target])
        return self.get_tensor_into(key, buffer_ptr, size)

    # ---- many ----

    def batch_put_tensor_with_parallelism(
        self,
        keys: Sequence[Key],
        tensors_list: Sequence[Any],
        parallelisms: Optional[Sequence[Any]] = None,
        config: Optional[ReplicateConfig] = None,
        writer_partitions: Optional[Sequence[Any]] = None,
    ) -> list[int]:
        layouts = [*(parallelisms or ()), *(writer_partitions or ())]
        _demand_plain("batch_put_tensor_with_parallelism", layouts)
        return self._put_tensors(keys, tensors_list, config, False)

    def batch_upsert_tensor_with_parallelism(
        self,
        keys: Sequence[Key],
        tensors_list: Sequence[Any],
        parallelisms: Optional[Sequence[Any]] = None,
        config: Optional[ReplicateConfig] = None,
        writer_partitions: Optional[Sequence[Any]] = None,
    ) -> list[int]:
        layouts = [*(parallelisms or ()), *(writer_partitions or ())]
        _demand_plain("batch_upsert_tensor_with_parallelism", layouts)
        return self._put_tensors(keys, tensors_list, config, True)

    def batch_put_tensor_with_parallelism_from(
        self,
        keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Optional[Sequence[Any]] = None,
        config: Optional[ReplicateConfig] = None,
        writer_partitions: Optional[Sequence[Any]] = None,
    ) -> list[int]:
        layouts = [*(parallelisms or ()), *(writer_partitions or ())]
        _demand_plain("batch_put_tensor_with_parallelism_from", layouts)
        return self._put_tensors_from(keys, buffer_ptrs, sizes, False, config)

    def batch_upsert_tensor_with_parallelism_from(
        self,
        keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Optional[Sequence[Any]] = None,
        config: Optional[ReplicateConfig] = None,
        writer_partitions: Optional[Sequence[Any]] = None,
    ) -> list[int]:
        layouts = [*(parallelisms or ()), *(writer_partitions or ())]
        _demand_plain("batch_upsert_tensor_with_parallelism_from", layouts)
        return self._put_tensors_from(keys, buffer_ptrs, sizes, True, config)

    def batch_get_tensor_with_parallelism(
        self,
        keys: Sequence[Key],
        parallelisms: Optional[Sequence[Any]] = None,
        targets: Optional[Sequence[Any]] = None,
    ) -> list[Any]:
        layouts = [*(parallelisms or ()), *(targets or ())]
        _demand_plain("batch_get_tensor_with_parallelism", layouts)
        return self.batch_get_tensor(keys)

    def batch_get_tensor_with_parallelism_into(
        self,
        keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Optional[Sequence[Any]] = None,
        targets: Optional[Sequence[Any]] = None,
    ) -> list[Any]:
        layouts = [*(parallelisms or ()), *(targets or ())]
        _demand_plain("batch_get_tensor_with_parallelism_into", layouts)
        return self.batch_get_tensor_into(keys, buffer_ptrs, sizes)

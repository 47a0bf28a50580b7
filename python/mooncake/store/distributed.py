"""The store itself: opening it, closing it, and all families of its methods."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Any, Optional, Union

from mooncake import _core

from . import _codes as codes
from ._parallelism import ParallelTensors
from ._placement import Placement
from ._reads import Reads
from ._sessions import Sessions
from ._setup import HeldPort, SetupRefused, SetupRequest, environment_int, from_dict
from ._tensor_files import TensorFiles
from ._writes import Writes

__all__ = ["MooncakeDistributedStore"]

logger = logging.getLogger("mooncake.store")

# How long a Master that cannot be reached is asked again: its restart takes less.
_RETRY_MS = 5_000
_REQUIRED = (
    "local_hostname",
    "metadata_server",
    "global_segment_size",
    "local_buffer_size",
    "protocol",
    "rdma_devices",
    "master_server_addr",
)
_MISSING: Any = type("_Missing", (), {"__repr__": lambda _: "<required>"})()

_open_stores: weakref.WeakSet[MooncakeDistributedStore] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # While Python still runs: the threads behind a store must end before its libraries do.
    for store in list(_open_stores):
        store.close()


class MooncakeDistributedStore(Writes, Reads, Sessions, Placement, ParallelTensors, TensorFiles):
    """Objects under keys, in the memory that nodes and clients lend to the store.

    Methods return numbers and do not raise: 0 or a count for success, a negative code otherwise.
    What is of the wrong type is a TypeError. Everything may be called from many threads at once,
    and releases the GIL while it works.
    """

    def __init__(self) -> None:
        super().__init__()
        self._port: Optional[HeldPort] = None
        self._master_address = ""
        self._tcp_host = ""

    def __del__(self) -> None:
        if getattr(self, "_core", None) is not None:
            self.close()

    # ---- life cycle ----

    def setup(
        self,
        local_hostname: Union[str, dict[str, Any]] = _MISSING,
        metadata_server: str = _MISSING,
        global_segment_size: int = _MISSING,
        local_buffer_size: int = _MISSING,
        protocol: str = _MISSING,
        rdma_devices: str = _MISSING,
        master_server_addr: str = _MISSING,
        engine: Any = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: int = 9300,
        *,
        config: Optional[dict[str, Any]] = None,
    ) -> int:
        """Connects to the Master, and lends it memory of this process.

        The first seven arguments are required; or all is given in one dict, as the first argument
        or as `config`, with the same names. `local_hostname` is "host" or "host:port"; with its
        port it is the name of this process's segment. `global_segment_size` bytes are lent (0:
        none); `local_buffer_size` bytes may be used for Python bytes and handles. `protocol`:
        "tcp" or "rpc_only". `master_server_addr`: the Master's host:port; or a store's URI,
        mooncake://host:port or file:///folder (an embedded store).

        0; -600: an argument, or the Master cannot be reached from a name with a port; -1: likewise
        without a port. The log says why.
        """
        given = (local_hostname, metadata_server, global_segment_size, local_buffer_size)
        given += (protocol, rdma_devices, master_server_addr)
        try:
            if config is not None or isinstance(local_hostname, dict):
                request = from_dict(config if config is not None else local_hostname)
            else:
                _check_types(given)
                request = SetupRequest(
                    *given,
                    engine,
                    bool(enable_ssd_offload),
                    ssd_offload_path,
                    tenant_id,
                    bool(enable_client_http_server),
                    client_http_port,
                )
            request.check()
            target = request.target()
        except SetupRefused as refused:
            logger.error("setup: %s", refused)
            return codes.INVALID_PARAMS
        return self._open(request, target)

    def _open(self, request: SetupRequest, target: str) -> int:
        self.close()
        port: Optional[HeldPort] = None
        try:
            port = HeldPort(request.local_hostname)
            core = _core.ObjectStore(
                target,
                tenant_id=request.tenant_id,
                retry_ms=environment_int("MC_RPC_TIMEOUT_MS", _RETRY_MS),
                local_buffer_bytes=request.local_buffer_size,
                checksum=os.environ.get("MOONCAKE_STORE_CHECKSUM", "1").lower()
                not in ("0", "false"),
                share_memory=os.environ.get("MC_STORE_MEMCPY", "1").lower() not in ("0", "false"),
            )
            self._master_address = target.partition("://")[2] if "mooncake" in target else ""
            if request.global_segment_size > 0 and self._master_address:
                core.lend(
                    self._master_address,
                    port.name,
                    request.global_segment_size,
                    request.tcp_host(),
                )
        except (SetupRefused, _core.StoreError) as error:
            logger.error("setup: %s", ": ".join(str(part) for part in error.args))
            if port is not None:
                port.close()
            given = port is not None and port.given
            return codes.INVALID_PARAMS if given else codes.INTERNAL_ERROR
        with self._lock:
            self._core, self._port, self._tenant_id = core, port, request.tenant_id
            self._tcp_host = request.tcp_host()
        _open_stores.add(self)
        return codes.OK

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Processes of this store that serve thin clients do not exist: -1."""
        logger.error("setup_dummy: use setup; every process of this store is a full client")
        return codes.INTERNAL_ERROR

    def init_all(self, protocol: str, device_name: str, mount_segment_size: int) -> int:
        """A leftover that never succeeds: -600."""
        return codes.INVALID_PARAMS

    def close(self) -> int:
        """Takes the lent memory back (objects whose only copy was there are gone): 0."""
        with self._lock:
            core, self._core = self._core, None
            port, self._port = self._port, None
            self._forget_regions()
            self._reading.clear()
            self._mounted.clear()
        _open_stores.discard(self)
        del core
        if port is not None:
            port.close()
        return codes.OK

    def health_check(self) -> int:
        """0: the Master answers; 1: not set up, or closed; 2: it does not answer."""
        core = self._core
        if core is None:
            return 1
        return 0 if core.ping() == 0 else 2

    def get_hostname(self) -> str:
        """ "host:port", which is also the name of this process's segment; "" before setup."""
        port = self._port
        return "" if port is None else port.name

    def _lend(self, name: str, size: int) -> int:
        core = self._core
        if core is None or not self._master_address or size <= 0:
            return codes.INVALID_PARAMS
        try:
            core.lend(self._master_address, name, size, self._tcp_host)
        except _core.StoreError as error:
            logger.error("mounting a segment: %s", ": ".join(error.args))
            return codes.INTERNAL_ERROR
        return codes.OK


def _check_types(given: tuple[Any, ...]) -> None:
    missing = [name for name, value in zip(_REQUIRED, given, strict=True) if value is _MISSING]
    if missing:
        raise TypeError(f"setup() missing required arguments: {', '.join(missing)}")
    for name, value in zip(_REQUIRED, given, strict=True):
        wanted = int if name.endswith("_size") else str
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise TypeError(
                f"setup() argument {name}: expected {wanted.__name__}, got {type(value).__name__}"
            )

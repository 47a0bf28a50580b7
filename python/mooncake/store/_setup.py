"""What ``MooncakeDistributedStore.setup`` is given, checked: the positional and the dict form."""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import re
import socket
from typing import Any, Optional

__all__ = ["HeldPort", "SetupRefused", "SetupRequest", "environment_int", "from_dict"]

logger = logging.getLogger("mooncake.store")

_KIB = 1024
_MIB = 1024 * _KIB
_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[_letter] = _UNITS[_letter + "B"] = _KIB**_power
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_INFINITE = 2**63 - 1
_LOCAL_BUFFER_MAX = _KIB**4
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")

# What moves bytes here: shared memory inside a host, TCP between hosts.
_PROTOCOLS = ("tcp", "rpc_only")
_OTHER_PROTOCOLS = (
    "rdma",
    "efa",
    "cxl",
    "ascend",
    "ubshmem",
    "ub",
    "cxi",
    "nvlink_intra",
    "sunrise_link",
)


class SetupRefused(Exception):
    """An argument that setup cannot work with; the text says which, and why."""


@dataclasses.dataclass
class SetupRequest:
    """The arguments of setup; sizes in bytes."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int = 16 * _MIB
    local_buffer_size: int = 16 * _MIB
    protocol: str = "tcp"
    rdma_devices: str = ""
    master_server_addr: str = "127.0.0.1:50051"
    engine: Any = None
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300

    def check(self) -> None:
        """SetupRefused for what can be judged without a Master; notes what is not used."""
        if not self.local_hostname:
            raise SetupRefused("local_hostname is empty")
        if not self.metadata_server:
            raise SetupRefused("metadata_server is empty")
        if self.protocol not in _PROTOCOLS:
            known = " exists, and is" if self.protocol in _OTHER_PROTOCOLS else " is"
            raise SetupRefused(
                f"protocol {self.protocol!r}{known} not built here: use {' or '.join(_PROTOCOLS)}"
            )
        for field in ("global_segment_size", "local_buffer_size"):
            size = getattr(self, field)
            if size < 0:
                raise SetupRefused(f"{field} must not be negative, got {size}")
        if self.enable_ssd_offload:
            raise SetupRefused("enable_ssd_offload: this store keeps ordinary objects in memory")
        if not 1 <= self.client_http_port <= 65535:
            raise SetupRefused(f"client_http_port must be 1 to 65535, got {self.client_http_port}")
        if self.tenant_id.startswith("_") or any(
            ord(c) < 32 or c == "\x7f" for c in self.tenant_id
        ):
            raise SetupRefused(
                f"tenant_id must not begin with _ or have control characters: {self.tenant_id!r}"
            )
        self.tenant_id = self.tenant_id or "default"
        self._note_unused()

    def _note_unused(self) -> None:
        if self.metadata_server != "P2PHANDSHAKE":
            logger.info("metadata_server %r is not needed and not asked", self.metadata_server)
        if self.engine is not None:
            logger.info("engine: this store moves bytes by itself; the engine given is not used")
        if self.enable_client_http_server:
            logger.warning("enable_client_http_server: clients of this store serve no HTTP")

    def tcp_host(self) -> str:
        """By which name clients of other hosts reach memory lent here; "": by none."""
        host = self.local_hostname
        if _has_port(host):
            host = host.rpartition(":")[0]
        loopback = host.strip("[]") in ("localhost", "127.0.0.1", "::1")
        return "" if loopback or self.protocol != "tcp" else host

    def target(self) -> str:
        """The URI of the store that master_server_addr names."""
        address = self.master_server_addr
        if address.startswith(("mooncake://", "file://")):
            return address
        if "://" in address:
            raise SetupRefused(
                f"master_server_addr {address!r}: give the Store Master's host:port; "
                "Masters are not looked up in a coordination service"
            )
        return f"mooncake://{address}"


def environment_int(name: str, default: int) -> int:
    """An environment variable as an int; a warning and the default when it is none."""
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        logger.warning("%s: expected an integer, got %r; using %d", name, text, default)
        return default


def _size(name: str, value: Any) -> int:
    text = str(value)
    if text.strip().lower() == "infinite":
        size = _INFINITE
    else:
        match = _SIZE.fullmatch(text)
        unit = _UNITS.get(match[2].upper()) if match else None
        if unit is None:
            raise SetupRefused(f"{name}: expected a size such as 16777216 or 16MB, got {text!r}")
        size = int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    if 0 < size < _KIB:
        raise SetupRefused(f"{name} must be 0 or at least 1 KiB, got {size}")
    return size


def _flag(name: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    logger.warning("%s: expected true or false, got %r; using false", name, value)
    return False


def from_dict(config: dict[str, Any]) -> SetupRequest:
    """The dict form: values are read through str(), unknown keys are ignored."""
    for field in ("local_hostname", "metadata_server"):
        if not str(config.get(field, "")):
            raise SetupRefused(f"{field} is missing")
    request = SetupRequest(str(config["local_hostname"]), str(config["metadata_server"]))
    for field in ("global_segment_size", "local_buffer_size"):
        if field in config:
            setattr(request, field, _size(field, config[field]))
    if request.local_buffer_size > _LOCAL_BUFFER_MAX:
        raise SetupRefused(f"local_buffer_size is over 1 TiB: {request.local_buffer_size}")
    for field in (
        "protocol",
        "rdma_devices",
        "master_server_addr",
        "ssd_offload_path",
        "tenant_id",
    ):
        if field in config:
            setattr(request, field, str(config[field]))
    for field in ("enable_ssd_offload", "enable_client_http_server"):
        if field in config:
            setattr(request, field, _flag(field, config[field]))
    if "client_http_port" in config:
        try:
            request.client_http_port = int(str(config["client_http_port"]))
        except ValueError:
            raise SetupRefused(
                f"client_http_port: expected an integer, got {config['client_http_port']!r}"
            ) from None
    return request


class HeldPort:
    """ "host:port" of a client; a port that was not given is chosen, and held so that no other
    client of this host chooses it too."""

    def __init__(self, hostname: str) -> None:
        self._socket: Optional[socket.socket] = None
        self.given = _has_port(hostname)
        self.name = hostname if self.given else f"{hostname}:{self._choose()}"

    def _choose(self) -> int:
        low = environment_int("MC_STORE_CLIENT_MIN_PORT", 12300)
        high = environment_int("MC_STORE_CLIENT_MAX_PORT", 14300)
        tries = environment_int("MC_STORE_CLIENT_SETUP_RETRIES", 20)
        if not 1 <= low <= high <= 65535:
            raise SetupRefused(f"ports to choose from: {low} to {high}")
        for _ in range(max(tries, 1)):
            port = random.randint(low, high)
            held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                held.bind(("", port))
            except OSError:
                held.close()
                continue
            self._socket = held
            return port
        raise SetupRefused(f"no free port from {low} to {high} in {tries} tries")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _has_port(hostname: str) -> bool:
    host, colon, port = hostname.rpartition(":")
    if not colon or not port.isdecimal():
        return False
    # An IPv6 address has colons of its own: with a port it is in brackets.
    return ":" not in host or host.endswith("]")

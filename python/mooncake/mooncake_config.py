"""How launchers say which store to use: a JSON file or environment variables.

`MOONCAKE_CONFIG_PATH` names the file and wins; else the variables count, of which
`MOONCAKE_MASTER` is required. `MooncakeDistributedStore.setup` reads none of this by itself.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

__all__ = ["MooncakeConfig"]

_SEGMENT_BYTES = 3355443200
_LOCAL_BUFFER_BYTES = 1073741824
_REQUIRED = ("local_hostname", "metadata_server", "master_server_address")


def _flag(value: Any) -> bool:
    return str(value).strip().lower() in ("1", "true", "yes", "on")


@dataclasses.dataclass
class MooncakeConfig:
    """Sizes in bytes."""

    local_hostname: str
    metadata_server: str
    master_server_address: str
    global_segment_size: int = _SEGMENT_BYTES
    local_buffer_size: int = _LOCAL_BUFFER_BYTES
    protocol: str = "tcp"
    device_name: str = ""
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300

    @classmethod
    def from_file(cls, file_path: str) -> MooncakeConfig:
        """ValueError: it is no JSON object, or a required field is missing (named)."""
        with open(file_path, encoding="utf-8") as file:
            config = json.load(file)
        if not isinstance(config, dict):
            raise ValueError(f"{file_path}: expected a JSON object, got {type(config).__name__}")
        for field in _REQUIRED:
            if not config.get(field):
                raise ValueError(f"{file_path}: {field} is missing")
        known = {field.name: field for field in dataclasses.fields(cls)}
        values = {}
        for name, value in config.items():
            if name in known:
                convert = {"int": int, "bool": _flag, "str": str}[str(known[name].type)]
                values[name] = convert(value)
        return cls(**values)

    @classmethod
    def load_from_env(cls) -> MooncakeConfig:
        """ValueError: neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set."""
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if path:
            return cls.from_file(path)
        read = os.environ.get
        master = read("MOONCAKE_MASTER")
        if not master:
            raise ValueError("neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set")
        return cls(
            local_hostname=read("MOONCAKE_LOCAL_HOSTNAME", "localhost"),
            metadata_server=read("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE"),
            master_server_address=master,
            global_segment_size=int(read("MOONCAKE_GLOBAL_SEGMENT_SIZE", str(_SEGMENT_BYTES))),
            local_buffer_size=int(read("MOONCAKE_LOCAL_BUFFER_SIZE", str(_LOCAL_BUFFER_BYTES))),
            protocol=read("MOONCAKE_PROTOCOL", "tcp"),
            device_name=read("MOONCAKE_DEVICE", ""),
            enable_ssd_offload=_flag(read("MOONCAKE_OFFLOAD_ENABLED", "")),
            ssd_offload_path=read("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", ""),
            tenant_id=read("MOONCAKE_TENANT_ID", "default"),
            enable_client_http_server=_flag(read("MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "")),
            client_http_port=int(read("MOONCAKE_CLIENT_HTTP_PORT", "9300")),
        )

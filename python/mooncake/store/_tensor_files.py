"""Tensors of the store to and from .safetensors files.

A file that is written has one tensor, under the key's own name; a file that is read may have more.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Optional

from . import _codes as codes
from ._client import Key
from ._tensors import Tensors

__all__ = ["TensorFiles"]

logger = logging.getLogger("mooncake.store")


def _text(key: Key) -> str:
    return key.decode(errors="surrogateescape") if isinstance(key, bytes) else key


class TensorFiles(Tensors):
    def save_tensor_to_safetensor(self, key: Key, file_name: Optional[str] = None) -> int:
        """Writes the key's tensor into a file of its own; without `file_name`,
        `<key>.safetensors`. A file that is there is replaced when the new one is whole.

        0; -1100: there is no such object that can be read; -600: it is no tensor, the store is not
        set up, or safetensors is not installed; -1103: the file cannot be written.
        """
        core = self._core
        if core is None:
            return codes.INVALID_PARAMS
        try:
            from safetensors.torch import save
        except ImportError as error:
            logger.error("save_tensor_to_safetensor: %s", error)
            return codes.INVALID_PARAMS
        tensor = self.get_tensor(key)
        if tensor is None:
            size = core.sizes([key])[0]
            return codes.FILE_NOT_FOUND if size < 0 else codes.INVALID_PARAMS
        path = os.fspath(file_name) if file_name else _text(key) + ".safetensors"
        unfinished = f"{path}.{os.getpid()}.unfinished"
        try:
            with open(unfinished, "wb") as file:
                file.write(save({_text(key): tensor}))
            os.replace(unfinished, path)
        except OSError as error:
            logger.error("save_tensor_to_safetensor: %s", error)
            return codes.FILE_WRITE_FAIL
        return codes.OK

    def load_tensor_from_safetensor(
        self, key: Optional[Key] = None, file_name: Optional[str] = None
    ) -> Any:
        """The tensor `key` of the file; without a key, the one tensor that the file has. Without
        `file_name`, of `<key>.safetensors`. Nothing is put into the store.

        None: there is no such file or no such tensor, several and no key, or no safetensors.
        """
        if self._core is None or (key is None and not file_name):
            return None
        path = os.fspath(file_name) if file_name else _text(key or "") + ".safetensors"
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            logger.error("load_tensor_from_safetensor: %s", error)
            return None
        try:
            with safe_open(path, framework="pt") as file:
                names = list(file.keys())
                name = _text(key) if key is not None else names[0] if len(names) == 1 else None
                if name in names:
                    return file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            logger.error("load_tensor_from_safetensor: %s: %s", path, error)
            return None
        logger.error(
            "load_tensor_from_safetensor: %s has %d tensors, not %s", path, len(names), key
        )
        return None

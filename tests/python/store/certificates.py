"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Identity(NamedTuple):
    cert: Path
    key: Path


class Authority:
    """Signs certificates; `ca` is what trusts them."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        self.folder = folder
        folder.mkdir()
        self.ca = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.ca,
            "-days", 30, "-subj", f"/CN={name}",
        )  # fmt: skip

    def issue(self, name: str, hosts: str, days: int = 30) -> Identity:
        """For hosts as openssl writes them ("DNS:localhost,IP:127.0.0.1"); -1 days: expired."""
        made = Identity(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n")
        _openssl("req", *_NEW_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key,
            "-CAcreateserial", "-out", made.cert, "-days", days, "-extfile", extensions,
        )  # fmt: skip
        return made


def _openssl(*arguments: object) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr

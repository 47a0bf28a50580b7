"""The README's Python tour runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_tour(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    assert len(blocks) == 1
    code = blocks[0].replace("file:///tmp/mooncake-tour", f"file://{tmp_path}/store")
    assert code != blocks[0]
    for _ in range(2):  # the second time everything is published already
        done = subprocess.run(
            [sys.executable, "-c", "import torch; torch.manual_seed(1)\n" + code],
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

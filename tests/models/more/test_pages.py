"""The page about other libraries, with the blocks that need packages which `make test` does not install."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "libraries.md"


def test_all_blocks_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(?:python|\{code-block\} python)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert any("torchao" in block for block in blocks) and any("peft" in block for block in blocks)
    program = tmp_path / "libraries.py"
    program.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""The Python in the documentation runs: the blocks of a page, one after another, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PROGRAMS = {
    page.stem: "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    for page in sorted(DOCS.glob("*.md"))
}


@pytest.mark.parametrize("page", [page for page, program in PROGRAMS.items() if program])
def test_python_of_page_runs(page: str, tmp_path: Path) -> None:
    program = tmp_path / f"{page}.py"
    program.write_text(PROGRAMS[page])
    done = subprocess.run([sys.executable, "-W", "error", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def _blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


ALONE = [(page, number) for page in ("contract.md", "files.md", "quantized.md") for number in range(len(_blocks(page)))]


@pytest.mark.parametrize(("page", "number"), ALONE)
def test_python_of_a_page_runs_block_by_block(page: str, number: int, tmp_path: Path) -> None:
    """Who looks for one thing copies one block; what the first of the contract prints stands below it."""
    program = tmp_path / "block.py"
    program.write_text(_blocks(page)[number])
    done = subprocess.run([sys.executable, "-W", "error", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    if (page, number) == ("contract.md", 0):
        shown = re.search(r"^```text\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
        assert shown and shown[1] in done.stdout


def test_every_page_is_reached_from_the_index() -> None:
    toctree = re.search(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    assert toctree
    assert {page.stem for page in DOCS.glob("*.md")} == {"index", *re.findall(r"^(\w+)$", toctree[1], re.MULTILINE)}

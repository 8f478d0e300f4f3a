"""The Python in the documentation runs: each block alone, as it is copied by who looks for one thing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def _blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def _printed(page: str, program: str) -> str:
    """Returns a pattern of what a program prints, if a block of text stands below it; "..." is anything."""
    text = (DOCS / page).read_text()
    below = text[text.index(program) + len(program) :]
    found = re.match(r"```\n\n(?:[^\n`]+(?:`[^\n`]*`[^\n`]*)*\n\n)?```text\n(.*?)^```", below, re.MULTILINE | re.DOTALL)
    return "" if found is None else re.escape(found[1].strip()).replace(re.escape("..."), ".*?")


BLOCKS = [(page.name, number) for page in sorted(DOCS.glob("*.md")) for number in range(len(_blocks(page.name)))]


@pytest.fixture(scope="module")
def warm() -> Iterator[Any]:
    command = [sys.executable, "-m", "tests.warm"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield process
        assert process.stdin
        process.stdin.close()


@pytest.mark.every_case
@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_a_block_runs_alone(page: str, number: int, warm: Any, tmp_path: Path) -> None:
    program = tmp_path / "block.py"
    program.write_text(_blocks(page)[number])
    warm.stdin.write(f"{program}\n")
    warm.stdin.flush()
    assert warm.stdout.readline() == "0\n", program.with_suffix(".err").read_text()
    assert re.search(_printed(page, program.read_text()), program.with_suffix(".out").read_text(), re.DOTALL)


def test_a_block_that_is_wrong_is_found(warm: Any, tmp_path: Path) -> None:
    program = tmp_path / "block.py"
    program.write_text("import warnings\nwarnings.warn('old')")
    warm.stdin.write(f"{program}\n")
    warm.stdin.flush()
    assert warm.stdout.readline() == "1\n" and "UserWarning: old" in program.with_suffix(".err").read_text()


def test_every_page_is_reached_from_the_index() -> None:
    toctree = re.search(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    assert toctree
    assert {page.stem for page in DOCS.glob("*.md")} == {"index", *re.findall(r"^(\w+)$", toctree[1], re.MULTILINE)}


OF_OTHERS = {"copy.py", "results.json", "config.json"}
"""What prose names, and is Python's, is made by a command, or lies beside the weights of a model."""


def _named_files(text: str) -> set[str]:
    return set(re.findall(r"`([\w./]+\.(?:py|pyi|md|toml|txt|json|svg))`", text))


def test_files_that_prose_names_are_there() -> None:
    folders = [ROOT / folder for folder in ("subclass_aot", "tests", "benchmarks", "docs")]
    paths = [*ROOT.glob("*.*"), *(path for folder in folders for path in folder.rglob("*.*"))]
    there = {"/" + path.relative_to(ROOT).as_posix() for path in paths}
    prose = [path for path in paths if path.suffix in (".md", ".py") and "_build" not in path.parts]
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in prose
        if path.name != "CHANGELOG.md" and not path.is_relative_to(ROOT / "tests")
        for name in _named_files(path.read_text()) - OF_OTHERS
        if not (path.parent / name).exists() and not any(found.endswith("/" + name) for found in there)
    }
    assert _named_files("`a/b.py`, `c.md`") == {"a/b.py", "c.md"}
    assert not missing

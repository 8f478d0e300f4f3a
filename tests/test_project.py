"""The project itself: what its files promise to a newcomer holds."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import subclass_aot
from subclass_aot import _version_check
from subclass_aot.errors import SubclassAotError, UnsupportedTorchError

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PACKAGE_FILES = sorted((ROOT / "subclass_aot").rglob("*.py"))


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1", "2.13.0", "2.13.0+cpu", "2.14.0a0+git123", "2.15.0+cu132"])
def test_supported_torch_passes(version: str) -> None:
    _version_check.check_torch(version)


@pytest.mark.parametrize("version", ["2.10.2", "2.9.0", "2.10.0a0", "1.13.0", "unknown"])
def test_too_old_a_torch_is_refused(version: str) -> None:
    with pytest.raises(UnsupportedTorchError) as caught:
        _version_check.check_torch(version)
    assert f"supports torch >=2.11, and torch {version} is installed" in str(caught.value)
    assert 'pip install "torch>=2.11"' in str(caught.value)
    assert isinstance(caught.value, (SubclassAotError, ImportError))


@pytest.mark.parametrize("version", ["2.16.0", "2.16.0a0", "2.100.0", "3.0.0+cpu"])
def test_too_new_a_torch_is_warned_of(version: str) -> None:
    with pytest.warns(UserWarning, match=f"torch 2.11 to 2.15, and torch {re.escape(version)} is installed"):
        _version_check.check_torch(version)


def test_import_checks_torch_first() -> None:
    """An unsupported torch is the first thing that an import reports."""
    program = "import torch; torch.__version__ = '2.9.0'; import subclass_aot"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert "UnsupportedTorchError: subclass_aot supports torch >=2.11" in done.stderr
    assert torch.__version__ != "2.9.0"


def test_import_warns_once_of_a_newer_torch_and_runs() -> None:
    """The warning names the line that imports the library, not one inside it."""
    program = (
        "import torch; torch.__version__ = '2.99.0'\n"
        "import subclass_aot\n"
        "import subclass_aot.testing\n"
        "print(subclass_aot.aot_compile(torch.sin)(torch.zeros(1)))\n"
    )
    done = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tensor([0.])\n"
    assert done.stderr.count("torch 2.99.0 is installed") == 1
    assert "<string>:2: UserWarning: subclass_aot is tested with torch" in done.stderr


def test_torch_range_is_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    major, minor = _version_check.LOWEST
    assert [name for name in project["dependencies"] if name.startswith("torch")] == [f"torch>={major}.{minor}"]
    listed = re.search(r"^TORCHES\s*\?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed
    minors = range(minor, _version_check.NEWEST[1] + 1)
    assert [version.rpartition(".")[0] for version in listed[1].split()] == [f"{major}.{n}" for n in minors]


def test_public_names_exist_and_say_what_they_are() -> None:
    for name in subclass_aot.__all__:
        thing = getattr(subclass_aot, name)
        assert thing.__doc__, f"subclass_aot.{name} has no docstring"


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_names_of_torch_stand_in_one_room(path: Path) -> None:
    if path.parent.name == "_torch":
        return
    private = [name for name in _names_of_torch(ast.parse(path.read_text())) if re.search(r"\._[a-zA-Z]", name)]
    assert not private, "private names of torch belong in subclass_aot/_torch, each with its reason"


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_retired_words_stay_away(path: Path) -> None:
    """The glossary names words that meant too much, or nothing to anybody else."""
    _, _, listed = (ROOT / "docs" / "glossary.md").read_text().partition("## Retired\n")
    retired = {word.strip() for word in listed.split(",")}
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    parts = {part.lower() for name in names for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    assert len(retired) > 5 and not retired & (parts | names)


def _names_of_torch(tree: ast.Module) -> Iterator[str]:
    """Every dotted name below `torch` that a module imports or reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        yield from (name for name in names if name.startswith("torch."))


MOST_ANY = 0.10
"""Of the parameters in a room, so many may have no other type than `Any`."""

TOO_MUCH_ANY = {
    "backends": 0.34,
    "blocks": 0.16,
    "call": 0.30,
    "compile": 0.17,
    "explain": 0.75,
    "graph": 0.32,
    "guards": 0.16,
    "inspection": 0.20,
    "runtime": 0.18,
    "testing": 0.18,
    "trace": 0.12,
}
"""The rooms where it is more, and how much at the most. A number here only goes down."""


def _room_of(path: Path) -> str:
    return path.relative_to(ROOT / "subclass_aot").parts[0].removesuffix(".py")


def _parameters(path: Path) -> Iterator[str]:
    """The annotations of all parameters in a file, `self` and `cls` left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            args = node.args
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            for arg in every:
                if arg is not None and arg.arg not in ("self", "cls"):
                    yield "" if arg.annotation is None else ast.unparse(arg.annotation)


@pytest.mark.parametrize("room", sorted({_room_of(path) for path in PACKAGE_FILES}))
def test_parameters_have_types(room: str) -> None:
    found = [annotation for path in PACKAGE_FILES if _room_of(path) == room for annotation in _parameters(path)]
    share = found.count("Any") / max(len(found), 1)
    assert share <= TOO_MUCH_ANY.get(room, MOST_ANY)
    assert room not in TOO_MUCH_ANY or share > MOST_ANY, "the room needs no exception any more"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_readme_example_is_short() -> None:
    lines = [line for line in _blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 25


@pytest.mark.parametrize("number", range(len(_blocks("python"))))
def test_readme_python_runs_as_written(number: int, tmp_path: Path) -> None:
    """Each block is a program of its own; the `text` block after the first shows how its output begins."""
    program = tmp_path / "example.py"
    program.write_text(_blocks("python")[number])
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if number == 0:
        shown = _blocks("text")[0].rstrip()
        assert done.stdout.startswith(shown), f"the README shows other code than it prints now:\n{done.stdout}"


def test_readme_commands_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = set(re.findall(r"\bmake ([a-z-]+)\b", "\n".join(_blocks("sh"))))
    assert {"demo", "test", "bench", "docs", "lint"} <= commands <= targets

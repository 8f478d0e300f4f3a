"""The project itself: what its files promise to a newcomer holds."""

from __future__ import annotations

import ast
import functools
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch

import subclass_aot
from tests import house

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PACKAGE_FILES = sorted((ROOT / "subclass_aot").rglob("*.py"))
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{page}.md" for page in ("README", "CHANGELOG", "CONTRIBUTING")),
]
BESIDE_TORCH = [path for path in PACKAGE_FILES if "_torch" not in (path.stem, path.parent.name)]

_WITHOUT_TESTS = ("base", "_torch")
"""Tested by what uses it, and by tests/base/test_torch.py with each torch."""
MODULES = [
    path
    for path in PACKAGE_FILES
    if not path.stem.startswith("__") and path.relative_to(ROOT / "subclass_aot").parts[:2] != _WITHOUT_TESTS
]

_OF_TORCH = (
    torch.Tensor, torch.nn.Parameter, torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged),
    torch.ones(1).requires_grad_().exp().grad_fn, torch.nn.Module(), torch.ops.aten.add, torch.ops.aten.add.Tensor,
    torch.fx.Graph(), torch.fx.Node, torch.fx.GraphModule({}, torch.fx.Graph()), torch.UntypedStorage, torch.Generator,
)  # fmt: skip
PRIVATE = {name for thing in _OF_TORCH for name in dir(thing) if name.startswith("_") and not name.startswith("__")}
PRIVATE |= {"_boxed_call"}
"""The names with an underscore that objects of torch have."""


def test_the_library_does_not_need_hypothesis() -> None:
    program = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import torch\n"
        "from subclass_aot.testing import check_compiled\n"
        "check_compiled(torch.sin, [torch.ones(2)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_public_names_exist_and_say_what_they_are() -> None:
    for name in subclass_aot.__all__:
        thing = getattr(subclass_aot, name)
        assert thing.__doc__, f"subclass_aot.{name} has no docstring"


def _in_each(paths: Iterable[Path], found_in: Callable[[Path], Iterable[str]]) -> list[str]:
    """What is found in files, each with the file: `base/weak.py: a name`. One test reads all of them."""
    return [f"{path.relative_to(ROOT)}: {found}" for path in paths for found in found_in(path)]


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_private_names_of_torch_stand_in_one_place() -> None:
    def private(path: Path) -> Iterator[str]:
        yield from (name for name in _names_of_torch(_tree(path)) if re.search(r"\._[a-zA-Z]", name))
        yield from (name for name in _private_attributes(_tree(path)) if name in PRIVATE)

    assert not _in_each(BESIDE_TORCH, private), "they belong in subclass_aot/base/_torch, each with its reason"


def test_private_names_of_torch_are_found() -> None:
    program = '''
def f(self, x, module, aten):
    """Says `x._base`."""
    self._base(x._version, aten._conj)
    line = f"{x}._is_view() {x}_grad"
    return getattr(module, "_buffers")
'''
    assert set(_private_attributes(ast.parse(program))) & PRIVATE == {"_version", "_is_view", "_buffers"}


def test_tests_mirror_the_modules() -> None:
    """The tests of a module stand at the same place below `tests/`: in a file, or in a folder of its name."""

    def is_tested(path: Path) -> bool:
        there, name = ROOT / "tests" / path.relative_to(ROOT / "subclass_aot").parent, path.stem.lstrip("_")
        return (there / f"test_{name}.py").exists() or (there / name).is_dir()

    assert not [path for path in MODULES if not is_tested(path)]


_NO_VERBS = {
    "Always", "Arguments", "As", "Choices", "Classes", "Codes", "Expressions", "Fields", "Files", "Frames", "Gradients",
    "Inputs", "Its", "Kernels", "Kinds", "Leaves", "Lines", "Names", "Nodes", "Numbers", "Operators", "Others", "Parts",
    "Placeholders", "Positions", "Programs", "Recipes", "Results", "Same", "Sizes", "Strides", "Tensors", "This",
    "Thus", "Trials", "Values", "Views", "Wrappers",
}  # fmt: skip
"""Words that end in "s" and begin a sentence about something else than what a function does."""


def _without_a_verb(tree: ast.Module) -> Iterator[str]:
    """Yields the functions whose docstring does not begin with a verb; what a property gives is said as a noun."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        decorators = tuple(map(ast.unparse, function.decorator_list))
        words = (ast.get_docstring(function) or "").split()
        if words and not any(each.endswith(("property", "fixture", "overload")) for each in decorators):
            first = words[0].rstrip(".,:;")
            if not (first.isalpha() and first[0].isupper() and first.endswith("s")) or first in _NO_VERBS:
                yield f"{function.name}: {' '.join(words[:6])}"


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """Subject and verb come first: "Returns", "Checks", "Notes"."""
    assert not _in_each(PACKAGE_FILES, lambda path: _without_a_verb(_tree(path)))


def test_what_begins_with_a_noun_is_found() -> None:
    program = """
def a(): "Returns it."
def b(): "What it returns."
def c(): "Names of them."
@property
def d(): "The property."
def e(): "`x`, changed."
"""
    assert [each.partition(":")[0] for each in _without_a_verb(ast.parse(program))] == ["b", "c", "e"]


@functools.cache
def _retired() -> set[str]:
    """Returns the words that the glossary has no use for any more."""
    _, _, listed = (ROOT / "docs" / "glossary.md").read_text().partition("## Retired\n")
    return {" ".join(word.split()) for word in listed.split(",")}


def _tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(path.read_text()).readline)


def _prose(path: Path) -> str:
    """Returns what a file says in words: of Python, comments and texts."""
    if path.suffix != ".py":
        return path.read_text().partition("## Retired\n")[0]
    return "\n".join(token.string for token in _tokens(path) if token.type in (tokenize.COMMENT, tokenize.STRING))


def test_retired_words_stay_away() -> None:
    """The glossary names words that meant too much, or nothing to anybody else."""
    retired = {word.replace(" ", "_") for word in _retired()}
    assert len(retired) > 5

    def names_of(path: Path) -> set[str]:
        names = {token.string for token in _tokens(path) if token.type == tokenize.NAME}
        parts = {part.lower() for name in names for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
        return retired & (parts | names)

    assert not _in_each(PACKAGE_FILES, names_of)


def test_retired_words_stay_away_from_prose() -> None:
    """In docstrings, comments, messages and pages they mean no more than in names."""

    def words_of(path: Path) -> list[str]:
        words = f" {' '.join(re.findall(r'[a-z_]+', _prose(path).lower()))} "
        return [word for word in _retired() if f" {word} " in words]

    assert not _in_each([*PACKAGE_FILES, *PAGES], words_of)


def _private_attributes(tree: ast.Module) -> Iterator[str]:
    """Every name with an underscore that is read of something else than `self`, in text of generated code, too."""
    own = re.compile(r"(self|cls|super\(\)|_?aten)\b")
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    foreign = {node.attr for node in read if not own.fullmatch(ast.unparse(node.value))}
    slots = {node.attr for node in read} - foreign
    yield from foreign
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield from [] if id(node) in parts or node.value in slots else [node.value]
            yield from re.findall(r"\.(_\w+)", node.value)


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


def _room_of(path: Path) -> str:
    return house.room_of(".".join(path.relative_to(ROOT / "subclass_aot").with_suffix("").parts))


def _parameters(path: Path) -> Iterator[str]:
    """The annotations of all parameters in a file, `self` and `cls` left out."""
    for node in ast.walk(_tree(path)):
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
    assert share <= MOST_ANY


MOST_ATTRIBUTES = 10
"""A class with more says why, in a comment that begins with `REASON`."""

REASON = "# More than ten attributes: "


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """All classes of the package, each with its text."""
    for path in PACKAGE_FILES:
        lines = path.read_text().splitlines()
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                yield "\n".join(lines[node.lineno - 1 : node.end_lineno]), node


def _attributes(cls: ast.ClassDef) -> set[str]:
    """The fields of a class, and what its methods assign to `self`."""
    fields = [node.target for node in cls.body if isinstance(node, ast.AnnAssign)]
    found = {field.id for field in fields if isinstance(field, ast.Name)}
    stored = (node for node in ast.walk(cls) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return found | {node.attr for node in stored if ast.unparse(node.value) == "self"}


def test_attributes_of_a_class_are_found() -> None:
    program = """
class A:
    field: int
    constant = 3
    def __init__(self, other):
        self.first, other.not_mine = 1, 2
    def method(self):
        self.later: int = self.first + self.read
"""
    (cls,) = ast.parse(program).body
    assert isinstance(cls, ast.ClassDef) and _attributes(cls) == {"field", "first", "later"}


def test_a_class_with_many_attributes_says_why() -> None:
    many = {cls.name: text for text, cls in _classes() if len(_attributes(cls)) > MOST_ATTRIBUTES}
    silent = {name for name, text in many.items() if REASON not in text}
    assert not silent, "these are several classes, or need a reason"
    few = {cls.name for text, cls in _classes() if REASON in text} - set(many)
    assert not few, "these need no reason any more"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_readme_examples_are_short() -> None:
    for block in _blocks("python"):
        assert len([line for line in block.splitlines() if line.strip()]) <= 25


@pytest.mark.parametrize("number", range(len(_blocks("python"))))
def test_readme_python_runs_as_written(number: int, tmp_path: Path) -> None:
    """Each block is a program of its own; the `text` block shows how the output of the last one begins."""
    program = tmp_path / "example.py"
    program.write_text(_blocks("python")[number])
    environment = {**os.environ, "SUBCLASS_AOT_NATIVE": "exact"}  # the accelerator runs less code than is shown
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    if number == len(_blocks("python")) - 1:
        shown = _blocks("text")[0].rstrip()
        assert done.stdout.startswith(shown), f"the README shows other code than it prints now:\n{done.stdout}"


def test_no_file_has_marks_of_a_merge() -> None:
    mark = re.compile(r"^(<{7} |>{7} )", re.MULTILINE)
    places = [ROOT / place for place in ("subclass_aot", "tests", "benchmarks", "docs")]
    texts = [path for place in places for path in place.rglob("*") if path.suffix in {".md", ".py", ".cpp", ".h", ".c"}]
    texts += [*PAGES, ROOT / "Makefile", ROOT / "pyproject.toml"]
    assert not [path.name for path in texts if mark.search(path.read_text())]


def test_readme_commands_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = set(re.findall(r"\bmake ([a-z-]+)\b", "\n".join(_blocks("sh"))))
    assert {"demo", "test", "bench", "docs", "lint"} <= commands <= targets


MOST_LINES = 60
"""A ready-made class is there to be read: without blank lines, comments and docstrings its file has no more."""


def _lines_of_code(text: str) -> int:
    docs = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in docs and not re.match(r"\s*(#|$)", line) for number, line in lines)


def test_lines_of_code_are_counted() -> None:
    assert (
        _lines_of_code('"""Says\n\nsomething."""\n\nx = """a\nb"""  # all of it\n# why\ndef f():\n    "Does."\n') == 3
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "subclass_aot" / "tensors").glob("[!_]*.py")), ids=lambda path: path.stem
)
def test_ready_made_classes_are_short(path: Path) -> None:
    text = path.read_text()
    assert _lines_of_code(text) <= MOST_LINES
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name in subclass_aot.__all__:
            doc = ast.get_docstring(node) or ""
            assert ">>>" in doc, "its docstring shows how it is used"


def test_gains_in_the_readme_are_those_of_the_tables() -> None:
    """Within what a new measurement may change without anybody's noticing."""
    text = (ROOT / "docs" / "benchmarks" / "quantized.md").read_text()
    tables = [text.partition(f'### Llama, "{name}"')[2].partition("###")[0] for name in ("eager", "inductor")]
    gains = re.findall(r"(int\d) ([\d.]+) to ([\d.]+)", README)
    assert len(gains) == 2
    for name, *ends in gains:
        for end, table in zip(ends, tables, strict=True):
            (row,) = re.findall(rf"`{name.title()}Weight` .*", table)
            assert float(end) == pytest.approx(float(row.split("|")[3].strip(" x")), rel=0.15)


MOST_LINES_OF_A_VERSION = 30


def test_the_changelog_is_short_and_has_this_version() -> None:
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    assert versions[0].startswith(subclass_aot.__version__)
    for version in versions:
        assert len([line for line in version.splitlines() if line.strip()]) <= MOST_LINES_OF_A_VERSION

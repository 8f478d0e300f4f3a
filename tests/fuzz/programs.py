"""Random programs on wrapper trees: operators, views, writes, `no_grad` blocks, and results that alias.

A program is drawn by running it, so that most of its statements make sense, and prints as Python.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.codegen import Source
from subclass_aot.meta import Spec
from subclass_aot.tensors import TwoTensor
from subclass_aot.testing.compare import dense_leaves
from subclass_aot.testing.runs import Later
from tests.fuzz import caches, custom_functions, custom_operators
from tests.fuzz.templates import (
    EVERY_KIND,
    GIVEN_WHOLE,
    IMAGES,
    INNER,
    KINDS,
    PAIRS,
    RESHAPES,
    UNIFORM,
    WRITTEN,
)
from tests.fuzz.trees import Tagged, Tree, trees

_TARGETS = re.compile(r"(v\d+(?:, v\d+)*) = ")
_GLOBALS = {
    "math": math,
    "torch": torch,
    "nn": torch.nn.functional,
    "TwoTensor": TwoTensor,
    "Tagged": Tagged,
    "custom": custom_operators,
    "own": custom_functions,
    "cached": caches,
}

ALIASES = ("same", "leaf", "inner", "around", "twice", "base", "apart", "moved", "view")
"""What an argument may be of an earlier one."""

Mode = str

_SIZES = [(2, 3), (2, 3), (2, 2), (3, 3), (3,), (), (1, 3), (3, 1)]
_IMAGES = [(2, 3, 2, 3), (2, 1, 3, 3), (1, 3, 3, 3), (3, 3, 1, 1), (3, 1, 2, 1)]
_LAYOUTS = ["packed", "packed", "packed", "transposed", "offset"]
_DTYPES = [torch.float64] * 5 + [torch.float32, torch.int64]
_EVERY_DTYPE = [*_DTYPES, torch.float64, torch.float64, torch.complex128]


@dataclass(frozen=True)
class Argument:
    """A recipe for an argument.

    Attributes:
        tree: Its class.
        size: Its size.
        dtype: Its dtype.
        layout: "packed", "transposed", "offset" into a larger storage, or, of four dims, "channels last".
        grad: "none", "leaf", "computed" (a non-leaf), "view" (a view of a non-leaf).
        alias: "" or what it is of argument `of`: the "same" object; its first "leaf", or another tensor on the "inner"
            memory of that; a wrapper "around" that leaf and another, or that holds it "twice"; on its storage, over it
            ("base"), "apart" from it, or "moved" by an element; or a "view" of it that autograd knows.
        of: An earlier argument.
        begins: How many further elements there are before it in its storage; -1: it begins where that does.
    """

    tree: Tree
    size: tuple[int, ...]
    dtype: torch.dtype = torch.float64
    layout: str = "packed"
    grad: str = "none"
    alias: str = ""
    of: int = 0
    begins: int = 0

    @property
    def is_image(self) -> bool:
        """Whether it has batch, channels, height and width."""
        return not self.alias and len(self.size) == 4

    def make(self, generator: torch.Generator) -> tuple[Any, list[Any]]:
        """A new tensor, and the tensors behind it: where gradients arrive, and its base."""
        tensor = self.tree.make(self.size, lambda size: self._dense(size, generator))
        if self.grad == "none":
            return tensor, []
        root = tensor.requires_grad_()
        if self.grad == "leaf":
            return root, [root]
        computed = root.clone()
        return (computed, [root]) if self.grad == "computed" else (computed.view_as(computed), [root, computed])

    def _dense(self, size: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        shape = tuple(reversed(size)) if self.layout == "transposed" else size
        if self.layout == "offset":
            shape = (2, *size)
        value = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5
        value = (value if self.dtype.is_floating_point or self.dtype.is_complex else value * 3).to(self.dtype)
        if self.layout == "transposed":
            value = value.permute(tuple(reversed(range(value.dim()))))
        if self.layout == "channels last":
            value = value.contiguous(memory_format=torch.channels_last)
        value = (value[1] if self.layout == "offset" else value).detach()
        if not self.begins:
            return value
        first = 0 if self.begins < 0 else self.begins + int(Spec.of(value).offset)
        memory = value.new_zeros(first + value.untyped_storage().nbytes() // value.element_size())
        return memory.as_strided(value.size(), value.stride(), first).copy_(value)


@dataclass(frozen=True, eq=False)
class Program:
    """A function, and recipes for its arguments.

    Attributes:
        arguments: Recipes for the arguments `x0`, `x1`, ...
        statements: Its lines, each with whether it stands in a `no_grad` block.
        results: The names or expressions it returns.
        mode: "grad", "no_grad" or "inference": the mode in which it is called.
        later: What the user does with the results.
        symbolic: Whether sizes are symbols, and it is called with other sizes, too.
        blocks: Whether it is the forward of two equal blocks that are compiled in place.
    """

    arguments: tuple[Argument, ...]
    statements: tuple[tuple[str, bool], ...]
    results: tuple[str, ...]
    mode: Mode = "grad"
    later: Later = Later()
    symbolic: bool = False
    blocks: bool = False

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        """The function; its text is `function.__source__`."""
        source = Source("program", ", ".join(f"x{i}" for i in range(len(self.arguments))))
        source.globals.update(_GLOBALS)
        for no_grad, block in itertools.groupby(self.statements, key=lambda statement: statement[1]):
            with source.block("with torch.no_grad():") if no_grad else nullcontext():
                for text, _ in block:
                    source.line(text)
        source.line(f"return {', '.join(self.results)}")
        return source.build("program")

    @property
    def has_wrappers(self) -> bool:
        """Whether an argument is a wrapper."""
        return any(argument.tree.kind != "dense" for argument in self.arguments)

    def resized(self, sizes: Mapping[int, int]) -> Program:
        """The same program with larger or smaller arguments: other sizes for some."""
        resized = [dataclasses.replace(a, size=tuple(sizes.get(n, n) for n in a.size)) for a in self.arguments]
        return dataclasses.replace(self, arguments=tuple(resized))

    def moved(self, begins: int) -> Program:
        """The same program with arguments that begin elsewhere in their storages.

        Args:
            begins: By how many elements; -1: to the beginnings.
        """
        moved = [dataclasses.replace(a, begins=begins) for a in self.arguments]
        return dataclasses.replace(self, arguments=tuple(moved))

    def make_arguments(self, seed: int) -> tuple[list[Any], list[Any]]:
        """New arguments, and the tensors behind them.

        Args:
            seed: For their values.
        """
        generator = torch.Generator().manual_seed(seed)
        tensors: list[Any] = []
        behind: list[Any] = []
        for argument in self.arguments:
            roots: list[Any] = []
            if argument.alias:
                tensor = _alias_of(tensors[argument.of], argument.alias)
            else:
                tensor, roots = argument.make(generator)
            tensors.append(tensor)
            behind += roots
        return tensors, behind

    def __repr__(self) -> str:
        lines = [f"x{i} = {argument}" for i, argument in enumerate(self.arguments)]
        lines.append(f"mode={self.mode} {self.later}" + " symbolic" * self.symbolic + " blocks" * self.blocks)
        lines.append(self.function.__source__)  # type: ignore[attr-defined]
        return "\n".join(lines)


def mode_of(program: Program) -> Any:
    """The context manager in which `program` is called."""
    if program.mode == "inference":
        return torch.inference_mode()
    return torch.set_grad_enabled(program.mode == "grad")


def _alias_of(tensor: torch.Tensor, alias: str) -> Any:
    """See `Argument.alias`."""
    if alias == "same":
        return tensor
    if alias == "view":
        return tensor[1:] if tensor.dim() and tensor.shape[0] > 1 else tensor.view_as(tensor)
    dense = type(tensor) is torch.Tensor
    leaf = dense_leaves(tensor.detach() if dense else tensor)[0]
    if alias in ("leaf", "inner"):
        return leaf if alias == "leaf" else leaf.detach()
    if alias in ("around", "twice"):
        return TwoTensor(leaf, leaf if alias == "twice" else leaf.clone())
    if alias == "apart" and leaf.storage_offset() == leaf.numel():  # the other half of what was made with an offset
        return leaf.as_strided(leaf.size(), leaf.stride(), 0)
    if alias == "moved":
        return leaf.as_strided(leaf.size(), leaf.stride(), max(0, leaf.storage_offset() - 1))
    return tensor.detach()[1:] if dense and tensor.dim() else tensor.detach()


@st.composite
def arguments(
    draw: st.DrawFn, earlier: Sequence[Argument] = (), aliases: bool = True, everything: bool = False
) -> Argument:
    """Recipes of one argument, the one after `earlier` others."""
    alias = draw(st.sampled_from(ALIASES)) if aliases and earlier and draw(st.integers(0, 2)) == 0 else ""
    if alias:
        of = draw(st.integers(0, len(earlier) - 1))
        if earlier[of].grad == "leaf":  # eager forgets the history of its views when it is written through an alias
            alias = "same"
        tree = Tree("TwoTensor") if alias in ("around", "twice") else Tree("dense")
        return Argument(tree, (1,), grad=earlier[of].grad if alias in ("same", "view") else "none", alias=alias, of=of)
    dtype = draw(st.sampled_from(_EVERY_DTYPE if everything else _DTYPES))
    is_image = everything and draw(st.integers(0, 5)) == 0
    size = draw(st.sampled_from(_IMAGES if is_image else _SIZES))
    layout = draw(st.sampled_from([*_LAYOUTS, *["channels last"] * 3] if is_image else _LAYOUTS))
    follows = dtype.is_floating_point or dtype.is_complex
    kinds = ["none", "none", "leaf", "leaf", "computed", "view"] if follows else ["none"]
    return Argument(draw(trees(ready_made=everything)), size, dtype, layout, draw(st.sampled_from(kinds)))


@st.composite
def programs(draw: st.DrawFn, max_statements: int = 6, aliases: bool = True, everything: bool = False) -> Program:
    """Programs that mostly run without an error.

    Args:
        draw: Hypothesis gives it.
        max_statements: The length of the longest.
        aliases: Whether arguments may share tensors.
        everything: Whether layers, other dtypes, complex numbers, custom operators and reads of values are drawn, too.
    """
    given: list[Argument] = []
    for _ in range(draw(st.integers(1, 3))):
        given.append(draw(arguments(given, aliases, everything)))
    mode = draw(st.sampled_from(["grad"] * 6 + ["no_grad", "inference"]))
    empty = Program(tuple(given), (), ("None",), mode)
    kinds = EVERY_KIND if everything else KINDS
    if any(argument.is_image for argument in given):
        kinds = (*kinds, *[IMAGES] * 24)
    statements: list[tuple[str, bool]] = []
    keep_errors = draw(st.integers(0, 9)) == 0
    tensors, _ = empty.make_arguments(0)
    values: dict[str, Any] = {f"x{i}": tensor for i, tensor in enumerate(tensors)}
    with mode_of(empty), torch.random.fork_rng(devices=[]), torch_does_not_warn():
        torch.manual_seed(0)  # shapes may depend on what is drawn, and each draw of a program must go the same way
        for _ in range(draw(st.integers(0, max_statements))):
            text = draw(_statements(list(values), kinds))
            no_grad = draw(st.integers(0, 1 if statements and statements[-1][1] else 4)) == 0
            if _ambiguous(text, no_grad, values):
                continue
            if mode == "inference" and GIVEN_WHOLE.search(text):
                continue
            try:
                _run(text, no_grad, values)
            except Exception as error:
                pass_on_interruption(error)
                if not keep_errors:
                    continue
                statements.append((text, no_grad))
                break
            statements.append((text, no_grad))
    results = draw(st.lists(_results(values), min_size=1, max_size=4))
    used = draw(st.lists(st.booleans(), min_size=1, max_size=4))
    tangents = draw(st.sampled_from(["random", "expanded"]))
    after = draw(st.sampled_from(["", "grad", "no_grad"]))
    gives_up = mode != "grad" or any(no_grad for _, no_grad in statements)  # autograd gives up views
    if gives_up or not all(map(str.isidentifier, results)):  # eager does not see a write into an inner tensor
        after = ""
    later = Later(twice=draw(st.integers(0, 4)) == 0, used=tuple(used), tangents=tangents, after=after)
    symbolic, blocks = draw(st.booleans()), everything and draw(st.integers(0, 5)) == 0
    return Program(tuple(given), tuple(statements), tuple(results), mode, later, symbolic, blocks)


@contextmanager
def torch_does_not_warn() -> Iterator[None]:
    """Within the block torch's warnings are none: some come once in a process, and a program runs alike each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*could not be traced for a call")
        yield


@st.composite
def _statements(draw: st.DrawFn, names: list[str], kinds: Sequence[tuple[str, ...]]) -> str:
    kind = draw(st.sampled_from(kinds))
    template = draw(st.sampled_from(kind))
    recent = [*names, *names[-2:]]
    operands = [draw(st.sampled_from(recent)), draw(st.sampled_from(recent))]
    text = template.format(*operands, draw(st.sampled_from(INNER)) if "{2}" in template else "")
    if kind is PAIRS:
        return f"v{len(names)}, v{len(names) + 1} = {text}"
    return text if kind in WRITTEN else f"v{len(names)} = {text}"


def _ambiguous(text: str, no_grad: bool, values: dict[str, Any]) -> bool:
    """True for a write of which eager has no clear idea.

    It reads another view of what it writes, or several elements of what it writes are one place in memory, so that the
    order of loops matters; or it turns a tensor that autograd follows, or that something else holds, and does not tell.
    """
    if _TARGETS.match(text):
        return False
    names = list(dict.fromkeys(re.findall(r"\b[xv]\d+", text)))
    first, *others = [dense_leaves(values[name]) for name in names]
    if RESHAPES.search(text):
        parts = {id(leaf) for leaf in first}
        among = [leaf for value in values.values() if value is not values[names[0]] for leaf in dense_leaves(value)]
        if no_grad and values[names[0]].requires_grad or any(id(leaf) in parts for leaf in among):
            return True
    storages = {leaf.untyped_storage().data_ptr() for leaf in first}
    return (
        any(leaf.untyped_storage().data_ptr() in storages for other in others for leaf in other)
        or len(storages) < len(first)
        or not UNIFORM.search(text)
        and any(Spec.of(leaf).overlaps_itself for leaf in first)
    )


def _run(text: str, no_grad: bool, values: dict[str, Any]) -> None:
    found = _TARGETS.match(text)
    targets = found[1].split(", ") if found else []
    step = _step(text, tuple(values), tuple(targets))
    with torch.set_grad_enabled(torch.is_grad_enabled() and not no_grad):
        results = step(*values.values())
    if not all(isinstance(x, torch.Tensor) for x in results):
        raise TypeError("not a tensor")
    if any(type(x) is TwoTensor and x.a.shape != x.b.shape for x in results):
        raise TypeError("no two tensors of one size, as the class has it")
    values.update(zip(targets, results, strict=True))


@functools.lru_cache(maxsize=10_000)
def _step(text: str, names: tuple[str, ...], targets: tuple[str, ...]) -> Callable[..., Any]:
    source = Source("step", ", ".join(names))
    source.globals.update(_GLOBALS)
    source.line(text)
    source.line(f"return [{', '.join(targets)}]")
    return source.build()


def _results(values: dict[str, Any]) -> st.SearchStrategy[str]:
    """Names, later ones more often; inner tensors; views of them."""
    names = list(values)
    found = [*names, *names[-3:], *names[-1:] * 2]
    for name in names:
        for attribute in INNER:
            if getattr(values[name], attribute.split("[")[0], None) is not None:
                found.append(f"{name}.{attribute}")
    found += [f"{names[0]}.view_as({names[0]})", f"{names[-1]}.detach().requires_grad_()"]
    return st.sampled_from(found)

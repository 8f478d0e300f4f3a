"""Python that makes tensors of recipes, equal ones again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.codegen import Source
from subclass_aot.engine.aliasing import as_non_leaf
from subclass_aot.testing.compare import rebuilt
from subclass_aot.testing.inputs import Given, Leaf, Size, Storage, Tree, Wrapped, leaves_of
from subclass_aot.testing.literals import Names


def non_leaf(root: torch.Tensor) -> Any:
    """Returns a tensor on the memory of `root` that is neither a leaf nor a view: its gradient goes to `root`.

    >>> non_leaf(torch.ones(2, requires_grad=True)).is_leaf
    False
    """
    with torch.no_grad():
        made: Any = (
            rebuilt(root, lambda leaf: leaf) if _torch.wrappers.is_traceable_wrapper_subclass(root) else root.detach()
        )
    return as_non_leaf(root, made)


def of_class(tensor: torch.Tensor, cls: type[torch.Tensor]) -> Any:
    """Returns a tensor of a plain subclass on the memory of another; its gradient goes to that if it wants one.

    >>> class Mask(torch.Tensor):
    ...     pass
    >>> of_class(torch.ones(2), Mask)
    Mask([1., 1.])
    """
    with _torch.plain_subclasses.without_torch_function():
        return tensor.as_subclass(cls) if tensor.requires_grad else _torch.plain_subclasses.as_class(tensor, cls)


@dataclass
class Printer:
    """Writes Python that makes tensors of recipes.

    Attributes:
        names: What the text refers to.
        lines: The text so far.
        roots: The names of the leaves of autograd's graph, in order: where gradients arrive.
    """

    names: Names
    lines: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)

    def print(self, inputs: Sequence[Given]) -> None:
        """Appends the lines for `inputs`, in order."""
        self._users = _count(inputs)
        self._done: dict[int, str] = {}
        self._storage_names: dict[int, str] = {}
        for given in inputs:
            self._given(given)

    def _given(self, given: Given) -> str:
        if id(given) in self._done:
            return self._done[id(given)]
        name = self._done[id(given)] = given.name
        if given.base is not None:
            base = self._given(given.base)
            if isinstance(given.tree, Leaf):
                view = f"as_strided({given.tree.size}, {given.tree.stride}, {given.tree.offset})"
            else:
                view = f"view_as({base})"
            self.lines.append(f"{name} = {self._of_class(f'{base}.{view}', given)}")
            return name
        made = self._tree(given.tree)
        if given.history == "computed":
            root = f"{name}_root"
            self._assign(root, f"{_detached(made)}.requires_grad_()")
            self._assign(name, self._of_class(self._computed(given, root), given))
            self.roots.append(root)
            return name
        if given.parameter:
            made = f"torch.nn.Parameter({made}{'' if given.history else ', requires_grad=False'})"
        elif given.cls is not None:
            grad = ".requires_grad_()" if given.history else ""
            made = f"{self._of_class(_detached(made), given)}{grad}"
        elif given.history:
            made = f"{_detached(made)}.requires_grad_()"
        if made != name:
            self._assign(name, made)
        if given.history == "leaf":
            self.roots.append(name)
        return name

    def _of_class(self, made: str, given: Given) -> str:
        """Returns an expression of the same, of the class that it is to have."""
        if given.cls is None:
            return made
        return f"{self.names.const(of_class, 'of_class')}({made}, {self.names.const(given.cls, given.cls.__name__)})"

    def _computed(self, given: Given, root: str) -> str:
        leaves = list(leaves_of(given.tree))
        if all(leaf.whole and self._users[id(leaf.storage)] == 1 for leaf in leaves):
            return f"{root}.clone()"
        return f"{self.names.const(non_leaf, 'non_leaf')}({root})"

    def _tree(self, tree: Tree) -> str:
        """Returns an expression for it: a name, if it is used more than once."""
        if id(tree) in self._done:
            return self._done[id(tree)]
        made = self._leaf(tree) if isinstance(tree, Leaf) else self._wrapped(tree)
        if self._users[id(tree)] < 2:
            return made
        name = self._done[id(tree)] = f"t{len(self._done)}"
        self._assign(name, made)
        return name

    def _leaf(self, leaf: Leaf) -> str:
        storage = leaf.storage
        if leaf.whole and self._users[id(storage)] == 1:
            return self._filled(storage, leaf.size)
        name = self._storage_names.get(id(storage))
        if name is None:
            name = self._storage_names[id(storage)] = f"s{len(self._storage_names)}"
            self._assign(name, self._filled(storage, (storage.numel,)))
        viewed = name if leaf.dtype == storage.dtype else f"{name}.view({leaf.dtype})"
        return f"{viewed}.as_strided({leaf.size}, {leaf.stride}, {leaf.offset})"

    def _filled(self, storage: Storage, size: Size) -> str:
        device = "" if storage.device.type == "cpu" else f", device={str(storage.device)!r}"
        if storage.values is not None:
            if storage.numel <= LITERAL and storage.dtype in _PRINTABLE:
                made = f"torch.tensor({_rounded(storage.values)}, dtype={storage.dtype}{device})"
            else:
                made = f"{self.names.const(storage.values, 'values')}.clone()"
            return made if size == (storage.numel,) else f"{made}.view({size})"
        dtype = "" if storage.dtype is torch.float32 else f", dtype={storage.dtype}"
        if storage.dtype.is_floating_point and storage.dtype.itemsize == 1:
            return f"torch.rand({size}{device}).to({storage.dtype})"
        if storage.dtype.is_floating_point or storage.dtype.is_complex:
            return f"torch.rand({size}{dtype}{device})"
        return f"torch.randint(0, 2, {size}{dtype}{device})"

    def _wrapped(self, tree: Wrapped) -> str:
        inner = {name: self._tree(part) for name, part in tree.inner.items()}
        cls = self.names.const(tree.cls, tree.cls.__name__)
        if tree.fields is None:
            parts = ", ".join(f"{name!r}: {part}" for name, part in inner.items())
            context = self.names.literal(tree.context)
            return f"{cls}.__tensor_unflatten__({{{parts}}}, {context}, {tree.size}, {tree.stride})"
        texts = []
        declaration = tree.cls.__wrapper_declaration__
        for name, declared in declaration.fields.items():
            if declared.kind == "sequence":
                texts.append(f"{name}=[{', '.join(p for n, p in inner.items() if declaration.field_of(n) == name)}]")
            elif name in inner:
                texts.append(f"{name}={inner[name]}")
            elif name in tree.fields:
                texts.append(f"{name}={self.names.literal(tree.fields[name])}")
        return f"{cls}({', '.join(texts)})"

    def _assign(self, name: str, made: str) -> None:
        self.lines.append(f"{name} = {made}")


LITERAL = 24
"""The most elements of which values are printed."""

_PRINTABLE = {torch.float64, torch.float32, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool}


def _rounded(values: torch.Tensor) -> str:
    return repr(values.tolist()).replace("inf", "float('inf')").replace("nan", "float('nan')")


def _detached(made: str) -> str:
    """Returns text for a leaf that stands in two places: one of them must not require grad because the other does."""
    return f"{made}.detach()" if made.isidentifier() else made


def _count(inputs: Sequence[Given]) -> dict[int, int]:
    """Returns how many recipes mention each tree, and how many leaves each storage has. A view is made of its base."""
    found: dict[int, int] = {}
    seen: set[int] = set()

    def add(tree: Tree) -> None:
        found[id(tree)] = found.get(id(tree), 0) + 1
        if found[id(tree)] > 1:
            return
        if isinstance(tree, Leaf):
            found[id(tree.storage)] = found.get(id(tree.storage), 0) + 1
        else:
            for inner in tree.inner.values():
                add(inner)

    def visit(given: Given) -> None:
        if id(given) in seen:
            return
        seen.add(id(given))
        if given.base is None:
            add(given.tree)
        else:
            visit(given.base)

    for given in inputs:
        visit(given)
    return found


Maker = Callable[[], tuple[list[Any], list[Any]]]


def maker(inputs: Sequence[Given]) -> Maker:
    """Returns a function that makes the tensors, equal ones each time: the inputs, and the leaves behind them."""
    names = Names()
    printer = Printer(names)
    printer.print(inputs)
    source = Source("make", "")
    source.globals.update({"torch": torch, **names.values})
    for line in printer.lines:
        source.line(line)
    source.line(f"return [{', '.join(given.name for given in inputs)}], [{', '.join(printer.roots)}]")
    make = source.build()

    def make_seeded() -> tuple[list[Any], list[Any]]:
        with torch.random.fork_rng(), torch.inference_mode(False), torch.enable_grad():
            torch.manual_seed(0)
            made: tuple[list[Any], list[Any]] = make()
            return made

    return make_seeded

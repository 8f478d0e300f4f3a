"""Tensors as recipes, which can be made simpler, and print as Python that makes equal ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.kit.wrapper import WrapperTensor

Size = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Storage:
    """A piece of memory. Recipes that mention the same one share it.

    Attributes:
        numel: How many elements it has.
        dtype: Their dtype.
        device: Where it is.
        values: Its content; random if None.
    """

    numel: int
    dtype: torch.dtype
    device: torch.device
    values: torch.Tensor | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Leaf:
    """A dense tensor on a storage. Recipes that mention the same one have one object there."""

    storage: Storage
    size: Size
    stride: Size
    offset: int
    dtype: torch.dtype

    @property
    def whole(self) -> bool:
        """Whether it is its storage, in order."""
        shape = torch.empty(self.size, device="meta")
        return (
            not self.offset
            and self.dtype == self.storage.dtype
            and shape.numel() == self.storage.numel
            and shape.stride() == self.stride
        )


@dataclass(frozen=True, eq=False, slots=True)
class Wrapped:
    """A wrapper around others.

    Attributes:
        cls: Its class.
        inner: Its inner tensors, by name.
        context: What `__tensor_flatten__` returns of it.
        size: Its size from outside.
        stride: Its strides from outside.
        fields: For a `WrapperTensor` that its constructor makes as it is: the fields that are no tensors.
    """

    cls: Any
    inner: dict[str, Tree]
    context: Any
    size: Size
    stride: Size
    fields: dict[str, Any] | None = None


Tree = Leaf | Wrapped


@dataclass(frozen=True, eq=False, slots=True)
class Given:
    """A tensor that a program is given.

    Attributes:
        name: Its name in the program.
        tree: What it is made of.
        history: "" (requires no grad), "leaf", or "computed" by an operator from a leaf.
        base: What it is a view of, where autograd knows it to be one; then `history` says nothing.
        parameter: Whether it is an `nn.Parameter`.
        role: "argument"; "constant", which the program closes over; or "hidden", the base of another.
        cls: The plain subclass that it is of, if it is of one.
    """

    name: str
    tree: Tree
    history: str = ""
    base: Given | None = None
    parameter: bool = False
    role: str = "argument"
    cls: type[torch.Tensor] | None = None


class Capture:
    """Makes recipes of tensors. What they share is shared between the recipes of one capture.

    Args:
        values: Whether to keep the values; else the recipes make random ones.
    """

    def __init__(self, values: bool = True) -> None:
        self._values = values
        self._storages: dict[int, Storage] = {}
        self._trees: dict[int, Tree] = {}
        self._given: dict[int, Given] = {}
        self._alive: list[Any] = []  # so that an id stays its tensor's own

    def all(self, tensors: Sequence[Any]) -> list[Given]:
        """Returns recipes for `x0`, `x1`, ..."""
        with _torch.plain_subclasses.without_torch_function():
            for i, tensor in enumerate(tensors):
                if _torch.autograd.base_of(tensor) is None:  # before the views of it, so that they find it
                    self.given(tensor, f"x{i}")
            return [self.given(tensor, f"x{i}") for i, tensor in enumerate(tensors)]

    def given(self, tensor: torch.Tensor, name: str, role: str = "argument") -> Given:
        """Returns a recipe for `tensor`."""
        known = self._given.get(id(tensor))
        if known is None:
            base = self._base(tensor, name)
            history = "" if not tensor.requires_grad else "leaf" if tensor.is_leaf else "computed"
            cls = type(tensor) if _torch.plain_subclasses.is_plain_subclass(type(tensor)) else None
            parameter = isinstance(tensor, torch.nn.Parameter) and cls is None
            known = Given(name, self._tree(tensor), history, base, parameter, role, cls)
            self._given[id(tensor)] = known
            self._alive.append(tensor)
        return known

    def _base(self, tensor: torch.Tensor, name: str) -> Given | None:
        """Returns the tensor of which this is a view, if it can be regenerated: by `as_strided`, or as the whole."""
        base = _torch.autograd.base_of(tensor)
        if base is None or tensor.is_leaf or not base.requires_grad:
            return None
        if _torch.wrappers.is_traceable_wrapper_subclass(tensor) and (
            type(base) is not type(tensor) or base.shape != tensor.shape or base.stride() != tensor.stride()
        ):
            return None
        return self.given(base, f"{name}_base", "hidden")

    def _tree(self, tensor: torch.Tensor) -> Tree:
        known = self._trees.get(id(tensor))
        if known is None:
            known = (
                self._wrapped(tensor) if _torch.wrappers.is_traceable_wrapper_subclass(tensor) else self._leaf(tensor)
            )
            self._trees[id(tensor)] = known
            self._alive.append(tensor)
        return known

    def _wrapped(self, tensor: _torch.wrappers.Wrapper) -> Wrapped:
        names, context = tensor.__tensor_flatten__()
        inner = {name: self._tree(getattr(tensor, name)) for name in names}
        fields = _fields(tensor) if isinstance(tensor, WrapperTensor) else None
        return Wrapped(type(tensor), inner, context, tuple(tensor.size()), tensor.stride(), fields)

    def _leaf(self, tensor: torch.Tensor) -> Leaf:
        memory = tensor.untyped_storage()
        key = memory.data_ptr() or id(tensor)  # an empty one shares nothing
        storage = self._storages.get(key)
        if storage is None:
            numel = memory.nbytes() // tensor.element_size()
            values = None
            if self._values:
                with torch.no_grad(), torch.inference_mode(False):
                    values = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                    values.set_(memory.clone(), 0, (numel,))  # type: ignore[call-overload]
            storage = self._storages[key] = Storage(numel, tensor.dtype, tensor.device, values)
            self._alive.append(memory)
        return Leaf(storage, tuple(tensor.size()), tensor.stride(), int(tensor.storage_offset()), tensor.dtype)


def _fields(tensor: WrapperTensor) -> dict[str, Any] | None:
    """Returns the fields of a wrapper that are no tensors, if the constructor makes the same of its fields."""
    cls = type(tensor)
    declared = cls.__wrapper_declaration__.fields
    if any(f.kind == "mapping" for f in declared.values()):
        return None
    try:
        with torch.no_grad():
            again = cls(**{name: getattr(tensor, name) for name in declared})
    except Exception as error:
        pass_on_interruption(error)
        return None
    if (again.shape, again.stride(), again.dtype) != (tensor.shape, tensor.stride(), tensor.dtype):
        return None
    state = tensor.__wrapper_state__()
    return {name: state[name] for name, f in declared.items() if f.kind == "context" and state[name] != f.default}


def leaves_of(tree: Tree) -> Iterator[Leaf]:
    """Yields the dense tensors of a recipe, in order."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for inner in tree.inner.values():
            yield from leaves_of(inner)

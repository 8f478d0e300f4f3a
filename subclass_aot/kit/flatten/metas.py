"""Metas, from which a value is rebuilt of its leaves: frozen descriptions that hold no tensor and no SymInt.

Note [Leaf order]
~~~~~~~~~~~~~~~~~
A wrapper becomes flat slots depth first, in the order of `__tensor_flatten__`; after the leaves of a wrapper come its
symbolic sizes and then its symbolic strides. A size or stride is symbolic when it is a SymInt that stands for a number;
the nested int of a jagged tensor stands for none and never becomes a slot. Tangents have no size and stride slots:
their metas are made with `count_symints=False`.

Both inner tensors are inputs of the graph, and the results are wrapped behind it:

>>> import torch
>>> import subclass_aot as sa
>>> compiled = sa.aot_compile(lambda x: x * 2, fw_compiler="eager")
>>> y = compiled(sa.TwoTensor(torch.ones(2), torch.zeros(2)))
>>> print(compiled.source)
def call(...):
    ...
        (output_0_a, output_0_b, ) = outputs
    ...
    twotensor = ...(...)
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import torch

from subclass_aot.base._torch.wrappers import is_nested_int
from subclass_aot.base.later import Later
from subclass_aot.kit.flatten import contexts

rebuild: Later[..., Any] = Later("rebuild_by")
"""Rebuilds a wrapper of a flat list. `by_meta.py` imports this file."""

SYMBOLIC: Final = None
"""Stands in `outer_size` and `outer_stride` where the number is known only at the call."""

NESTED_INT: Final = -1
"""Stands in `outer_size` and `outer_stride` for a ragged dimension; such classes ignore what is passed there."""


@dataclass(frozen=True, slots=True)
class PlainTensorMeta:
    """A value that is one leaf as it is: a dense tensor, or anything that is no tensor.

    Args:
        unwrapped_idx: Its position in the flat list.
        cls: `torch.Tensor`, `Parameter` or a plain subclass for a dense tensor; the class of any other value.
        dtype: Its dtype, or `None` where it is no tensor.
    """

    unwrapped_idx: int
    cls: type = torch.Tensor
    dtype: torch.dtype | None = None

    @property
    def arg_count(self) -> int:
        """How many flat slots it takes: one."""
        return 1

    @property
    def memory_format(self) -> Any:
        """None: what `create_subclass_meta(with_memory_format=True)` gives has one."""
        return None

    @property
    def is_tensor(self) -> bool:
        """Whether a tensor was described, and not some other value."""
        return issubclass(self.cls, torch.Tensor)


@dataclass(frozen=True, slots=True)
class OpaqueMeta:
    """An opaque value among the inner tensors of a wrapper, such as the mesh of a `DTensor`: one flat slot."""

    unwrapped_idx: int
    arg_count = 1


@dataclass(frozen=True, slots=True)
class AbsentMeta:
    """An inner attribute that `__tensor_flatten__` names and that is `None`: no flat slot."""

    arg_count = 0


@dataclass(frozen=True, slots=True)
class ContainerMeta:
    """An inner attribute that is a list, tuple or dict of tensors: the slots of its elements.

    Args:
        arg_count: How many flat slots the elements take.
        cls: `list`, `tuple` or `dict`.
        items: The elements by index or key, in order.
    """

    arg_count: int
    cls: type
    items: dict[Any, InnerMeta] = field(hash=False)

    @staticmethod
    def step(key: object) -> str:
        """Returns the step of a path that leads to an element.

        >>> ContainerMeta.step(0), ContainerMeta.step("k")
        ('[0]', "['k']")
        """
        return f"[{key!r}]"


@dataclass(frozen=True, slots=True)
class SubclassCreationMeta:
    """The description that rebuilds one wrapper tensor from its flat slots. See Note [Leaf order].

    `requires_grad` is not here: the caller knows where autograd stands, a description of leaves does not.

    Args:
        flat_tensor_start_idx: The position of its first slot in the flat list.
        arg_count: How many slots it takes, those of nested wrappers and of symbolic sizes included.
        included_subclass_symints: Whether symbolic sizes and strides have slots.
        attrs: Its inner tensors by name, in the order of `__tensor_flatten__`.
        cls: Its class.
        context: The second result of `__tensor_flatten__`, but for what it repeats: see Note [Sizes in contexts].
        outer_size: Its size; `SYMBOLIC` (`None`) where only the call knows, `NESTED_INT` for a ragged dimension.
        outer_stride: Its stride, in the same way.
        storage_offset: Its storage offset, or `SYMBOLIC`.
        dtype: Its dtype as seen from outside.
        device: Its device as seen from outside.
        layout: Its layout as seen from outside.
        symbols_from: The inner tensor that gives symbolic sizes and strides where they have no slot.
    """

    # More than ten attributes: those of AOTAutograd's class of this name, and what `_make_wrapper_subclass` takes.
    flat_tensor_start_idx: int
    arg_count: int
    included_subclass_symints: bool
    attrs: dict[str, InnerMeta] = field(hash=False)
    cls: type[torch.Tensor]
    context: Any = field(hash=False)
    outer_size: tuple[int | None, ...]
    outer_stride: tuple[int | None, ...]
    storage_offset: int | None
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    symbols_from: str | None = None

    @staticmethod
    def step(name: str) -> str:
        """Returns the step of a path that leads to an inner tensor.

        >>> SubclassCreationMeta.step("codes")
        '.codes'
        """
        return f".{name}"

    def context_of(self, size: Sequence[Any], stride: Sequence[Any]) -> Any:
        """Returns the context of a wrapper of this size and these strides."""
        return contexts.filled(self.context, size, stride)

    def context_restrided(self, size: Sequence[Any], stride: Sequence[Any]) -> Any:
        """Returns the context of a wrapper of this size, and of these strides where this one has others in it."""
        return contexts.filled(contexts.restrided(self.context, self.outer_stride, stride), size, stride)

    def context_resized(self, size: Sequence[Any]) -> Any:
        """Returns the context of a wrapper of that size, where this one has its own in it."""
        return contexts.resized(self.context, self.outer_size, size)

    @property
    def repeated(self) -> tuple[contexts.Repeated, ...]:
        """What the context has in it of the size and strides."""
        return tuple(what for _, what in contexts.repeated(self.context))

    def symbolic_places(self, path: str) -> Iterator[tuple[str, str]]:
        """Yields where contexts repeat symbolic sizes or strides, of wrappers inside, too, and what they repeat.

        Args:
            path: What leads to the wrapper.
        """
        yield from ((place, str(number)) for place, number in contexts.repeated(self.context, path))
        yield from _inside(self.attrs, self.step, path)

    @staticmethod
    def masked(context: Any, path: str, places: Mapping[str, str]) -> Any:
        """Replaces what a context repeats of its wrapper by words, which are the same for all sizes.

        Args:
            context: The context.
            path: What leads to the wrapper.
            places: As `symbolic_places` gives them; others may be among them.
        """
        return contexts.masked(context, path, places)

    @property
    def meta(self) -> Any:
        """The context, under the name it has in AOTAutograd."""
        return self.context

    @property
    def original_subclass_type(self) -> type[torch.Tensor]:
        """The class, under the name it has in AOTAutograd."""
        return self.cls

    @property
    def inner_keys(self) -> list[str]:
        """The names of the inner tensors, as they are called in AOTAutograd before torch 2.5."""
        return list(self.attrs)

    @property
    def original_subclass(self) -> None:
        """None: a description holds no tensor, as AOTAutograd's after `make_runtime_safe`."""
        return None

    @property
    def memory_format(self) -> Any:
        """None: what `create_subclass_meta(with_memory_format=True)` gives has one."""
        return None

    def make_runtime_safe(self) -> None:
        """Does nothing: AOTAutograd's forgets its tensor here, and symbolic numbers."""

    def creation_fn(self, all_args: Sequence[Any], *, is_runtime: bool = True) -> Any:
        """Rebuilds the wrapper from the flat list of all values, as AOTAutograd's metas do.

        Args:
            all_args: The flat list.
            is_runtime: Makes no difference: the meta does not know where autograd stands.

        Raises:
            PlanError: The list is too short, or has no tensor where an inner one should be.
        """
        return rebuild(self, all_args, is_runtime=is_runtime, where="args")

    @property
    def symbolic_sizes(self) -> tuple[int, ...]:
        """The dimensions whose size is symbolic."""
        return tuple(d for d, size in enumerate(self.outer_size) if size is SYMBOLIC)

    @property
    def symbolic_strides(self) -> tuple[int, ...]:
        """The dimensions whose stride is symbolic."""
        return tuple(d for d, stride in enumerate(self.outer_stride) if stride is SYMBOLIC)


def _inside(parts: Mapping[Any, Any], step: Callable[[Any], str], path: str) -> Iterator[tuple[str, str]]:
    for key, part in parts.items():
        if isinstance(part, SubclassCreationMeta):
            yield from part.symbolic_places(path + step(key))
        elif isinstance(part, ContainerMeta):
            yield from _inside(part.items, part.step, path + step(key))


InnerMeta: TypeAlias = PlainTensorMeta | OpaqueMeta | AbsentMeta | ContainerMeta | SubclassCreationMeta
"""What can stand below a wrapper."""

ValueMeta: TypeAlias = PlainTensorMeta | SubclassCreationMeta
"""What describes one value of a list."""


def frozen_sizes(sizes: Iterable[Any]) -> tuple[int | None, ...]:
    """Returns sizes or strides without SymInts.

    >>> frozen_sizes(torch.Size((2, 3)))
    (2, 3)
    """
    return tuple(s if type(s) is int else NESTED_INT if is_nested_int(s) else _number(s) for s in sizes)


def _number(size: int | torch.SymInt) -> int | None:
    return SYMBOLIC if isinstance(size, torch.SymInt) else int(size)

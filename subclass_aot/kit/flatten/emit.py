"""Straight-line code that reads the leaves of a value and that rebuilds a value from them.

Everyone who generates code around wrappers appends it with these two functions. On the good path the code they append
calls nothing but what torch needs to make a tensor; each check is one comparison, and errors are raised out of line.
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

import torch

from subclass_aot.base import hooks
from subclass_aot.base._torch.collectives import HAS_WAITED, waits_when_read
from subclass_aot.base._torch.plain_subclasses import as_class, is_plain_subclass
from subclass_aot.base._torch.wrappers import context_of_new, contiguous_stride, make_wrapper_subclass
from subclass_aot.base.codegen import Source
from subclass_aot.kit.declaration import Declaration, attributes_of
from subclass_aot.kit.flatten import checks
from subclass_aot.kit.flatten.contexts import filled, repeated
from subclass_aot.kit.flatten.metas import (
    NESTED_INT,
    SYMBOLIC,
    AbsentMeta,
    ContainerMeta,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
)
from subclass_aot.kit.flatten.replay import Replayed


def emit_unpack(source: Source, packed: str, names: Sequence[str], refuse: Callable[..., object], where: str) -> None:
    """Appends the unpacking of a list into locals; its length is checked by unpacking, which costs nothing.

    Args:
        source: The function to append to.
        packed: The local that holds the list.
        names: The locals.
        refuse: Makes the error for another length.
        where: What errors call the list.
    """
    with source.block("try:"):
        source.line(f"{', '.join(names)}, = {packed}" if names else f"() = {packed}")
    with source.block("except (TypeError, ValueError):"):
        source.line(f"raise {source.const(refuse, refuse.__name__)}({packed}, {len(names)}, {where!r}) from None")


def emit_unwrap(
    source: Source,
    meta: InnerMeta,
    value: str,
    *,
    where: str,
    append_symints: bool = True,
    check: bool = True,
) -> list[str]:
    """Appends lines that read every flat slot of the local variable `value`.

    Args:
        source: The function to append to.
        meta: What `value` is planned to be.
        value: The name of a local variable.
        where: What errors call the value, such as `args[2]`.
        append_symints: Whether symbolic sizes and strides are read too; never where the meta has no slots for them.
        check: Whether the exact class of each wrapper is checked, nested ones too, and the kind of a plain value.
            The class of an inner dense tensor is not compared.

    Returns:
        The slots in flat order, as expressions, each to be used once (`value` itself for a plain value). See
        Note [Leaf order].

    >>> import torch
    >>> from subclass_aot.tensors import TwoTensor
    >>> from subclass_aot.kit.flatten import create_subclass_meta
    >>> (meta,) = create_subclass_meta([TwoTensor(torch.ones(2), torch.ones(2))])
    >>> source = Source("read", "x")
    >>> emit_unwrap(source, meta, "x", where="x")
    ['x.a', 'x.b']
    >>> print(source)
    def read(x):
        if x.__class__ is not TwoTensor: wrong_class(x, TwoTensor, 'x')
    """
    return list(_Reader(source, append_symints, check).read(meta, value, where))


class _Reader:
    """Appends reads; each method yields the slots it read."""

    def __init__(self, source: Source, append_symints: bool, check: bool) -> None:
        self.source = source
        self.append_symints = append_symints
        self.check = check

    def read(self, meta: InnerMeta, value: str, where: str) -> Iterator[str]:
        if isinstance(meta, SubclassCreationMeta):
            yield from self.wrapper(meta, value, where)
        elif isinstance(meta, ContainerMeta):
            yield from self.container(meta, value, where)
        elif isinstance(meta, AbsentMeta):
            self.refuse_unless(f"{value} is not None", checks.wrong_class, f"{value}, {self.named(type(None))}", where)
        else:
            if isinstance(meta, PlainTensorMeta):
                cls = self.named(meta.cls)
                other = f"{_class_of(value, meta.cls)} is not {cls}"
                self.refuse_unless(other, checks.not_exactly_tensor, f"{value}, {cls}", where)
            yield value

    def wrapper(self, meta: SubclassCreationMeta, value: str, where: str) -> Iterator[str]:
        cls = self.named(meta.cls)
        self.refuse_unless(f"{_class_of(value, meta.cls)} is not {cls}", checks.wrong_class, f"{value}, {cls}", where)
        for name, inner in meta.attrs.items():
            read = read_attribute(value, name)
            yield from self.part(inner, read, f"{value}_{name}", where + SubclassCreationMeta.step(name))
        if self.append_symints and meta.included_subclass_symints:
            for method, dims in ("size", meta.symbolic_sizes), ("stride", meta.symbolic_strides):
                if dims:
                    numbers = self.assign(f"{value}_{method}", f"{value}.{method}()")
                    for dim in dims:
                        yield f"{numbers}[{dim}]"

    def container(self, meta: ContainerMeta, value: str, where: str) -> Iterator[str]:
        cls, keys = self.named(meta.cls), self.source.const(tuple(meta.items), "keys")
        other = f"tuple({value}) != {keys}" if meta.cls is dict else f"len({value}) != {len(meta.items)}"
        arguments = f"{value}, {cls}, {keys}"
        self.refuse_unless(f"type({value}) is not {cls} or {other}", checks.wrong_container, arguments, where)
        for key, inner in meta.items.items():
            read = f"{value}[{_constant(self.source, key, 'key')}]"
            yield from self.part(inner, read, f"{value}_{key}", where + ContainerMeta.step(key))

    def part(self, meta: InnerMeta, read: str, hint: str, where: str) -> Iterator[str]:
        """Emits the read of one inner attribute."""
        if isinstance(meta, PlainTensorMeta | OpaqueMeta):
            yield read
        else:
            yield from self.read(meta, self.assign(hint, read), where)

    def assign(self, hint: str, expression: str) -> str:
        return _assign(self.source, hint, expression)

    def named(self, cls: type) -> str:
        return self.source.const(cls, cls.__name__)

    def refuse_unless(self, wrong: str, refuse: Callable[..., object], arguments: str, where: str) -> None:
        if self.check:
            self.source.line(f"if {wrong}: {self.source.const(refuse, refuse.__name__)}({arguments}, {where!r})")


def emit_wrap(source: Source, meta: InnerMeta, leaves: Sequence[str]) -> str:
    """Appends lines that rebuild one value from its flat slots. Nothing is checked.

    A class that offers `__wrapper_attributes__(names, context) -> dict[str, object]` (a classmethod that tells which
    attributes, other than inner tensors, an instance has) is built without its constructor: its outer metadata is known
    here. Every other class is rebuilt by its `__tensor_unflatten__`.

    A symbolic size or stride comes from its slot. Where it has none (`count_symints=False`), it is that of the first
    inner tensor of the outer rank: a tangent is as large as the tensors it arrives in.

    Args:
        source: The function to append to.
        meta: What to rebuild.
        leaves: The names of the locals that hold its slots, in flat order; `meta.arg_count` of them.

    Returns:
        The name of the local that holds the value; the leaf itself for a plain value.
    """
    if len(leaves) != meta.arg_count:
        raise ValueError(f"the meta takes {meta.arg_count} leaves, got {len(leaves)} names")
    return _rebuild(source, meta, iter(leaves))


def _rebuild(source: Source, meta: InnerMeta, slots: Iterator[str]) -> str:
    if isinstance(meta, PlainTensorMeta) and is_plain_subclass(meta.cls):
        cls = source.const(meta.cls, meta.cls.__name__)
        return _assign(source, meta.cls.__name__.lower(), f"{source.const(as_class, 'as_class')}({next(slots)}, {cls})")
    if isinstance(meta, PlainTensorMeta | OpaqueMeta):
        return next(slots)
    if isinstance(meta, AbsentMeta):
        return "None"
    if isinstance(meta, ContainerMeta):
        parts = [_rebuild(source, inner, slots) for inner in meta.items.values()]
        return _assign(source, "parts", _display(source, meta, parts))
    inner = {name: _rebuild(source, part, slots) for name, part in meta.attrs.items()}
    size, stride = _outer_numbers(source, meta, inner, slots)
    cls = source.const(meta.cls, meta.cls.__name__)
    attributes = attributes_of(meta.cls)
    if attributes is None or NESTED_INT in meta.outer_size:
        dense = all(isinstance(part, PlainTensorMeta | SubclassCreationMeta) for part in meta.attrs.values())
        if dense and not {SYMBOLIC, NESTED_INT} & {*meta.outer_size, *meta.outer_stride}:
            replayed = Replayed(meta.cls, tuple(inner), meta.context, meta.outer_size, meta.outer_stride)  # type: ignore[arg-type]
            if replayed.may_be:
                make = source.const(replayed, f"{_hint(meta)}_replayed")
                return _assign(source, _hint(meta), f"{make}.make({', '.join(inner.values())})")
        tensors = "{" + ", ".join(f"{name!r}: {leaf}" for name, leaf in inner.items()) + "}"
        context = _with_numbers(source, context_of_new(meta.cls, meta.context), "context", size, stride)
        rebuilt = f"{cls}.__tensor_unflatten__({tensors}, {context}, {_size(source, size)}, {_tuple(stride)})"
        made = _assign(source, _hint(meta), rebuilt)
        if waits_when_read(meta.cls):  # its inner tensor is there
            source.line(f"{made}.{HAS_WAITED} = True")
        return made
    constants = attributes(tuple(meta.attrs), meta.context)
    recipe = _recipe(meta, constants)
    if recipe is not None:
        return _assign(source, _hint(meta), f"{source.const(recipe, f'{_hint(meta)}_of')}({', '.join(inner.values())})")
    made = _assign(source, _hint(meta), _construction(source, meta, cls, size, stride, inner))
    held = {**inner, **{name: _with_numbers(source, x, name, size, stride) for name, x in constants.items()}}
    if Declaration.of(meta.cls) is None:
        for name, value in held.items():
            _set(source, made, name, value)
        return made
    hold, names = source.const(hooks.hold, "hold"), source.const(_one_object(tuple(held)), "names")
    source.line(f"{hold}({', '.join([made, names, *held.values()])})")  # `__setattr__` is for users, whom it checks
    return made


def _recipe(meta: SubclassCreationMeta, constants: dict[str, object]) -> Any:
    """Returns what makes such wrappers of inner tensors in one call; None where that is left to generated code."""
    make = hooks.make_recipe
    symbolic = SYMBOLIC in (*meta.outer_size, *meta.outer_stride, meta.storage_offset)
    if make is None or symbolic or meta.layout is not torch.strided or Declaration.of(meta.cls) is None:
        return None
    of = (meta.cls, meta.outer_size, meta.outer_stride, meta.storage_offset, meta.dtype, meta.device)
    return make(*of, (*meta.attrs, *constants), constants, None)


def _construction(
    source: Source, meta: SubclassCreationMeta, cls: str, size: list[str], stride: list[str], inner: dict[str, str]
) -> str:
    """Returns the call that makes the bare outer tensor; stride and offset are left out where torch would choose
    the same.
    """
    offset = "None" if meta.storage_offset == 0 else str(meta.storage_offset)
    if meta.storage_offset is SYMBOLIC:
        offset = f"{next(iter(inner.values()))}.storage_offset()"
    # Torch takes an offset only together with strides.
    stride_argument = "None" if offset == "None" and _is_contiguous(meta) else _tuple(stride)
    make = source.const(make_wrapper_subclass, "make_wrapper_subclass")
    dtype = source.const(meta.dtype, str(meta.dtype).removeprefix("torch."))
    layout = source.const(meta.layout, str(meta.layout).removeprefix("torch."))
    device = source.const(_one_object(meta.device), str(meta.device))
    return f"{make}({cls}, {_tuple(size)}, {stride_argument}, {offset}, None, {dtype}, {layout}, {device})"


@functools.cache
def _one_size(numbers: tuple[int, ...]) -> torch.Size:
    """Returns one size for equal ones, as `_one_object`, for which a tuple of these numbers would be the same."""
    return torch.Size(numbers)


@functools.cache
def _one_object(value: Hashable) -> Any:
    """Returns one object for equal ones, so that generated code has one name for it."""
    return value


def _outer_numbers(
    source: Source, meta: SubclassCreationMeta, inner: dict[str, str], slots: Iterator[str]
) -> tuple[list[str], list[str]]:
    """Returns expressions for the outer size and the outer stride."""
    both = []
    for method, numbers in ("size", meta.outer_size), ("stride", meta.outer_stride):
        given: Iterator[str] = slots
        if meta.symbols_from is not None and SYMBOLIC in numbers:
            giver = inner[meta.symbols_from]
            local = _assign(source, f"{giver}_{method}", f"{giver}.{method}()")
            given = iter([f"{local}[{dim}]" for dim, number in enumerate(numbers) if number is SYMBOLIC])
        both.append([next(given) if number is SYMBOLIC else str(number) for number in numbers])
    return both[0], both[1]


def _is_contiguous(meta: SubclassCreationMeta) -> bool:
    """Returns whether the outer stride is the one that torch gives to a new tensor of the outer size."""
    return SYMBOLIC not in meta.outer_size and meta.outer_stride == contiguous_stride(meta.outer_size)


def _display(source: Source, meta: ContainerMeta, parts: list[str]) -> str:
    if meta.cls is dict:
        keys = [_constant(source, key, "key") for key in meta.items]
        return "{" + ", ".join(f"{key}: {part}" for key, part in zip(keys, parts, strict=True)) + "}"
    return _tuple(parts) if meta.cls is tuple else "[" + ", ".join(parts) + "]"


def _class_of(value: str, planned: type) -> str:
    """Returns the class of `value`, to compare with `planned`.

    On CPython 3.11 `x.__class__` takes 8 ns and `type(x)` 17; they are the same unless a class says otherwise.
    """
    says_otherwise = any("__class__" in vars(cls) for cls in planned.__mro__[:-1])
    return f"type({value})" if says_otherwise else f"{value}.__class__"


def _set(source: Source, made: str, name: str, value: str) -> None:
    source.line(f"{made}.{name} = {value}" if _is_identifier(name) else f"setattr({made}, {name!r}, {value})")


def _assign(source: Source, hint: str, expression: str) -> str:
    name = source.fresh(hint)
    source.line(f"{name} = {expression}")
    return name


_LITERALS: Final = (int, str, bool, type(None))


def _constant(source: Source, value: object, hint: str) -> str:
    return repr(value) if type(value) in _LITERALS else source.const(value, hint)


def _with_numbers(source: Source, value: object, hint: str, size: list[str], stride: list[str]) -> str:
    """Returns a value of a context, in which the wrapper's own numbers may stand. See Note [Sizes in contexts]."""
    constant = _constant(source, value, hint)
    if next(repeated(value), None) is None:
        return constant
    return f"{source.const(filled, 'filled')}({constant}, {_tuple(size)}, {_tuple(stride)})"


def _size(source: Source, parts: list[str]) -> str:
    """Returns a size as the class of a wrapper is given it elsewhere: one that it keeps may be compared with
    another.
    """
    if all(part.lstrip("-").isdigit() for part in parts):
        return source.const(_one_size(tuple(map(int, parts))), "size")
    return f"{source.const(torch.Size, 'Size')}({_tuple(parts)})"


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def read_attribute(value: str, name: str) -> str:
    """Returns the expression that reads one attribute.

    >>> read_attribute("x", "scale"), read_attribute("x", "not a name")
    ('x.scale', "getattr(x, 'not a name')")
    """
    return f"{value}.{name}" if _is_identifier(name) else f"getattr({value}, {name!r})"


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _hint(meta: SubclassCreationMeta) -> str:
    return meta.cls.__name__.lower()

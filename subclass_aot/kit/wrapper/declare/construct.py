"""Making wrappers: the generated constructor, flatten and unflatten, and what they are built from.

Note [What an instance holds]
    An inner tensor stands in the instance's `__dict__` under its field's name; an absent optional one does not stand
    there (the class attribute None shows through). The tensors of a list or dict field stand there one by one, as
    `parts_0` or `parts_key`, beside `_parts_layout`, their number or their keys; `parts` itself is a property.
    Context values stand there under their names. Nothing else is needed to make an instance, so `__dict__` without
    the inner tensors is a function of the context alone, and that function is `__wrapper_attributes__`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base.codegen import Source
from subclass_aot.errors import InnerTensorError
from subclass_aot.kit.declaration import MISSING, Field
from subclass_aot.kit.wrapper.declare.outer import Outer, outer_of, outer_rule
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout import shared_fields

make: Any = _torch.wrappers.make_wrapper_subclass


def assemble(
    cls: type[Wrapper],
    state: Mapping[str, Any],
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Any:
    """Makes an instance that holds `state`; nothing is checked.

    Args:
        cls: The wrapper class.
        state: The new `__dict__`. See Note [What an instance holds].
        size: Outer size, where another one than the outer rule's is wanted.
        stride: Outer stride, likewise.

    Returns:
        The instance.
    """
    outer = outer_of(cls, state)
    if size is not None or stride is not None:
        size = outer.size if size is None else size
        offset = None if stride is None else outer.storage_offset  # torch takes an offset only together with strides
        outer = outer._replace(size=size, stride=stride, storage_offset=offset)
    return made_of(cls, state, outer)


def made_of(cls: type[Wrapper], state: Mapping[str, Any], outer: Outer) -> Any:
    """Makes an instance that holds `state`, and has these sizes, strides, dtype and device; nothing is checked."""
    size, stride, dtype, device, layout, offset = outer
    result = make(cls, size, stride, offset, None, dtype, layout, device)
    result.__dict__.update(state)
    return tell_export(result) if torch.compiler.is_exporting() else result


def tell_export(made: Any) -> Any:
    """Tells an export of which fields a tensor was made, and returns the tensor.

    A view that shares fields is made by a view operator, which the export sees.
    """
    fields = {name: getattr(made, name) for name in type(made).__wrapper_declaration__.fields}
    _torch.wrappers.tell_export_constructed(
        made, {name: x for name, x in fields.items() if x is not None}
    )  # no graph has None
    return made


def inner_tensors(wrapper: Wrapper) -> dict[str, torch.Tensor]:
    """Returns the inner tensors by name, in flatten order."""
    return {name: getattr(wrapper, name) for name in wrapper.__tensor_flatten__()[0]}


def emit_instance(
    source: Source,
    cls: type[Wrapper],
    inner: Mapping[str, str],
    context: Mapping[str, str],
    geometry: tuple[str, str] = ("", ""),
    metadata_of: str = "",
) -> str:
    """Writes straight-line code that makes an instance of exactly `cls`.

    Args:
        source: The function that is being written.
        cls: The wrapper class.
        inner: For each inner name, in order, the variable that holds its tensor.
        context: For each other attribute, its expression.
        geometry: The expressions of the outer size and stride, where these are not the outer rule's.
        metadata_of: The variable of a wrapper of `cls` whose metadata the instance has, whatever the outer rule says.

    Returns:
        The variable that holds the instance.
    """
    result, klass = source.fresh("result"), source.const(cls, cls.__name__)
    maker = source.const(make, "make")
    state = {**inner, **context}
    size, stride = geometry
    if metadata_of or outer_rule(cls) is None:
        like = metadata_of or next(iter(inner.values()))
        size, stride = size or f"{like}.shape", stride or f"{like}.stride()"
        metadata = f"{size}, {stride}, {like}.storage_offset(), None, {like}.dtype, {like}.layout, {like}.device"
        source.line(f"{result} = {maker}({klass}, {metadata})")
    else:
        held, outer = source.fresh("state"), source.fresh("outer")
        source.line(f"{held} = {{{', '.join(f'{name!r}: {value}' for name, value in state.items())}}}")
        source.line(f"{outer} = {source.const(outer_of, 'outer_of')}({klass}, {held})")
        size, stride = size or f"{outer}.size", stride or f"{outer}.stride"
        metadata = f"{size}, {stride}, {outer}.storage_offset, None, {outer}.dtype, {outer}.layout, {outer}.device"
        source.line(f"{result} = {maker}({klass}, {metadata})")
    hold, names = source.const(hooks.hold, "hold"), source.const(tuple(state), "names")
    source.line(f"{hold}({', '.join([result, names, *state.values()])})")  # `__setattr__` is for users, whom it checks
    return result


def constructor(cls: type[Wrapper], construct: Callable[[type[Wrapper], dict[str, Any]], Any]) -> Callable[..., Any]:
    """Generates `__new__` with the fields as parameters; `construct` makes the instance of what it is to hold."""
    params = ["cls"]
    source_defaults: dict[str, Any] = {}
    for field in cls.__wrapper_declaration__.fields.values():
        if field.default is MISSING:
            params.append(field.name)
        else:
            default = f"_default_{field.name}"
            source_defaults[default] = field.default
            params.append(f"{field.name}={default}")
    source = Source("__new__", ", ".join(params), f"Makes a {cls.__name__} of these inner tensors and context values.")
    source.globals.update(source_defaults)
    source.line("state = {}")
    for field in cls.__wrapper_declaration__.fields.values():
        hold = source.const(_HOLD[field.kind], f"hold_{field.kind}")
        source.line(f"{hold}(cls, state, {source.const(field, 'field_' + field.name)}, {field.name})")
    source.line(f"return {source.const(construct, 'construct')}(cls, state)")
    new = source.build()
    new.__qualname__ = f"{cls.__qualname__}.__new__"
    new.__module__ = cls.__module__
    return new


def assign(self: Wrapper, name: str, value: object) -> None:
    """Assigns a field of an instance, checked as the constructor checks it.

    Args:
        self: The instance.
        name: A field, or an inner tensor of a field of several.
        value: What it is to hold.

    Raises:
        InnerTensorError: The constructor would not take it, or it does not fit the sizes that the instance has.
    """
    cls = type(self)
    field = cls.__wrapper_declaration__.fields[cls.__wrapper_declaration__.field_of(name)]
    held: dict[str, Any] = {}
    if name == field.name:
        _HOLD[field.kind](cls, held, field, value)
    else:
        _hold_tensor(cls, held, field, value, name)
    for key, tensor in held.items():
        if isinstance(tensor, torch.Tensor):
            _check_held(cls, key, tensor)
    gone = {name}
    if name == field.name and field.kind in ("sequence", "mapping"):
        gone = {key for key in self.__dict__ if key.startswith(name + "_") or key == field.layout_attribute}
    state = {key: kept for key, kept in self.__dict__.items() if key in held or key not in gone} | held
    outer = outer_of(cls, state)
    stride = None if outer.stride is None else tuple(outer.stride)
    found = {"size": tuple(outer.size), "stride": stride, "dtype": outer.dtype, "device": outer.device}
    mine = {"size": tuple(self.shape), "stride": self.stride(), "dtype": self.dtype, "device": self.device}
    differ = [key for key, value in found.items() if value is not None and value != mine[key]]
    if differ:
        raise InnerTensorError(
            f"{cls.__name__}.{name}: with it the tensor would have the {differ[0]} {found[differ[0]]}, and it has "
            f"{mine[differ[0]]}, which no assignment changes.\n    new = {cls.__name__}(...)\n    self.data = new"
        )
    for key in self.__dict__.keys() - state.keys():
        del self.__dict__[key]
    self.__dict__.update(state)


def _hold_tensor(cls: type[Wrapper], state: dict[str, Any], field: Field, value: object, name: str = "") -> None:
    name = name or field.name
    if not isinstance(value, torch.Tensor):
        raise InnerTensorError(f"{cls.__name__}.{name} must be a tensor, not {type(value).__name__}: {value!r}")
    if value.is_conj() or value.is_neg():
        bit = "conjugate" if value.is_conj() else "negative"
        raise InnerTensorError(
            f"{cls.__name__}.{name} has its {bit} bit set, which the wrapper could not show.\n"
            f"    {name}.resolve_conj().resolve_neg()"
        )
    state[name] = value


def _check_held(cls: type[Wrapper], name: str, value: torch.Tensor) -> None:
    """Checks an assigned inner tensor as the constructor would, and that it does not require grad (the constructor
    handles that itself).
    """
    if value.requires_grad:
        raise InnerTensorError(
            f"{cls.__name__}.{name} requires grad. Gradients belong to the outer tensor: autograd sees the wrapper and "
            f"never looks inside.\n    {cls.__name__}(..., {name}={name})  # which is a function of {name}"
        )
    _hold_tensor(cls, {}, cls.__wrapper_declaration__.fields[cls.__wrapper_declaration__.field_of(name)], value, name)


def _hold_optional(cls: type[Wrapper], state: dict[str, Any], field: Field, value: object) -> None:
    if value is not None:
        _hold_tensor(cls, state, field, value)


def _hold_sequence(cls: type[Wrapper], state: dict[str, Any], field: Field, value: object) -> None:
    if not isinstance(value, Sequence):
        raise InnerTensorError(
            f"{cls.__name__}.{field.name} must be a list or tuple of tensors, not {type(value).__name__}"
        )
    for i, element in enumerate(value):
        _hold_tensor(cls, state, field, element, f"{field.name}_{i}")
    state[field.layout_attribute] = len(value)


def _hold_mapping(cls: type[Wrapper], state: dict[str, Any], field: Field, value: object) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key.isidentifier() for key in value):
        raise InnerTensorError(
            f"{cls.__name__}.{field.name} must be a dict of tensors whose keys are identifiers, not {value!r:.200}"
        )
    for key, element in value.items():
        if hasattr(torch.Tensor, name := f"{field.name}_{key}"):
            raise InnerTensorError(
                f"{cls.__name__}.{field.name} has the key {key!r}, and would keep that tensor as `{name}`, the name "
                "of something that every tensor has. Take another key, or another name for the field"
            )
        _hold_tensor(cls, state, field, element, name)
    state[field.layout_attribute] = tuple(value)


def _hold_context(cls: type[Wrapper], state: dict[str, Any], field: Field, value: object) -> None:
    if isinstance(value, torch.Tensor):
        raise InnerTensorError(
            f"{cls.__name__}.{field.name} is context and was given a tensor; "
            "annotate the field with torch.Tensor to hold one"
        )
    if not (_has_hash(value) or _has_hash(_without_symbols(value))):
        raise InnerTensorError(
            f"{cls.__name__}.{field.name} is context and was given {value!r:.200}, which cannot be hashed: compiled "
            "programs are found by the hash of their context. Give a tuple, a frozenset or a frozen dataclass"
        )
    state[field.name] = value


def _has_hash(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _without_symbols(value: object) -> object:
    """Returns `value` without numbers that are symbols while a function is traced: these have no hash.

    A view that reads through its whole has the wanted sizes in its context.
    """
    if isinstance(value, tuple):
        return tuple(map(_without_symbols, value))
    return None if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else value


_HOLD = {
    "tensor": _hold_tensor,
    "optional": _hold_optional,
    "sequence": _hold_sequence,
    "mapping": _hold_mapping,
    "context": _hold_context,
}


def flattener(cls: type[Wrapper]) -> Callable[..., Any]:
    """Generates `__tensor_flatten__`: the names present, and a hashable context (None when there is nothing in it)."""
    source = Source("__tensor_flatten__", "self", "The names of the inner tensors and the context.")
    fields = cls.__wrapper_declaration__.fields.values()
    context = []
    if cls.__wrapper_declaration__.is_static:
        source.line(f"names = {[field.name for field in fields if field.kind == 'tensor']}")
    else:
        source.line("state = self.__dict__")
        source.line("names = []")
    for field in fields:
        if field.kind == "context":
            context.append(f"self.{field.name}")
        elif field.kind == "tensor" and not cls.__wrapper_declaration__.is_static:
            source.line(f"names.append({field.name!r})")
        elif field.kind == "optional":
            present = source.fresh(f"has_{field.name}")
            source.line(f"{present} = state.get({field.name!r}) is not None")
            with source.block(f"if {present}:"):
                source.line(f"names.append({field.name!r})")
            context.append(present)
        elif field.kind in ("sequence", "mapping"):
            layout = f"self.{field.layout_attribute}"
            elements = f"range({layout})" if field.kind == "sequence" else layout
            source.line(f'names += [f"{field.name}_{{element}}" for element in {elements}]')
            context.append(layout)
    found = f"({', '.join(context)},)" if context else "None"
    with source.block(f"if {shared_fields.may_share('self')}:"):
        source.line(f"return names, {source.const(shared_fields.context_of_view, 'of_view')}(self, names, {found})")
    source.line(f"return names, {found}")
    return source.build()


def attributes(cls: type[Wrapper]) -> Callable[..., Any]:
    """Generates `__wrapper_attributes__`: what an instance holds besides its inner tensors, from the context alone."""
    source = Source(
        "__wrapper_attributes__", "cls, names, context", "The attributes that are not tensors, for this context."
    )
    values = []
    position = 0
    for field in cls.__wrapper_declaration__.fields.values():
        if field.kind == "context":
            values.append(f"{field.name!r}: context[{position}]")
        elif field.kind in ("sequence", "mapping"):
            values.append(f"{field.layout_attribute!r}: context[{position}]")
        position += field.kind != "tensor"
    source.line(f"return {{{', '.join(values)}}}")
    return source.build()


def unflattener(cls: type[Wrapper]) -> Callable[..., Any]:
    """Generates `__tensor_unflatten__`: it honours the wanted outer size and stride, and copies nothing.

    Of each inner tensor it checks what operators would pass over in silence. The code that this library generates for a
    call makes instances without it.
    """
    params = "cls, inner, context, outer_size=None, outer_stride=None"
    source = Source("__tensor_unflatten__", params, f"A {cls.__name__} that holds the tensors of `inner`.")
    check = source.const(functools.partial(_check_held, cls), "check_held")
    is_wrong = "tensor.requires_grad or tensor.is_neg() or tensor.is_conj()"
    with source.block("for name, tensor in inner.items():"), source.block(f"if {is_wrong}:"):
        source.line(f"{check}(name, tensor)")
    lose = source.const(shared_fields.lose_origin, "lose_origin")
    with source.block(f"if type(context) is {source.const(shared_fields.ContextOfView, 'ContextOfView')}:"):
        source.line("made = cls.__tensor_unflatten__(inner, context.context, outer_size, outer_stride)")
        source.line(f"return {lose}(made, context)")
    if not cls.__wrapper_declaration__.is_static:
        source.line("state = {**inner, **cls.__wrapper_attributes__(tuple(inner), context)}")
        source.line(f"return {source.const(assemble, 'assemble')}(cls, state, outer_size, outer_stride)")
        return source.build()
    inner: dict[str, str] = {}
    context: dict[str, str] = {}
    for field in cls.__wrapper_declaration__.fields.values():
        if field.kind == "tensor":
            inner[field.name] = source.fresh(field.name)
            source.line(f"{inner[field.name]} = inner[{field.name!r}]")
        else:
            context[field.name] = f"context[{len(context)}]"
    with source.block("if outer_size is None or outer_stride is None:"):
        values = ", ".join(f"{name!r}: {value}" for name, value in {**inner, **context}.items())
        source.line(f"return {source.const(assemble, 'assemble')}(cls, {{{values}}}, outer_size, outer_stride)")
    made = emit_instance(source, cls, inner, context, ("outer_size", "outer_stride"))
    with source.block(f"if {source.const(torch.compiler.is_exporting, 'is_exporting')}():"):
        source.line(f"{source.const(tell_export, 'tell_export')}({made})")
    source.line(f"return {made}")
    return source.build()


def held_property(field: Field) -> property:
    """Returns the property that shows a field whose name torch has for a property of its own, as `real`."""

    def get(self: Any) -> Any:
        return self.__dict__.get(field.name)

    def put(self: Any, value: object) -> None:
        self.__dict__[field.name] = value

    get.__qualname__ = _HELD
    return property(get, put, doc=f"The field `{field.name}`.")


_HELD = "held_property.get"


def held_here(attribute: object) -> bool:
    """Returns whether a field of which the class has this attribute is what stands in `__dict__`.

    Args:
        attribute: What the class has under the name of the field.
    """
    if isinstance(attribute, property):
        return getattr(attribute.fget, "__qualname__", "") == _HELD
    return not inspect.isdatadescriptor(attribute)


def element_property(field: Field) -> property:
    """Returns the property that shows the tensors of a list field (as a tuple) or a dict field (as a read-only
    mapping).
    """
    prefix, layout = field.name + "_", field.layout_attribute

    def sequence(self: Any) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(self, f"{prefix}{i}") for i in range(getattr(self, layout)))

    def mapping(self: Any) -> Mapping[str, torch.Tensor]:
        return MappingProxyType({key: getattr(self, prefix + key) for key in getattr(self, layout)})

    return property(sequence if field.kind == "sequence" else mapping, doc=f"The inner tensors of `{field.name}`.")

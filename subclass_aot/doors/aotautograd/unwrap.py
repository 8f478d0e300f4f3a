"""From values to their flat slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from subclass_aot.base import _torch
from subclass_aot.base._torch.wrappers import is_traceable_wrapper_subclass
from subclass_aot.doors.aotautograd.arguments import Generated, are_ours, refuse_no_list
from subclass_aot.doors.aotautograd.parts import enumerate_filter_symints
from subclass_aot.engine.descriptors import Descriptor, Inner, InnerSize, InnerStride
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import ContainerMeta, FlattenPlan, ValueMeta

_NAME = "unwrap_tensor_subclasses"

_OF_TWO_VERSIONS = """`unwrap_tensor_subclasses` is given {both}, which are of different versions of torch:
  2.13:  leaves, descs = unwrap_tensor_subclasses(args, descs, append_symints=...)
  2.4:   leaves = unwrap_tensor_subclasses(args, is_joint_structure=...)
  here:  leaves = unwrap_tensor_subclasses(args, append_symints=..., subclass_metas=...)"""

_WHICH_SYMINTS = """`unwrap_tensor_subclasses` needs to know whether symbolic sizes have slots of their own:
  append_symints=True   for primals and results
  append_symints=False  for tangents"""

_NO_METAS = """`runtime_unwrap_tensor_subclasses(append_symints=True)` needs `subclass_metas`: at a call, sizes
are numbers, and only the metas say which of them have slots."""

_COUNT = "{name}: there are {count} for {values} values."

_NO_POSITION = "static_input_indices: {position!r} is the position of no value; there are {count}."

_NO_DESCRIPTOR = "wrapped_args_descs[{i}]: {got!r} is no descriptor, of this library or of AOTAutograd."


def unwrap_tensor_subclasses(
    wrapped_args: Sequence[Any],
    wrapped_args_descs: Sequence[Any] | None = None,
    *,
    append_symints: bool | None = None,
    subclass_metas: Sequence[Any] | None = None,
    is_joint_structure: bool | None = None,
) -> Any:
    """Returns the flat slots of all values. See Note [Leaf order].

    Args:
        wrapped_args: Dense tensors, wrapper tensors, and anything else, in a list or tuple.
        wrapped_args_descs: What each value is, in descriptors of this library or of AOTAutograd. With them, what each
            slot is comes back, too, as in torch 2.13.
        append_symints: Whether the symbolic sizes and strides of wrappers have slots: for primals, not for tangents.
        subclass_metas: What the values are planned to be. With them, which sizes have slots is as planned, classes are
            checked, and generated code does the work; without them, what the values are is found out again. Those of
            torch 2.4 are of one level: inner wrappers are leaves then. For two lists, the metas of the primals, or
            `(metas of primals, metas of tangents)`.
        is_joint_structure: Given as in torch 2.4, where sizes have no slots: whether `wrapped_args` are two lists,
            `(primals, tangents)`. Two lists come back then.

    Raises:
        PlanError: There is no list of values, or they are not what the metas say.
    """
    if is_joint_structure is not None:
        if append_symints or wrapped_args_descs is not None:
            other = "`append_symints`" if append_symints else "descriptors"
            raise PlanError(_OF_TWO_VERSIONS.format(both=f"`is_joint_structure` and {other}"))
        append_symints = False
    if append_symints is None:
        raise PlanError(_WHICH_SYMINTS)
    if is_joint_structure:
        primals, tangents = joint_structure(wrapped_args)
        of_primals, of_tangents = _joint_metas(subclass_metas)
        return _unwrapped(primals, False, of_primals), _unwrapped(tangents, False, of_tangents)
    refuse_no_list(wrapped_args, "wrapped_args", _NAME)
    if wrapped_args_descs is None:
        return _unwrapped(wrapped_args, append_symints, subclass_metas)
    if len(wrapped_args_descs) != len(wrapped_args):
        count, values = len(wrapped_args_descs), len(wrapped_args)
        raise PlanError(_COUNT.format(name="wrapped_args_descs", count=count, values=values))
    slots: list[tuple[Any, Any]] = []
    for i, (value, desc) in enumerate(zip(wrapped_args, wrapped_args_descs, strict=True)):
        slots += _described(value, _Words.of(desc, i), desc, append_symints)
    leaves = [leaf for leaf, _ in slots]
    if subclass_metas is not None:
        leaves = _unwrapped(wrapped_args, append_symints, subclass_metas)
    return leaves, [desc for _, desc in slots]


def runtime_unwrap_tensor_subclasses(
    wrapped_args: Sequence[Any], *, append_symints: bool, subclass_metas: Sequence[Any] | None = None
) -> list[Any]:
    """Returns the flat slots of the values of a call, where sizes are numbers.

    Args:
        wrapped_args: The values.
        append_symints: Whether sizes and strides that were symbolic have slots.
        subclass_metas: What the values are planned to be; may be left out if no size has a slot.

    Raises:
        PlanError: There is no list of values, metas are missing, or the values are not what they say.
    """
    refuse_no_list(wrapped_args, "wrapped_args", "runtime_unwrap_tensor_subclasses")
    if append_symints and subclass_metas is None:
        raise PlanError(_NO_METAS)
    return _unwrapped(wrapped_args, append_symints, subclass_metas)


def unwrap_tensor_subclasses_with_indices_to_original(wrapped_args: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Returns the leaves of all values, without sizes, and for each of them the position of its value.

    With metas, `IndexMap.outer_of` is the same.

    Raises:
        PlanError: There is no list of values.
    """
    refuse_no_list(wrapped_args, "wrapped_args", "unwrap_tensor_subclasses_with_indices_to_original")
    slots = [(leaf, i) for i, value in enumerate(wrapped_args) for leaf in _unwrapped([value], False, None)]
    return [leaf for leaf, _ in slots], [i for _, i in slots]


def remap_unwrapped_subclass_arg_indices(wrapped_args: Sequence[Any], static_input_indices: Sequence[int]) -> list[int]:
    """Returns the flat positions of some values, ascending: of leaves, and of symbolic sizes and strides.

    With metas, `IndexMap.to_flat` is the same.

    Args:
        wrapped_args: The values.
        static_input_indices: The positions of some of them.

    Raises:
        PlanError: There is no list of values, or a position is that of none.
    """
    refuse_no_list(wrapped_args, "wrapped_args", "remap_unwrapped_subclass_arg_indices")
    for position in static_input_indices:
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < len(wrapped_args):
            raise PlanError(_NO_POSITION.format(position=position, count=len(wrapped_args)))
    outers = [i for i, value in enumerate(wrapped_args) for _ in _unwrapped([value], True, None)]
    return [flat for flat, outer in enumerate(outers) if outer in static_input_indices]


def joint_structure(values: object) -> tuple[Sequence[Any], Sequence[Any]]:
    """Returns the two lists of a joint structure.

    Raises:
        PlanError: It is none.
    """
    parts: Any = values if isinstance(values, list | tuple) else ()
    if len(parts) != 2 or not all(isinstance(part, list | tuple) for part in parts):
        got = ", ".join(type(part).__name__ for part in parts) if parts else type(values).__name__
        raise PlanError(f"the arguments of a joint graph are two flat lists, `(primals, tangents)`; got {got}")
    return parts[0], parts[1]


def _joint_metas(metas: Any) -> tuple[Any, Any]:
    """Returns the metas of primals and those of tangents."""
    are_two = isinstance(metas, list | tuple) and len(metas) == 2 and all(isinstance(m, list | tuple) for m in metas)
    return (metas[0], metas[1]) if are_two else (metas, None)


def _unwrapped(values: Sequence[Any], append_symints: bool, metas: Sequence[Any] | None) -> list[Any]:
    if metas is None:
        return [leaf for value in values for leaf, _ in _described(value, _NOTHING, None, append_symints)]
    if are_ours(metas):
        unwrap: Callable[[Sequence[Any]], list[Any]] = _unwraps.get(metas, append_symints)
        return unwrap(values)
    refuse_no_list(metas, "subclass_metas", _NAME)
    if len(metas) != len(values):
        raise PlanError(_COUNT.format(name="subclass_metas", count=len(metas), values=len(values)))
    leaves: list[Any] = []
    for i, (value, meta) in enumerate(zip(values, metas, strict=True)):
        leaves += FlattenPlan.leaves_by(value, meta, append_symints=append_symints, name=f"args[{i}]")
    return leaves


class _Words(NamedTuple):
    """The classes that describe parts of wrappers: those of this library, or those of AOTAutograd."""

    inner: Callable[[Any, Any], Any]
    size: Callable[[Any, int], Any]
    stride: Callable[[Any, int], Any]

    @staticmethod
    def of(desc: object, i: int) -> _Words:
        """Returns the words for what is described so far.

        Raises:
            PlanError: It is no descriptor.
        """
        if isinstance(desc, Descriptor):
            return _Words(Inner, InnerSize, InnerStride)
        torchs = _torch.aotautograd.descriptors()
        for kind in ("Input", "Output"):
            if isinstance(desc, getattr(torchs, f"AOT{kind}")):
                return _Words(*(getattr(torchs, f"Subclass{what}AOT{kind}") for what in ("GetAttr", "Size", "Stride")))
        raise PlanError(_NO_DESCRIPTOR.format(i=i, got=desc))


_NOTHING = _Words(*[lambda base, part: None] * 3)


def _described(value: object, words: _Words, desc: object, append_symints: bool) -> Iterator[tuple[Any, Any]]:
    """Yields the flat slots of one value, found out by asking it, each with what it is."""
    if not is_traceable_wrapper_subclass(value):
        yield value, desc
        return
    names, _ = value.__tensor_flatten__()
    for name in names:
        yield from _parts(getattr(value, name), words, words.inner(desc, name), append_symints)
    if append_symints:
        for of, numbers in (words.size, value.size()), (words.stride, value.stride()):
            yield from ((number, of(desc, dim)) for dim, number in enumerate_filter_symints(numbers))


def _parts(inner: object, words: _Words, desc: object, append_symints: bool) -> Iterator[tuple[Any, Any]]:
    """Yields those of an inner attribute: a tensor, None where one is absent, or a container of tensors."""
    if inner is None:
        return
    if type(inner) in (list, tuple, dict):
        container: Any = inner
        for key, part in container.items() if type(inner) is dict else enumerate(container):
            yield from _parts(part, words, words.inner(desc, ContainerMeta.step(key)), append_symints)
    else:
        yield from _described(inner, words, desc, append_symints)


def _make_unwrap(metas: tuple[ValueMeta, ...], append_symints: bool) -> Callable[[Sequence[Any]], Any]:
    return FlattenPlan(metas).generate_unwrap(append_symints=append_symints)


_unwraps = Generated(_make_unwrap)

"""A plan: how a list of values becomes leaves and leaves become values, compiled to two functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from subclass_aot.base import hooks
from subclass_aot.base.codegen import Source
from subclass_aot.base.texts import counted
from subclass_aot.kit.flatten import checks
from subclass_aot.kit.flatten.by_meta import read_by, rebuild_by
from subclass_aot.kit.flatten.creation import describe_and_read, read_leaves
from subclass_aot.kit.flatten.emit import emit_unpack, emit_unwrap, emit_wrap
from subclass_aot.kit.flatten.index_map import IndexMap, Slot, flat_starts
from subclass_aot.kit.flatten.metas import PlainTensorMeta, SubclassCreationMeta, ValueMeta
from subclass_aot.kit.flatten.straight import straight_unwrap


@dataclass(frozen=True)
class FlattenPlan:
    """Functions that flatten the values of one list to leaves, and wrap leaves to such values again.

    A plan belongs to one tree of classes, contexts and optional inner tensors. `unwrap` checks the number of values and
    the exact class of each wrapper, nested ones too; it does not look at contexts or at the class of an inner dense
    tensor, which a caller that keeps plans must compare once for each kind of call. `wrap` checks the number of leaves
    and the class and dtype of each.

    Args:
        metas: What each value is.
        where: What errors call the list.

    >>> import torch
    >>> from subclass_aot.tensors import TwoTensor
    >>> values = [torch.zeros(2), TwoTensor(torch.ones(2), torch.ones(2)), "a string"]
    >>> plan = FlattenPlan.of(values)
    >>> leaves = plan.unwrap(values)
    >>> len(leaves), type(plan.wrap(leaves)[1]).__name__
    (4, 'TwoTensor')
    >>> print(plan.unwrap_checked.__source__)
    def unwrap_checked(args):
        \"\"\"The leaves of `args`.\"\"\"
        try:
            args_0, args_1, args_2, = args
        except (TypeError, ValueError):
            raise wrong_value_count(args, 3, 'args') from None
        if args_0.__class__ is not Tensor: not_exactly_tensor(args_0, Tensor, 'args[0]')
        if args_1.__class__ is not TwoTensor: wrong_class(args_1, TwoTensor, 'args[1]')
        if args_2.__class__ is not str: not_exactly_tensor(args_2, str, 'args[2]')
        return [args_0, args_1.a, args_1.b, args_2]
    """

    metas: tuple[ValueMeta, ...]
    where: str = "args"

    def __repr__(self) -> str:
        return f"<FlattenPlan of {self.where}: {counted(len(self.metas), 'value')}>"

    @classmethod
    def of(
        cls, values: Iterable[object], *, count_symints: bool = True, where: str = "args", names: Sequence[str] = (),
        are_given: bool = False,
    ) -> FlattenPlan:  # fmt: skip
        """Returns the plan for values like these.

        Args:
            values: Dense tensors, wrapper tensors, and anything else, which is kept as one leaf.
            count_symints: Whether symbolic sizes and strides of wrappers become leaves of their own.
            where: What errors and the generated code call the list; an identifier reads best.
            names: What errors about the values given here call each of them, where that is not its place in the list.
            are_given: Whether they are inputs of a call. Of classes of others, their inner tensors may require grad.

        Raises:
            InnerTensorError: An inner tensor requires grad, is missing, or is no tensor.
        """
        return cls(tuple(describe_and_read(values, count_symints, where, names, are_given)[0]), where)

    @classmethod
    def read(
        cls, values: Iterable[object], *, count_symints: bool = True, where: str = "args", names: Sequence[str] = ()
    ) -> tuple[FlattenPlan, list[Any]]:
        """Returns the plan for values like these, and their leaves as `unwrap` would give them.

        Both are found in one walk. No code is generated, which takes longer than to read some values once; the plan
        that is returned does so if it has to `unwrap` or `wrap`.

        Args:
            values: As of `of`.
            count_symints: As of `of`.
            where: As of `of`.
            names: As of `of`.
        """
        metas, leaves = describe_and_read(values, count_symints, where, names)
        return cls(tuple(metas), where), leaves

    @staticmethod
    def leaves_of(value: object, name: str = "value") -> list[Any]:
        """Returns the leaves of one value as `unwrap` would give them, where no plan is wanted.

        Args:
            value: A dense tensor, a wrapper tensor, or anything else.
            name: What errors call it.

        Raises:
            InnerTensorError: An inner tensor requires grad, is missing, or is no tensor.

        >>> from subclass_aot.tensors import TwoTensor
        >>> FlattenPlan.leaves_of(TwoTensor(torch.ones(1), torch.zeros(1)))
        [tensor([1.]), tensor([0.])]
        """
        return read_leaves(value, name)

    @staticmethod
    def leaves_by(value: object, meta: Any, *, append_symints: bool, name: str = "value") -> list[Any]:
        """Reads the leaves of one value by a meta that may be one of AOTAutograd's own.

        Args:
            value: The value.
            meta: What it is planned to be.
            append_symints: Whether symbolic sizes and strides are leaves.
            name: What errors call the value.

        Raises:
            PlanError: It is of another class, or has other inner tensors.
        """
        return list(read_by(value, meta, append_symints=append_symints, where=name))

    @staticmethod
    def rebuild_by(meta: Any, leaves: Sequence[Any], *, is_runtime: bool, name: str = "value") -> Any:
        """Rebuilds one wrapper by a meta that may be one of AOTAutograd's own.

        Args:
            meta: What it is.
            leaves: Those of the whole list. Its own begin at `meta.flat_tensor_start_idx`.
            is_runtime: Whether it is left without the `requires_grad` of the wrapper that such a meta describes.
            name: What errors call the value.

        Raises:
            PlanError: Leaves are missing, or there is no tensor where an inner one should be.
        """
        return rebuild_by(meta, leaves, is_runtime=is_runtime, where=name)

    @cached_property
    def index_map(self) -> IndexMap:
        """Which leaf belongs to which value, and what each leaf is."""
        return IndexMap.of(self.metas)

    @cached_property
    def unwrap(self) -> Callable[[Sequence[Any]], list[Any]]:
        """The generated function from a list of values to the list of their leaves.

        It compares all classes in one call, in C, and leaves what does not fit to `unwrap_checked`. Where the library
        was installed without a C compiler, it is `unwrap_checked`.
        """
        return straight_unwrap(self.metas, self.where, self._make_carefully)

    @cached_property
    def is_plain(self) -> bool:
        """Whether each value is a leaf as it is, of torch's own class."""
        return all(type(meta) is PlainTensorMeta and meta.cls in _OF_TORCH for meta in self.metas)

    def leaves_of_all(self, values: Sequence[Any]) -> list[Any]:
        """Reads the leaves of values as `unwrap` does, which is generated only if some are wrappers.

        Args:
            values: What the plan is of.
        """
        return list(values) if self.is_plain else self.unwrap(values)

    def generate_unwrap(self, *, append_symints: bool) -> Callable[[Sequence[Any]], list[Any]]:
        """Generates another `unwrap`: symbolic sizes and strides are leaves only if `append_symints`."""
        careful = functools.cache(
            functools.partial(careful_unwrap, self.metas, self.where, append_symints=append_symints)
        )
        return straight_unwrap(self.metas, self.where, careful, append_symints=append_symints)

    @cached_property
    def unwrap_checked(self) -> Callable[[Sequence[Any]], list[Any]]:
        """The generated function that does the same with one comparison for each class, and says what does not fit."""
        return self._make_carefully()

    @cached_property
    def _make_carefully(self) -> Callable[[], Callable[[Sequence[Any]], list[Any]]]:
        """Makes `unwrap_checked` when it is first needed; it does not hold the plan."""
        return functools.cache(functools.partial(careful_unwrap, self.metas, self.where))

    @cached_property
    def wrap(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """The generated function from a list of leaves to the tuple of values."""
        return self.generate_wrap(check=True)

    def generate_wrap(
        self, *, check: bool, activations: int = 0, only_tensors: bool = False
    ) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Generates another `wrap`.

        Args:
            check: Whether class and dtype of each leaf are checked.
            only_tensors: Whether it is checked of inner tensors that they are tensors, of whatever kind.
            activations: How many more leaves follow, to be returned as they are after the values.
        """
        return wrap_function(self.metas, self.index_map, self.where, check, activations, only_tensors)

    @property
    def source(self) -> str:
        """The text of the generated functions."""
        functions: dict[Any, None] = dict.fromkeys((self.unwrap, self.unwrap_checked, self.wrap))
        return "\n\n\n".join(function.__source__ for function in functions) + "\n"


_OF_TORCH = (torch.Tensor, torch.nn.Parameter)


def careful_unwrap(
    metas: Sequence[ValueMeta], where: str, *, append_symints: bool = True
) -> Callable[[Sequence[Any]], list[Any]]:
    """Generates the function from values to their leaves that compares one by one, and raises."""
    source = Source("unwrap_checked", "args", f"The leaves of `{where}`.")
    values = [source.fresh(f"args_{i}") for i in range(len(metas))]
    emit_unpack(source, "args", values, checks.wrong_value_count, where)
    leaves = []
    for i, (meta, value) in enumerate(zip(metas, values, strict=True)):
        leaves += emit_unwrap(source, meta, value, where=f"{where}[{i}]", append_symints=append_symints)
    source.line(f"return [{', '.join(leaves)}]")
    return source.build()


def wrap_function(
    metas: Sequence[ValueMeta],
    index_map: IndexMap,
    where: str,
    check: bool,
    activations: int,
    only_tensors: bool = False,
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Generates the function from leaves to values. See `FlattenPlan.generate_wrap`."""
    source = Source("wrap", "leaves", f"`{where}`, rebuilt from their leaves.")
    slots = index_map.slots
    all_plain = all(isinstance(slot.meta, PlainTensorMeta) for slot in slots)
    in_one_call = check and hooks.one_call_pays and bool(slots) and all_plain and not activations
    if in_one_call:
        _refuse_others(source, slots, where)
        if len(metas) == len(slots) and not any(isinstance(meta, SubclassCreationMeta) for meta in metas):
            source.line("return tuple(leaves)")
            return source.build()
    leaves = _unpacked(source, slots, where, activations)
    if check and not in_one_call:
        for slot, leaf in zip(slots, leaves, strict=False):
            _check_leaf(source, slot, leaf, where)
    for slot, leaf in zip(slots, leaves, strict=False) if only_tensors else ():
        if slot.path or not isinstance(slot.meta, PlainTensorMeta):
            _check_kind(source, slot, leaf, where)
    starts = flat_starts(metas)
    values = [emit_wrap(source, meta, leaves[starts[i] : starts[i + 1]]) for i, meta in enumerate(metas)]
    source.line(f"return ({''.join(f'{value}, ' for value in values + leaves[len(slots) :])})")
    return source.build()


def _unpacked(source: Source, slots: Sequence[Slot], where: str, activations: int = 0) -> list[str]:
    """Appends what puts each leaf into a local; activations come last."""
    leaves = [source.fresh("_".join((f"args_{slot.outer}", *_words(slot)))) for slot in slots]
    leaves += [source.fresh(f"activation_{i}") for i in range(activations)]
    emit_unpack(source, "leaves", leaves, checks.wrong_leaf_count, where)
    return leaves


def _refuse_others(source: Source, slots: Sequence[Slot], where: str) -> None:
    """Appends one call that checks all leaves; the checks of each are generated where something does not fit."""

    @functools.cache
    def one_by_one() -> Callable[[Sequence[Any]], list[Any]]:
        careful = Source("checked_leaves", "leaves", f"The leaves of `{where}`, if each fits; any iterable will do.")
        leaves = _unpacked(careful, slots, where)
        for slot, leaf in zip(slots, leaves, strict=True):
            _check_leaf(careful, slot, leaf, where)
        careful.line(f"return [{', '.join(leaves)}]")
        return careful.build()

    metas: list[Any] = [slot.meta for slot in slots]
    have_exactly = source.const(hooks.have_exactly, "have_exactly")
    classes = source.const(tuple(meta.cls for meta in metas), "classes")
    dtypes = source.const(tuple(meta.dtype for meta in metas), "dtypes")
    checked = source.const(lambda leaves: one_by_one()(leaves), "checked_leaves")
    source.line(f"if not {have_exactly}(leaves, {classes}, 'dtype', {dtypes}): leaves = {checked}(leaves)")


def _check_leaf(source: Source, slot: Slot, leaf: str, where: str) -> None:
    meta, name = slot.meta, slot.name(where)
    if isinstance(meta, PlainTensorMeta):
        cls = source.const(meta.cls, meta.cls.__name__)
        wrong, dtype = f"type({leaf}) is not {cls}", "None"
        if meta.dtype is not None:
            dtype = source.const(meta.dtype, str(meta.dtype).removeprefix("torch."))
            wrong += f" or {leaf}.dtype is not {dtype}"
        refuse = source.const(checks.wrong_leaf, "wrong_leaf")
        source.line(f"if {wrong}: {refuse}({leaf}, {cls}, {dtype}, {name!r})")
    else:
        _check_kind(source, slot, leaf, where)


def _check_kind(source: Source, slot: Slot, leaf: str, where: str) -> None:
    """Appends a check that a leaf is a tensor, or that what is a number or opaque is none."""
    name, tensor = slot.name(where), source.const(torch.Tensor, "Tensor")
    if isinstance(slot.meta, PlainTensorMeta):
        refuse = source.const(checks.no_tensor, "no_tensor")
        other = f"{leaf}.__class__ is not {tensor} and not isinstance({leaf}, {tensor})"
        source.line(f"if {other}: {refuse}({leaf}, {name!r})")
    else:
        kind = "an opaque value" if slot.kind == "opaque" else f"a {slot.kind}"
        refuse = source.const(checks.tensor_instead_of_value, "tensor_instead_of_value")
        source.line(f"if isinstance({leaf}, {tensor}): {refuse}({leaf}, {kind!r}, {name!r})")


def _words(slot: Slot) -> list[str]:
    """Returns the words of which the name of a local for this slot may be made."""
    steps = [step.strip(".[]'") for step in slot.path]
    return steps if slot.dim is None else [*steps, slot.kind, str(slot.dim)]

"""The dispatch mode that brings operators to `run` that no leaf carries: factories, real tensors met on the way."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import PHYSICAL, Effects, effects_of, without_out
from subclass_aot.base.put_back import PutBack
from subclass_aot.errors import TraceError
from subclass_aot.meta.default_dtype import with_dtype
from subclass_aot.meta.dispatch import LEAF_TYPES, only_leaves, run
from subclass_aot.meta.fake_kernels import ShapeByData
from subclass_aot.meta.infer import asks_for_values, on_new_rule
from subclass_aot.meta.listener import Answers
from subclass_aot.meta.operation import tell_listeners
from subclass_aot.meta.rules.forms import BY_VALUES, form_of
from subclass_aot.meta.spec import Spec
from subclass_aot.meta.storage import Storage, in_thread
from subclass_aot.meta.tensor import MetaTensor, in_front_of, new_leaf

_HIGHER_ORDER = """`{name}` is an operator that takes functions, and there is no rule for it without data.
  Your line:  {line}
  Instead: call it outside, or write it with other operators, as torch.where for torch.cond."""


class Stream(Answers):
    """Brings every operator to `run`, does with it what a subclass does, and calls listeners.

    A subclass overrides `on_operator` and its kin, the queries of a stream, and `lift` (what stands for a tensor
    that is not a leaf).

    Args:
        decompositions: Operators to replace by a function of others, as in AOTAutograd.

    Attributes:
        default_dtype: The default dtype where the operators run later; None if they do not.
    """

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decompositions = decompositions or {}
        self._replaced = frozenset(map(id, self.decompositions))  # operators have their hash in Python
        self.default_dtype: torch.dtype | None = None
        self.class_of_next: type[torch.Tensor] | None = None  # of the next result: see Note [Plain subclasses]
        self.replaced_operator: Operator | None = None  # the outermost one that others take the place of now

    def on_operator(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Is called after each operator, with the leaves it was given and the ones it made."""

    def on_new_effects(self, func: Operator) -> None:
        """Is called when it was found out that an operator does something else than its schema says."""

    def before_out(self, functional: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Is called before an operator that writes into `out=`; `functional` returns what it will write."""

    def is_kept(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Returns whether an operator runs as it is, though there is a decomposition of it."""
        return False

    def on_wrapper_operator(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Is called before an operator on a wrapper goes to the wrapper's class."""

    def on_front(self, front: torch.Tensor) -> None:
        """Is called for a new tensor of a plain subclass that stands before a leaf."""

    def on_lazy_view(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        """Is called where `copy` was computed and eager has a view of `source`: a lazy conjugation or negation."""

    def lift(self, tensor: torch.Tensor) -> MetaTensor:
        """Returns the leaf of a real tensor met on the way."""
        return new_leaf(Spec.of(tensor), Storage.of(tensor))

    def known(self, tensor: torch.Tensor, by_looking: bool = True) -> torch.Tensor | None:
        with _torch.dispatch.disable_current_modes():
            leaf = self._admitted(tensor)
        value = self.value_of(leaf)
        return self.look(leaf) if value is None and by_looking else value

    supports_higher_order_operators = True
    records = True
    """Whether what runs in it is recorded, to run later; false in a run without data, which is the program's run."""

    def __torch_dispatch__(  # noqa: C901  # one frame for each operator is faster
        self,
        func: Operator,
        types: Collection[type[torch.Tensor]],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        met: list[tuple[Any, Any]] = []
        behind: Any = args, kwargs
        if _torch.plain_subclasses.leaves:
            behind = _torch.plain_subclasses.leaves_of_fronts(behind, met)
        if met:
            self.on_wrapper_operator(func, args, kwargs or {})
        if met or self.class_of_next is not None:
            return self._fronted(func, types, behind, met)
        effects = _straight.get(id(func))
        if effects is None and _torch.operators.is_higher_order(func):
            raise TraceError(_HIGHER_ORDER.format(name=func.name(), line=user_line()))
        if not (LEAF_TYPES.issuperset(types) or only_leaves(types)):
            self.on_wrapper_operator(func, args, kwargs or {})
            return NotImplemented
        kwargs = kwargs or {}
        if effects is None or id(func) in self._replaced:
            result = self._in_another_form(func, args, kwargs)
            if result is not NotImplemented:
                return result
            effects = effects_of(func)
        args = tuple([a if type(a) in _ADMITTED else self._admitted(a) for a in args])
        if kwargs:
            kwargs = {name: self._admitted(a) for name, a in kwargs.items()}
        then = self.default_dtype
        if then is not None and then is not torch.get_default_dtype():
            args, kwargs = with_dtype(func, args, kwargs, then, self._cast)
        if effects.data_dependent:
            known = None if effects.writes else self._known(func, args, kwargs, self.value_of)
            if known is None and self.looks(func, args) and not effects.writes:
                known = self._known(func, args, kwargs, self.look)
            if known is not None:
                return known
        if effects.writes and (functional := without_out(func)) is not None:
            self.before_out(functional, args, kwargs)
        try:
            result = run(func, args, kwargs)
        except ShapeByData:  # which nobody knew until now
            _straight.pop(id(func), None)
            self.on_new_effects(func)
            return self.__torch_dispatch__(func, types, args, kwargs)
        self.on_operator(func, args, kwargs, result)
        if in_thread.listeners:
            tell_listeners(self, func, args, kwargs, result)
        return result

    def _fronted(
        self, func: Operator, types: Collection[type], behind: tuple[Any, Any], met: list[tuple[Any, Any]]
    ) -> Any:
        """Runs an operator on the leaves behind fronts; a written argument comes back as the front that it is."""
        cls, self.class_of_next = self.class_of_next, None
        others = [kind for kind in types if kind is not _torch.plain_subclasses.TracedTensor]
        result = self.__torch_dispatch__(func, others, *behind)
        if cls is not None:
            front = in_front_of(result, cls)
            self.on_front(front)
            return front
        front_of = {id(leaf): front for front, leaf in met}
        if effects_of(func).reshapes:
            for front, leaf in met:
                _torch.wrappers.set_geometry(front, leaf.meta_spec.size, leaf.meta_spec.stride, leaf.meta_spec.offset)
        if type(result) in (tuple, list):
            return type(result)([front_of.get(id(x), x) for x in result])
        return front_of.get(id(result), result)

    def _in_another_form(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of an operator that is replaced by others or needs no rule, else NotImplemented."""
        if func in _OF_PROFILER:  # names parts of a program for a profiler, and computes nothing
            with _torch.dispatch.disable_current_modes():
                return func(*args, **kwargs)
        form, by_values = form_of(func), BY_VALUES.get(func)
        decomposition = None if self.is_kept(func, args, kwargs) else self.decompositions.get(func)
        if decomposition is None or not _takes_out(decomposition, func):
            decomposition = form
        if decomposition is not None:
            before = self.replaced_operator
            with self, PutBack(lambda: setattr(self, "replaced_operator", before)):
                self.replaced_operator = before or func
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                if func in PHYSICAL:
                    self.on_lazy_view(args[0], result)
                return result
        if by_values is not None:
            with self:
                result = by_values(self, *args, **kwargs)
            if result is None:
                raise asks_for_values(func)
            return result
        effects = effects_of(func)
        if effects.composite:  # autograd takes these apart; inference mode does not
            with self:
                return func.decompose(*args, **kwargs)
        if form is None:
            _straight[id(func)] = effects
        return NotImplemented

    def _cast(self, leaf: MetaTensor, dtype: torch.dtype) -> Any:
        with self:
            return leaf.to(dtype)

    def _known(
        self,
        func: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        value_of: Callable[[MetaTensor], torch.Tensor | None],
    ) -> Any:
        """Returns the result of an operator that needs values, if those of all its tensors are known."""
        tree: Any = (args, kwargs)
        leaves, structure = optree.tree_flatten(tree, none_is_leaf=True)
        for i, leaf in enumerate(leaves):
            if type(leaf) is MetaTensor:
                leaves[i] = value_of(leaf)
                if leaves[i] is None:
                    return None
        tree = optree.tree_unflatten(structure, leaves)
        args, kwargs = tree
        with _torch.dispatch.disable_current_modes(), torch.no_grad():
            result = func(*args, **kwargs)

        def leaf_of(value: object) -> Any:
            return self.lift(self.literal(value)) if isinstance(value, torch.Tensor) else value

        return optree.tree_map(leaf_of, result, none_is_leaf=True)

    def _admitted(self, value: Any) -> Any:
        kind = type(value)
        if kind in _ADMITTED:
            return value
        if kind is list or kind is tuple:
            return [self._admitted(v) for v in value]
        return self.lift(value) if isinstance(value, torch.Tensor) else value


_profiler = torch.ops.profiler
_OF_PROFILER = frozenset(
    getattr(packet, name)
    for packet in [getattr(_profiler, f"_record_function_{what}") for what in ("enter", "enter_new", "exit")]
    for name in packet.overloads()
)
_ADMITTED = frozenset({MetaTensor, int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout})
_straight: dict[int, Effects] = {}
"""By their `id`, operators that have no other form than their own."""
on_new_rule.append(_straight.clear)


def _takes_out(decomposition: Callable[..., Any], func: Operator) -> bool:
    """Returns whether a decomposition writes into `out=`, if the operator does.

    Torch has some under the names of all overloads of an operator that only return something, as that of `mm`. Such an
    operator is recorded as it is, and decomposed when it has no mutation any more.
    """
    outs = _outs(func)
    if not outs:
        return True
    parameters = inspect.signature(decomposition).parameters
    return outs <= set(parameters) or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@functools.cache
def _outs(func: Operator) -> frozenset[str]:
    return frozenset(argument.name for argument in _torch.operators.schema_of(func).arguments if argument.is_out)

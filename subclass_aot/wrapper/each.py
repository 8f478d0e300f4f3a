"""The recipe "each": an operator on a wrapper is that operator on every inner tensor.

For each operator and each combination of argument kinds, one straight-line function is generated and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from subclass_aot import _torch
from subclass_aot.codegen.source import Source, identifier
from subclass_aot.wrapper import errors
from subclass_aot.wrapper.construct import emit_wrap, is_static
from subclass_aot.wrapper.schema import Facts, facts_of

Plan = Callable[..., Any]


def each_handler(cls: Any, func: Any) -> Plan:
    """The operator `func` for wrappers of exactly `cls`, applied to every inner tensor.

    Args:
        cls: The wrapper class.
        func: The operator.

    Returns:
        A function that is called as the operator is.
    """
    if not _torch.is_overload(func):
        return lambda *args, **kwargs: _structured(cls, func, args, kwargs)
    facts = facts_of(func)
    if len(facts.names) == 1 and is_static(cls) and not facts.lists:
        return _first_call_plans(cls, func, facts)
    plans: dict[Any, Plan] = {}
    simple = is_static(cls) and not facts.lists

    def handler(*args: Any, **kwargs: Any) -> Any:
        if simple:
            key = (*map(type, args), *kwargs, *map(type, kwargs.values())) if kwargs else (*map(type, args),)
        else:
            key = (*[_kind(arg) for arg in args], *kwargs, *[_kind(arg) for arg in kwargs.values()])
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = _plan(cls, func, facts, args, kwargs)
        return plan(*args, **kwargs)

    return handler


def _first_call_plans(cls: Any, func: Any, facts: Facts) -> Plan:
    """An operator whose only argument is the wrapper has one plan, which takes the handler's place."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        plan = cls.__dict__["_handlers"][func] = _plan(cls, func, facts, args, kwargs)
        return plan(*args, **kwargs)

    return handler


def _kind(value: Any) -> Any:
    """What a plan depends on: the type, with the inner names where they vary; for a list the set of its elements' kinds."""
    kind = type(value)
    if kind is list or kind is tuple:
        return frozenset([_kind(element) for element in value])
    if hasattr(kind, "_fields") and issubclass(kind, torch.Tensor) and not is_static(kind):
        return kind, tuple(value.__tensor_flatten__()[0])
    return kind


def _plan(cls: Any, func: Any, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
    planner = _Planner(cls, func, facts, args, kwargs)
    if planner.mixes_lists():
        return lambda *args, **kwargs: _grouped(cls, func, facts, facts.bind(args, kwargs))
    return planner.plan()


class _Planner:
    """Writes the straight-line function for one operator and one combination of argument kinds.

    Args:
        cls: The wrapper class.
        func: The operator.
        facts: What its schema promises.
        args: Arguments of the kinds in question; only their kinds are looked at.
        kwargs: Likewise.
    """

    def __init__(self, cls: Any, func: Any, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.cls, self.func, self.facts = cls, func, facts
        self.args, self.kwargs = args, kwargs
        self.bound = facts.bind(args, kwargs)
        self.names: list[str] | None = None
        self.wrappers = [name for name, value in self.bound.items() if self._holds_wrapper(name, value)]
        positional, keywords = list(self.bound)[: len(args)], list(kwargs)
        params = [identifier(name) for name in positional + keywords]
        doc = f"{func} on each inner tensor of {cls.__name__}."
        self.source = Source(f"{cls.__name__}_{func}", ", ".join(params), doc)

    def plan(self) -> Plan:
        """The function, called as the operator is."""
        self._check_writes()
        self._check_contexts()
        assert self.names is not None
        results = [self._call(name) for name in self.names]
        self._return(results)
        return self.source.build()

    def _is_wrapper(self, value: Any) -> bool:
        """Whether `value` is of this class or a relative, to be taken apart; anything else goes to each operator whole."""
        kind = type(value)
        if kind is not self.cls and not (
            hasattr(kind, "_fields") and (issubclass(kind, self.cls) or issubclass(self.cls, kind))
        ):
            return False
        names = value.__tensor_flatten__()[0]
        if self.names is None:
            self.names = names
        if names != self.names:
            raise errors.layouts_differ(self.cls, self.func, self.names, names)
        return True

    def _holds_wrapper(self, name: str, value: Any) -> bool:
        if name in self.facts.lists and value is not None:
            return any([self._is_wrapper(element) for element in value])
        return self._is_wrapper(value)

    def mixes_lists(self) -> bool:
        """Whether this is an operator on lists, position by position, of which some positions hold no wrapper."""
        if not self.func.name().startswith(("aten::_foreach_", "aten::_fused_")):
            return False
        lists = [self.bound[name] for name in self.facts.lists if self.bound.get(name)]
        return any(not self._is_wrapper(element) for elements in lists for element in elements)

    def _check_writes(self) -> None:
        """A dense tensor cannot receive what differs from inner tensor to inner tensor (if there is but one, it can)."""
        if self.names is not None and len(self.names) == 1:
            return
        for name in self.facts.written | {self.facts.viewed}:
            value = self.bound.get(name)
            elements = [value] if isinstance(value, torch.Tensor) else value if name in self.facts.lists and value else []
            if not all(map(self._is_wrapper, elements)):
                raise errors.writes_to_dense(self.cls, self.func, name)

    def _check_contexts(self) -> None:
        """Writes the comparison of the wrappers' context values with the first wrapper's."""
        context = [field.name for field in self.cls._fields.values() if field.kind == "context"]
        proto = self._proto()
        differ = self.source.const(errors.contexts_differ, "contexts_differ")
        raising = f"raise {differ}({self.source.const(self.cls, self.cls.__name__)}, {self.source.const(self.func, 'func')}"
        for attribute in context:
            for name in self.wrappers:
                if name in self.facts.lists:
                    with self.source.block(f"for element in {name}:"):
                        self._line_if_differs("element", attribute, proto, raising, name)
                elif name != proto:
                    self._line_if_differs(name, attribute, proto, raising, name)

    def _line_if_differs(self, value: str, attribute: str, proto: str, raising: str, name: str) -> None:
        mixed = name in self.facts.lists and not all(map(self._is_wrapper, self.bound[name]))
        guard = f"isinstance({value}, {self.source.const(self.cls, self.cls.__name__)}) and " if mixed else ""
        with self.source.block(f"if {guard}{value}.{attribute} != {proto}.{attribute}:"):
            self.source.line(f"{raising}, {attribute!r}, {proto}.{attribute}, {value}.{attribute})")

    def _proto(self) -> str:
        """The expression of the first wrapper, whose context the results get."""
        name = next(name for name in self.wrappers)
        if name not in self.facts.lists:
            return name
        position = next(i for i, element in enumerate(self.bound[name]) if self._is_wrapper(element))
        if position == 0 and all(map(self._is_wrapper, self.bound[name])):
            return f"{name}[0]"
        klass = self.source.const(self.cls, self.cls.__name__)
        return f"next(element for element in {name} if isinstance(element, {klass}))"

    def _call(self, inner: str) -> str:
        """Writes the operator on the inner tensors `inner` and returns the variable with its result."""
        variable = self.source.fresh(inner)
        if self.func is torch.ops.aten.detach.default:
            self.source.line(f"{variable} = self.{inner}.detach()")  # as the overload does, in a third of the time
            return variable
        arguments = []
        for position, name in enumerate(self.bound):
            expression = self._argument(name, inner)
            arguments.append(expression if position < len(self.args) else f"{name}={expression}")
        call = self.source.const(_torch.call_of(self.func), "op")
        self.source.line(f"{variable} = {call}({', '.join(arguments)})")
        return variable

    def _argument(self, name: str, inner: str) -> str:
        if name not in self.wrappers:
            return identifier(name)
        if name not in self.facts.lists:
            # A conjugate view of the wrapper is one inside, and does not show outside: nobody resolved it before.
            resolve = ".resolve_conj()" if self.func is torch.ops.aten.view_as_real.default else ""
            return f"{name}.{inner}{resolve}"
        if all(map(self._is_wrapper, self.bound[name])):
            return f"[element.{inner} for element in {name}]"
        klass = self.source.const(self.cls, self.cls.__name__)
        return f"[element.{inner} if isinstance(element, {klass}) else element for element in {name}]"

    def _return(self, results: list[str]) -> None:
        facts, line = self.facts, self.source.line
        if facts.changes_outer:
            outer = self.source.const(_torch.apply_to_outer, "apply_to_outer")
            keywords = ", ".join(f"{name!r}: {name}" for name in self.kwargs)
            positional = "".join(f"{name}, " for name in list(self.bound)[: len(self.args)])
            line(f"{outer}({self.source.const(self.func, 'func')}, ({positional}), {{{keywords}}})")
        if facts.returned:
            line(f"return {', '.join(facts.returned)}")
        elif len(facts.returns) == 1:
            line(f"return {self._wrapped(facts.returns[0], results)}")
        elif facts.returns:
            outputs = []
            for position, kind in enumerate(facts.returns):
                parts = []
                for variable in results:
                    part = self.source.fresh(f"{variable}_{position}")
                    line(f"{part} = {variable}[{position}]")
                    parts.append(part)
                outputs.append(self._wrapped(kind, parts, may_be_none=kind == "tensor"))
            line(f"return {', '.join(outputs)}")

    def _wrapped(self, kind: str, results: list[str], may_be_none: bool = False) -> str:
        """Writes what makes one output of its inner results; returns its expression."""
        if kind == "other":
            return results[0]
        if kind == "list":
            outputs = self.source.fresh("outputs")
            self.source.line(f"{outputs} = []")
            elements = [self.source.fresh("element") for _ in results]
            with self.source.block(f"for {', '.join(elements)}, in zip({', '.join(results)}):"):
                self.source.line(f"{outputs}.append({self._wrap(elements)})")
            return outputs
        if not may_be_none:
            return self._wrap(results)
        output = self.source.fresh("output")
        self.source.line(f"{output} = None")
        with self.source.block(f"if {results[0]} is not None:"):
            self.source.line(f"{output} = {self._wrap(results)}")
        return output

    def _wrap(self, results: list[str]) -> str:
        assert self.names is not None
        proto = self._proto()
        context = {attribute: f"{proto}.{attribute}" for attribute in self.cls._attribute_names}
        wrapped = emit_wrap(self.source, self.cls, dict(zip(self.names, results, strict=True)), context)
        if self.facts.viewed:
            alias = self.source.const(_torch.alias_outer_storage, "alias_outer_storage")
            self.source.line(f"{alias}({wrapped}, {self.facts.viewed})")
        return wrapped


def _grouped(cls: Any, func: Any, facts: Facts, bound: dict[str, Any]) -> Any:
    """An operator on lists, position by position, run apart on the positions with wrappers of one layout and on the dense ones."""
    lists = {name: value for name, value in bound.items() if isinstance(value, list | tuple) and value}
    length = len(next(value for name, value in lists.items() if name in facts.lists))
    lists = {name: value for name, value in lists.items() if len(value) == length}
    groups: dict[Any, list[int]] = {}
    for position in range(length):
        found = [value[position] for value in lists.values() if isinstance(value[position], cls)]
        key = repr(found[0].__tensor_flatten__()) if found else None
        groups.setdefault(key, []).append(position)
    outputs: list[Any] = [None] * length
    for key, positions in groups.items():
        part = {**bound, **{name: [value[i] for i in positions] for name, value in lists.items()}}
        result = func(**part) if key is None else _Planner(cls, func, facts, (), part).plan()(**part)
        if result is not None:
            for position, output in zip(positions, result, strict=True):
                outputs[position] = output
    return outputs if facts.returns else None


def _structured(cls: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator that takes functions and structures (`cond`, ...): has no schema, so the structure is walked each time."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    proto = next(leaf for leaf in leaves if isinstance(leaf, cls))
    names, context = proto.__tensor_flatten__()
    runs = []
    for name in names:
        inner_args, inner_kwargs = pytree.tree_unflatten([getattr(v, name) if isinstance(v, cls) else v for v in leaves], spec)
        runs.append(pytree.tree_flatten(func(*inner_args, **inner_kwargs)))
    outputs = []
    for parts in zip(*(flat for flat, _ in runs), strict=True):
        wraps = isinstance(parts[0], torch.Tensor)
        outputs.append(cls.__tensor_unflatten__(dict(zip(names, parts, strict=True)), context) if wraps else parts[0])
    return pytree.tree_unflatten(outputs, runs[0][1])

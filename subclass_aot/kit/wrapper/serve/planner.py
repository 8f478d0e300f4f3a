"""Writes the straight-line function that runs one operator on every inner tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.codegen import Source, identifier
from subclass_aot.base.operators import PHYSICAL, Effects
from subclass_aot.base.structure_copies import copied_to
from subclass_aot.kit.wrapper.declare.construct import emit_instance
from subclass_aot.kit.wrapper.declare.outer import outer_rule
from subclass_aot.kit.wrapper.declare.structure import Treatment, treatment
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import copy_origin, may_share, shared_field
from subclass_aot.kit.wrapper.serve import errors

Plan = Callable[..., Any]
aten: Any = torch.ops.aten


ALIASES = {aten.detach.default, aten.alias.default, aten.lift_fresh.default}
"""Operators whose result is the same tensor again, with the same metadata."""

_ALL = {aten.equal.default, aten.allclose.default, aten.is_same_size.default}
"""Operators that ask whether something is so, and it is if it is so of every inner tensor."""


def _agree(first: Any, *others: Any) -> bool:
    return all(type(x) is type(first) and (x == first or (x != x and first != first)) for x in others)


def related(cls: type[Wrapper], kind: type) -> bool:
    """Returns whether wrappers of the type `kind` are unwrapped beside those of `cls`; anything else is passed on
    whole.
    """
    return kind is cls or (hasattr(kind, "__wrapper_state__") and (issubclass(kind, cls) or issubclass(cls, kind)))


class Planner:
    """One operator on one combination of argument kinds.

    Args:
        cls: The wrapper class, and that of the results.
        func: The operator.
        effects: What its schema promises.
        args: Arguments of the kinds in question.
        kwargs: Likewise.

    Raises:
        OperatorRuleError: The wrappers among the arguments hold different inner tensors.
    """

    def __init__(
        self, cls: type[Wrapper], func: Operator, effects: Effects, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.cls, self.func, self.effects = cls, func, effects
        self.bound = effects.bind(args, kwargs)
        self.positional = list(self.bound)[: len(args)]
        self.keywords = list(kwargs)
        self.wrappers = {name: found for name, value in self.bound.items() if (found := self._wrappers_in(name, value))}
        self.kinds = {type(wrapper) for found in self.wrappers.values() for wrapper in found}
        layouts = [wrapper.__tensor_flatten__()[0] for found in self.wrappers.values() for wrapper in found]
        self.names: list[str] = layouts[0]
        for names in layouts:
            if names != self.names:
                raise errors.layouts_differ(cls, func, self.names, names)
        params = [*map(identifier, self.positional), *self.keywords]
        doc = f"{func} on each inner tensor of {cls.__name__}."
        self.source = Source(f"{cls.__name__}_{func}", ", ".join(params), doc)

    def plan(self) -> Plan:
        """Returns the function, called as the operator is.

        Raises:
            OperatorRuleError: It would write different values to one dense tensor.
        """
        if name := self.writes_to_dense():
            raise errors.writes_to_dense(self.cls, self.func, name)
        self._compare_contexts()
        structure = [name for name in self.names if self.cls.__wrapper_declaration__.is_structure(name)]
        changed = self.names if self.func is aten.copy_.default else [n for n in self.names if n not in structure]
        for name in self.effects.written & self.wrappers.keys():
            check = self.source.const(functools.partial(_refuse_part, self.cls, self.func, changed), "whole")
            is_list = name in self.effects.lists
            self.source.line(f"for t in {identifier(name)}: {check}(t)" if is_list else f"{check}({identifier(name)})")
        self._return([self._structure(name) if name in structure else self._call(name) for name in self.names])
        return self.source.build()

    def writes_to_dense(self) -> str:
        """Returns the dense argument that would receive another value from every inner tensor, or ""; one value it
        can take.
        """
        for name in self.effects.written | {self.effects.viewed}:
            if len(self.names) > 1 and len(self._tensors_in(name)) > len(self.wrappers.get(name, ())):
                return name
        return ""

    def _tensors_in(self, name: str) -> list[Any]:
        value = self.bound.get(name)
        if name in self.effects.lists and value is not None:
            return list(value)
        return [value] if isinstance(value, torch.Tensor) else []

    def _wrappers_in(self, name: str, value: object) -> list[Any]:
        return [tensor for tensor in self._tensors_in(name) if related(self.cls, type(tensor))]

    def _all_wrappers(self, name: str) -> bool:
        return len(self.wrappers[name]) == len(self._tensors_in(name))

    def _is_wrapper(self, element: str) -> str:
        """Returns the expression for whether an element of a mixed list is unwrapped."""
        return f"type({element}) in {self.source.const(self.kinds, 'kinds')}"

    def _proto(self) -> str:
        """Returns the expression of a wrapper of `cls` itself, whose context the results get."""
        for name, found in self.wrappers.items():
            if name not in self.effects.lists:
                if type(found[0]) is self.cls:
                    return identifier(name)
            elif all(type(wrapper) is self.cls for wrapper in found) and self._all_wrappers(name):
                return f"{identifier(name)}[0]"
        name = next(
            name for name, found in self.wrappers.items() if any(type(wrapper) is self.cls for wrapper in found)
        )
        return f"next(t for t in {identifier(name)} if type(t) is {self.source.const(self.cls, self.cls.__name__)})"

    def _compare_contexts(self) -> None:
        """Writes the comparison of the wrappers' context with that of the result."""
        proto = self._proto()
        differ = self.source.const(errors.contexts_differ, "contexts_differ")
        raising = f"{differ}({self.source.const(self.cls, self.cls.__name__)}, {self.source.const(self.func, 'func')}"
        context = [field.name for field in self.cls.__wrapper_declaration__.fields.values() if field.kind == "context"]
        for name, found in self.wrappers.items():
            for attribute in context:
                if not all(attribute in type(wrapper).__wrapper_declaration__.fields for wrapper in found):
                    continue
                element = "element" if name in self.effects.lists else identifier(name)
                check = f"if {element}.{attribute} != {proto}.{attribute}:"
                error = f"raise {raising}, {attribute!r}, {proto}.{attribute}, {element}.{attribute})"
                if element == proto:
                    continue
                if name not in self.effects.lists:
                    with self.source.block(check):
                        self.source.line(error)
                    continue
                mixed = "" if self._all_wrappers(name) else f" if {self._is_wrapper('t')}"
                each = f"for element in [t for t in {identifier(name)}{mixed}]:"
                with self.source.block(each), self.source.block(check):
                    self.source.line(error)

    def _call(self, inner: str, without: str = "") -> str:
        """Writes the operator on the inner tensors called `inner` and returns the variable with its result.

        Args:
            inner: Their name.
            without: A keyword argument to leave out.
        """
        variable = self.source.fresh(inner)
        if self.func is aten.detach.default:  # the method does what the overload does, in a third of the time
            self.source.line(f"{variable} = self.{inner}.detach()")
            return variable
        arguments = [self._argument(name, inner) for name in self.positional]
        arguments += [f"{name}={self._argument(name, inner)}" for name in self.keywords if name != without]
        call = self.source.const(_torch.operators.call_of(PHYSICAL.get(self.func, self.func)), "op")
        self.source.line(f"{variable} = {call}({', '.join(arguments)})")
        return variable

    def _structure(self, inner: str) -> str:
        """Writes what the operator does to an inner tensor that is structure; returns its result, "" for none."""
        how = treatment(self.func, self.effects)
        if how is Treatment.RUNS:
            copies_dense = self.func is aten.copy_.default and len(self.wrappers) == 1
            return "" if copies_dense else self._call(inner, without="dtype")
        if how is Treatment.STAYS:
            return ""
        if how is Treatment.UNKNOWN:
            why = f"{inner} is structure, and what becomes of it nobody knows"
            raise errors.no_rule(self.cls, self.func, list(self.bound.values()), {}, why)
        copies = f"{self._proto()}.{inner}.clone()"
        if "device" in self.keywords:
            copies = f"{self.source.const(copied_to, 'copied_to')}({self._proto()}.{inner}, device)"
        source = next((name for name in self.wrappers if name in self.effects.lists), "")
        if source:
            copies = f"[t.{inner}.clone() for t in {identifier(source)}]"
        elif self.effects.returns != ("tensor",):
            copies = f"[{copies} for _ in range({len(self.effects.returns)})]"
        variable = self.source.fresh(inner)
        self.source.line(f"{variable} = {copies}")
        return variable

    def _argument(self, name: str, inner: str) -> str:
        if name not in self.wrappers:
            return identifier(name)
        if name not in self.effects.lists:
            return f"{identifier(name)}.{inner}"
        if self._all_wrappers(name):
            return f"[t.{inner} for t in {identifier(name)}]"
        return f"[t.{inner} if {self._is_wrapper('t')} else t for t in {identifier(name)}]"

    def _return(self, results: list[str]) -> None:
        effects, line = self.effects, self.source.line
        if torch.Tag.inplace_view in self.func.tags:
            self._change_outer()
        if effects.returned:
            for name in effects.returned:
                if name in self.keywords and name in self.wrappers and outer_rule(self.cls) is None:
                    self._follow_resize(name)
            line(f"return {', '.join(map(identifier, effects.returned))}")
        elif len(effects.returns) == 1:
            line(f"return {self._output(effects.returns[0], results)}")
        elif effects.returns:
            outputs = []
            for position, kind in enumerate(effects.returns):
                parts = [self.source.fresh(f"{variable}_{position}") for variable in results]
                for part, variable in zip(parts, results, strict=True):
                    line(f"{part} = {variable}[{position}]")
                outputs.append(self._output(kind, parts, optional=kind == "tensor"))
            line(f"return {', '.join(outputs)}")

    def _change_outer(self) -> None:
        """Writes the lines by which `t_`, `resize_` and the like change the wrapper's own sizes and strides too."""
        change = self.source.const(_torch.wrappers.apply_to_outer, "apply_to_outer")
        positional = "".join(f"{identifier(name)}, " for name in self.positional)
        keywords = ", ".join(f"{name!r}: {name}" for name in self.keywords)
        self.source.line(f"{change}({self.source.const(self.func, 'func')}, ({positional}), {{{keywords}}})")

    def _follow_resize(self, name: str) -> None:
        """Writes what keeps the outer size right where `out=` had another size and its inner tensors were resized."""
        change = self.source.const(_torch.wrappers.set_geometry, "set_geometry")
        inner = f"{name}.{self.names[0]}"
        with self.source.block(f"if {name}.shape != {inner}.shape:"):
            self.source.line(f"{change}({name}, {inner}.shape, {inner}.stride(), {name}.storage_offset())")

    def _output(self, kind: str, results: list[str], optional: bool = False) -> str:
        """Writes what makes one output of its inner results; returns its expression."""
        if kind == "other":
            return self._one_answer(results)
        if kind == "tensor" and not optional:
            return self._wrap(results)
        output = self.source.fresh("output")
        if kind == "tensor":
            self.source.line(f"{output} = None")
            with self.source.block(f"if {results[0]} is not None:"):
                self.source.line(f"{output} = {self._wrap(results)}")
            return output
        self._check_lengths(results)
        elements = [self.source.fresh("element") for _ in results]
        self.source.line(f"{output} = []")
        with self.source.block(f"for {', '.join(elements)}, in zip({', '.join(results)}):"):
            self.source.line(f"{output}.append({self._wrap(elements)})")
        return output

    def _check_lengths(self, results: list[str]) -> None:
        """Writes what refuses lists of which the inner tensors give more or fewer: some would be lost."""
        if len(results) == 1:
            return
        lengths = {name: f"len({result})" for name, result in zip(self.names, results, strict=True)}
        self._refuse_unless(" == ".join(lengths.values()), lengths)

    def _one_answer(self, results: list[str]) -> str:
        """Writes what makes one of the numbers or truth values that the inner tensors give; returns its expression."""
        given = {name: result for name, result in zip(self.names, results, strict=True) if result}
        if self.func in _ALL:
            return " and ".join(given.values())
        self._refuse_unless(f"{self.source.const(_agree, 'agree')}({', '.join(given.values())})", given)
        return next(iter(given.values()))

    def _refuse_unless(self, condition: str, answers: dict[str, str]) -> None:
        """Writes what refuses answers of the inner tensors that differ, by the names of these."""
        named = ", ".join(f"{name!r}: {answer}" for name, answer in answers.items())
        with self.source.block(f"if not {condition}:"):
            differ = self.source.const(errors.answers_differ, "answers_differ")
            klass = self.source.const(self.cls, self.cls.__name__)
            self.source.line(f"raise {differ}({klass}, {self.source.const(self.func, 'func')}, {{{named}}})")

    def _wrap(self, results: list[str]) -> str:
        proto = self._proto()
        context = {attribute: f"{proto}.{attribute}" for attribute in self.cls.__wrapper_declaration__.attributes}
        has_blocks = "blocks" in (self.cls.__wrapper_declaration__.views or {}).values()  # not the fields' size
        keeps_metadata_of = proto if self.func in ALIASES and (has_blocks or outer_rule(self.cls) is not None) else ""
        inner = dict(zip(self.names, results, strict=True))
        wrapped = emit_instance(self.source, self.cls, inner, context, metadata_of=keeps_metadata_of)
        if self.effects.viewed:  # of one inner tensor the base may be dense; it has a storage of its own then
            alias = self.source.const(_torch.wrappers.alias_outer_storage, "alias_outer_storage")
            if self.effects.viewed in self.wrappers:
                viewed = identifier(self.effects.viewed)
                self.source.line(f"{alias}({wrapped}, {viewed})")
                if self.func in ALIASES:
                    with self.source.block(f"if {may_share(viewed)}:"):
                        self.source.line(f"{self.source.const(copy_origin, 'copy_origin')}({wrapped}, {viewed})")
        return wrapped


def _refuse_part(cls: type[Wrapper], func: Operator, names: Sequence[str], tensor: torch.Tensor) -> None:
    """Raises an error if a write would reach what is not in `tensor`: see Note [Fields shared by views]."""
    if shared := shared_field(tensor, names):
        why = f"{shared} is shared with the rest of the tensor that this is a view of, and would change there, too"
        raise errors.no_rule(cls, func, (tensor,), {}, why)

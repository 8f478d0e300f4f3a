"""Operators that draw from a state of their own: of each that draws, one that takes the state and gives the next one.

Note [States as values]
~~~~~~~~~~~~~~~~~~~~~~~
Where a program sets the seed of the generator, its draws are the same at each call. In a graph the state of the
generator is a tensor then: a constant behind `torch.manual_seed(7)`, and after each draw one more result of that. So
a draw is an operator like any other, which has no effect and gives the same for the same arguments. It may be saved,
computed again and left out, and any compiler runs it as it is.

The graph takes the state behind the seed as a constant, and gives the state behind the draw, which the call sets:

>>> import torch
>>> import subclass_aot as sa
>>> def f(x):
...     torch.manual_seed(7)
...     return x + torch.rand(3)
>>> def show(graph, inputs):
...     print(graph.code)
...     return graph
>>> compiled = sa.aot_compile(f, fw_compiler=show)
>>> y = compiled(torch.ones(3))
def forward(self, primals_1):
    _constant0 = self._constant0
    drawn__aten__rand__default = torch.ops.subclass_aot.drawn__aten__rand__default.default(_constant0, [3], ...
    getitem = drawn__aten__rand__default[0]
    getitem_1 = drawn__aten__rand__default[1];  drawn__aten__rand__default = None
    add = torch.ops.aten.add.Tensor(primals_1, getitem);  primals_1 = getitem = None
    return (add, getitem_1)
>>> print(compiled.source)
def call(...):
    ...
        (output_0, output_1, ) = outputs
    ...
    set_rng_state(output_1)
    ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.graph.draws_elsewhere import DRAW_ELSEWHERE
from subclass_aot.meta import call_on_meta, register_meta

PREFIX = "drawn"
_library = torch.library.Library("subclass_aot", "FRAGMENT")
_variants: dict[Any, Any] = {}


_library.define("generator_state() -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.impl("generator_state", lambda: torch.default_generator.get_state(), "BackendSelect")
GENERATOR_STATE: Any = torch.ops.subclass_aot.generator_state.default
"""Gives the state of the generator among the draws of a graph. It counts as one: it has its place among them."""


@register_meta(GENERATOR_STATE)
def _() -> torch.Tensor:
    return torch.empty(torch.default_generator.get_state().shape, dtype=torch.uint8, device="meta")


torch.library.register_fake(
    "subclass_aot::generator_state", lambda: torch.empty_like(torch.default_generator.get_state()), lib=_library
)


_SINGLE: dict[Any, str] = {GENERATOR_STATE: "generator_state", DRAW_ELSEWHERE: "draw_elsewhere"}


def drawn(func: _torch.operators.Operator) -> _torch.operators.Operator:
    """Gives the operator that draws as `func` does, from a state. See Note [States as values].

    It takes the state before the arguments of `func`. It gives the results that are no arguments of `func`, then a copy
    of each argument that `func` writes, as it is then, and at last the state behind the draw.
    """
    variant = _variants.get(func)
    if variant is None:
        variant = _variants[func] = _defined(func)
    if _torch.side_effects.has_side_effect(func) and not _torch.side_effects.has_effect(variant):
        _torch.side_effects.note_side_effect(variant)
    return variant


def _defined(func: _torch.operators.Operator) -> _torch.operators.Operator:
    """Defines the operator."""
    space, name = _torch.operators.schema_of(func).name.split("::")
    name = "__".join([PREFIX, space, name, _torch.operators.overload_name_of(func) or "default"])

    def run(state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        args, kwargs, copies = _with_copies(func, args, kwargs)
        with PutBack(partial(torch.default_generator.set_state, torch.default_generator.get_state())):
            torch.default_generator.set_state(state)
            made = func(*args, **kwargs)
            return *_new(func, made), *copies, torch.default_generator.get_state()

    def shapes(state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        args, kwargs, copies = _with_copies(func, args, kwargs)
        return *_new(func, call_on_meta(func, args, kwargs)), *copies, torch.empty_like(state)

    _library.define(name + _schema(func))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"subclass_aot::{name}", shapes, lib=_library)
    variant: _torch.operators.Operator = getattr(torch.ops.subclass_aot, name).default
    register_meta(variant)(shapes)
    return variant


def name_of_drawn(func: object) -> str | None:
    """Gives the name of an operator that draws from a state, or gives one, in any process; None for others."""
    if func in _SINGLE:
        return _SINGLE[func]
    draws = next((each for each, made in _variants.items() if made is func), None)
    return None if draws is None else f"{PREFIX} {draws}"


def drawn_named(
    name: str, operator_named: Callable[[str], _torch.operators.Operator]
) -> _torch.operators.Operator | None:
    """Gives the operator of such a name; None if it is none.

    Args:
        name: As `name_of_drawn` gives it.
        operator_named: Gives torch's operators by their names.
    """
    for func, its_name in _SINGLE.items():
        if name == its_name:
            return func  # type: ignore[no-any-return]
    prefix, _, rest = name.partition(" ")
    func = operator_named(rest) if prefix == PREFIX else None
    return drawn(func) if func is not None and effects_of(func).random else None


def _with_copies(func: _torch.operators.Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Gives arguments with copies of those that are written, and these copies."""
    given, named, copies = list(args), dict(kwargs), []
    for position, name in effects_of(func).writes:
        value = argument_at((position, name), args, kwargs)
        if value is None:
            continue
        copies.append(value.clone())
        if position < len(given):
            given[position] = copies[-1]
        else:
            named[name] = copies[-1]
    return given, named, copies


def _new(func: _torch.operators.Operator, made: Any) -> list[Any]:
    """Lists those of the results that are no arguments."""
    results = made if isinstance(made, tuple) else (made,)
    written = effects_of(func).returns_written
    return [x for x, place in zip(results, written, strict=True) if place is None]


def _schema(func: _torch.operators.Operator) -> str:
    """Returns the schema, less what it says of writes."""
    schema = _torch.operators.schema_of(func)
    arguments = re.sub(r"\(\w+!?\)", "", str(schema).split("(", 1)[1].rsplit(") -> ", 1)[0])
    kinds = [
        str(kind.type)
        for kind, place in zip(schema.returns, effects_of(func).returns_written, strict=True)
        if not place
    ]
    kinds += ["Tensor"] * (len(effects_of(func).writes) + 1)
    return f"(Tensor generator_state, {arguments}) -> ({', '.join(kinds)})"

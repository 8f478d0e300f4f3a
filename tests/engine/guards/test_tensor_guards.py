"""The part of a guard that reads tensors: their leaves come out where they fit, and else nothing."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor, aot_compile, trace_joint
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Scope, facts_of, global_state
from subclass_aot.engine.guards.lines import Elements
from subclass_aot.engine.guards.tables import tabled
from subclass_aot.engine.guards.tensor_guards import TensorGuards, patterns_of, refuse_other_specs
from subclass_aot.engine.objects import ObjectGuards
from subclass_aot.kit.flatten import FlattenPlan
from tests.engine.facts.calls import Tagged as OfALibrary

pytestmark = pytest.mark.usefixtures("either_way")


class Tagged(WrapperTensor, fallback="each"):
    value: torch.Tensor
    extra: torch.Tensor | None = None
    tag: Any = 0


class Parts(WrapperTensor, fallback="each"):
    parts: list[torch.Tensor]


class Named(WrapperTensor, fallback="each"):
    parts: dict[str, torch.Tensor]


def guard_of(*args: Any, fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Returns what gives the leaves of other arguments; None where they do not look like these."""
    fn = fn or (lambda *args: [x * 2 for x in args])
    signature = trace_joint(fn, *args).signature
    arguments = Arguments.of(fn, args, {})
    source = GuardedSource("guard", "leaves", "", (None, "None"))
    patterns = patterns_of(arguments, signature, facts_of(arguments, global_state(), Scope.of(signature)))
    objects, elements = ObjectGuards(arguments.objects, source, frozenset()), Elements()
    in_table = tabled(patterns, range(len(patterns)), ())
    guards = TensorGuards(source, arguments, patterns, objects, elements, in_table)
    guards.read(set(range(len(patterns))))
    refuse_other_specs(guards, elements)
    assert len(guards.all_values()) == len(patterns)
    source.line(f"return [{', '.join(guards.all_leaves())}]")
    built = source.build()
    return lambda *others: built(list(others))


def ones(*size: int, **options: Any) -> torch.Tensor:
    return torch.ones(*size, **options)


MAKERS: dict[str, tuple[Callable[[], Any], list[Callable[[], Any]]]] = {
    "dense": (
        lambda: ones(2, 3),
        [lambda: ones(3, 3), lambda: ones(6), lambda: ones(3, 2).t(), lambda: ones(2, 3, dtype=torch.float64),
         lambda: ones(2, 3, requires_grad=True), lambda: torch.nn.Parameter(ones(2, 3)),
         lambda: ones(2, 3, device="meta"), lambda: TwoTensor(ones(2, 3), ones(2, 3))],
    ),
    "wrapper": (
        lambda: TwoTensor(ones(2), ones(2)),
        [lambda: ones(2), lambda: TwoTensor(ones(3), ones(3)), lambda: TwoTensor(ones(2), ones(2, dtype=torch.int8)),
         lambda: TwoTensor(ones(2), ones(4)[::2]), lambda: TwoTensor(TwoTensor(ones(2), ones(2)), ones(2)),
         lambda: TwoTensor(ones(2), ones(2)).requires_grad_(), lambda: ForeignTensor(ones(2), ones(2))],
    ),
    "wrapper with an optional tensor": (
        lambda: Tagged(ones(2), ones(2)), [lambda: Tagged(ones(2)), lambda: Tagged(ones(2), ones(3))],
    ),
    "wrapper without it": (
        lambda: Tagged(ones(2)),
        [lambda: Tagged(ones(2), ones(2)), lambda: Tagged(ones(2), tag=1), lambda: Tagged(ones(2), tag=False)],
    ),
    "context": (
        lambda: Tagged(ones(2), tag=(1, "a")),
        [lambda: Tagged(ones(2), tag=(1, "b")), lambda: Tagged(ones(2), tag=(True, "a")), lambda: Tagged(ones(2))],
    ),
    "list of tensors": (
        lambda: Parts([ones(2), ones(2)]), [lambda: Parts([ones(2)]), lambda: Parts([ones(2), ones(2), ones(2)])],
    ),
    "dict of tensors": (
        lambda: Named({"a": ones(2), "b": ones(2)}),
        [lambda: Named({"a": ones(2)}), lambda: Named({"b": ones(2), "a": ones(2)})],
    ),
    "wrapper of another library": (
        lambda: ForeignTensor(ones(2), ones(2)), [lambda: ForeignTensor(ones(3), ones(3)), lambda: ones(2)],
    ),
    "inner tensors that look otherwise": (
        lambda: Int8Weight.from_float(ones(2, 3)), [lambda: Int8Weight.from_float(ones(3, 3)), lambda: ones(2, 3)],
    ),
}  # fmt: skip
"""What makes a tensor; and what makes tensors that are compiled on their own."""


@pytest.mark.parametrize("name", MAKERS)
def test_leaves_of_what_fits(name: str) -> None:
    """The oracle is a plan of the tensor itself."""
    make, others = MAKERS[name]
    fits = guard_of(make())
    other = make()
    found = fits(other)
    expected = FlattenPlan.of([other]).unwrap([other])
    assert len(found) == len(expected) and all(a is b for a, b in zip(found, expected, strict=True))
    for different in others:
        assert fits(different()) is None


def test_places_that_held_one_tensor_do_so_again() -> None:
    x, y = ones(2), ones(2)
    together, apart = guard_of(x, x), guard_of(x, y)
    assert together(y, y) == [y] and together(x, y) is None
    found = apart(y, x)
    assert found[0] is y and found[1] is x


def test_inner_tensors_that_were_one_are_one() -> None:
    x, y = ones(2), ones(2)
    fits = guard_of(TwoTensor(x, x))
    assert fits(TwoTensor(y, y))[0] is y and fits(TwoTensor(x, y)) is None


def test_parameters_are_read_of_their_modules() -> None:
    linear = torch.nn.Linear(2, 2, bias=False)
    fits = guard_of(ones(1, 2), fn=linear)
    x = ones(1, 2)
    weight = linear.weight
    assert {id(leaf) for leaf in fits(x)} == {id(weight), id(x)}
    linear.weight = other = torch.nn.Parameter(ones(2, 2))
    assert {id(leaf) for leaf in fits(x)} == {id(other), id(x)}
    for wrong in (torch.nn.Parameter(ones(2, 3)), None, torch.nn.Parameter(ones(2, 2), requires_grad=False)):
        linear.weight = wrong
        assert fits(x) is None


ON_WEIGHTS: dict[str, Callable[[], Any]] = {
    "a generator, whose state is read at each call": lambda: torch.Generator().manual_seed(1),
    "a wrapper whose context may change": lambda: OfALibrary(ones(2), [1]),
    "a tensor that is an argument, too": lambda: ones(2),
    "a wrapper with a tensor on it": lambda: put_on(OfALibrary(ones(2), [1]), ones(2)),
}


def put_on(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    tensor.note = value  # type: ignore[attr-defined]
    return tensor


@pytest.mark.every_case
@pytest.mark.parametrize("name", ON_WEIGHTS)
@pytest.mark.parametrize("held", [False, True], ids=["of a module", "held"])
def test_what_is_on_a_weight_and_is_read_at_each_call(name: str, held: bool) -> None:
    linear, weight = torch.nn.Linear(2, 2, bias=False), put_on(ones(2), ON_WEIGHTS[name]())
    put_on(linear.weight, weight.note)  # type: ignore[attr-defined]

    def fn(x: Any, y: Any) -> Any:
        return x * weight if held else linear(x)

    compiled, given = aot_compile(fn), weight.note if type(weight.note) is torch.Tensor else ones(2)  # type: ignore[attr-defined]
    for _ in range(2):
        assert torch.equal(compiled(ones(3, 2), given), fn(ones(3, 2), given))
    put_on(weight if held else linear.weight, 5)
    assert torch.equal(compiled(ones(3, 2), given), fn(ones(3, 2), given))
    assert len(compiled.recompiles) == 1


@pytest.mark.parametrize("fn", [lambda x, y: x * y[0], lambda x, y: x * y[0] * getattr(y[0], "other", 2)])
@pytest.mark.parametrize("noted", [False, True], ids=["", "with an attribute"])
def test_what_is_no_tensor_in_the_place_of_one(fn: Callable[..., Any], noted: bool) -> None:
    held = types.SimpleNamespace(parts=[put_on(ones(2), 1) if noted else ones(2)])
    compiled = aot_compile(lambda x: fn(x, held.parts))
    for part in (held.parts[0], 5, None, 2.5):
        held.parts[0] = part
        if part is not None:
            assert torch.equal(compiled(ones(2)), fn(ones(2), held.parts))
        else:
            with pytest.raises(TypeError, match="NoneType"):
                compiled(ones(2))

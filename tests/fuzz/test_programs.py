"""Random programs have in them what is hard to compile, and can be run again: with other values, and other sizes."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, Phase

from subclass_aot import aot_compile
from subclass_aot.testing import dense_leaves, difference, sharing
from subclass_aot.testing.runs import Later, differences, observe
from tests.fuzz.programs import ALIASES, Argument, Program, arguments, mode_of, programs
from tests.fuzz.trees import KINDS, Tree


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    found: list[Program] = []

    @hypothesis.given(programs())
    @hypothesis.settings(max_examples=1000, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def draw(program: Program) -> None:
        found.append(program)

    draw()
    return found


def says(text: str) -> Callable[[Program], bool]:
    return lambda program: any(text in line for line, _ in program.statements)


def mixes(program: Program) -> bool:
    return len({argument.tree.kind for argument in program.arguments} - {"dense"}) > 1


FEATURES: dict[str, Callable[[Program], bool]] = {
    **{f"alias {alias}": lambda p, alias=alias: any(a.alias == alias for a in p.arguments) for alias in ALIASES},
    **{kind: lambda p, kind=kind: any(a.tree.kind == kind for a in p.arguments) for kind in KINDS},
    **{grad: lambda p, grad=grad: any(a.grad == grad for a in p.arguments) for grad in ("leaf", "computed", "view")},
    **{mode: lambda p, mode=mode: p.mode == mode for mode in ("no_grad", "inference")},
    "nested classes": lambda p: any(t.kind != "dense" for a in p.arguments for t in a.tree.inner),
    "mixed classes": mixes,
    "sizes of one": lambda p: any(1 in a.size for a in p.arguments),
    "writes": says(".mul_("),
    "writes through views": says(".t().add_("),
    "other looks": says(".t_()"),
    "views": says("[1:]"),
    "wrappers made inside": says("= TwoTensor("),
    "inner tensors": says("x0.a"),
    "several results of one operator": lambda p: any(line.startswith("v1, v2 = ") for line, _ in p.statements),
    "random numbers": says("rand_like"),
    "a block without gradients": lambda p: sum(no_grad for _, no_grad in p.statements) > 1,
    "several results": lambda p: len(p.results) > 2,
    "backward through some": lambda p: len(set(p.later.used)) == 2,
    "two backwards": lambda p: p.later.twice,
    "writes afterwards": lambda p: bool(p.later.after),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_what_is_drawn(feature: str, drawn: list[Program]) -> None:
    assert any(map(FEATURES[feature], drawn))


def test_images_are_drawn() -> None:
    """Those in channels-last, too."""
    found: set[str] = set()

    @hypothesis.given(arguments(everything=True))
    @hypothesis.settings(max_examples=300, derandomize=True, phases=[Phase.generate])
    def draw(argument: Argument) -> None:
        if argument.is_image:
            found.add(argument.layout)
            leaves = dense_leaves(argument.make(torch.Generator())[0])
            last = argument.layout == "channels last"
            assert not last or all(leaf.is_contiguous(memory_format=torch.channels_last) for leaf in leaves)

    draw()
    assert found == {"packed", "transposed", "offset", "channels last"}


def test_equal_arguments_for_equal_seeds(drawn: list[Program]) -> None:
    for program in drawn[:100]:
        (first, _), (again, _), (other, _) = [program.make_arguments(seed) for seed in (1, 1, 2)]
        assert sharing(first) == sharing(again) == sharing(other)
        assert not any(difference(x, y) for x, y in zip(first, again, strict=True))


def test_other_sizes() -> None:
    """A program may be called again with inputs of other sizes: compiled, that is another signature, and right."""
    two = Argument(Tree("TwoTensor", (Tree("dense"), Tree("dense"))), (2, 3), grad="leaf")
    program = Program((two, Argument(Tree("dense"), (3,))), (("x1.add_(1)", False), ("v2 = x0 * x1", False)), ("v2",))
    compiled = aot_compile(program.function)
    for sizes in ({}, {3: 5}, {2: 4, 3: 5}):
        made = [program.resized(sizes).make_arguments(1) for _ in range(2)]
        assert made[0][0][0].shape == (sizes.get(2, 2), sizes.get(3, 3))
        runs = [observe(f, given) for f, given in zip((program.function, compiled), made, strict=True)]
        assert not runs[0].failed and not list(differences(*runs))
    assert len(compiled.recompiles) == 2


def test_a_program_prints_as_python() -> None:
    statements = (("v1 = x0 * 2", False), ("v1.mul_(2)", True), ("v1.add_(1)", True))
    program = Program((Argument(Tree("dense"), (2,)),), statements, ("v1", "x0"), "no_grad", Later(twice=True))
    assert "twice=True" in repr(program)
    assert repr(program).endswith(
        "def program(x0):\n    v1 = x0 * 2\n    with torch.no_grad():\n        v1.mul_(2)\n        v1.add_(1)\n"
        "    return v1, x0"
    )
    with mode_of(program):
        assert not torch.is_grad_enabled()

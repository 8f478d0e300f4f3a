"""Operators that have effects run once in each call, in the order of eager mode. See Note [Effects of operators]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile, load_compiled, trace_joint
from subclass_aot.errors import DataDependentError, DoubleBackwardError, ShapeRuleError
from tests.fuzz.effects import JOURNAL, Formula, counted, listed, ordered, told

BACKENDS = ["eager", "inductor"]


@pytest.fixture(autouse=True)
def _empty() -> None:
    JOURNAL.clear()


def names() -> list[str]:
    found = [f"{kind} {name}" for kind, name, _ in JOURNAL]
    JOURNAL.clear()
    return found


def all_kinds(x: Any) -> Any:
    ordered(x, "a")
    told(x * 2, "b")
    listed(x, "c")
    counted(x.detach() * 3, "d")
    ordered(x, "a")
    return Formula.apply(x)


ALL = ["ordered a", "told b", "listed c", "counted d", "ordered a", "told forward"]
BACKWARD = ["ordered backward", "listed saved"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_each_runs_once_in_order(backend: str, dynamic: bool | None) -> None:
    compiled = aot_compile(all_kinds, fw_compiler=backend, dynamic=dynamic)
    for length in (3, 3, 4):
        compiled(torch.ones(length))
        assert names() == ALL
        y = compiled(torch.ones(length, requires_grad=True))
        assert names() == ALL
        y.sum().backward()
        assert names() == BACKWARD


def test_behind_torch_compile() -> None:
    compiled = torch.compile(
        lambda x: (ordered(x, "a"), listed(x, "b"), ordered(x, "a"), x * 2)[-1], backend="subclass_aot"
    )
    for _ in range(2):
        compiled(torch.ones(3))
        assert names() == ["ordered a", "listed b", "ordered a"]


def test_on_wrappers() -> None:
    compiled = aot_compile(lambda x: (ordered(x, "a"), x * 2)[1])
    compiled(TwoTensor(torch.ones(2), torch.zeros(2)))
    assert JOURNAL == [("ordered", "a", 2.0), ("ordered", "a", 0.0)]


def test_backward_twice_has_the_effects_of_backward_twice() -> None:
    compiled = aot_compile(all_kinds)
    total = compiled(torch.ones(3, requires_grad=True)).sum()
    total.backward(retain_graph=True)
    total.backward()
    assert names() == ALL + BACKWARD + BACKWARD


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
def test_from_a_file(backend: str, tmp_path: Path) -> None:
    names_of = {"torch": torch, "__name__": __name__}
    function = eval("lambda x: (torch.ops.subclass_aot_testing.ordered(x, 'a'), x * 2)[1]", names_of)
    compiled = aot_compile(function, fw_compiler=backend)
    compiled(torch.ones(3))
    compiled.save(tmp_path / "compiled")
    load_compiled(tmp_path / "compiled", trust=True)(torch.ones(3))
    assert names() == ["ordered a", "ordered a"]


def test_in_a_joint_graph() -> None:
    joint = trace_joint(lambda x: (ordered(x, "a"), Formula.apply(x))[1], torch.ones(3, requires_grad=True))
    text = joint.graph_module.code
    assert [text.count(f"testing.{name}.") for name in ("ordered", "told", "listed")] == [2, 1, 1]
    assert not JOURNAL


def test_values_are_read_before_them() -> None:
    """A call that finds another value begins again."""

    def function(x: Any) -> Any:
        ordered(x, "a")
        told(x, "b")
        y = x * 2 if x.sum() > 0 else -x
        told(y, "c")
        return y

    compiled = aot_compile(function)
    for number in (1.0, 2.0, -1.0, 3.0, -2.0):
        compiled(torch.full((3,), number))
        assert names() == ["ordered a", "told b", "told c"], number


@pytest.mark.parametrize("make", [lambda x: x, lambda x: torch.ones(3)])
def test_a_value_of_what_it_gives_is_refused(make: Any) -> None:
    compiled = aot_compile(lambda x: x if ordered(make(x), "a").sum() > 0 else -x)
    with pytest.raises(DataDependentError, match="an operator with an effect"):
        compiled(torch.ones(3))
    assert not JOURNAL


def test_of_branches_only_one() -> None:
    compiled = aot_compile(
        lambda x: torch.cond(x.sum() > 0, lambda x: ordered(x, "t").sin(), lambda x: ordered(x, "f").cos(), (x,))
    )
    for number in (1.0, -1.0, 2.0):
        compiled(torch.full((3,), number))
        assert names() == [f"ordered {'t' if number > 0 else 'f'}"]


def test_second_derivatives_are_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(DoubleBackwardError, match="has an effect"):
        aot_compile(lambda x: ordered(x, "a") * x, double_backward=True)(x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_prints_prints_once_in_each_call(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    compiled = aot_compile(lambda x: (torch.ops.aten._print("here"), x * 2)[1], fw_compiler=backend)
    for _ in range(2):
        compiled(torch.ones(3))
        assert capfd.readouterr().out == "here\n"


def test_a_kernel_for_all_devices_does_not_run_while_tracing() -> None:
    found = []
    library = torch.library.Library("test_side_effects_of_all", "FRAGMENT")
    library.define("tell(Tensor x) -> ()")
    library.define("count(Tensor x) -> Tensor")
    library.impl("tell", lambda x: found.append(x.device.type), "CompositeExplicitAutograd")
    library.impl("count", lambda x: found.append(x.device.type) or x.clone(), "CompositeExplicitAutograd")
    compiled = aot_compile(lambda x: (torch.ops.test_side_effects_of_all.tell(x), x * 2)[1])
    with torch.no_grad():
        compiled(torch.ones(3))
    assert found == ["cpu"]
    torch.fx.node.has_side_effect(torch.ops.test_side_effects_of_all.count)
    with torch.no_grad(), pytest.raises(ShapeRuleError, match="its only kernel is the one that has its effect"):
        aot_compile(torch.ops.test_side_effects_of_all.count)(torch.ones(3))
    assert found == ["cpu"]


def test_a_gradient_function_may_have_an_attribute_named_name() -> None:
    x = torch.ones(3, requires_grad=True)
    aot_compile(lambda x: ordered(x, "a") * x)(x).sum().backward()
    assert names() == ["ordered a", "ordered gradient of a"] and x.grad is not None

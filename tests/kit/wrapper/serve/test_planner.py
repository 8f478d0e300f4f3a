"""The straight-line function for one operator: which arguments it takes apart, and what it gives back."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from tests.kit.wrapper.classes import Many, Pair, pair

aten = torch.ops.aten


def test_the_plan_is_readable() -> None:
    x = pair(3)
    x + x
    x.detach()
    source = inspect.getsource(Pair._handlers[aten.detach.default])
    assert "left = self.left.detach()" in source
    assert "alias_outer_storage(result, self)" in source


def test_lists_with_dense_tensors_among_the_written() -> None:
    x, y, dense, other = pair(3), pair(3, seed=1), torch.ones(3), torch.full((3,), 2.0)
    expected = x.left + 3 * y.left
    torch._foreach_add_([dense, x], [other, y], alpha=3)
    torch.testing.assert_close(x.left, expected)
    assert dense.tolist() == [7.0] * 3
    for _ in range(2):
        results = torch._foreach_mul([dense, x, dense], 2)
    assert [type(result) for result in results] == [torch.Tensor, Pair, torch.Tensor]
    torch.testing.assert_close(results[1].right, 2 * x.right)


def test_lists_with_wrappers_of_several_layouts() -> None:
    one, two = Many([torch.ones(2)]), Many([torch.ones(2), torch.ones(2)], label="two")
    results = torch._foreach_add([one, torch.ones(2), two], 1)
    assert [type(result) for result in results] == [Many, torch.Tensor, Many]
    assert [len(results[0].members), len(results[2].members), results[2].label] == [1, 2, "two"]


def test_a_dense_tensor_cannot_take_several_values() -> None:
    with pytest.raises(
        OperatorRuleError, match=r"writes to \(or views\) `self`, a dense tensor, and reads a Pair"
    ) as error:
        torch.zeros(3, 4).add_(pair(3, 4))
    assert "test_planner.py" in str(error.value) and "@Pair.implements(torch.ops.aten.add_.Tensor)" in str(error.value)
    dense = torch.zeros(3)
    with pytest.raises(OperatorRuleError):
        torch._foreach_add_([dense], [pair(3)])
    with pytest.raises(OperatorRuleError):
        torch.add(pair(3), 1, out=dense)
    assert dense.tolist() == [0, 0, 0]


def test_a_dense_tensor_can_take_the_only_one() -> None:
    class Alone(WrapperTensor, fallback="each"):
        only: torch.Tensor

    dense = torch.zeros(3)
    assert dense.add_(Alone(torch.ones(3))) is dense
    assert dense.tolist() == [1, 1, 1]


def test_optional_and_list_fields() -> None:
    many = Many([torch.ones(2), torch.zeros(2)], mask=torch.ones(2), label="w")
    result = (many + many) * 2
    assert [member.tolist() for member in result.members] == [[4, 4], [0, 0]]
    assert result.mask.tolist() == [4, 4] and result.label == "w"
    assert (Many([torch.ones(2)]) + 1).mask is None
    assert torch.cat([many, many]).shape == (4,)
    with pytest.raises(
        OperatorRuleError, match=r"hold different inner tensors: \['members_0'\] and \['members_0', 'mask'\]"
    ):
        Many([torch.ones(2)]) + Many([torch.ones(2)], torch.ones(2))


def test_wrappers_with_different_context() -> None:
    one, two = Many([torch.ones(2)], label="one"), Many([torch.ones(2)], label="two")
    with pytest.raises(OperatorRuleError, match="different context: label is 'one' and 'two'"):
        one + two
    with pytest.raises(OperatorRuleError, match="different context: label is 'one' and 'two'"):
        torch.cat([one, torch.ones(2), two])
    assert (one + Many([torch.ones(2)], label="one")).label == "one"


def test_relatives_meet_in_the_most_derived_class() -> None:
    class Labelled(Pair):
        label: str = "none"

    base, derived = pair(3), Labelled(torch.ones(3), torch.ones(3), "x")
    for result in (base + derived, derived + base, torch.cat([base, derived])[:3], torch.cat([derived, base])[:3]):
        assert type(result) is Labelled and result.label == "x"


def test_outer_rule_of_the_result() -> None:
    class Half(WrapperTensor, fallback="each"):
        payload: torch.Tensor

        def outer_metadata(self) -> Outer:
            return Outer.like(self.payload, dtype=torch.float16)

    result = Half(torch.zeros(2, 3)).t()
    assert (result.dtype, result.shape, result.payload.dtype) == (torch.float16, (3, 2), torch.float32)


@pytest.mark.parametrize("ask", [torch.equal, torch.allclose, lambda x, y: x.equal(y)])
def test_wrappers_are_equal_if_every_inner_tensor_is(ask: Any) -> None:
    def make(left: float, right: float) -> Any:
        return TwoTensor(torch.full((2,), float(left)), torch.full((2,), float(right)))

    assert ask(make(1, 2), make(1, 2))
    assert not ask(make(1, 2), make(1, 3)) and not ask(make(1, 2), make(0, 2))
    assert ask(make(1, 1), torch.ones(2)) and not ask(make(1, 2), torch.ones(2))
    with pytest.raises(RuntimeError, match="unexpected exception"):  # is it all close? Yes and no
        torch.testing.assert_close(make(1, 2), make(1, 3))
    torch.testing.assert_close(make(1, 2), make(1, 2))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_number_is_what_every_inner_tensor_says(compiled: bool) -> None:
    def program(x: Any) -> Any:
        return x.item()

    ask = aot_compile(program) if compiled else program
    assert ask(TwoTensor(torch.tensor(2.0), torch.tensor(2.0))) == 2
    assert compiled or math.isnan(ask(TwoTensor(torch.tensor(math.nan), torch.tensor(math.nan))))
    with pytest.raises(OperatorRuleError, match=r"its inner tensors have several: {'a': .*, 'b': .*}"):
        ask(TwoTensor(torch.tensor(2.0), torch.tensor(3.0)))

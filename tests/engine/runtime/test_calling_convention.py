"""What forward, backward and the call of one signature agree on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from subclass_aot import TwoTensor, trace_joint
from subclass_aot.base.codegen import Source
from subclass_aot.engine.descriptors import AutogradMutation, IntermediateBase, PlainOutput
from subclass_aot.engine.runtime import split
from subclass_aot.engine.runtime.calling_convention import Convention, SymintNames, emit_run
from subclass_aot.errors import CompilerResultError


def convention(function: Any, *args: Any, keeps_inputs: bool = False) -> Convention:
    trace = trace_joint(function, *args)
    return Convention(trace.signature, split(trace, None), keeps_inputs)


def leaf() -> torch.Tensor:
    return torch.rand(2, requires_grad=True)


def test_autograd_is_given_what_gradients_go_through() -> None:
    found = convention(lambda x, y: (x * 2, y * 2, (x * 3).detach()), leaf(), torch.rand(2))
    assert len(found.signature.forward_values) == 3 and found.signature.through_autograd == (PlainOutput(0),)
    assert found.requires_grad_inputs == [0]
    assert convention(lambda x: x * 2, torch.rand(2)).signature.through_autograd == ()


def test_new_values_of_inputs_come_first_and_shared_bases_last() -> None:
    def program(x: Any, w: Any) -> Any:
        x.mul_(w)
        base = w.exp()
        return base[:1], base[1:], w * 2

    x = torch.rand(2)
    signature = convention(program, x, leaf()).signature
    given, base = AutogradMutation(signature.inputs[0].desc), IntermediateBase(0, PlainOutput(0))
    assert list(signature.forward_values) == list(signature.through_autograd) == [given, PlainOutput(2), base]
    assert signature.forward_values[given] is signature.mutations.of_inputs[0].new_value
    assert signature.forward_values[base] is signature.intermediate_bases[0]


def test_an_input_without_gradient_is_not_given_to_autograd() -> None:
    """It may have a history that is used up."""

    def program(x: Any, w: Any) -> Any:
        return x * 2, w.detach()

    assert convention(program, leaf(), leaf()).requires_grad_inputs == [0]
    assert convention(program, leaf(), leaf(), keeps_inputs=True).requires_grad_inputs == [0, 1]


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_parameters_of_forward_are_those_that_it_needs(writes: bool, keeps: bool) -> None:
    found = convention(lambda x, y: x * y.mul_(2) if writes else x * y, leaf(), torch.rand(2), keeps_inputs=keeps)
    expected = ["leaves", "non_differentiable", *["written"] * writes, "checked", *["kept"] * keeps]
    assert found.parameters == expected


def test_a_wrapper_is_checked_where_its_leaf_is_saved() -> None:
    def two(grad: bool) -> TwoTensor:
        return TwoTensor(torch.rand(2), torch.rand(2)).requires_grad_(grad)

    found = convention(lambda x, y: x * y, two(True), two(False))
    assert found.checked == [1] and found.saved_for_version_check == [1]
    both = convention(lambda x, y: x * y, two(True), two(True))
    assert both.checked == [0, 1]
    assert both.saved_for_version_check == [], "autograd is given both"
    assert convention(lambda x: x.exp(), two(True)).checked == [PlainOutput(0)]
    assert convention(lambda x: x * 2, two(True)).checked == []
    assert convention(lambda x, y: x * y, leaf(), leaf()).checked == [], "a dense tensor is what is saved"


def test_numbers_are_locals_where_they_are_symbols() -> None:
    size = ShapeEnv().create_unbacked_symint()
    names = SymintNames.of({})
    assert names.one(3) == "3" and names.all((3, 4)) == "(3, 4, )" and names.all(()) == "()"
    with pytest.raises(KeyError):
        names.one(size)


@pytest.mark.parametrize(("outputs", "got"), [([1], "1"), ([1, 2, 3], "3"), (4, "a int instead of a sequence of")])
def test_a_graph_that_returns_another_number_of_outputs_is_refused(outputs: Any, got: str) -> None:
    source = Source("run", "given", "Runs a graph.")
    emit_run(source, ["a", "b"], lambda inputs: outputs, "given", "backward")
    source.line("return a, b")
    with pytest.raises(CompilerResultError, match="backward") as error:
        source.build()([])
    assert got in str(error.value) and "2" in str(error.value)


def test_the_outputs_of_a_graph_get_names_in_their_order() -> None:
    source = Source("run", "given", "Runs a graph.")
    emit_run(source, ["a", "b"], lambda inputs: [x * 10 for x in inputs], "given", "forward")
    source.line("return b, a")
    assert source.build()([1, 2]) == (20, 10)

"""Tracing a call as often as it takes: what begins again, with what."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile, mark_dynamic, trace_joint
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.graph import Retrace
from subclass_aot.engine.sizes import DynamicSizes
from subclass_aot.engine.trace import Attempt, specialize, trace_arguments
from subclass_aot.errors import DataDependentError, TraceError
from subclass_aot.meta.symbols import SizesMustBeKnown, is_symbolic


def spec_sizes(trace: Any) -> list[Any]:
    return [list(spec.size) for given in trace.signature.inputs for spec in given.specs]


def test_keyword_arguments_are_inputs() -> None:
    trace = trace_joint(lambda x, *, scale: x * scale, torch.rand(3), scale=torch.rand(3))
    assert [given.path for given in trace.signature.inputs] == ["args[0]", "kwargs['scale']"]


def test_marked_sizes_are_symbols_unless_the_function_needs_them() -> None:
    x, y = torch.rand(4, 3), torch.rand(5, 3)
    for each in (x, y):
        mark_dynamic(each, 0)
    kept = spec_sizes(trace_joint(lambda x, y: (x * 2, y * 2), x, y))
    assert is_symbolic(kept[0][0]) and is_symbolic(kept[1][0])
    turned = spec_sizes(trace_joint(lambda x, y: (x * 2, y.t_())[0], x, y))
    assert is_symbolic(turned[0][0]) and turned[1] == [5, 3], "only those of the input that is turned are known"


def test_sizes_that_depend_on_data_need_symbols() -> None:
    def program(x: Any) -> Any:
        return x.nonzero() * 2

    x = torch.tensor([0.0, 1, 1])
    trace = trace_arguments(program, Attempt(Arguments.of(program, (x,), {}), DynamicSizes()))
    assert torch.equal(trace.graph_module(x)[0], program(x))
    with pytest.raises(DataDependentError, match="aten.nonzero.default asks for values"):
        trace_joint(program, x)


def test_gradients_of_inputs_are_inputs_where_they_are_read() -> None:
    x = torch.rand(3, requires_grad=True)
    x.grad = torch.rand(3)
    trace = trace_joint(lambda x: x.detach() * x.grad, x)
    assert [given.path for given in trace.signature.inputs] == ["args[0]", "args[0].grad"]
    with pytest.raises(Retrace) as caught:  # who took the call apart does it once more
        trace_arguments(fn := lambda x: x.detach() * x.grad, Attempt(Arguments.of(fn, (x,), {})))
    assert "with_grad" in str(caught.value)


def test_the_program_does_not_catch_that_sizes_must_be_known() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        try:
            y.resize_(x.shape[0] // 2)
        except Exception:
            return x
        return y

    x = torch.ones(4)
    mark_dynamic(x, 0)
    compiled = aot_compile(program)
    assert compiled(x).tolist() == program(x).tolist() == [2, 2]


def test_an_attempt_after_one_that_failed_knows_more() -> None:
    arguments = Arguments.of(torch.add, (torch.ones(2), torch.ones(3)), {})
    attempt = Attempt(arguments, DynamicSizes({"args[0]": {0}, "args[1]": {0}}))
    attempt = attempt.after(SizesMustBeKnown(["args[0]"]))
    assert attempt.sizes == DynamicSizes({"args[1]": {0}})
    attempt = attempt.after(SizesMustBeKnown())
    assert attempt.sizes == DynamicSizes() and not attempt.options.values_fix_sizes
    attempt = attempt.after(SizesMustBeKnown())
    assert attempt.sizes is None and attempt.options.values_fix_sizes
    attempt = attempt.after(Retrace(data_dependent_sizes=True))
    assert attempt.sizes == DynamicSizes() and attempt.arguments is arguments


def test_what_is_built_is_tried_as_long_as_there_is_another_way() -> None:
    arguments = Arguments.of(torch.sin, (torch.ones(2),), {})
    begun, built = [], []

    def begin(with_grad: bool, failure: Exception | None) -> Attempt | None:
        begun.append((with_grad, str(failure)))
        return Attempt(dataclasses.replace(arguments, with_grad=with_grad), failure=failure)

    def build(attempt: Attempt) -> None:
        built.append(attempt)
        raise errors.pop(0)

    errors: list[BaseException] = [
        Retrace(hashes_by_value=True), ValueError("first"), Retrace(with_grad=True), Retrace(hashes_by_value=True),
        ValueError("second"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="second"):
        specialize(begin, build)
    assert begun == [(False, "None"), (False, "first"), (True, "first")]
    assert [each.options.hashes_by_value for each in built] == [False, True, False, False, True]
    with pytest.raises(Retrace, match="with_grad"):
        specialize(lambda with_grad, failure: None if with_grad else Attempt(arguments), _reads_grad)


def _reads_grad(attempt: Attempt) -> Any:
    raise Retrace(with_grad=True)


def test_decompositions_stand_for_operators() -> None:
    aten = torch.ops.aten
    arguments = Arguments.of(torch.sin, (torch.rand(3),), {})
    trace = trace_arguments(torch.sin, Attempt(arguments), {aten.sin.default: lambda x: x.cos()})
    assert [n.target for n in trace.graph_module.graph.find_nodes(op="call_function", target=aten.cos.default)]
    assert not trace.graph_module.graph.find_nodes(op="call_function", target=aten.sin.default)


@pytest.mark.parametrize("enabled", [True, False])
def test_modes_around_are_as_they_were(enabled: bool) -> None:
    def program(x: Any) -> Any:
        torch.set_grad_enabled(not enabled)
        return x * 2

    with torch.set_grad_enabled(enabled):
        trace_joint(program, torch.rand(3, requires_grad=True))
        assert torch.is_grad_enabled() is enabled
    with torch.inference_mode():
        trace = trace_joint(lambda w: w * 2, TwoTensor(torch.rand(2), torch.rand(2)).requires_grad_())
        assert torch.is_inference_mode_enabled() and not trace.signature.needs_backward


def test_a_transform_around_is_refused() -> None:
    with pytest.raises(TraceError, match=r"trace_joint\(torch.func.grad\(fn\), x\)"):
        torch.func.grad(lambda x: trace_joint(torch.sin, x))(torch.ones(()))

"""Marks, twins with symbolic sizes, and symbolic sizes in joint graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, TwoTensor, mark_dynamic, trace_joint
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.engine.passes import is_symint
from subclass_aot.engine.sizes import DynamicSizes, fake_with_sizes, first_results, marked_sizes, symbolic_fakes
from subclass_aot.errors import DynamicSizeError
from subclass_aot.meta import MetaTensor
from subclass_aot.meta.symbols import Symbols, is_symbolic


def arguments(*args: Any) -> Arguments:
    return Arguments.of(lambda *args: None, args, {})


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


def test_mark_dynamic_wants_a_dimension_that_is_there() -> None:
    with pytest.raises(DynamicSizeError, match="has 2 dimensions, so dim 2 is none"):
        mark_dynamic(torch.ones(2, 3), 2)


def test_mark_dynamic_wants_limits_that_hold() -> None:
    with pytest.raises(DynamicSizeError, match=r"size\(0\) is 2, which is not from min=3 to max=None"):
        mark_dynamic(torch.ones(2, 3), 0, min=3)


def test_a_mark_belongs_to_the_object() -> None:
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    mark_dynamic(x, -1, max=8)
    found = marked_sizes(arguments(y, x))
    assert found.sizes == {"args[1]": {1}} and found.marked == {"args[1]": {1: (0, 8)}}
    assert not vars(x) and not marked_sizes(arguments(x.clone()))


def test_results_of_the_first_call_are_noted() -> None:
    note, first, later = first_results([[("", (0, 1))], [("", (1,))]]), torch.ones(2, 3), torch.ones(2, 3)
    for x in (first, later):
        note(x, x.clone())
    assert marked_sizes(arguments(first)).marked == {"args[0]": {0: (0, None), 1: (0, None)}}
    assert not vars(first) and not marked_sizes(arguments(later))


def test_inner_tensors_are_noted_by_themselves() -> None:
    x = two(2, 3)
    first_results([[("", (0,)), (".b", (1,))]])(x)
    assert marked_sizes(arguments(x)).sizes == {"args[0]": {0}, "args[0].b": {1}}


def test_limits_that_the_user_gave_count() -> None:
    x = torch.ones(2, 3)
    first_results([[("", (0, 1))]])(x)
    mark_dynamic(x, 0, max=8)
    assert marked_sizes(arguments(x)).marked == {"args[0]": {0: (0, 8), 1: (0, None)}}


def test_what_was_noted_of_a_weight_does_not_count() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3))
    first_results([[("", (0,))]])(weight)
    assert not marked_sizes(arguments(weight))
    mark_dynamic(weight, 0)
    assert marked_sizes(arguments(weight)).sizes == {"args[0]": {0}}


def test_twins_follow_the_strides() -> None:
    base = torch.rand(4, 6, 8)
    expanded = base[:, :, :1].expand(4, 6, 5)
    values = {"packed": base, "turned": base.permute(2, 0, 1), "sliced": base[:, :3], "expanded": expanded}
    for name, value in values.items():
        (twin,) = symbolic_fakes(arguments(value), DynamicSizes({"args[0]": {0}}), Symbols())
        n = twin.shape[0]
        assert type(twin) is MetaTensor and is_symbolic(n) and twin.shape[1:] == value.shape[1:], name
        hints = [int(s) if not is_symbolic(s) else s.node.hint for s in twin.stride()]
        assert tuple(hints) == value.stride(), name


def test_inner_tensors_share_symbols_with_the_outer() -> None:
    dynamic = DynamicSizes({path: {0, 1} for path in ("args[0]", "args[0].a", "args[0].b")})
    (twin,) = symbolic_fakes(arguments(two(4, 4)), dynamic, Symbols())
    rows, columns = twin.shape
    assert type(twin) is TwoTensor and str(rows) != str(columns)
    for inner in (twin.a, twin.b):
        assert [str(n) for n in inner.shape] == [str(rows), str(columns)]


def test_a_marked_wrapper_marks_what_has_that_size() -> None:
    weight = Int8Weight(torch.zeros(6, 8, dtype=torch.int8), torch.ones(6, 1))
    mark_dynamic(weight, 0)
    (twin,) = symbolic_fakes(arguments(weight), marked_sizes(arguments(weight)), Symbols())
    assert str(twin.codes.shape[0]) == str(twin.scale.shape[0]) == str(twin.shape[0])
    assert (twin.codes.shape[1], twin.scale.shape[1]) == (8, 1)


def test_the_twin_of_a_gradient_has_the_sizes_of_the_result() -> None:
    n = Symbols().size(4, "x.size(0)")
    twin = fake_with_sizes(two(4, 3), (n, 3))
    assert str(twin.shape[0]) == str(twin.a.shape[0]) == str(n)
    assert type(fake_with_sizes(torch.ones(4, 3), (4, 3)).shape[0]) is int


def test_sizes_that_must_be_known_take_inner_ones_along() -> None:
    dynamic = DynamicSizes({"args[0]": {0}, "args[0].a": {0}, "args[01]": {0}, "args[0]['k']": {1}})
    assert set(dynamic.without(["args[0]"]).sizes) == {"args[01]"}
    assert not dynamic.without([])


def test_a_joint_graph_reads_each_symbol_once() -> None:
    x = torch.rand(4, 3, requires_grad=True)
    mark_dynamic(x, 0)
    joint = trace_joint(lambda x: (x.view(-1) * x.shape[0]).sum(), x)
    nodes = list(joint.graph_module.graph.nodes)
    reads = [n for n in nodes if n.target is torch.ops.aten.sym_size.int]
    assert len(reads) == 1 and reads[0].args[1] == 0
    for rows in (4, 7):
        other = torch.rand(rows, 3)
        loss, *_, gradient = joint.graph_module(other, torch.tensor(2.0))
        torch.testing.assert_close(loss, other.sum() * rows)
        torch.testing.assert_close(gradient, torch.full((rows, 3), 2.0 * rows))


def test_symbolic_sizes_of_a_wrapper_are_inputs() -> None:
    x = two(4, 3)
    mark_dynamic(x, 0)
    joint = trace_joint(lambda x: x * 2, x)
    inputs = [n for n in joint.graph_module.graph.nodes if n.op == "placeholder"]
    assert [str(descriptor_of(n)) for n in inputs] == ["args[0].a", "args[0].b", "args[0].size(0)"]
    assert [is_symint(n) for n in inputs] == [False, False, True]
    assert [slot.name("inputs") for slot in joint.signature.index_map.slots][-1] == "inputs[0].size(0)"

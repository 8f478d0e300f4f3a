"""Programs that cannot be compiled: what is said of them, and that nothing of the user's has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile
from subclass_aot.errors import DataDependentError, InnerTensorError, MutationError, ShapeRuleError, SubclassAotError
from subclass_aot.testing import dense_leaves, difference


class Model(nn.Module):
    """Has one of everything that a failed trace could damage."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.program = forward
        self.weight = nn.Parameter(TwoTensor(torch.randn(3, 3), torch.randn(3, 3)))
        self.frozen = nn.Parameter(Int8Weight.from_float(torch.randn(3, 3)), requires_grad=False)
        self.register_buffer("steps", torch.zeros(3))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        self.steps.add_(1)
        return self.program(self, x)


def reassigns_parameter(m: Any, x: Any) -> Any:
    m.weight = nn.Parameter(torch.ones(3, 3))
    return x * 2


def reassigns_inner(m: Any, x: Any) -> Any:
    m.frozen.scale = m.frozen.scale * 2
    return x @ m.frozen


def switches_grad(m: Any, x: Any) -> Any:
    m.weight.requires_grad_(False)
    return (x @ m.weight).sum()


def reads_value(m: Any, x: Any) -> Any:
    return x * x.sum().item()  # the value


def branches(m: Any, x: Any) -> Any:
    return x if x.sum() > 0 else -x  # the branch


def selects(m: Any, x: Any) -> Any:
    return x[x > 0]  # the mask


def reads_list(m: Any, x: Any) -> Any:
    return x * x[0].tolist()[0]  # the list


def unknown_operator(m: Any, x: Any) -> Any:
    return torch.ops.sa_errors_test.strange(x)  # the operator


def raises(m: Any, x: Any) -> Any:
    x.mul_(2)
    raise ZeroDivisionError("of the user's own")


def wrong_shape(m: Any, x: Any) -> Any:
    return x @ torch.ones(7, 2)


@pytest.fixture(scope="module", autouse=True)
def _library() -> Iterator[None]:
    with torch.library._scoped_library("sa_errors_test", "DEF") as lib:
        lib.define("strange(Tensor x) -> Tensor")
        lib.impl("strange", lambda x: x.repeat(2), "CPU")
        yield


PROGRAMS: dict[Callable[..., Any], tuple[type[Exception], str]] = {
    reassigns_parameter: (MutationError, "self.weight: the function assigns another parameter here"),
    reassigns_inner: (MutationError, "self.frozen.scale: the function put another tensor into this attribute"),
    switches_grad: (MutationError, "self.weight: the function sets requires_grad of this input to False"),
    reads_value: (DataDependentError, r"aten._local_scalar_dense.* asks for values.*\n  Your line: .*# the value"),
    branches: (DataDependentError, r"asks for values.*\n  Your line: .*# the branch"),
    selects: (DataDependentError, r"aten.* asks for values.*\n  Your line: .*# the mask"),
    reads_list: (DataDependentError, r"(values of a tensor|asks for values).*\n  Your line: .*# the list"),
    unknown_operator: (ShapeRuleError, r"sa_errors_test.strange.default has no rule(.|\n)*# the operator"),
    raises: (ZeroDivisionError, "of the user's own"),
    wrong_shape: (RuntimeError, "reduction dim"),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("grad", [True, False])
def test_after_an_error_everything_is_as_before(program: Callable[..., Any], grad: bool) -> None:
    kind, message = PROGRAMS[program]
    model, x = Model(program), torch.randn(5, 3, requires_grad=grad)
    owned = [x, *model.parameters(), *model.buffers()]
    leaves = [leaf for t in owned for leaf in dense_leaves(t)]
    before = [leaf.detach().clone() for leaf in leaves]
    facts = [(type(t), t.requires_grad, t.is_leaf, t._version, t.grad) for t in owned]
    compiled = aot_compile(model, values="refuse")
    for _ in range(2):
        with pytest.raises(kind, match=message) as caught:
            compiled(x if grad else x.detach())
        if isinstance(caught.value, SubclassAotError) and "Your line" in str(caught.value):
            assert f"{__file__}:" in str(caught.value)
    assert all(a is b for a, b in zip(owned, [x, *model.parameters(), *model.buffers()], strict=True))
    assert all(a is b for a, b in zip(leaves, [y for t in owned for y in dense_leaves(t)], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(leaves, before, strict=True))
    assert facts == [(type(t), t.requires_grad, t.is_leaf, t._version, t.grad) for t in owned]
    assert compiled.recompiles == [] and "nothing was compiled yet" in compiled.explain()


def test_the_same_module_works_after_an_error() -> None:
    model, x = Model(reads_value), torch.randn(5, 3)
    compiled = aot_compile(model, values="refuse")
    with pytest.raises(DataDependentError):
        compiled(x)
    model.program = lambda m, x: x * 2
    got = compiled(x)
    steps, mean = model.steps.clone(), model.norm.running_mean.clone()
    model.norm.reset_running_stats()
    model.steps.zero_()
    assert not difference(model(x), got)
    assert torch.equal(steps, model.steps) and torch.allclose(mean, model.norm.running_mean)


def test_an_error_in_a_later_signature_leaves_the_first_one_usable() -> None:
    compiled = aot_compile(lambda x: x * 2 if x.dim() == 1 else x * x.sum().item(), values="refuse")
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(DataDependentError):
        compiled(torch.ones(2, 2))
    assert compiled(torch.ones(2)).tolist() == [2, 2] and compiled.recompiles == []


def test_inner_tensors_that_want_a_gradient() -> None:
    x = TwoTensor(torch.ones(2), TwoTensor(torch.ones(2), torch.ones(2)))
    x.b.a.requires_grad_()
    with pytest.raises(InnerTensorError, match=r"kwargs\['xs'\]\[1\]\.b\.a: this inner tensor of a TwoTensor req"):
        aot_compile(lambda xs: xs[1] * 2)(xs=[1, x])
    layer = nn.Linear(3, 2)
    layer.weight = nn.Parameter(TwoTensor(torch.ones(2, 3), torch.ones(2, 3)))
    layer.weight.a.requires_grad_()
    with pytest.raises(InnerTensorError, match=r"self\.weight\.a: this inner tensor"):
        aot_compile(layer)(torch.ones(1, 3))


def test_momentum_that_depends_on_a_count_names_the_users_line() -> None:
    norm = nn.BatchNorm1d(3, momentum=None)
    with pytest.raises(DataDependentError, match="aten._local_scalar_dense.default asks for values"):
        aot_compile(norm, values="refuse")(torch.randn(4, 3))
    assert norm.num_batches_tracked == 0

"""Masked tensors against `torch.masked`, and against dense ones where the mask is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import MaskedTensor
from subclass_aot.errors import OperatorRuleError
from subclass_aot.testing import check_compiled
from tests.kit.wrapper.test_serialize import through_torch
from tests.tensors.checks import COMPILERS, same, verdicts


def masked(seed: int = 0, *size: int) -> MaskedTensor:
    generator = torch.Generator().manual_seed(seed)
    size = size or (4, 6)
    return MaskedTensor(torch.randn(size, generator=generator), torch.rand(size, generator=generator) > 0.3)


def with_nan(x: Any) -> torch.Tensor:
    """What does not count is nan, which no dense operator lets out of its place."""
    plain = x.to_plain().where(x.mask, float("nan")) if isinstance(x, MaskedTensor) else x
    return plain  # type: ignore[no-any-return]


EXPECTED = {
    **{(27, f"x.{name}"): "what does not count is left out" for name in ("sum(0)", "sum(-1)", "sum() * 2", "mean()")},
    **{
        (n, f"x.softmax(-1){where}"): "what does not count is left out"
        for n, where in ((27, ""), (25, " in inference mode"))
    },
    **{(27, name): "a comparison with nan is no nan" for name in ("where", "x > 0", "other forms")},
    (25, "where in inference mode"): "a comparison with nan is no nan",
    (23, "dense.copy_(x)"): "a dense tensor takes zero for what does not count",
    **{
        (23, name): "what is written keeps the mask"
        for name in (
            *("x.zero_()", "x.fill_(0.5)", "x.zero_() in inference mode", "x.fill_(0.5) in inference mode"),
            *("write to one row", "write to some columns", "write to a transposed view"),
        )
    },
    (24, "new_zeros"): "a new tensor has the mask",
    (26, "random"): "nan is no random number",
    (27, "drawn calls"): "what does not count is left out, and a comparison with nan is no nan",
    (28, "unused input"): "zeros of a gradient have the structure",
}

_PRODUCTS = ("x @ x.T", "x @ dense", "dense @ x", "linear", "linear with bias")
_OPERANDS = ("linear", "linear with bias", "bias", "x @ y", "y @ x", "embedding of a product")

NOT_OFFERED = {
    *[(23, f"x.copy_(dense){where}") for where in ("", " in inference mode")],  # of which mask would it be?
    *[(24, "empty_like"), (38, "load_state_dict of dense")],  # nor these
    *[(22, "x.diagonal()"), (22, "x.unfold(0, 2, 1)")],
    *[(25, f"{name} in inference mode") for name in (*_PRODUCTS, "x[index]")],
    *[(27, name) for name in (*_PRODUCTS, "x.max(-1)", "cat", "cat with dense", "stack", "x[index]", "equal")],
    *[(32, f"other operand of {name}") for name in _OPERANDS],
    (32, "gradient of linear"),
    *[(40, f"{name}=True)") for name in ("SGD(foreach", "AdamW(foreach", "AdamW(fused")],
    *[(40, "clip_grad_norm_"), (41, "autocast"), (42, "export"), (32, "torch.compile: unused result")],
}


def test_contract() -> None:
    assert verdicts(lambda: masked(), EXPECTED, [with_nan]) == NOT_OFFERED


def assert_masked(actual: Any, content: torch.Tensor, mask: torch.Tensor) -> None:
    assert type(actual) is MaskedTensor and actual.mask.equal(mask)
    torch.testing.assert_close(actual.content[mask], content[mask])


def test_pointwise() -> None:
    x, y = masked(), masked(1)
    assert_masked(x.sin() * 2 + y, x.content.sin() * 2 + y.content, x.mask & y.mask)
    assert_masked(x > 1, x.content > 1, x.mask)
    assert_masked(torch.where(x > 1, x, 0.0), x.content.where(x.content > 1, 0.0), x.mask)
    assert_masked(x * torch.ones(2, 4, 6), x.content.expand(2, 4, 6), x.mask.expand(2, 4, 6))
    assert_masked(x.to(torch.float64), x.content.double(), x.mask)
    assert_masked(x.to(torch.int64), x.content.long(), x.mask)
    assert (x * 1).mask is not x.mask and x.to(torch.int64).mask.data_ptr() != x.mask.data_ptr()


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "softmax"])
@pytest.mark.parametrize("args", [(), (1,), (0, True)], ids=str)
@pytest.mark.parametrize("hidden", [0.0, float("nan"), float("inf")])
def test_reductions_are_those_of_torch_masked(name: str, args: Any, hidden: float) -> None:
    x = masked()
    x.mask[:, 2] = x.mask[1] = False
    x.content[~x.mask] = hidden
    if name == "softmax":
        args = args[:1] or (0,)
        assert_masked(x.softmax(*args), torch.masked.softmax(x.content, *args, mask=x.mask), x.mask)
        return
    dims = {} if not args else {"dim": args[0], "keepdim": len(args) > 1}
    expected = getattr(torch.masked, name)(x.content, mask=x.mask, **dims)
    assert_masked(getattr(x, name)(*args), expected, x.mask.any(*args) if args else x.mask.any())


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool, torch.float64])
def test_reductions_of_other_dtypes(dtype: torch.dtype) -> None:
    x = MaskedTensor(torch.tensor([[3, 1, 2], [0, 0, 4]]).to(dtype), torch.tensor([[True, True, False], [False] * 3]))
    first = x.content[0, :2]
    for name in ("amax", "amin", "any", "all", "sum", "count_nonzero"):
        result = getattr(x, name)(1)
        expected = getattr(first, name)(0)
        assert (
            result.dtype == expected.dtype and result.content[0] == expected and result.mask.tolist() == [True, False]
        )


LOSSES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(1).sum(),
    "square": lambda x: (x * x).sum(),
    "softmax": lambda x: (x.softmax(1) * x).mean(),
    "amax": lambda x: x.amax(1).sum(),
    "view": lambda x: (x.t().exp() + x.t()).mean(0).sum(),
}

DENSE_LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": lambda x, mask: x[mask].sum(),
    "mean": lambda x, mask: torch.masked.mean(x, 1, mask=mask).sum(),
    "square": lambda x, mask: x[mask].square().sum(),
    "softmax": lambda x, mask: (torch.masked.softmax(x, 1, mask=mask) * x)[mask].mean(),
    "amax": lambda x, mask: torch.masked.amax(x, 1, mask=mask).sum(),
    "view": lambda x, mask: torch.masked.mean(x.t().exp() + x.t(), 0, mask=mask.t()).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_what_counts(name: str) -> None:
    x = masked().requires_grad_()
    dense = x.content.clone().requires_grad_()
    (got,) = torch.autograd.grad(LOSSES[name](x).to_plain(), x)
    (want,) = torch.autograd.grad(DENSE_LOSSES[name](dense, x.mask), dense)
    assert type(got) is MaskedTensor and not (got.mask & ~x.mask).any()
    torch.testing.assert_close(got.to_plain(), want)
    check_compiled(LOSSES[name], [masked().requires_grad_()])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_inductor() -> None:
    x = masked().requires_grad_()
    compiled = sa.aot_compile(LOSSES["softmax"], fw_compiler="inductor")
    got, want = (torch.autograd.grad(loss(x).to_plain(), x)[0] for loss in (compiled, LOSSES["softmax"]))
    torch.testing.assert_close(got.to_plain(), want.to_plain())


@pytest.mark.parametrize("compiler", ["eager", "aot_compile"])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_it_trains_as_dense_where_the_mask_is(name: str, compiler: str) -> None:
    x = masked()
    parameter, dense, mask = torch.nn.Parameter(masked()), torch.nn.Parameter(x.content.clone()), x.mask
    make: Any = {
        "SGD": lambda p: torch.optim.SGD([p], 0.1, momentum=0.9),
        "AdamW": lambda p: torch.optim.AdamW([p], 0.1),
    }
    optimizers = [make[name](p) for p in (parameter, dense)]
    run = COMPILERS[compiler](LOSSES["square"])
    for _ in range(3):
        run(parameter).to_plain().backward()
        DENSE_LOSSES["square"](dense, mask).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert_masked(parameter.detach(), dense.detach(), mask)


def test_what_another_tensor_hides_is_hidden_in_the_gradient_and_by_a_step() -> None:
    """As with nan: what is not known of a gradient is not known of what it was added to."""
    p, y = torch.nn.Parameter(masked()), masked(1)
    (p * y).sum().to_plain().backward()
    assert_masked(p.grad, y.content, p.mask & y.mask)
    torch.optim.SGD([p], 0.1).step()
    assert_masked(p.detach(), masked().content - 0.1 * y.content, masked().mask & y.mask)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.median(), lambda x: x.argmax(1), lambda x: x.std(), lambda x: x @ x.t(), lambda x: torch.mean(x),
        lambda x: torch.cat([x, x]), lambda x: x.copy_(torch.ones(4, 6)), lambda x: bool(x.sum() > 0),
        lambda x: x.norm(), lambda x: torch.sum(x.requires_grad_()),
        lambda x: x.requires_grad_()[1:].sum().to_plain().backward(),
        lambda x: x.requires_grad_().prod(1).sum().to_plain().backward(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compiler", ["eager", "aot_compile"])
def test_what_is_not_said_is_refused(compiler: str, program: Callable[[Any], Any]) -> None:
    with pytest.raises(OperatorRuleError, match=r"No rule for aten\.\w+\.\w+ on MaskedTensor"):
        COMPILERS[compiler](program)(masked())


def test_saving(tmp_path: Path) -> None:
    same(through_torch(masked()), masked())
    sa.files.save_file({"x": masked()}, tmp_path / "x.safetensors")
    same(sa.files.load_file(tmp_path / "x.safetensors")["x"], masked())

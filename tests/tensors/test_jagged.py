"""Jagged tensors against lists of their rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot import Jagged
from subclass_aot.errors import OperatorRuleError
from subclass_aot.tensors.jagged import padded
from subclass_aot.testing import check_compiled
from tests.kit.wrapper.test_serialize import through_torch
from tests.tensors.checks import COMPILERS, EACH_COMPILER, same, verdicts

LENGTHS = (2, 3, 0, 1)


def jagged(seed: int = 0, lengths: tuple[int, ...] = LENGTHS) -> Jagged:
    generator = torch.Generator().manual_seed(seed)
    return Jagged.of(*(torch.randn(n, 4, generator=generator) for n in lengths))


def rows_of(x: Jagged) -> list[torch.Tensor]:
    return list(x.flat.split(x.lengths().tolist()))


def with_nan(x: Any) -> torch.Tensor:
    """Padding is nan, which no dense operator lets out of its place."""
    if not isinstance(x, Jagged):
        return x  # type: ignore[no-any-return]
    plain = x.to_plain()
    return plain.where(padded(x, 1) == plain, float("nan"))


EXPECTED = {
    **{(27, f"x.{name}"): "padding is left out" for name in ("sum(0)", "sum(-1)", "sum() * 2")},
    **{(27, name): "a comparison with nan is no nan" for name in ("where", "x > 0")},
    (27, "drawn calls"): "padding is left out, and a comparison with nan is no nan",
    **{
        (23, f"x.{op}{where}"): "padding is not written"
        for op in ("zero_()", "fill_(0.5)")
        for where in ("", " in inference mode")
    },
    (23, "dense.copy_(x)"): "padding is read, as nan",
    (25, "where in inference mode"): "a comparison with nan is no nan",
    (27, "other forms"): "padding is left out, and a comparison with nan is no nan",
    (26, "random"): "nan is no random number",
    (28, "unused input"): "zeros of a gradient have the structure",
}

NOT_OFFERED = {
    *[(32, f"{compiler}: unused result") for compiler in ("aot_compile", "torch.compile")],
    *[
        (22, f"x.{view}")
        for view in (
            "transpose(0, -1)",
            "mT",
            "permute(...)",
            "movedim(0, -1)",
            "unsqueeze(0)",
            "unsqueeze(-1)",
            "squeeze()",
            "view(-1)",
            "flatten()",
            "unflatten(0, ...)",
            "expand(2, ...)",
            "unfold(0, 2, 1)",
            "diagonal()",
            "split(1)",
            "split(2, -1)",
            "split([1, ...])",
            "tensor_split(3)",
            "chunk(2)",
            "chunk(2, -1)",
            "unbind(0)",
            "unbind(-1)",
            "narrow(0, 0, 1)",
            "narrow(-1, 1, 2)",
            "select(-1, -1)",
        )
    ],
    *[
        (22, f"x[{index}]")
        for index in (
            ":1",
            "1:-1",
            "-2:",
            "100:",
            "::2",
            "1::2",
            "..., 1:",
            "..., :half",
            "..., ::2",
            "..., -3:-1",
            "0",
            "-1",
        )
    ],
    (22, "x[:1].squeeze(0)"),
    *[(23, f"write to {what}") for what in ("one row", "some columns", "some columns, larger", "one element")],
    *[(23, f"write to a {what} view") for what in ("transposed", "flat")],
    *[(23, f"x.copy_(dense){where}") for where in ("", " in inference mode")],
    *[
        (25, f"{name} in inference mode")
        for name in ("x @ x.T", "x @ dense", "dense @ x", "x.reshape(-1)", "x.softmax(-1)", "x[index]")
    ],
    *[(32, f"other operand of {product}") for product in ("x @ y", "y @ x")],
    *[(24, "empty_like"), (24, "new_zeros"), (38, "load_state_dict of dense")],
    *[(27, f"x.{name}") for name in ("mean()", "max(-1)", "softmax(-1)", "reshape(-1)")],
    *[(27, name) for name in ("x @ x.T", "x @ dense", "dense @ x", "cat", "cat with dense", "stack", "x[index]")],
    *[(27, "clone of a view"), (27, "equal")],
    *[(40, f"{name}=True)") for name in ("SGD(foreach", "AdamW(foreach", "AdamW(fused")],
    *[(40, "clip_grad_norm_")],
}


@pytest.mark.long
def test_contract() -> None:
    assert verdicts(lambda: jagged(lengths=(2, 3, 1)), EXPECTED, [with_nan]) == NOT_OFFERED


def test_it_looks_padded() -> None:
    x = jagged()
    assert (x.shape, x.longest, x.lengths().tolist()) == ((4, 3, 4), 3, list(LENGTHS))
    assert x.to_plain().equal(nn.utils.rnn.pad_sequence(rows_of(x), batch_first=True))
    assert [tuple(places.tolist()) for places in x.places()] == [(0, 0, 1, 1, 1, 3), (0, 1, 0, 1, 2, 0)]
    assert Jagged.of(torch.ones(2), torch.ones(1)).shape == (2, 2)


def test_pointwise_is_that_of_the_rows() -> None:
    x, y = jagged(), jagged(1)
    bias, per_row = torch.randn(4), torch.randn(4, 1, 1)
    for result, expected in (
        (x.exp() * y - 1, [a.exp() * b - 1 for a, b in zip(rows_of(x), rows_of(y), strict=True)]),
        (x + bias, [row + bias for row in rows_of(x)]),
        (per_row * x, [row * one for row, one in zip(rows_of(x), per_row[:, 0], strict=True)]),
        (torch.where(x > 0, x, 0.0), [row.relu() for row in rows_of(x)]),
        (x.to(torch.float64), [row.double() for row in rows_of(x)]),
        (x.mul_(2).add_(y), [2 * a + b for a, b in zip(rows_of(jagged()), rows_of(y), strict=True)]),
    ):
        assert type(result) is Jagged and result.lengths().tolist() == list(LENGTHS)
        torch.testing.assert_close(rows_of(result), expected)
    assert (x * 1).offsets.data_ptr() != x.offsets.data_ptr()


@pytest.mark.parametrize("name", ["sum", "amax", "amin", "prod"])
def test_reductions_leave_padding_out(name: str) -> None:
    x = jagged(lengths=(2, 3, 1)) - 5.0 * (name == "amax") + 5.0 * (name == "amin")
    expected = torch.stack([getattr(row, name)(0) for row in rows_of(x)])
    torch.testing.assert_close(getattr(x, name)(1), expected)
    torch.testing.assert_close(getattr(x, name)(1, True), expected[:, None])
    everything = getattr(x, name)() if name != "prod" else torch.prod(x)
    torch.testing.assert_close(everything, getattr(x.flat, name)())


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_rows_of_other_lengths_do_not_mix(compiler: str) -> None:
    """Of one size outside, and of as many elements: what is wrong here would be wrong in silence."""
    x, y = jagged(lengths=(2, 3, 1)), jagged(lengths=(3, 2, 1))
    assert x.shape == y.shape and x.flat.shape == y.flat.shape
    program = COMPILERS[compiler](lambda x, y: (x * y).to_plain())
    torch.testing.assert_close(program(x, x + 1), (x * (x + 1)).to_plain())
    with pytest.raises(RuntimeError, match="rows of two Jagged are of different lengths"):
        program(x, y)
    with pytest.raises((OperatorRuleError, RuntimeError)):
        program(x, jagged(lengths=(2, 3)))


LOSSES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: (x.exp() * x).sum(1).square().sum(),
    "mean of rows": lambda x: (x.sum(1) / x.lengths().clamp(min=1)[:, None]).square().sum(),
    "amax": lambda x: x.amax(1).clamp(min=-9).sum(),
    "map": lambda x: (x.map(lambda flat: flat.softmax(-1)) * x).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_the_rows(name: str) -> None:
    dense: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "sum": lambda row: row.sum(),
        "sum of rows": lambda row: (row.exp() * row).sum(0).square().sum(),
        "mean of rows": lambda row: (row.sum(0) / max(len(row), 1)).square().sum(),
        "amax": lambda row: row.amax(0).sum() if len(row) else row.sum() - 36,
        "map": lambda row: (row.softmax(-1) * row).sum(),
    }
    x = jagged().requires_grad_()
    flat = x.flat.clone().requires_grad_()
    want = sum(dense[name](row) for row in flat.split(list(LENGTHS)))
    got = LOSSES[name](x)
    torch.testing.assert_close(got, want)
    (gradient,) = torch.autograd.grad(got, x)
    assert type(gradient) is Jagged and gradient.offsets.equal(x.offsets)
    torch.testing.assert_close(gradient.flat, torch.autograd.grad(want, flat)[0])
    check_compiled(LOSSES[name], [jagged().requires_grad_()])


@pytest.mark.parametrize("compiler", EACH_COMPILER)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_a_layer_is_trained_on_rows(compiler: str) -> None:
    layers = [nn.Linear(4, 2), nn.Linear(4, 2)]
    layers[1].load_state_dict(layers[0].state_dict())
    x, flat = jagged().requires_grad_(), jagged().flat.requires_grad_()

    def loss(x: Any) -> torch.Tensor:
        return x.map(layers[0]).tanh().sum(1).square().mean()  # type: ignore[no-any-return]

    compiled = COMPILERS[compiler](loss)
    for _ in range(2):
        compiled(x).backward()
        torch.stack([layers[1](row).tanh().sum(0) for row in flat.split(list(LENGTHS))]).square().mean().backward()
        torch.testing.assert_close(x.grad.flat, flat.grad)
        torch.testing.assert_close(layers[0].weight.grad, layers[1].weight.grad)


@pytest.mark.parametrize("compiler", ["eager", "aot_compile"])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_it_trains_as_dense_rows(name: str, compiler: str) -> None:
    parameter, dense = nn.Parameter(jagged()), nn.Parameter(jagged().flat)
    make: Any = {
        "SGD": lambda p: torch.optim.SGD([p], 0.1, momentum=0.9),
        "AdamW": lambda p: torch.optim.AdamW([p], 0.1),
    }
    optimizers = [make[name](p) for p in (parameter, dense)]
    run = COMPILERS[compiler](lambda p: (p * p).sum())
    for _ in range(3):
        run(parameter).backward()
        dense.square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(parameter.flat, dense.detach())
    assert parameter.offsets.equal(jagged().offsets)


def test_other_lengths_are_served_by_one_compilation() -> None:
    compiled = sa.aot_compile(lambda x: (x * 2).sum(1), dynamic=True)
    for lengths in ((2, 3, 2), (4, 5, 6), (1, 7, 3)):
        x = jagged(lengths=lengths)
        torch.testing.assert_close(compiled(x), (x * 2).sum(1))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.mean(), lambda x: x.softmax(1), lambda x: x[:1], lambda x: x.view(-1), lambda x: x.median(),
        lambda x: x @ torch.ones(4, 2), lambda x: x.copy_(torch.ones(4, 3, 4)), lambda x: x.norm(),
        lambda x: x.amax(2).exp(), lambda x: torch.sum(x.requires_grad_()), lambda x: x.new_zeros(3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compiler", ["eager", "aot_compile"])
def test_what_is_not_said_is_refused(compiler: str, program: Callable[[Any], Any]) -> None:
    with pytest.raises(OperatorRuleError, match=r"No rule for aten\.\w+\.\w+ on Jagged"):
        COMPILERS[compiler](program)(jagged())


def test_saving(tmp_path: Path) -> None:
    same(through_torch(jagged()), jagged())
    sa.files.save_file({"x": jagged()}, tmp_path / "x.safetensors")
    same(sa.files.load_file(tmp_path / "x.safetensors")["x"], jagged())

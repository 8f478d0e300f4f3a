"""What is asked of every ready-made class."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from subclass_aot import aot_compile, files
from subclass_aot.testing import check_subclass

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda function: function,
    "aot_compile": lambda function: aot_compile(function, fw_compiler="eager"),
    "inductor": lambda function: aot_compile(function, fw_compiler="inductor"),
}

EACH_COMPILER = [pytest.param(name, marks=[pytest.mark.long] if name == "inductor" else []) for name in COMPILERS]

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def verdicts(
    make: Callable[[], Any],
    expected: Mapping[tuple[int, str], str] | None = None,
    readings: Sequence[Any] | None = None,
) -> set[tuple[int, str]]:
    """The clauses that the class does not offer. None may be broken but for those that are expected.

    Those of two processes (43) are in `test_two_processes.py`.
    """
    report = check_subclass(make, readings, only=[number for number in range(1, 46) if number != 43], expected=expected)
    report.raise_if_broken()
    return {(finding.clause.number, finding.clause.name) for finding in report.not_offered}


def rows(dtype: torch.dtype = torch.float32, columns: int = 64) -> dict[str, torch.Tensor]:
    """Weights with rows of all kinds."""
    torch.manual_seed(0)
    ordinary = torch.randn(8, columns, dtype=torch.float64)
    steps = torch.arange(8)[:, None]
    return {
        "ordinary": ordinary.to(dtype),
        "zero": torch.zeros(4, columns, dtype=dtype),
        "tiny and huge": (ordinary * 10.0 ** (steps - 4)).to(dtype),
        "smallest": torch.full((2, columns), torch.finfo(dtype).smallest_normal, dtype=dtype) * ordinary[:2].to(dtype),
        "largest": (ordinary / 9 * torch.finfo(dtype).max).to(dtype),
        "positive": (ordinary.abs() + 3).to(dtype),
        "one value": torch.full((2, columns), -0.7, dtype=dtype),
        "outlier": ordinary.index_fill(1, torch.tensor([5]), 1e3).to(dtype),
    }


def same(got: Any, expected: Any) -> None:
    """Equal down to the bits of the leaves."""
    assert type(got) is type(expected)
    if not hasattr(expected, "__tensor_flatten__"):
        assert got.dtype == expected.dtype and got.stride() == expected.stride()
        assert got.view(torch.uint8).equal(expected.view(torch.uint8))
        return
    assert got.__tensor_flatten__() == expected.__tensor_flatten__()
    for name in expected.__tensor_flatten__()[0]:
        same(getattr(got, name), getattr(expected, name))


def check_linear(weight: Any, compiler: str, trained: bool = False) -> None:
    """Products with the weight are those with what it stands for, and so are gradients."""
    torch.manual_seed(1)
    out, into = weight.shape
    bias = torch.randn(out, dtype=weight.dtype)
    compiled = COMPILERS[compiler](lambda x, w, b: F.gelu(F.linear(x, w, b)).square().mean())
    for size in ((3, into), (2, 5, into)):
        found = []
        for run, w in (
            (compiled, weight),
            (lambda x, w, b: F.gelu(F.linear(x, w, b)).square().mean(), weight.to_plain()),
        ):
            torch.manual_seed(2)
            x = torch.randn(size, dtype=weight.dtype, requires_grad=True)
            w, b = w.detach().requires_grad_(trained), bias.clone().requires_grad_()
            loss = run(x, w, b)
            loss.backward()
            gradient = w.grad.to_plain() if hasattr(w.grad, "to_plain") else w.grad
            found.append((loss.detach(), x.grad, b.grad, gradient))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    x = torch.randn(3, into, dtype=weight.dtype)
    product = COMPILERS[compiler](F.linear)
    with torch.inference_mode():
        torch.testing.assert_close(product(x, weight), F.linear(x, weight.to_plain()), rtol=1e-4, atol=1e-5)


def layer(weight: Any) -> nn.Linear:
    """A layer that has the weight, frozen."""
    made = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    made.weight = nn.Parameter(weight, requires_grad=False)
    return made


def check_saving(weight: Any, other: Any, folder: Path) -> None:
    """Whatever it is saved by, what comes back has the same bits; `other` is another weight of that size."""
    same(copy.deepcopy(weight), weight)
    same(pickle.loads(pickle.dumps(weight)), weight)
    state = io.BytesIO()
    torch.save(layer(weight).state_dict(), state)
    for assign in (False, True):
        state.seek(0)
        target = layer(copy.deepcopy(other))
        target.load_state_dict(torch.load(state, weights_only=True), assign=assign)
        same(target.weight.detach() if assign else target.weight.data, weight)
    files.save_file(layer(weight), folder / "model.safetensors")
    found = files.load_file(folder / "model.safetensors")["weight"]
    same(found, weight)

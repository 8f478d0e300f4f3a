"""Functions of TorchScript that write memory, in a program that is traced."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import TraceError


def scripted(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)  # type: ignore[no-untyped-call]


@scripted
def of_a_list(x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return x * torch.tensor(sizes) + torch.as_tensor(sizes, dtype=x.dtype)


@scripted
def of_lists(x: torch.Tensor, rows: list[list[float]]) -> torch.Tensor:
    return x @ torch.tensor(rows)


@scripted
def calls_another(x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return of_a_list(x, sizes) * 2 if x.dim() > 0 else x


@scripted
def forks(x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    futures = [torch.jit.fork(of_a_list, x + i, sizes) for i in range(2)]
    return torch.stack([torch.jit.wait(future) for future in futures])


@scripted
def plain(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(3) + torch.tensor([1.0, 2.0])


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return of_a_list(gradient, [3, 4])


PROGRAMS = {
    "a list": lambda x: of_a_list(x, [1, 2]),
    "lists": lambda x: of_lists(x, [[1.0, 2.0], [3.0, 4.0]]),
    "in another one": lambda x: calls_another(x, [1, 2]),
    "forks": lambda x: forks(x, [1, 2]),
    "forks in python": lambda x: torch.jit.wait(torch.jit.fork(of_a_list, x, [1, 2])),  # type: ignore[no-untyped-call]
    "constants": plain,
    "in backward": lambda x: InBackward.apply(x) * 1,
}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str) -> None:
    program: Any = PROGRAMS[name]
    compiled = sa.aot_compile(program)
    for rows in (2, 3, 5):
        x, y = (torch.arange(2.0 * rows).view(rows, 2).requires_grad_() for _ in range(2))
        one, other = compiled(x), program(y)
        torch.testing.assert_close(one, other)
        one.sum().backward()
        other.sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


class Method(torch.nn.Module):
    def forward(self, x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        return x * torch.tensor(sizes)


HIDDEN: dict[str, Any] = {}


def test_a_method_is_refused_by_name() -> None:
    HIDDEN["method"] = scripted(Method())
    x = torch.ones(2)
    with pytest.raises(TraceError, match=r"forward is a function of TorchScript(.|\n)*torch.tensor"):
        sa.aot_compile(lambda x: getattr(sys.modules[__name__], "HIDDEN")["method"](x, [1, 2]))(x)  # noqa: B009
    assert HIDDEN["method"](x, [1, 2]).tolist() == [1, 2] and of_a_list(x, [1, 2]).tolist() == [2, 4]


def test_a_method_of_a_class_in_cpp_has_no_graph() -> None:
    group = torch.distributed.HashStore()  # type: ignore[no-untyped-call]
    torch.distributed.init_process_group("gloo", store=group, rank=0, world_size=1)
    try:

        def step(x: torch.Tensor) -> torch.Tensor:
            total = x * 2
            work = torch.distributed.all_reduce(total, async_op=True)
            assert work is not None
            work.wait()
            return total

        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            assert sa.aot_compile(step)(torch.ones(2, 3)).tolist() == [[2.0] * 3] * 2
    finally:
        torch.distributed.destroy_process_group()

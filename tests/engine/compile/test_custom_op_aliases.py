"""Custom operators that return an argument, or a view of one, and whose schemas say that the result is new."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._functorch.config

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.base._torch.custom_op_aliases import returns_new_tensors

LIBRARY = torch.library.Library("test_custom_op_aliases", "FRAGMENT")


def _define(schema: str, kernel: Any, fake: Any = None) -> Any:
    LIBRARY.define(schema)
    name = schema.partition("(")[0]
    LIBRARY.impl(name, kernel, "CPU")
    LIBRARY.impl(name, fake or kernel, "Meta")
    return getattr(torch.ops.test_custom_op_aliases, name)


def _twice(x: Any) -> Any:
    y = x.clone()
    return y, y.view(-1)


VIEW = _define("view_of(Tensor x) -> Tensor", lambda x: x.view_as(x))
ITSELF = _define("itself(Tensor x) -> Tensor", lambda x: x)
KERNEL_ONLY = _define("by_kernel(Tensor x) -> Tensor", lambda x: x[:], torch.empty_like)
ONE_OF_TWO = _define("one_of_two(Tensor x) -> (Tensor, Tensor)", lambda x: (x.clone(), x[:1]))
EACH_OTHER = _define("each_other(Tensor x) -> (Tensor, Tensor)", _twice)
LISTED = _define("listed(Tensor[] xs) -> Tensor[]", lambda xs: [xs[0] * 2, xs[1]])
NEW = _define("new(Tensor x) -> Tensor", lambda x: x.clone())
DECLARED = _define("declared(Tensor(a) x) -> Tensor(a)", lambda x: x.view_as(x))

ALIASES = {
    "a view": VIEW,
    "the argument": ITSELF,
    "what only the kernel does": KERNEL_ONLY,
    "one of several": lambda x: ONE_OF_TWO(x)[1],
    "one that nobody reads": lambda x: ONE_OF_TWO(x)[0],
    "each other": lambda x: EACH_OTHER(x)[0],
    "one of a list": lambda x: LISTED([x.clone(), x])[1],
}


def function_of(op: Any) -> Any:
    def function(x: Any) -> Any:
        y = op(x)
        x.mul_(2)
        return y + 1

    return function


def doors(function: Any) -> list[Any]:
    torch.compiler.reset()
    return [aot_compile(function), torch.compile(function, backend="subclass_aot")]


@pytest.fixture(autouse=True)
def a_warning() -> Iterator[None]:
    """Sets what torch sets, but where the environment has `CI`: there it raises."""
    with torch._functorch.config.patch(error_on_custom_op_aliasing=False):
        yield


@pytest.mark.parametrize("name", ALIASES)
def test_the_first_run_warns(name: str) -> None:
    for compiled in doors(function_of(ALIASES[name])):
        with pytest.warns(UserWarning, match="may not alias any inputs .* will become an error") as found:
            compiled(torch.ones(2))
        assert found[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(torch.ones(2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_behind_inductor() -> None:
    compiled = aot_compile(function_of(VIEW), fw_compiler="inductor")
    with pytest.warns(UserWarning, match="may not alias any inputs") as found:
        compiled(torch.ones(2))
    assert found[-1].filename == __file__


def test_in_backward_and_on_wrappers() -> None:
    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return VIEW(gradients[0]) * 2

    y = aot_compile(Formula.apply)(torch.ones(2, requires_grad=True))
    with pytest.warns(UserWarning, match="may not alias"):
        y.sum().backward()
    with pytest.warns(UserWarning, match="may not alias"):
        aot_compile(function_of(VIEW))(TwoTensor(torch.ones(2), torch.ones(2)))


def test_by_setting_it_is_an_error_and_nothing_is_written() -> None:
    with torch._functorch.config.patch(error_on_custom_op_aliasing=True):
        compiled = aot_compile(function_of(VIEW))
        for _ in range(2):
            x = torch.ones(2)
            with pytest.raises(RuntimeError, match="may not alias any inputs"):
                compiled(x)
            assert x.tolist() == [1, 1]


def test_by_setting_nothing_is_compared() -> None:
    with torch._functorch.config.patch(check_custom_op_aliasing=False), warnings.catch_warnings():
        warnings.simplefilter("error")
        aot_compile(function_of(VIEW))(torch.ones(2))


def test_others_are_as_in_eager_mode() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for compiled in doors(function_of(NEW)):
            assert compiled(torch.ones(2)).tolist() == function_of(NEW)(torch.ones(2)).tolist()


def test_which_are_compared() -> None:
    assert returns_new_tensors(VIEW.default) and returns_new_tensors(NEW.default)
    for func in (DECLARED.default, torch.ops.aten.mul.Tensor, torch.cond, max):
        assert not returns_new_tensors(func)


_IN_A_NEW_PROCESS = """
import sys
import torch
import subclass_aot as sa

@torch.library.custom_op("new_process::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

double.register_fake(torch.empty_like)
assert "torch._functorch.config" not in sys.modules
assert sa.aot_compile(torch.ops.new_process.double)(torch.ones(2)).tolist() == [2.0, 2.0]
"""


def test_the_first_program_of_a_process_may_have_one() -> None:
    """Torch has not imported the module of the setting by then."""
    subprocess.run([sys.executable, "-c", _IN_A_NEW_PROCESS], check=True)

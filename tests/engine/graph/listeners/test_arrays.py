"""Arrays of numpy inside a traced function: reads of values, and memory that is shared with tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import DataDependentError, TraceError
from subclass_aot.testing import difference

pytestmark = pytest.mark.filterwarnings("ignore:__array", "ignore:.*__array_wrap__")

TABLE = np.zeros(3, dtype=np.float32)
KEPT: list[Any] = []


def matched(x: Any) -> Any:
    """What losses of detectors do."""
    cost = torch.cdist(x[:, None], x[:, None] * 2)
    rows, columns = linear_sum_assignment(cost.detach().cpu().numpy())
    return cost[torch.as_tensor(rows), torch.as_tensor(columns)].sum()


def with_exponents(x: Any) -> Any:
    mantissa, exponent = np.frexp(x.detach().numpy())
    return x * torch.from_numpy(mantissa) + torch.from_numpy(exponent)


def scheduled(x: Any) -> Any:
    """What schedulers of diffusion models do: an array of constants."""
    betas = torch.linspace(0.1, 0.2, 4)
    sigmas = np.concatenate([np.sqrt(betas.numpy()), np.zeros(1)]).astype(np.float32)
    return x * torch.from_numpy(sigmas)[1] + float(sigmas[-2])


def written(x: Any) -> Any:
    array = (x.detach() * 2).numpy()
    array[0] = 7
    array *= 2
    return x + torch.from_numpy(array)


def tensor_written_later(x: Any) -> Any:
    y = x.detach() * 2
    total = float(y.numpy().sum())
    y.add_(1)
    return x * total + y


AS_READS: dict[str, Callable[[Any], Any]] = {
    "matching": matched,
    "frexp": with_exponents,
    "constants": scheduled,
    "an array that is written": written,
    "a tensor that is written when its array is gone": tensor_written_later,
    "asarray": lambda x: x * torch.tensor(np.asarray(x.detach())),
    "array": lambda x: x * torch.tensor(np.array(x.detach())),
    "of another dtype": lambda x: x * torch.from_numpy(x.detach().__array__(np.float64)),
    "a function of numpy": lambda x: x * np.sqrt(x.detach()) + np.greater(x.detach(), 1),
    "force": lambda x: x * torch.from_numpy((x * 1.5).numpy(force=True)),
    "a number": lambda x: x * float(x.detach().numpy().sum()) * np.float64(2),
    "no elements": lambda x: x * float(x.detach()[:0].numpy().sum()) + x.detach()[:0].numpy().shape[0],
    "signs of zeros": lambda x: x * torch.from_numpy(np.copysign(1, (x.detach() * -0.0).numpy())),
    "strides": lambda x: x + (x.detach().expand(2, 3).t() * 1).numpy().strides[0],
    "bytes": lambda x: x * (x.detach().numpy().tobytes()[0] + 1),
    "branch": lambda x: x * 2 if x.detach().numpy().max() > 2 else -x,
    "a view": lambda x: x * float(x.detach()[1:].numpy()[0]),
}


def plain(result: Any) -> Any:
    """Returns a result as one tensor, its arrays too."""
    return torch.cat([torch.as_tensor(x) for x in result]) if type(result) is tuple else result


def agree(function: Callable[[Any], Any], compiled: Callable[[Any], Any], make: Callable[[int], Any]) -> None:
    """Compares calls, their gradients, and what they write."""
    for k in (0, 1, 0):
        TABLE[:] = 0
        x, y = make(k), make(k)
        expected, table = function(x), TABLE.copy()
        TABLE[:] = 0
        assert not difference(plain(expected), plain(compiled(y))) and not difference(x, y)
        assert TABLE.tolist() == table.tolist()
        first = expected[0] if isinstance(expected, tuple) else expected
        if isinstance(first, torch.Tensor) and first.requires_grad:
            for result, wanting in (function(x), x), (compiled(y), y):
                first = result[0] if isinstance(result, tuple) else result
                first.sum().backward()
                assert wanting.grad is not None
            assert not difference(x.grad, y.grad)


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", AS_READS)
def test_an_array_of_a_tensor_is_a_read_of_its_values(name: str, training: bool, dynamic: bool | None) -> None:
    function = AS_READS[name]
    compiled = aot_compile(function, dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*the function itself ran.*")
        agree(function, compiled, lambda k: (torch.arange(3.0) + 1 + k).requires_grad_(training))
    if name == "constants":
        assert not compiled.recompiles


@pytest.mark.filterwarnings("ignore")  # of Dynamo: it traces numpy by itself
@pytest.mark.parametrize("name", ["matching", "frexp", "asarray", "a number"])
def test_behind_torch_compile(name: str) -> None:
    compiled = torch.compile(AS_READS[name], backend="subclass_aot")
    for k in (0, 1):
        torch.testing.assert_close(compiled(torch.arange(3.0) + 1 + k), AS_READS[name](torch.arange(3.0) + 1 + k))
    torch._dynamo.reset()


def test_inner_tensors_of_wrappers_and_sizes_that_change() -> None:
    def function(x: Any) -> Any:
        return x * float(x.a.detach().numpy().sum())

    compiled = aot_compile(function)
    for n in (2, 3, 4, 3):
        x = TwoTensor(torch.arange(float(n)), torch.ones(n))
        assert not difference(function(x), compiled(x))


def input_written(x: Any) -> Any:
    x.numpy()[0] = 7
    return x + 1


def tensor_of_array_written(x: Any) -> Any:
    y = x * 2
    array = y.numpy()
    array[0] = 7
    return y + 1


def constant_written(x: Any) -> Any:
    y = torch.zeros(3)
    y.numpy()[1] = 5
    return x + y


def stale(x: Any) -> Any:
    y = x * 2
    array = y.numpy()[1:]
    y.add_(1)
    return x * float(array.sum())


def from_numpy_written(x: Any) -> Any:
    array = np.zeros(3, dtype=np.float32)
    torch.from_numpy(array).add_(x)
    return x * float(array.sum())


def table_written(x: Any) -> Any:
    torch.as_tensor(TABLE)[1:].add_(1)
    return x * 2


def kept(x: Any) -> Any:
    KEPT[:] = [x.numpy()]
    return x * 2


SHARED: dict[str, Callable[[Any], Any]] = {
    "an input": input_written,
    "a tensor that is read later": tensor_of_array_written,
    "a constant": constant_written,
    "an array that is older than a write": stale,
    "a tensor made of an array": from_numpy_written,
    "a global array": table_written,
    "a result": lambda x: (x.numpy(), x * 2),
    "a view as a result": lambda x: ((x * 2).numpy()[1:], x * 2),
    "a tensor of it as a result": lambda x: torch.from_numpy(x.numpy()),
    "kept": kept,
    "many elements": lambda x: x * float((torch.arange(70_000.0) + x.sum()).numpy().sum()),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_shares_memory_runs_in_eager_mode(name: str) -> None:
    function = SHARED[name]
    with pytest.warns(UserWarning, match=r"(?s)the function itself ran.*array.*test_arrays.py:\d+"):
        agree(function, aot_compile(function), lambda k: torch.arange(3.0) + k)


def test_what_eager_mode_refuses() -> None:
    for function, error in (
        (lambda x: x.requires_grad_().numpy(), RuntimeError),
        (lambda x: np.asarray((x * 1).requires_grad_()), RuntimeError),
        (lambda x: x.bfloat16().numpy(), TypeError),
    ):
        with pytest.raises(error) as expected:
            function(torch.ones(2))
        with pytest.raises(error) as got:
            aot_compile(function)(torch.ones(2))
        assert str(got.value) == str(expected.value)
    with torch.no_grad():
        x = torch.ones(2, requires_grad=True)
        assert aot_compile(lambda x: x * float(x.numpy().sum()))(x).equal(x * 2)


def with_hook(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda gradient: torch.from_numpy(gradient.numpy()))
    return y


def test_where_no_values_may_be_read() -> None:
    with pytest.raises(DataDependentError, match=r"`x.numpy\(\)` reads the values"):
        aot_compile(lambda x: x * x.numpy().sum(), values="refuse")(torch.ones(2))
    with pytest.raises(TraceError, match=r"(?s)An array of numpy shares memory.*test_arrays.py"):
        aot_compile(table_written, values="refuse")(torch.ones(2))
    with pytest.raises(DataDependentError):
        x = torch.ones(2, requires_grad=True)
        aot_compile(with_hook)(x)

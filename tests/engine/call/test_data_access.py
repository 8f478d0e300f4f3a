"""Code that reads values past the dispatcher gets an error that names it."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.masked import masked_tensor

import subclass_aot as sa
from subclass_aot import MetaTensor, errors
from subclass_aot.engine.compile import aot_compile


@pytest.mark.parametrize(
    ("fn", "call"),
    [
        (lambda x: torch.tensor_split(torch.ones(4), x), "torch.tensor_split(torch.ones(4), x)"),
        (lambda x: x.tolist(), "x.tolist()"),
        (lambda x: x.numpy() + 1, "x.numpy()"),
        (lambda x: x.untyped_storage().data_ptr(), "x.untyped_storage().data_ptr()"),
    ],
)
def test_the_call_and_the_line_are_named(fn: Callable[..., Any], call: str) -> None:
    with pytest.raises(errors.DataDependentError) as raised:
        aot_compile(fn, values="refuse")(torch.tensor([1, 2]))
    message = str(raised.value)
    assert f"`{call}` reads the values" in message
    assert f"{__file__}:{fn.__code__.co_firstlineno}:" in message


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        aot_compile(lambda x: x @ x)(torch.ones(2, 3))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * x.data_ptr(),
        lambda x: x[1:].data_ptr() % 16 == 0,
        lambda x: x.storage().data_ptr(),
        lambda x: x.untyped_storage().tolist(),
        lambda x: torch.from_dlpack(x) + 1,
        lambda x: torch.save(x, io.BytesIO()),
    ],
)
def test_memory_is_not_asked_for_in_silence(fn: Callable[..., Any]) -> None:
    with pytest.raises(errors.DataDependentError) as raised:
        aot_compile(fn)(torch.tensor([1, 2]))
    message = str(raised.value)
    assert (
        re.search(r"(a traced tensor|Storage\(.*\)) has none", message)
        and f"{__file__}:{fn.__code__.co_firstlineno}:" in message
    )


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_an_element_of_a_storage_is_read_in_eager_mode() -> None:
    compiled = aot_compile(lambda x: x.storage()[0])
    with pytest.warns(UserWarning, match=r"(?s)the function itself ran.*a tensor"):
        assert [compiled(torch.tensor([number, 2])) for number in (1, 3)] == [1, 3]


class Opaque(torch.Tensor):
    """Made of another tensor, of which no method says anything."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Opaque:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined, no-any-return]

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*[x.inner if isinstance(x, Opaque) else x for x in args], **(kwargs or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return Opaque(gradient * 2)


CLOSED_OVER = Opaque(torch.ones(3))


@pytest.mark.parametrize(
    ("fn", "arg", "path"),
    [
        (lambda x: x * 2, Opaque(torch.ones(3)), r"args\[0\]"),
        (lambda x: x["a"][0] * 2, {"a": [Opaque(torch.ones(3))]}, r"args\[0\]\['a'\]\[0\]"),
        (lambda x: CLOSED_OVER * x, torch.ones(3), "CLOSED_OVER"),
        (lambda x: Opaque(x) * 2, torch.ones(3), r"output\[0\]"),
        (lambda x: Scaled.apply(x), torch.ones(3, requires_grad=True), r".*args\[0\].*"),
    ],
    ids=["an argument", "inside of an argument", "closed over", "a result", "a gradient"],
)
def test_tensors_that_do_not_say_what_they_are_made_of_are_refused(fn: Callable[..., Any], arg: Any, path: str) -> None:
    with pytest.raises(errors.TraceError, match=f"^{path} is a Opaque, which is made of other tensors"):
        aot_compile(fn)(arg)


def test_they_may_be_made_inside() -> None:
    compiled = aot_compile(lambda x: (Opaque(x) * 2).inner + 1)
    assert compiled(torch.ones(3)).tolist() == [3, 3, 3]


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype stage")
def test_masked_tensors_of_torch() -> None:
    """Their `get_data` makes a class at each call, which holds the tensor until the collector comes."""

    def program(x: torch.Tensor, mask: torch.Tensor) -> Any:
        masked = masked_tensor(x, mask)
        return (masked * 2).to_tensor(-1.0), masked.sum(0).get_data()

    compiled = aot_compile(program)
    for _ in range(2):
        x, mask = torch.rand(4, 3), torch.rand(4, 3) > 0.3
        torch.testing.assert_close(compiled(x, mask), program(x, mask), equal_nan=True)
    with pytest.raises(
        errors.TraceError, match=r"args\[0\] is a MaskedTensor, (.|\n)*take a subclass_aot.tensors.MaskedT"
    ):
        aot_compile(lambda masked: masked * 2)(masked_tensor(x, mask))
    with pytest.raises(errors.TraceError, match=r"A MaskedTensor has no form without data(.|\n)*aot.tensors.MaskedT"):
        sa.profile(lambda masked: masked * 2, masked_tensor(x, mask))


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_masked_tensors_of_torch_behind_dynamo(requires_grad: bool, dynamic: bool | None) -> None:
    """Dynamo breaks its graph where they are used, and they run in eager mode."""

    def program(masked: Any) -> Any:
        return masked * 2 * masked.get_mask().sum()

    compiled = torch.compile(program, backend="subclass_aot", dynamic=dynamic)
    for rows in (4, 5):
        values, told = torch.rand(rows, 3), []
        for run in (program, compiled):
            x = masked_tensor(values, values > 0.3, requires_grad=requires_grad)
            out = run(x)
            if requires_grad:
                out.sum().backward()
            told.append((str(out), str(x.grad)))
        assert told[0] == told[1]


def test_a_tensor_without_data_is_at_no_place() -> None:
    x = MetaTensor(torch.ones(2))
    assert x.data_ptr() == 0 and repr(pickle.loads(pickle.dumps(x))) == repr(x)
    with pytest.raises(errors.DataDependentError):
        torch.from_dlpack(x)

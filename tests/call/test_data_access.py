"""Code that reads values past the dispatcher gets an error that names it."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor, errors
from subclass_aot.compile import aot_compile


@pytest.mark.parametrize(
    ("fn", "call"),
    [
        (lambda x: torch.tensor_split(torch.ones(4), x), "torch.tensor_split(torch.ones(4), x)"),
        (lambda x: torch.tensor([x[0], 2]), "torch.tensor([x[0], 2])"),
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
    with pytest.raises(RuntimeError, match="same reduction dim"):
        aot_compile(lambda x: x @ x)(torch.ones(2, 3))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * x.data_ptr(),
        lambda x: x[1:].data_ptr() % 16 == 0,
        lambda x: x.storage().data_ptr(),
        lambda x: x.storage()[0],
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


def test_a_tensor_without_data_is_at_no_place() -> None:
    x = MetaTensor(torch.ones(2))
    assert x.data_ptr() == 0 and repr(pickle.loads(pickle.dumps(x))) == repr(x)
    with pytest.raises(errors.DataDependentError):
        torch.from_dlpack(x)

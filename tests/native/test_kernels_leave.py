"""What kernels for the Python key leave to Python: other classes, modes, traces, transforms, and what is special."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot import native as _native
from subclass_aot.base import _torch
from tests.native.both_ways import served
from tests.native.wrappers import Named, aten, dense, two

pytestmark = pytest.mark.skipif(
    _native.accelerator("kernels") is None, reason="the accelerator is optional: without it there is only Python"
)


def test_a_subclass_is_asked_itself() -> None:
    x = two(TwoTensor, 3)
    assert served(lambda: x + x)

    class Late(TwoTensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_dispatch__(func, types, args, kwargs)

    seen: list[Any] = []
    for _ in range(3):
        torch.neg(two(Late, 3))
    assert seen == [aten.neg.default] * 3
    assert not served(lambda: (two(Late, 3) + x, x + two(Late, 3)))


def test_dispatch_that_is_replaced_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    x = two(TwoTensor, 3)
    assert served(lambda: x.neg())
    monkeypatch.setattr(TwoTensor, "__torch_dispatch__", classmethod(lambda cls, func, *_: "asked"), raising=False)
    with pytest.raises(RuntimeError, match="Unable to cast asked to Tensor"):
        x.neg()
    monkeypatch.undo()
    assert served(lambda: x.neg())


def test_modes_see_every_operator() -> None:
    class Sees(_torch.dispatch.DispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append((str(func), type(args[0]).__name__))
            return func(*args, **(kwargs or {}))

    def program() -> Any:
        x = two(TwoTensor, 3, 3)
        with Sees() as mode:
            x.mm(x).detach().mul_(2).t()
        return mode.seen

    hits = served(program)
    assert [name for name, _ in program()] == [
        "aten.mm.default",
        "aten.detach.default",
        "aten.mul_.Tensor",
        "aten.t.default",
    ]
    assert hits.total() == 4  # below the mode, each once


def test_function_modes_see_the_inner_operators() -> None:
    class Sees(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []

    def program() -> Any:
        seen.clear()
        x = two(TwoTensor, 3, 3)
        with Sees():
            y = x.mm(x)
        return y, list(seen)

    served(program)


def test_traces_see_every_operator() -> None:
    def program(x: Any) -> Any:
        return (x @ x).relu().view(-1).detach().mul_(2)

    x = two(TwoTensor, 4, 4)
    assert served(lambda: program(x))
    served(lambda: aot_compile(program)(x))
    torch.testing.assert_close(aot_compile(program)(x).b, program(x).b)


def test_fake_and_foreign_tensors_are_not_touched() -> None:
    foreign = _torch.wrappers.foreign_two_tensor()
    fake = torch._subclasses.FakeTensorMode()

    def program() -> Any:
        x = foreign(dense(3), dense(3))
        y = fake.from_tensor(dense(3))
        both = TwoTensor(foreign(dense(3), dense(3)), foreign(dense(3), dense(3)))
        return str((x + x).a), str((y * 2).shape), str((both + both).a.a), str(x.detach().b)

    hits = served(program)
    assert not hits
    with fake:
        x = TwoTensor(torch.empty(3), torch.empty(3))
    assert type((x + x).a) is type(x.a) is torch._subclasses.FakeTensor
    assert (x + x).device.type == "cpu"


def test_transforms_go_to_python() -> None:
    x = two(TwoTensor, 4, 4)
    served(lambda: torch.func.vmap(lambda row: row * 2)(x))
    served(lambda: torch.func.grad(lambda x: (x * x).sum())(dense(3)))
    served(lambda: torch.func.functionalize(lambda x: x.clone().mul_(2))(x))


def test_what_is_special_goes_to_python() -> None:
    x, y = two(TwoTensor, 4, 4), two(TwoTensor, 4, 4, seed=3)
    assert served(lambda: x + y)
    x.__dict__["_view_of_wrapper"] = None
    with pytest.raises(Exception, match="NoneType"):
        x.mul_(2)
    del x.__dict__["_view_of_wrapper"]
    assert served(lambda: x + y)

    class Code(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    seen: list[Any] = []
    holds = TwoTensor(dense(4, 4), dense(4, 4))
    holds.__dict__["a"] = dense(4, 4).as_subclass(Code)
    assert not served(lambda: holds.neg())["aten::neg"]
    assert seen


@pytest.mark.every_case
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_a_signal_while_contexts_are_compared(kind: type[BaseException]) -> None:
    """Kernels leave an error of a comparison to Python, which compares again; a handler of signals raises once."""

    class Label:
        def __ne__(self, other: object) -> bool:
            compared.append(other)
            if len(compared) == 1:
                signal.raise_signal(signal.SIGUSR1)
            return False

    def handle(number: int, frame: Any) -> None:
        raise kind

    compared: list[object] = [None]
    x, y = (Named(dense(3), Label(), dense(3)) for _ in range(2))
    assert served(lambda: x + y)
    before = signal.signal(signal.SIGUSR1, handle)
    compared.clear()
    try:
        with pytest.raises(kind):
            x + y
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(compared) == 1 and served(lambda: x + y)

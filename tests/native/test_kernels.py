"""Kernels for the Python key do what the generated code does, and leave to Python what that alone can do."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, _native, _torch, aot_compile
from subclass_aot.wrapper import Outer, WrapperTensor, kernels, structure
from tests.native.twins import outcome, served

ROOT = Path(__file__).resolve().parents[2]
aten: Any = torch.ops.aten

pytestmark = pytest.mark.skipif(
    _native.accelerator("kernels") is None, reason="the accelerator is optional: without it there is only Python"
)


class Named(WrapperTensor, fallback="each"):
    """Has context."""

    left: torch.Tensor
    label: object
    right: torch.Tensor
    number: float = 0.5


class Child(TwoTensor):
    """Is registered by itself."""


class Twice(WrapperTensor, fallback="each"):
    """Looks like no inner tensor."""

    codes: torch.Tensor
    scale: torch.Tensor

    def outer(self) -> Outer:
        return Outer.like(self.codes, size=(*self.codes.shape, 2), dtype=torch.float64)


class Product(WrapperTensor, fallback="each"):
    """Stands for something, and is served field by field nevertheless."""

    first: torch.Tensor
    second: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.first * self.second


class Coded(WrapperTensor, views="broadcast"):
    """Is served through what it stands for."""

    codes: torch.Tensor
    scale: torch.Tensor

    def outer(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale


class Added(WrapperTensor, fallback="each"):
    """Has a rule of its own."""

    left: torch.Tensor
    right: torch.Tensor


@Added.implements(aten.add.Tensor)
def _(x: Any, y: Any, *, alpha: float = 1) -> Any:
    x, y = (Added(t, t) if type(t) is torch.Tensor else t for t in (x, y))
    return Added(x.left - y.left, x.right - y.right)


class Masked(WrapperTensor, fallback="each"):
    """Has structure."""

    content: torch.Tensor
    mask: torch.Tensor = structure()


class Shown(WrapperTensor, fallback="each"):
    """Has fields of which torch has properties."""

    real: torch.Tensor
    imag: torch.Tensor


def dense(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def two(cls: Any, *size: int, seed: int = 0) -> Any:
    return cls(dense(*size, seed=seed), dense(*size, seed=seed + 100))


MAKERS: dict[str, Callable[[int], Any]] = {
    "two": lambda seed: two(TwoTensor, 4, 4, seed=seed),
    "context": lambda seed: Named(dense(4, 4, seed=seed), ("a", 300), dense(4, 4, seed=seed + 1)),
    "child": lambda seed: two(Child, 4, 4, seed=seed),
    "nested": lambda seed: TwoTensor(two(TwoTensor, 4, 4, seed=seed), two(TwoTensor, 4, 4, seed=seed + 7)),
    "outer rule": lambda seed: two(Twice, 4, 4, seed=seed),
    "to_plain, each": lambda seed: two(Product, 4, 4, seed=seed),
    "to_plain": lambda seed: Coded(dense(4, 4, seed=seed), dense(4, 1, seed=seed)),
    "author's rule": lambda seed: two(Added, 4, 4, seed=seed),
    "structure": lambda seed: Masked(dense(4, 4, seed=seed), dense(4, 4, seed=seed) > 0),
    "torch's names": lambda seed: two(Shown, 4, 4, seed=seed),
    "parts of memory": lambda seed: TwoTensor(dense(6, 8, seed=seed).t()[2:6, 1:5], dense(4, 4, seed=seed)),
    "parameters": lambda seed: TwoTensor(torch.nn.Parameter(dense(4, 4), False), dense(4, 4, seed=seed)),
}
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "detach": lambda x, y: (x, x.detach()),
    "alias": lambda x, y: (x, aten.alias(x)),
    "clone": lambda x, y: (x, x.clone(), x.clone(memory_format=torch.contiguous_format)),
    "add": lambda x, y: (x + y, x + 1, 2 - x, torch.add(x, y, alpha=2)),
    "mm": lambda x, y: x.mm(y) + x.t() @ y,
    "beside dense": lambda x, y: (x * torch.ones(4), torch.full((4, 4), 3.0) / y, x * torch.tensor(2.0).double()),
    "views": lambda x, y: (x, x.t(), x.view(16), x[1], x[:, 1:3], x.unsqueeze(0), x.expand(2, 4, 4), x.diagonal()),
    "views of views": lambda x, y: (x, x.view(2, 8)[1].view(2, 4).t()),
    "in place": lambda x, y: (x.mul_(2).add_(y, alpha=3), x, y),
    "a view is written": lambda x, y: (x[1].mul_(2), x),
    "a whole is written": lambda x, y: (v := x.view(16), x.add_(1), v, x),
    "random": lambda x, y: (torch.rand_like(x), x.clone().normal_(), torch.dropout(x, 0.5, True)),
    "several": lambda x, y: (*x.max(0), *torch.var_mean(x), *torch.nn.functional.layer_norm(x, (4,)).min(1)),
    "likes": lambda x, y: (torch.zeros_like(x), torch.ones_like(x, dtype=torch.int32), x.to(torch.float64)),
    "reductions": lambda x, y: (x.sum(), x.mean(0), x.amax(1, keepdim=True), x.softmax(-1)),
    "sizes that do not fit": lambda x, y: x.mm(y[:3].t()),
    "a dim there is not": lambda x, y: x.sum(5),
    "no number": lambda x, y: torch.add(x, y, alpha=True),
    "a dense one is written": lambda x, y: torch.zeros(4, 4).add_(x),
    "a leaf is written": lambda x, y: x.requires_grad_().mul_(2),
    "no_grad": lambda x, y: torch.no_grad()(lambda: (x.requires_grad_() * y, x.view(16)))(),
    "inference": lambda x, y: torch.inference_mode()(lambda: (x.view(16), x * y, (x * y).view(16)))(),
    "out": lambda x, y: torch.add(x, y, out=x.clone()),
    "lists": lambda x, y: (torch.cat([x, y]), *x.split(2), *torch._foreach_add([x, y], 1)),
    "other shapes in place": lambda x, y: (x.t_(), x.unsqueeze_(0)),
    "conjugates": lambda x, y: (torch.complex(x, y).conj() * 2, torch.complex(x, y).conj().imag.neg()),
    "the same twice": lambda x, y: (x + x, x.mul_(x), x.addcmul_(x, x)),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("maker", MAKERS)
def test_programs_give_the_same_as_in_python(maker: str, program: str) -> None:
    make, run = MAKERS[maker], PROGRAMS[program]
    hits = served(lambda: run(make(1), make(2)))
    if maker in ("two", "context", "child", "nested", "torch's names") and program in ("detach", "add", "mm", "views"):
        assert hits


@pytest.mark.parametrize("maker", MAKERS)
def test_gradients_are_the_same_as_in_python(maker: str) -> None:
    def program() -> Any:
        x, y = MAKERS[maker](1).requires_grad_(), MAKERS[maker](2).requires_grad_()
        out = ((x * y).tanh() @ x.t()).view(-1).pow(2)
        first = torch.autograd.grad(out, [x, y], torch.ones_like(out), create_graph=True, retain_graph=True)
        second = torch.autograd.grad(first[0], [x, y], torch.ones_like(first[0]), retain_graph=True)
        out.backward(torch.ones_like(out))
        written = x.detach().clone().requires_grad_()
        copy = written.clone()
        copy[0].mul_(3)
        copy.view(16).sigmoid_()
        (last,) = torch.autograd.grad(copy, written, torch.ones_like(copy))
        return *first, *second, x.grad, y.grad, last

    served(program)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_steps_of_optimizers(optimizer: Any) -> None:
    def program() -> Any:
        weight = torch.nn.Parameter(two(TwoTensor, 4, 4))
        steps = optimizer(
            [weight], lr=0.1, weight_decay=0.1, **({"momentum": 0.9} if optimizer is torch.optim.SGD else {})
        )
        for _ in range(3):
            steps.zero_grad()
            loss = (weight * weight).sum()
            loss.backward(torch.ones_like(loss))
            steps.step()
        return weight, weight.grad, *[v for v in steps.state[weight].values() if isinstance(v, torch.Tensor)]

    hits = served(program)
    assert hits["aten::detach"] and hits["aten::add_.Tensor"]


CONTEXTS: list[tuple[object, object]] = [
    (("a", 300), ("a", 300)), ("a", "b"), (float("nan"), float("nan")), (1, True), (None, 0),
    (frozenset({1}), frozenset({1})),
]  # fmt: skip


@pytest.mark.parametrize("mine,theirs", CONTEXTS)
def test_contexts_are_compared_as_in_python(mine: object, theirs: object) -> None:
    x, y = Named(dense(4), mine, dense(4)), Named(dense(4), theirs, dense(4))
    served(lambda: x + y)
    served(lambda: y + x)


def test_not_a_number_is_not_itself() -> None:
    nan = float("nan")
    x, y = Named(dense(4), nan, dense(4)), Named(dense(4), nan, dense(4))
    assert not served(lambda: x + y)
    assert not served(lambda: x + x)
    assert served(lambda: x.neg())


def test_a_context_that_cannot_be_compared() -> None:
    class Rude:
        def __ne__(self, other: object) -> bool:
            raise OSError("rude")

        __hash__ = object.__hash__

    x, y = Named(dense(4), Rude(), dense(4)), Named(dense(4), Rude(), dense(4))
    assert not served(lambda: x + y)


def test_a_rule_added_later_is_heeded() -> None:
    class Base(WrapperTensor, fallback="each"):
        left: torch.Tensor
        right: torch.Tensor

    class Derived(Base):
        pass

    for cls in (Base, Derived):
        assert served(lambda cls=cls: (two(cls, 3) + two(cls, 3), two(cls, 3) * 2))["aten::add.Tensor"]
    Base.implements(aten.add.Tensor)(lambda x, y, **_: type(x)(x.left, y.right))
    for cls in (Base, Derived):
        assert not served(lambda cls=cls: two(cls, 3) + two(cls, 3))
        assert torch.equal((two(cls, 3) + two(cls, 3, seed=1)).left, two(cls, 3).left)
        assert served(lambda cls=cls: two(cls, 3) * 2)
    Base.implements(aten.mul)(lambda x, y: x)
    assert not served(lambda: two(Derived, 3).mul_(2)), "which the rule for `mul` serves, too"


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
    class Sees(_torch.DispatchMode):
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
    foreign = _torch.foreign_two_tensor()
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


@pytest.mark.parametrize("name", ["left", "right", "label"])
def test_an_attribute_that_is_gone(name: str) -> None:
    def program() -> Any:
        x = Named(dense(4), "a", dense(4))
        y = x + x
        del x.__dict__[name]
        return y, x + x

    assert outcome(program)[0] is AttributeError
    served(program)


def test_an_inner_tensor_that_is_none() -> None:
    def program() -> Any:
        x = two(TwoTensor, 4)
        x + x
        x.__dict__["b"] = 3
        return x.exp()

    served(program)


def test_wrappers_deep_in_wrappers() -> None:
    def deep(depth: int) -> Any:
        x: Any = dense(2)
        for _ in range(depth):
            x = Shallow(x)
        return x

    class Shallow(WrapperTensor, fallback="each"):
        only: torch.Tensor

    def program() -> Any:
        return (deep(60) + deep(60)).detach()

    assert served(program)["aten::add.Tensor"]
    script = (
        "import sys, threading, torch\nfrom subclass_aot.wrapper import WrapperTensor\n"
        "class Shallow(WrapperTensor, fallback='each'):\n    only: torch.Tensor\n"
        "def run():\n    x = torch.ones(2)\n"
        "    for _ in range(3000): x = Shallow(x)\n"
        "    try: x + x\n    except RecursionError: print('refused')\n"
        "t = threading.Thread(target=run); t.start(); t.join()\n"
    )
    assert child(script).strip() in ("refused", "")


def test_threads() -> None:
    shared, failures = two(TwoTensor, 8, 8), []
    expected = outcome(lambda: ((shared @ shared).relu().sum(1), shared.detach()))

    def work(seed: int) -> None:
        for i in range(300):
            x = two(TwoTensor, 8, 8, seed=seed).requires_grad_()
            y = (x @ shared).relu().sum()
            y.backward(torch.ones_like(y))
            if i % 50 == 0:  # another class comes and goes meanwhile

                class Passing(TwoTensor):
                    pass

                two(Passing, 2).exp()
                Passing.implements(aten.exp.default)(lambda x: x)
            grad = torch.relu(x.detach() @ shared).gt(0).to(torch.float32).a.sum(0)  # rows that counted
            if x.grad is None or x.grad.shape != (8, 8) or grad.shape != (8,):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert outcome(lambda: ((shared @ shared).relu().sum(1), shared.detach())) == expected


def test_nothing_is_kept() -> None:
    x, label = two(TwoTensor, 4), object()
    named = Named(dense(4), label, dense(4))

    def calls(n: int) -> None:
        for _ in range(n):
            x.detach()
            (x + x).view(2, 2).mul_(2)
            named + named
            try:
                x.sum(7)
            except IndexError:
                pass

    calls(10)
    gc.collect()
    objects, references = len(gc.get_objects()), sys.getrefcount(label)
    blocks = sys.getallocatedblocks()
    calls(25_000)  # of four operators each
    gc.collect()
    assert sys.getrefcount(label) == references
    assert len(gc.get_objects()) <= objects + 10
    assert sys.getallocatedblocks() <= blocks + 200
    result = x + x
    inner, outer = weakref.ref(result.a), weakref.ref(result)
    del result
    assert inner() is outer() is None


def test_classes_are_not_kept_alive() -> None:
    def made() -> Any:
        cls = type("Short", (torch.Tensor,), {})
        _native.accelerator("kernels").serve("aten::neg", cls, ("left",), (), "origin", print, False, False)
        return weakref.ref(cls)

    gone = [made() for _ in range(5)]
    gc.collect()
    assert [ref() for ref in gone] == [None] * 5


def child(script: str, **environment: str) -> str:
    """What a script prints; it may not crash."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    assert not done.returncode, done.stderr
    return done.stdout


HAS = "print(torch._C._dispatch_has_kernel_for_dispatch_key('aten::add.Tensor', 'Python'))"


@pytest.mark.parametrize("parts,has", [("modes,recipes,tables", False), ("0", False), ("kernels", True)])
def test_the_dispatcher_is_left_alone_without_this_part(parts: str, has: bool) -> None:
    script = f"import torch, subclass_aot as s\nx = s.TwoTensor(torch.ones(2), torch.ones(2))\nx + x\n{HAS}"
    assert child(script, SUBCLASS_AOT_NATIVE=parts).strip() == str(has)


def test_kernels_of_others_stay() -> None:
    script = (
        "import torch\nlib = torch.library.Library('aten', 'IMPL')\n"
        "lib.impl('add.Tensor', lambda x, y, alpha=1: x.theirs(), 'Python')\n"
        "import subclass_aot as s\nfrom subclass_aot.wrapper import kernels\n"
        "print('aten::add.Tensor' in kernels.INSTALLED, 'aten::mul.Tensor' in kernels.INSTALLED)\n"
    )
    assert child(script).strip() == "False True"


def test_operators_without_a_kernel_are_refused_by_name() -> None:
    accelerator = _native.accelerator("kernels")
    for name in ("aten::cat", "aten::split.Tensor", "aten::add.out", "aten::item", "aten::reshape"):
        with pytest.raises(ValueError, match=f"no kernel for {name}: it "):
            accelerator.install_kernels([name])
    assert accelerator.install_kernels(["aten::there_is_none"]) == []
    with pytest.raises(ValueError, match="there is no kernel for aten::cat"):
        accelerator.serve("aten::cat", TwoTensor, ("a",), (), "o", print, False, False)
    with pytest.raises(TypeError):
        accelerator.serve("aten::neg", int, ("a",), (), "o", print, False, False)
    with pytest.raises(TypeError):
        accelerator.forget(3)


def test_a_switch_for_all() -> None:
    x = two(TwoTensor, 3)
    x.neg()
    with kernels.without_kernels():
        before = kernels.hits()
        x.neg()
        assert kernels.hits() == before
    x.neg()
    assert kernels.hits() - before == Counter({"aten::neg": 1})

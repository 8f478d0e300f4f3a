"""Kernels for the Python key in a process: threads, memory, the dispatcher, and what others have put there."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, _native
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.kit.wrapper.serve import kernels
from tests.native.both_ways import in_threads, outcome, served
from tests.native.wrappers import Named, aten, dense, two

REST: Any = ((False,), (), "origin", print, None, False, False, -1, False, False)
"""Of what `serve` takes, all after the names: one field, which has to be there, and nothing else."""

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    _native.accelerator("kernels") is None, reason="the accelerator is optional: without it there is only Python"
)


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
        "import sys, threading, torch\nfrom subclass_aot.kit.wrapper import WrapperTensor\n"
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

    seeds = iter(range(4))

    def work() -> None:
        seed = next(seeds)
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

    in_threads(work)
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
            with contextlib.suppress(IndexError):
                x.sum(7)

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
        _native.accelerator("kernels").serve("aten::neg", cls, ("left",), *REST)
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
        "import subclass_aot as s\nfrom subclass_aot.kit.wrapper.serve import kernels\n"
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
        accelerator.serve("aten::cat", TwoTensor, ("a",), *REST)
    with pytest.raises(TypeError):
        accelerator.serve("aten::neg", int, ("a",), *REST)
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

"""Operators on tensors without data give the same in C++ as in Python."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import optree
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import subclass_aot as sa
from subclass_aot import native as _native
from subclass_aot.base import hooks
from subclass_aot.meta import Listener, MetaTensor, Operation, Storage, infer, register_meta, served
from subclass_aot.meta.served import effects_for_kernel, hits, served_in_python

aten = torch.ops.aten
Program = Callable[[], Any]
native = pytest.mark.skipif(hooks.leaves is None, reason="the accelerator is optional: without it there is only Python")


class Log(Listener):
    """Everything that listeners are called for."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_operator(self, operation: Operation) -> None:
        given = described((operation.args, operation.kwargs))
        self.calls.append((type(operation.stream).__name__, str(operation.func), given, described(operation.result)))

    def on_storage(self, storage: Storage) -> None:
        self.calls.append(("made", storage.nbytes))

    def on_release(self, storage: Storage) -> None:
        self.calls.append(("released", storage.nbytes))


def described(value: Any) -> Any:
    """What can be seen of a tree of leaves: metadata in Python and in C++, and which of them share storages."""
    leaves, structure = optree.tree_flatten(value, none_is_leaf=True)
    storages: dict[int, int] = {}
    seen: dict[int, int] = {}
    facts: list[Any] = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            facts.append((type(leaf), repr(leaf)))
            continue
        assert type(leaf) is MetaTensor or not leaf.is_meta
        shared = storages.setdefault(id(Storage.of(leaf)), len(storages))
        spec = leaf.meta_spec if type(leaf) is MetaTensor else None
        facts.append(
            (
                spec,
                shared,
                seen.setdefault(id(leaf), len(seen)),
                Storage.of(leaf).nbytes,
                Storage.of(leaf).device,
                tuple(leaf.size()),
                leaf.stride(),
                leaf.dtype,
                leaf.device,
                leaf.requires_grad,
                leaf.is_leaf,
                leaf._is_view(),
                type(leaf.grad_fn).__name__,
                leaf._version,
                leaf.untyped_storage().nbytes(),
                torch._C._dispatch_keys(leaf).raw_repr(),
            )
        )
    return str(structure), facts


def outcome(program: Program) -> Any:
    try:
        return described(program())
    except Exception as error:
        return type(error), str(error).split("\n  Your line")[0]


def agree(program: Program, times: int = 3) -> Any:
    """Runs a program in Python and, several times, where it is served; the last times from the cache."""
    with served_in_python():
        wanted = outcome(program)
    for _ in range(times):
        assert outcome(program) == wanted
    return wanted


def meta_of(x: Any) -> Any:
    plain = isinstance(x, torch.Tensor) and x.layout is torch.strided and not x.is_conj() and not x.is_neg()
    return MetaTensor.like(x) if plain else x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", op_db, ids=lambda op: f"{op.name}{op.variant_test_name and '.'}{op.variant_test_name}")
@pytest.mark.parametrize("within", ["nothing", "meta"])
def test_each_operator_agrees(op: Any, within: str) -> None:
    if not op.dtypes:
        pytest.skip("torch has no kernel for it on a CPU")
    dtype = torch.float32 if torch.float32 in op.dtypes else next(iter(op.dtypes))
    try:
        samples = list(
            op.sample_inputs("cpu", dtype, requires_grad=dtype in (torch.float32,) and op.supports_autograd)
        )[:6]
    except RuntimeError:
        pytest.skip("torch has no samples for this build")
    for sample in samples:

        def run(sample: Any = sample) -> Any:
            tree: Any = (sample.input, sample.args, sample.kwargs)
            x, args, kwargs = optree.tree_map(meta_of, tree, none_is_leaf=True)
            if within == "nothing":
                return op.op(x, *args, **kwargs)
            with sa.meta():
                result = op.op(x, *args, **kwargs)
                ends = [y for y in optree.tree_leaves(result) if type(y) is MetaTensor and y.requires_grad]
                if ends:
                    sum((y.abs().sum() for y in ends), MetaTensor(torch.zeros(()))).backward()
            starts = [y for y in optree.tree_leaves((x, args)) if type(y) is MetaTensor]
            return result, x, [y.grad for y in starts]

        agree(run)


def new(*size: int, **kwargs: Any) -> MetaTensor:
    return MetaTensor(torch.empty(*size, device="meta", **kwargs), "cpu")


PROGRAMS: dict[str, Program] = {
    "views": lambda: (x := new(4, 6), x.t(), x[1], x[:, 2:4].t(), x.view(-1), *x.unbind(), *x.split(2)),
    "in place": lambda: (x := new(3, 3), x.add_(1).mul_(x.t()), x[0].zero_(), x),
    "other metadata in place": lambda: (x := new(3, 4), y := x[0], x.t_(), x.resize_(50), y, x.unsqueeze_(0)),
    "out": lambda: (x := new(3), torch.add(x, 1, out=x), torch.add(new(3, 3), 1, out=new(0))),
    "detach and data": lambda: (x := new(3).requires_grad_(), x.detach(), x.data, x.detach_()),
    "parameters": lambda: (p := torch.nn.Parameter(new(3)), p * 2, p.view(3, 1)),
    "numbers": lambda: (
        new(3) * 2,
        new(3, dtype=torch.int64) * 2.5,
        new(3) + True,
        new(3, dtype=torch.int64) + 1,
        1 - new(3),
    ),
    "complex": lambda: (x := new(3, dtype=torch.complex64), x * 1j, x.conj(), x.imag, torch.view_as_real(x)),
    "a scalar of data": lambda: new(3, dtype=torch.int64) * torch.tensor(2.5),
    "lists": lambda: (
        x := new(3),
        torch.cat([x, x]),
        torch.stack([x, x]),
        torch._foreach_add([x], 1),
        torch._foreach_mul_([x], 2),
    ),
    "devices": lambda: (
        x := MetaTensor(torch.empty(2, device="meta"), "cuda:3"),
        x + 1,
        x.to("cpu"),
        x.new_zeros(2),
        x + new(()),
    ),
    "likes": lambda: (torch.zeros_like(new(3), dtype=torch.int32), new(3).to(torch.float64), new(2, 2).contiguous()),
    "text": lambda: (torch.nn.functional.gelu(new(3)), torch.nn.functional.gelu(new(3), approximate="tanh")),
    "optional results": lambda: aten.convolution_backward(
        new(1, 2, 3, 3),
        new(1, 2, 3, 3),
        new(2, 2, 1, 1),
        None,
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [False, True, False],
    ),
    "indices": lambda: (x := new(4, 4), x[new(2, dtype=torch.int64)], x[:, new(2, dtype=torch.int64)]),
    "sizes that do not fit": lambda: new(2, 3).mm(new(2, 3)),
    "values": lambda: new(3).nonzero(),
    "an item": lambda: new(()).item(),
    "a written expanded tensor": lambda: new(1).expand(3).add_(1),
    "a cast that is none": lambda: new(3, dtype=torch.int64).add_(0.5),
    "random": lambda: (
        torch.rand_like(new(3)),
        new(3).normal_(),
        torch.dropout(new(3), 0.5, True),
        new(3).bernoulli_(0.5),
    ),
    "not a number": lambda: (new(3) * float("nan"), new(3).clamp(float("-inf"), -0.0)),
    "another default dtype": lambda: (
        with_default(torch.float64, lambda: new(3, dtype=torch.int64) / 2),
        new(3, dtype=torch.int64) / 2,
    ),
    "inference": lambda: torch.inference_mode()(lambda: (x := new(3, 3), x.t(), x * 2))(),
    "functions": lambda: torch.func.grad(lambda x: (x * x).sum())(new(3)),
}


FAIL = ("sizes that do not fit", "values", "an item")
"""Programs of one operator, which raises an error."""


def with_default(dtype: torch.dtype, program: Program) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return program()
    finally:
        torch.set_default_dtype(before)


@pytest.mark.every_case
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("within", ["nothing", "meta"])
def test_each_program_agrees(name: str, within: str) -> None:
    def run() -> Any:
        if within == "nothing":
            return PROGRAMS[name]()
        with sa.meta():
            return PROGRAMS[name]()

    agree(run)


def listened(program: Program) -> list[Any]:
    with Log() as log:
        program()
        gc.collect()
    return log.calls


@pytest.mark.every_case
@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if name not in ("sizes that do not fit", "values", "an item")]
)
def test_listeners_are_called_alike(name: str) -> None:
    def run() -> None:
        outcome(PROGRAMS[name])
        with sa.meta():
            outcome(PROGRAMS[name])

    with served_in_python():
        run()
        gc.collect()  # an error may hold tensors of this run
        wanted = listened(run)
    for _ in range(3):
        assert listened(run) == wanted


def test_a_step_of_training_agrees() -> None:
    def step() -> Any:
        with sa.meta():
            model = torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3),
                torch.nn.BatchNorm2d(8),
                torch.nn.ReLU(),
                torch.nn.Flatten(),
                torch.nn.Linear(288, 5),
            )
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            loss = torch.nn.functional.cross_entropy(model(torch.empty(7, 3, 8, 8)), torch.zeros(7, dtype=torch.int64))
        loss.backward()
        optimizer.step()
        return [(p, p.grad, optimizer.state[p]["exp_avg"]) for p in model.parameters()], loss

    agree(step)
    with served_in_python():
        wanted = listened(step)
    assert listened(step) == wanted


@native
def test_it_serves() -> None:
    x, before = new(3, 5), hits()
    for _ in range(3):
        x.t()
    assert hits() - before >= 2
    with sa.meta():
        before = hits()
        for _ in range(3):
            x.t()
        assert hits() - before == 3
    with served_in_python():
        before = hits()
        x.t()
        assert hits() == before


def test_a_rule_that_is_registered_later_counts() -> None:
    with _library("twice", "(Tensor x) -> Tensor"):
        twice = torch.ops.test_served.twice.default

        @register_meta(twice)
        def once(x: torch.Tensor) -> torch.Tensor:
            return x.new_empty(x.shape)

        for _ in range(3):
            assert twice(new(3)).shape == (3,)
        register_meta(twice)(lambda x: x.new_empty((6,)))
        for _ in range(3):
            assert twice(new(3)).shape == (6,)
    before = torch.mm(new(2, 2), new(2, 2))
    try:
        register_meta(aten.mm.default)(lambda x, y: x.new_empty((7, 7)))
        assert before.shape == (2, 2) and torch.mm(new(2, 2), new(2, 2)).shape == (7, 7)
    finally:
        del infer._rules[aten.mm.default]
        for forget in infer.on_new_rule:
            forget()
    assert torch.mm(new(2, 2), new(2, 2)).shape == (2, 2)


@contextmanager
def _library(name: str, schema: str) -> Iterator[None]:
    library = torch.library.Library("test_served", "DEF")
    try:
        library.define(f"{name}{schema}")
        yield
    finally:
        library._destroy()


def test_values_that_are_known_stay_known_and_are_forgotten() -> None:
    with sa.meta():
        for _ in range(3):
            mask = torch.ones(3, dtype=torch.bool)
            assert bool(mask.all()) and mask.view(3, 1).sum().item() == 3
            unknown = torch.rand(3)
            assert unknown.shape == (3,)
            numbers = torch.zeros(3)
            numbers.add_(unknown)
            with pytest.raises(sa.errors.DataDependentError):
                numbers.sum().item()


def test_assumptions_are_noted() -> None:
    def run() -> Any:
        with sa.meta(assume=True) as assumed:
            kept = [bool((torch.rand(4) > 2).any()), bool(torch.isfinite(torch.rand(4)).all())]
        return kept, [str(each.answer) for each in assumed]

    agree(run)


def test_other_modes_see_operators() -> None:
    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    x = new(3, 3)
    for _ in range(3):
        x.t()
    with Seen():
        x.t()
        x.mm(x)
    assert seen == [aten.t.default, aten.mm.default]


def test_nothing_is_kept() -> None:
    def run() -> Any:
        x = new(5, 5).requires_grad_()
        y = (x.t() @ x).softmax(-1).view(25).add(1).sum()
        y.backward()
        return [weakref.ref(Storage.of(t)) for t in (x, y)], [weakref.ref(t) for t in (x, y, x.grad)]

    for _ in range(3):
        storages, tensors = run()
        gc.collect()
        assert all(reference() is None for reference in (*storages, *tensors))
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        run()
    gc.collect()
    assert len(gc.get_objects()) - before < 50


def test_counts_of_references_stay() -> None:
    x = new(5, 5)
    spec, storage = x.meta_spec, x.meta_storage

    def count() -> list[int]:
        for _ in range(10):
            x.t()
            x.add_(1)
            x.mm(x)
            x.unbind()
            torch.cat([x, x])
        return [sys.getrefcount(value) for value in (spec, storage, x, aten.t.default)]

    for within in (Listener(), nullcontext()):
        with within:
            count()
            assert count() == count()


def test_threads_are_served_at_once() -> None:
    def work() -> None:
        x = new(4, 4)
        for _ in range(300):
            x = (x.t() @ x).view(4, 4)
        shapes.append(x.shape)

    shapes: list[Any] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        for forget in served.on_new_rule:
            forget()
    for thread in threads:
        thread.join()
    assert shapes == [(4, 4)] * 4


def test_a_listener_in_another_thread_does_not_listen_here() -> None:
    with Log() as log:
        thread = threading.Thread(target=lambda: [new(3).neg() for _ in range(3)])
        thread.start()
        thread.join()
    assert log.calls == []


def test_an_error_of_a_listener_is_raised() -> None:
    class Refuses(Listener):
        def on_operator(self, *args: Any) -> None:
            raise ZeroDivisionError

    x = new(3)
    for _ in range(3):
        x.neg()
    with Refuses(), pytest.raises(ZeroDivisionError):
        x.neg()


def test_what_is_traced_is_python_s() -> None:
    compiled = sa.aot_compile(lambda x: (x.t() @ x).sum(), fw_compiler="eager")
    x = torch.rand(3, 3)
    torch.testing.assert_close(compiled(x), (x.t() @ x).sum())


def test_what_is_not_served() -> None:
    for func in (aten.nonzero.default, aten.t_.default, aten.item.default, aten._conj.default, aten.set_.source_Tensor):
        assert effects_for_kernel(func) is None


def test_without_the_part_nothing_is_installed() -> None:
    assert (hooks.leaves is None) == (_native.accelerator("leaves") is None)

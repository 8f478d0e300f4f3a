"""Runs without data: what torch makes has none, on any device; small values that follow from constants are known."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot import Int8Weight, MetaTensor, TwoTensor, aot_compile, to_meta, trace_joint
from subclass_aot.errors import DataDependentError, MutationError, TraceError
from subclass_aot.meta import Listener, Operation

HUGE = 10**13  # no machine has room for so many elements


FACTORIES: list[Callable[[], torch.Tensor]] = [
    lambda: torch.zeros(HUGE),
    lambda: torch.ones(HUGE, dtype=torch.int64),
    lambda: torch.full((HUGE, 2), 3.0),
    lambda: torch.empty(HUGE),
    lambda: torch.empty_strided((HUGE, 2), (1, HUGE)),
    lambda: torch.rand(HUGE),
    lambda: torch.randn(HUGE, dtype=torch.float64),
    lambda: torch.randint(0, 5, (HUGE,)),
    lambda: torch.arange(HUGE),
    lambda: torch.linspace(0, 1, HUGE),
    lambda: torch.eye(10**7),
    lambda: torch.tril_indices(10**6, 10**6),
    lambda: torch.tensor(1.0).expand(HUGE),
    lambda: torch.tensor([1.0, 2.0]).repeat(HUGE),
    lambda: torch.as_tensor([1, 2]).new_zeros(HUGE),
    lambda: torch.zeros_like(torch.empty(HUGE)),
    lambda: torch.complex(torch.zeros(HUGE), torch.zeros(HUGE)),
    lambda: nn.Linear(10**7, 10**7).weight,
    lambda: nn.Embedding(10**10, 10**4, padding_idx=0).weight,
    lambda: nn.BatchNorm1d(HUGE).running_var,  # type: ignore[return-value, unused-ignore]
    lambda: nn.init.kaiming_normal_(nn.init.zeros_(torch.empty(10**7, 10**7))),
    lambda: nn.init.trunc_normal_(torch.empty(10**7, 10**7)),
    lambda: nn.init.orthogonal_(torch.empty(10**7, 10**7)),
    lambda: nn.init.constant_(nn.Parameter(torch.empty(HUGE)), 2.0),
    lambda: nn.MultiheadAttention(10**6, 4).in_proj_weight,
    lambda: nn.LSTM(10**6, 10**6).weight_ih_l0,
]


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("device", [None, "cuda:1", "meta"])
def test_factories(factory: Callable[[], torch.Tensor], device: str | None) -> None:
    with sa.meta(device):
        made = factory()
    assert isinstance(made, MetaTensor) and made.device == torch.device(device or "cpu")


def test_factories_tell_what_eager_tells() -> None:
    programs: list[Callable[[], torch.Tensor]] = [
        lambda: torch.tensor([1, 2]),
        lambda: torch.tensor(1.5, dtype=torch.float16),
        lambda: torch.arange(3, 9, 2),
        lambda: torch.ones(3, 4).t() + torch.arange(3),
        lambda: nn.Linear(3, 4, bias=False, dtype=torch.float64).weight,
    ]
    for program in programs:
        real = program()
        with sa.meta():
            twin = program()
        assert (twin.shape, twin.stride(), twin.dtype, twin.device, twin.requires_grad) == (
            real.shape, real.stride(), real.dtype, real.device, real.requires_grad,
        )  # fmt: skip


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width))

    def forward(self, tokens: torch.Tensor, *, big: int = 10**4) -> torch.Tensor:
        length = tokens.shape[1]
        mask = torch.ones(length, length, device=tokens.device).tril() == 1
        positions = torch.arange(length, device=tokens.device)
        x = self.embed(tokens) + torch.zeros(big, 1, 1, device=tokens.device)[:1] + positions[:, None]
        if not mask[:, 0].all():
            raise ValueError("a token must see the first")
        y: torch.Tensor = self.layers(x)
        return y


def test_a_model_and_a_batch_that_fit_nowhere() -> None:
    with sa.meta("cuda:3"):
        model = Model(10**7)
        y = model(torch.zeros(10**6, 10, dtype=torch.int64), big=HUGE)
    assert y.shape == (10**6, 10, 10**7)
    y.square().mean().backward()
    for parameter in [*model.parameters()]:
        gradient = parameter.grad
        assert isinstance(gradient, MetaTensor) and gradient.shape == parameter.shape
        assert gradient.device == torch.device("cuda:3")


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return b * 3 + a * 2


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
@pytest.mark.parametrize("part", [lambda x: Halves.apply(x)[0], lambda x: x.chunk(2, 1)[0], lambda x: x.max(1)[0]])
def test_zeros_that_autograd_makes(part: Any, device: str) -> None:
    """Where a result got no gradient, backward begins with zeros of its size, made by nobody's operator."""
    with sa.meta(device):
        x = torch.randn(HUGE, 2, requires_grad=True)
        again = torch.randn(HUGE, 2, requires_grad=True)
        inside = torch.autograd.grad(part(again).sum(), again)[0]
    part(x).sum().backward()
    assert isinstance(x.grad, MetaTensor) and x.grad.shape == x.shape and x.grad.device == torch.device(device)
    assert isinstance(inside, MetaTensor) and inside.shape == x.shape


def test_devices_that_are_not_there() -> None:
    with sa.meta():
        x = torch.zeros(3)
        assert torch.zeros(3, device="cuda").device == torch.device("cuda:0")
        assert torch.tensor([1, 2], device="cuda:1").device == torch.device("cuda:1")
        assert x.to("cuda", torch.float16).device == x.cuda().device == torch.device("cuda:0")
        assert x.cuda(2).device == x.cuda("cuda:2", non_blocking=True).device == torch.device("cuda:2")
        assert x.to(torch.zeros(2, dtype=torch.int8, device="cuda:1")).dtype is torch.int8
        assert x.to(torch.zeros(2, dtype=torch.int8, device="cuda:1")).device == torch.device("cuda:1")
        for layer in (nn.Linear(2, 2).cuda(), nn.Linear(2, 2).to("cuda")):
            assert layer.weight.device == torch.device("cuda:0")
        assert torch.zeros(3, device="xpu:0").device == torch.device("xpu:0")
        assert torch.zeros(3, pin_memory=True).shape == (3,)


def test_default_devices() -> None:
    with sa.meta("cuda:1"):
        with torch.device("cuda:2"):
            assert torch.zeros(1).device == torch.device("cuda:2")
            with sa.meta("xpu:0"):
                assert torch.zeros(1).device == torch.device("xpu:0")
            with sa.meta():
                assert torch.zeros(1).device == torch.device("cuda:2")
        assert torch.zeros(1).device == torch.device("cuda:1")
    torch.set_default_device("meta")
    try:
        with sa.meta():
            assert isinstance(torch.zeros(1), MetaTensor) and torch.zeros(1).device == torch.device("meta")
            torch.set_default_device("cuda:1")
            assert torch.zeros(1).device == torch.device("cuda:1")
    finally:
        torch.set_default_device(None)
    assert type(torch.zeros(1)) is torch.Tensor


def test_the_mode_ends_with_its_block() -> None:
    def inside() -> bool:
        return not torch.compiler.is_compiling() and type(torch.zeros(1)) is MetaTensor

    assert not inside()
    with pytest.raises(KeyboardInterrupt), sa.meta():
        with pytest.raises(ValueError, match="inner"), sa.meta("cuda:0"):
            raise ValueError("inner")
        assert inside() and torch.zeros(1).device == torch.device("cpu")
        raise KeyboardInterrupt
    assert not inside() and not torch.compiler.is_compiling()


def test_it_is_for_one_thread() -> None:
    """Two that overlap in time."""
    second, over = threading.Event(), threading.Event()
    found: list[Any] = []

    def other() -> None:
        found.append(type(torch.zeros(1)))
        with sa.meta("cuda:1"):
            found.append(torch.zeros(1).device)
            second.set()
            over.wait(10)
            found.append(type(torch.zeros(1)))

    thread = threading.Thread(target=other)
    with sa.meta():
        thread.start()
        assert second.wait(10)
        assert torch.zeros(1).device == torch.device("cpu")
    assert type(torch.zeros(1)) is torch.Tensor
    over.set()
    thread.join()
    assert found == [torch.Tensor, torch.device("cuda:1"), MetaTensor]


def test_two_that_overlap_in_time_leave_nothing_behind() -> None:
    """`torch.compile` goes on to compile, and what one thread compiles fits the calls of another."""
    second, over = threading.Event(), threading.Event()

    def other() -> None:
        with sa.meta():
            second.set()
            over.wait(10)

    thread = threading.Thread(target=other)
    with sa.meta():
        thread.start()
        assert second.wait(10)
    seen: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(len(inputs))
        return graph.forward

    during = torch.compile(lambda x: x + 2, backend=backend)(torch.zeros(3))
    assert during.tolist() == [2.0] * 3
    over.set()
    thread.join()
    assert torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(2)).tolist() == [1.0] * 2
    assert seen[-1:] == [1]

    compiled = aot_compile(lambda x: x * 2)
    for _ in range(2):
        call = threading.Thread(target=compiled, args=(TwoTensor(torch.ones(2), torch.ones(2)),))
        call.start()
        call.join()
    assert not compiled.recompiles


def test_wrappers() -> None:
    with sa.meta():
        layer = nn.Linear(10**7, 10**6)
        layer.weight = nn.Parameter(Int8Weight.from_float(layer.weight), requires_grad=False)
        y = layer(torch.randn(10**9, 10**7))
        two = TwoTensor(torch.zeros(HUGE), torch.ones(HUGE)).requires_grad_()
        (two * torch.zeros_like(two)).sum().backward()
    assert isinstance(layer.weight, Int8Weight) and isinstance(layer.weight.codes, MetaTensor)
    assert isinstance(y, MetaTensor) and y.shape == (10**9, 10**6)
    assert isinstance(two.grad, TwoTensor) and isinstance(two.grad.b, MetaTensor)


KNOWN: list[Callable[[], Any]] = [
    lambda: bool((torch.ones(3, 4) == 1).all()),
    lambda: torch.arange(6).view(2, 3).sum(0).tolist(),
    lambda: torch.tensor([3, 1]).max().item(),
    lambda: torch.ones(4, 4).triu(1).nonzero().tolist(),
    lambda: torch.ones(4, 4).triu(1)[torch.tensor([True, False, True, False])].tolist(),
    lambda: torch.equal(torch.zeros(2), torch.tensor([0.0, 0.0])),
    lambda: torch.empty(3).fill_(2).add_(1).tolist(),
    lambda: torch.full((2, 2), float("-inf")).masked_fill(torch.eye(2).bool(), 0).tolist(),
    lambda: torch.zeros(3, 3).index_put_((torch.tensor([0, 2]),), torch.tensor(4.0)).tolist(),
    lambda: torch.ones(3).cumsum(0).flip(0).unique().shape,
    lambda: F.one_hot(torch.arange(3)).tolist(),
    lambda: torch.repeat_interleave(torch.arange(2), torch.tensor([2, 1])).tolist(),
    lambda: [bool(x) for x in torch.tensor([1, 0])],
    lambda: f"{torch.tensor(1.5):.2f}",
]


def through_a_view() -> Any:
    mask = torch.zeros(3, 3)
    row = mask[1]
    row[0] = 5
    mask.add_(1)
    return mask.tolist(), row.tolist()


def through_a_list() -> Any:
    parts = [torch.zeros(2), torch.ones(2)]
    torch._foreach_add_(parts, 3)
    return [p.tolist() for p in parts]


@pytest.mark.parametrize("program", [*KNOWN, through_a_view, through_a_list])
@pytest.mark.parametrize("device", [None, "cuda:0"])
def test_known_values(program: Callable[[], Any], device: str | None) -> None:
    with sa.meta(device):
        found = program()
    assert found == program()


def test_known_positions_are_on_the_device() -> None:
    with sa.meta("cuda:1"):
        assert torch.ones(3).nonzero().device == torch.device("cuda:1")


def test_real_tensors_met_are_known() -> None:
    real = torch.tensor([2, 3])
    with sa.meta():
        assert (real * 2).tolist() == [4, 6] and (real + 1).max().item() == 4


def written_from_unknown() -> torch.Tensor:
    mask = torch.zeros(3)
    mask.copy_(torch.randn(3))
    return mask


def base_of_what_was_written() -> torch.Tensor:
    mask = torch.zeros(3, 3)
    mask[1].copy_(torch.randn(3))
    return mask


def view_of_what_was_written() -> torch.Tensor:
    mask = torch.zeros(3, 3)
    row = mask[1]
    mask.normal_()
    return row


def given_other_data() -> torch.Tensor:
    mask, other = torch.zeros(3), torch.zeros(3)
    mask.data = other
    other.normal_()
    return mask


def given_other_memory() -> torch.Tensor:
    mask, other = torch.zeros(3), torch.zeros(3)
    mask.set_(other)
    other.normal_()
    return mask


@pytest.mark.parametrize(
    "program",
    [
        lambda: torch.rand(3),
        lambda: torch.arange(10**8),  # more than is kept
        lambda: torch.empty(3),
        lambda: torch.empty_like(torch.ones(3)),
        lambda: torch.ones(3).new_empty(3),
        lambda: F.dropout(torch.ones(3)),
        written_from_unknown,
        base_of_what_was_written,
        view_of_what_was_written,
        given_other_data,
        given_other_memory,
    ],
)
def test_unknown_values(program: Callable[[], torch.Tensor]) -> None:
    with sa.meta():
        found = program()
        with pytest.raises(DataDependentError, match="asks for values"):
            found.sum().item()


def test_nothing_is_known_outside() -> None:
    """Where nobody hears of writes."""
    with sa.meta():
        mask = torch.ones(3)
    with pytest.raises(DataDependentError):
        mask.sum().item()
    with sa.meta(), pytest.raises(DataDependentError):
        mask.sum().item()


def test_real_tensors_are_not_written() -> None:
    real = torch.zeros(3)
    for write in (lambda: real.add_(1), lambda: real[1:].zero_(), lambda: torch._foreach_add_([real], 1)):
        with sa.meta(), pytest.raises(MutationError, match="written into a real one"):
            write()


def test_modules_without_data_run_in_the_mode() -> None:
    model = to_meta(Model(8), device="cuda:1")
    tokens = MetaTensor(torch.zeros(2, 5, dtype=torch.int64), device="cuda:1")
    y = model(tokens, big=HUGE)
    assert isinstance(y, MetaTensor) and y.device == torch.device("cuda:1")
    y.sum().backward()
    assert all(isinstance(p.grad, MetaTensor) for p in model.parameters())
    with pytest.raises(IndexError):
        model(MetaTensor(torch.zeros(5, dtype=torch.int64)))  # has no length
    assert type(torch.zeros(1)) is torch.Tensor and not torch.compiler.is_compiling()


class Maker(nn.Module):
    def forward(self, size: int, device: Any = None) -> torch.Tensor:
        return torch.zeros(size, device=device)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Maker()
        self.register_buffer("scale", torch.ones(1))

    def forward(self, size: int) -> torch.Tensor:
        made: torch.Tensor = self.inner(size) * self.scale
        return made


def test_copies_and_parts_of_a_module_run_in_the_mode() -> None:
    twin = to_meta(Outer(), "cuda:2")
    for module in (twin, copy.deepcopy(twin), pickle.loads(pickle.dumps(twin)), to_meta(twin, "cuda:2")):
        for made in (module(HUGE), module.inner(HUGE)):
            assert isinstance(made, MetaTensor) and made.device == torch.device("cuda:2")
        assert module.inner(HUGE, device="xpu:1").device == torch.device("xpu:1")
        assert vars(module)["forward"].module is module
    assert inspect.signature(twin.forward) == inspect.signature(Outer().forward)


def test_a_forward_of_the_instance_is_kept() -> None:
    module = Outer()
    module.forward = lambda size: torch.zeros(size) + 1  # type: ignore[method-assign]
    assert to_meta(module)(HUGE).shape == (HUGE,)


def test_a_trace_is_not_disturbed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return Maker()(3) + x

    ours = trace_joint(to_meta(Outer()), 3).graph_module.graph
    theirs = trace_joint(Outer(), 3).graph_module.graph
    assert [str(n.target) for n in ours.nodes] == [str(n.target) for n in theirs.nodes]
    with sa.meta("cuda:1"):
        y = aot_compile(program)(torch.ones(3))
    assert isinstance(y, MetaTensor) and y.shape == (3,)


def test_what_was_compiled_in_one_block_serves_in_the_next() -> None:
    compiled = aot_compile(lambda x: x * 2 + torch.zeros(3))
    for _ in range(3):
        with sa.meta():
            assert isinstance(compiled(torch.ones(3)), MetaTensor)
    assert "1 signature" in str(compiled.explain())


def entered(x: torch.Tensor) -> torch.Tensor:
    with sa.meta():
        return x * 2


def test_a_trace_has_no_data_anyway() -> None:
    with pytest.raises(TraceError, match="while it is traced") as caught:
        aot_compile(entered)(torch.ones(3))
    assert "with sa.meta():" in str(caught.value)


def test_the_room_of_that_name_is_still_one() -> None:
    import subclass_aot.meta as room
    from subclass_aot.meta import Stream

    assert room is importlib.import_module("subclass_aot.meta") is sa.meta  # type: ignore[comparison-overlap]
    assert room.Stream is Stream


def test_what_fake_tensors_compute_is_no_work() -> None:
    """DTensor finds the shapes of an operator by running it on fake tensors of the whole sizes."""

    class Heard(Listener):
        operators: tuple[Any, ...] = ()

        def on_operator(self, operation: Operation) -> None:
            self.operators = (*self.operators, operation.func)

    heard = Heard()
    with sa.meta(), heard:
        x = torch.empty(2, 3)
        with FakeTensorMode():
            fake = torch.empty(30, 40) @ torch.empty(40, 50)
            y = x * 2  # of tensors of the run: it is work
    assert type(fake) is FakeTensor
    assert type(y) is MetaTensor
    assert [func.overloadpacket for func in heard.operators] == [torch.ops.aten.empty, torch.ops.aten.mul]


def test_a_run_within_a_mode_of_fake_tensors() -> None:
    with FakeTensorMode(), sa.meta():
        assert type(torch.empty(2, 3)) is MetaTensor


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_tensor_that_claims_nothing_is_where_the_others_are(device: str) -> None:
    nothing, there = (MetaTensor(torch.empty(3, 3, device="meta"), where) for where in (None, device))
    scalar = MetaTensor(torch.empty((), device="meta"))
    results = [
        nothing @ there, there @ nothing, nothing + there, torch.cat([nothing, there]), there * scalar,
        F.linear(nothing, there, MetaTensor(torch.empty(3, device="meta"))),
    ]  # fmt: skip
    assert {str(x.device) for x in results} == {device}
    assert (nothing * scalar).device.type == "meta"


@pytest.mark.parametrize("device", [None, "cuda:0"])
def test_a_batch_that_claims_nothing(device: str | None) -> None:
    layer = to_meta(nn.LSTM(3, 4, num_layers=2), device)
    result, _ = layer(MetaTensor(torch.empty(2, 10**9, 3, device="meta")))
    result.sum().backward()
    assert str(result.device) == (device or "cpu")
    assert {str(p.grad.device) for p in layer.parameters()} == {device or "cpu"}

"""`torch.compile(..., backend="subclass_aot")`, against eager mode."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, _dynamo, nn

from subclass_aot import Int8Weight, TwoTensor, quantize_
from subclass_aot.base import _torch
from subclass_aot.doors import dynamo
from subclass_aot.engine.compile import CompiledFunction
from subclass_aot.errors import SubclassAotError
from subclass_aot.testing import difference
from tests.doors.dynamo.checks import Make, check, rand

backend_module: Any = sys.modules[dynamo.backend.__module__]
ForeignTwoTensor: Any = _torch.wrappers.foreign_two_tensor()


@pytest.fixture
def fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What had to be compiled with guards of its own."""
    found: list[Any] = []

    def noted(fn: Any, options: Any) -> Any:
        compiled = CompiledFunction(fn, options)

        def call(*args: Any) -> Any:
            found.append(fn)
            return compiled(*args)

        return call

    monkeypatch.setattr(backend_module, "CompiledFunction", noted)
    return found


def writes_and_reads(x: Tensor, s: Any) -> Any:
    x.mul_(2)
    return s + 1


def grows(x: Tensor) -> Tensor:
    return x.view(-1).sin() * x.shape[0]


def in_bfloat16(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x


PROGRAMS: dict[str, tuple[Any, Make]] = {
    "dense": (lambda x: x.sin().sum(), lambda _: [rand(3, grad=True)]),
    "a wrapper": (lambda s, y: (s * y).sin(), lambda _: [rand(3, grad=True, cls=TwoTensor), rand(3)]),
    "a foreign wrapper": (lambda s, y: (s * y).sin(), lambda _: [rand(3, grad=True, cls=ForeignTwoTensor), rand(3)]),
    "nested wrappers": (
        lambda s: s.sin(),
        lambda _: [TwoTensor(rand(3, cls=TwoTensor), rand(3, cls=TwoTensor)).requires_grad_()],
    ),
    "a write": (lambda x, s: (x.mul_(2), s + x)[1], lambda _: [rand(3), rand(3, cls=TwoTensor)]),
    "a write into a leaf of a wrapper": (lambda s: s.mul_(2), lambda _: [rand(3, cls=TwoTensor)]),
    "a write that autograd sees": (lambda x, y: x.mul_(y).sin(), lambda _: [rand(3), rand(3, grad=True)]),
    "views": (lambda s: (s.view(-1), s.t()), lambda _: [rand(3, 2, cls=TwoTensor)]),
    "detached": (lambda s: s.detach() * s, lambda _: [rand(3, 2, grad=True, cls=TwoTensor)]),
    "nothing": (lambda x: (), lambda _: [rand(3)]),
    "its argument": (lambda x: x, lambda _: [rand(3, grad=True)]),
    "vmap": (lambda x: torch.func.vmap(lambda z: z.sin().sum())(x), lambda _: [rand(3, 2, grad=True)]),
    "grad": (lambda x: torch.func.grad(lambda z: z.sin().sum())(x), lambda _: [rand(3, 2)]),
    "cond": (lambda x: torch.cond(x.sum() > 1, lambda z: z.sin(), lambda z: z.cos(), (x,)), lambda _: [rand(3)]),
    "a constant": (lambda x: x * torch.tensor([1.0, 2.0]), lambda _: [rand(2, grad=True)]),
    "random numbers": (lambda x: x * torch.rand(3), lambda _: [rand(3, grad=True)]),
    "autocast": (in_bfloat16, lambda _: [rand(3, 3, grad=True)]),
    "computed arguments": (lambda x: x.mul_(2).sin(), lambda _: [rand(3, grad=True) * 2]),
    "dynamic": (grows, lambda call: [rand(3 + call, 4, grad=True)]),
    "a dynamic wrapper": (
        lambda s, y: (s * y).sum(0) * s.shape[0],
        lambda call: [rand(3 + call, 4, grad=True, cls=TwoTensor), rand(3 + call, 4)],
    ),
    "a dynamic foreign wrapper": (
        lambda s, y: (s * y).sum(0) * s.shape[0],
        lambda call: [rand(3 + call, 4, grad=True, cls=ForeignTwoTensor), rand(3 + call, 4)],
    ),
    "a dynamic write": (lambda x, y: x.add_(y), lambda call: [rand(3 + call, 4), rand(4)]),
    "a size as result": (lambda x: (x * 2, x.shape[0] * 3), lambda call: [rand(3 + call)]),
    "sizes that meet": (lambda x, y: x @ y, lambda call: [rand(2, 3 + call, grad=True), rand(3 + call, 2)]),
    "weights": (
        lambda w, x: torch.nn.functional.linear(x, w),
        lambda call: [Int8Weight.from_float(rand(4, 3)), rand(2 + call, 3, grad=True)],
    ),
}


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_does(name: str, dynamic: bool | None, fallbacks: list[Any]) -> None:
    program, make = PROGRAMS[name]
    check(program, make, dynamic=dynamic)
    # Dynamo's graph has no sizes for the wrapper inside another: `aot_compile` has guards of its own for them.
    assert bool(fallbacks) == (name == "nested wrappers" and dynamic is True)


@pytest.mark.parametrize("name", ["dense", "a wrapper", "a dynamic wrapper", "a write", "weights", "a dynamic write"])
def test_with_inductor(name: str, fallbacks: list[Any]) -> None:
    program, make = PROGRAMS[name]
    check(program, make, options={"fw_compiler": "inductor"})
    assert not fallbacks


def test_an_inner_tensor_that_shares_memory(fallbacks: list[Any]) -> None:
    """Dynamo does not look for it."""

    def make(call: int) -> list[Any]:
        x = rand(3)
        return [x, TwoTensor(x[:] if call % 2 else rand(3), rand(3))]

    check(writes_and_reads, make, calls=4)
    assert len(fallbacks) == 2


def test_a_leaf_and_what_was_computed(fallbacks: list[Any]) -> None:
    def make(call: int) -> list[Any]:
        x = rand(3, grad=True)
        return [x * 2 if call % 2 else x]

    check(lambda x: x.sin(), make, calls=4)
    assert len(fallbacks) <= 2


@pytest.mark.parametrize("break_at", ["view", "write"])
def test_graph_breaks(break_at: str) -> None:
    def program(s: Any) -> Any:
        y = s.view(-1) if break_at == "view" else s * 2
        _dynamo.graph_break()
        return y.cos() if break_at == "view" else y.mul_(3)

    check(program, lambda call: [rand(3, 2, grad=True, cls=TwoTensor)], fullgraph=False)


@pytest.mark.parametrize("cls", [None, TwoTensor, ForeignTwoTensor])
@pytest.mark.parametrize("create_graph", [False, True])
def test_backward_within_the_program(cls: Any, create_graph: bool) -> None:
    """Dynamo breaks the graph there, and would compile every Python frame that runs in backward."""

    def program(x: Tensor) -> Tensor:
        y = x.sin() * 2
        _dynamo.graph_break()
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=create_graph)
        return gradient * 2

    options = {"double_backward": True} if create_graph else {}
    check(program, lambda _: [rand(3, grad=True, cls=cls)], fullgraph=False, options=options)


def test_a_step_of_an_optimizer_within_the_program() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        (x * y).sum().backward()
        with torch.no_grad():
            x.sub_(x.grad * 0.1)  # type: ignore[operator]
        x.grad = None
        return x.detach() * 1

    check(program, lambda _: [rand(3, grad=True), rand(3)], fullgraph=False)


@pytest.mark.parametrize("cls", [None, TwoTensor, ForeignTwoTensor])
@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("name", ["a view", "views of a result", "a write", "computed"])
def test_inference_mode(name: str, made_inside: bool, cls: Any) -> None:
    """Dynamo switches it off while it compiles."""
    programs: dict[str, Any] = {
        "a view": lambda x: (x, x.view_as(x)),
        "views of a result": lambda x: (x * 2).unbind(),
        "a write": lambda x: (x.mul_(2), x + 1)[1],
        "computed": lambda x: x * 2,
    }
    program = programs[name]
    compiled = torch.compile(program, backend="subclass_aot")

    def made(call: int) -> Any:
        torch.manual_seed(call)
        return rand(3, cls=cls)

    for call in range(3):
        outside = made(call), made(call)
        with torch.inference_mode():
            x, y = (made(call), made(call)) if made_inside else outside
            expected, found = _flat(program(x)), _flat(compiled(y))
            for mine, wanted in zip(found, expected, strict=True):
                assert type(mine) is type(wanted)
                if cls is None or made_inside:  # see docs/limits.md
                    assert mine.is_inference() == wanted.is_inference()
                assert not difference(wanted, mine)


def _flat(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple | list) else [results]


def test_a_while_loop_over_data() -> None:
    """It runs as often as the values of each call say."""
    from torch._higher_order_ops import while_loop

    def program(x: Tensor) -> Tensor:
        return while_loop(lambda z: z.sum() < 20, lambda z: (z + 1,), (x,))[0] * 2

    check(program, lambda call: [rand(3) * 4 * call])


def test_a_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    quantize_(model[3], Int8Weight)
    other = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    quantize_(other[3], Int8Weight)
    other.load_state_dict(model.state_dict())
    compiled: Any = torch.compile(other, backend="subclass_aot", fullgraph=True)
    for size in 5, 6, 7:
        x = torch.rand(size, 4)
        expected, found = model(x), compiled(x)
        torch.testing.assert_close(found, expected)
        expected.sum().backward()
        found.sum().backward()
    for (name, a), b in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            torch.testing.assert_close(b.grad, a.grad)
    torch.testing.assert_close(dict(other.named_buffers()), dict(model.named_buffers()))


def test_sizes_that_depend_on_data() -> None:
    with _dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        check(lambda x: torch.nonzero(x > 0.5).sum(0), lambda call: [rand(5 + call)])
        check(lambda x: x * x.sum().item(), lambda _: [rand(3)])


def test_jagged_tensors() -> None:
    def make(call: int) -> list[Any]:
        parts = [torch.rand(n, 3) for n in (2, 4 + call)]
        return [torch.nested.nested_tensor(parts, layout=torch.jagged)]

    compiled = torch.compile(lambda x: (x.sin() * 2).values(), backend="subclass_aot")
    for call in range(3):
        (x,) = make(call)
        torch.testing.assert_close(compiled(x), (x.sin() * 2).values())


def test_a_graph_that_changes_what_an_input_looks_like() -> None:
    check(lambda x: x.t_(), lambda _: [rand(3, 2)], fullgraph=False)


def test_the_name_is_known_to_torch() -> None:
    assert "subclass_aot" in _dynamo.list_backends(exclude_tags=())


def test_options_are_the_keywords_of_aot_compile() -> None:
    seen: list[Any] = []

    def compiler(gm: Any, inputs: Any) -> Any:
        seen.append(gm)
        return gm

    check(lambda x: x * 2, lambda _: [rand(3, grad=True)], calls=1, options={"fw_compiler": compiler})
    assert len(seen) == 2


@pytest.mark.parametrize(
    "given, switches",
    [
        ({"mode": "reduce-overhead"}, (False, True)),
        ({"mode": "max-autotune-no-cudagraphs"}, (True, False)),
        ({"options": {"mode": "max-autotune", "lazy_backward": False}}, (True, True)),
        ({"options": {"fw_compiler": "inductor"}}, (False, False)),
    ],
)
def test_a_mode_is_for_inductor(
    given: dict[str, Any], switches: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward and backward are compiled under its switches, which are as before afterwards."""
    from torch._inductor import compile_fx, config

    now: Any = config
    seen: list[tuple[bool, bool]] = []

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.append((now.max_autotune, now.triton.cudagraphs))
        return inner(*args, **kwargs)

    inner: Any = compile_fx.compile_fx_inner
    monkeypatch.setattr(compile_fx, "compile_fx_inner", noted)
    before = now.max_autotune, now.triton.cudagraphs
    check(lambda s: (s * 2).sin(), lambda _: [rand(3, grad=True, cls=TwoTensor)], calls=1, **given)
    assert seen == [switches, switches]
    assert (now.max_autotune, now.triton.cudagraphs) == before


@pytest.mark.parametrize(
    "given, message",
    [
        ({"options": {"fw_compilr": "eager"}}, "there is no option 'fw_compilr'"),
        ({"options": {"fw_compiler": "what"}}, "no compiler named 'what'"),
        ({"mode": "what"}, "inductor has no mode 'what'.\n  Modes: default, "),
        (
            {"options": {"mode": "max-autotune", "fw_compiler": "eager"}},
            "is for inductor, and not for 'eager'",
        ),
    ],
)
def test_what_is_not_known_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        torch.compile(lambda x: x * 2, backend="subclass_aot", **given)(rand(3))
    assert isinstance(caught.value.inner_exception, SubclassAotError)  # type: ignore[attr-defined]


def test_nodes_have_the_lines_of_the_program() -> None:
    traces: list[str] = []

    def compiler(gm: Any, inputs: Any) -> Any:
        traces.extend(node.meta["stack_trace"] for node in gm.graph.nodes if node.op == "call_function")
        return gm

    def program(x: Tensor) -> Tensor:
        y = x.sin()
        return y * x

    compiled = torch.compile(program, backend="subclass_aot", options={"fw_compiler": compiler})
    compiled(rand(3, grad=True)).sum().backward()
    assert len(traces) >= 5
    for trace in traces:
        last = trace.splitlines()[-1].strip()
        assert last in ("y = x.sin()", "return y * x"), trace


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_scan_in_a_scan_leaves_no_transform_behind(dynamic: bool) -> None:
    """A trace that begins again may be within `vmap`."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def rows(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + associative_scan(lambda a, b: a * b, y, 1, combine_mode="generic")

    def program(x: torch.Tensor) -> Any:
        return associative_scan(rows, x, 0, combine_mode="generic")

    compiled, x = torch.compile(program, backend="subclass_aot", dynamic=dynamic, fullgraph=True), torch.randn(3, 4, 5)
    torch.testing.assert_close(compiled(x), program(x))

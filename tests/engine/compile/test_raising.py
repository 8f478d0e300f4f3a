"""Functions that raise: what they did before is done, and the error is eager's, at each call."""

from __future__ import annotations

import asyncio
import copy
import functools
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import MutationError, OperatorRuleError

GLOBAL = ValueError("one for all calls")


class Bare(sa.WrapperTensor):
    """Has no views."""

    payload: torch.Tensor


class World:
    """What a function changes before it raises."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.fails = True
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.weight = torch.nn.Parameter(sa.TwoTensor(torch.rand(3), torch.rand(3)))
        self.optimizer = torch.optim.SGD(self.linear.parameters(), 0.1, momentum=0.9)
        self.steps, self.log, self.table = torch.zeros(()), [1], {"k": 1}
        self.count = 0
        self.generator = torch.Generator().manual_seed(1)

    def state(self) -> dict[str, Any]:
        """Returns copies of all that there is."""
        kept = {name: value for name, value in vars(self).items() if name not in ("optimizer", "generator")}
        gradients = [p.grad for p in (*self.linear.parameters(), self.weight)]
        states = torch.get_rng_state(), self.generator.get_state()
        return copy.deepcopy({**kept, "gradients": gradients, "optimizer": self.optimizer.state_dict(), "rng": states})


def writes(w: World, x: Any) -> None:
    w.steps.add_(1)


def writes_argument(w: World, x: Any) -> None:
    with torch.no_grad():
        x.mul_(2)


def counts(w: World, x: Any) -> None:
    w.count += 1
    w.log.append(w.count)
    w.table["n"] = w.count


def keeps_what_it_computed(w: World, x: Any) -> None:
    w.log.append(x.detach() * 2)
    w.table.pop("k", None)


def normalizes(w: World, x: Any) -> None:
    w.norm(x)


def draws(w: World, x: Any) -> None:
    w.log.append(torch.rand(3) + torch.nn.functional.dropout(x.detach(), 0.5))


def draws_from_its_own_generator(w: World, x: Any) -> None:
    w.log.append(torch.rand(3, generator=w.generator))


def trains(w: World, x: Any) -> None:
    w.optimizer.zero_grad()
    w.linear(x.detach()).sum().backward()
    w.optimizer.step()


def accumulates(w: World, x: Any) -> None:
    (w.weight * 2).sum().backward()
    w.linear(x.detach()).sum().backward()


def moves_data(w: World, x: Any) -> None:
    w.linear.weight.data.mul_(0.5)
    w.linear.bias.data = w.linear.bias.data + 1


def writes_wrapper(w: World, x: Any) -> None:
    with torch.no_grad():
        w.weight.mul_(2)


def freezes(w: World, x: Any) -> None:
    w.norm.eval()
    w.linear.extra = w.count


DOES = (
    writes, writes_argument, counts, keeps_what_it_computed, normalizes, draws, draws_from_its_own_generator, trains,
    accumulates, moves_data, writes_wrapper, freezes,
)  # fmt: skip


def plainly(w: World, x: Any) -> None:
    raise ValueError("long", w.count)


def by_torch(w: World, x: Any) -> None:
    x @ torch.ones(7, 7)


def by_a_read(w: World, x: Any) -> None:
    if x.sum() < 1000:
        raise FloatingPointError("not finite")


def after_a_catch(w: World, x: Any) -> None:
    try:
        w.table["absent"]
    except KeyError as error:
        w.count += 1
        raise RuntimeError("no such thing") from error


def in_finally(w: World, x: Any) -> None:
    try:
        raise TypeError("inside")
    finally:
        w.log.append("finally")


def with_one_for_all(w: World, x: Any) -> None:
    raise GLOBAL


def stops(w: World, x: Any) -> None:
    next(iter(()))


def by_a_generator(w: World, x: Any) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        w.count += 1
        raise StopIteration

    list(numbers())


def as_a_group(w: World, x: Any) -> None:
    raise ExceptionGroup("two", [ValueError(1), KeyError("a")])


def beside_exception(w: World, x: Any) -> None:
    raise asyncio.CancelledError("stop")


def closes(w: World, x: Any) -> None:
    raise GeneratorExit


def by_a_rule(w: World, x: Any) -> None:
    Bare(torch.zeros(3, 4)).view(12)


@functools.partial(sa.aot_compile)
def _inner(w: World, x: Any) -> None:
    w.steps.mul_(3).add_(1)
    raise LookupError("inside of another one")


def by_a_compiled_function(w: World, x: Any) -> None:
    _inner(w, x)


RAISES = (
    plainly, by_torch, by_a_read, after_a_catch, in_finally, with_one_for_all, stops, by_a_generator, as_a_group,
    beside_exception, closes, by_a_rule, by_a_compiled_function,
)  # fmt: skip


def function(w: World, does: Callable[..., None], raises: Callable[..., None]) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        does(w, x)
        if w.fails:
            raises(w, x)
        w.steps.sub_(0.5)
        return x * w.steps + w.linear(x)

    return step


def lines(error: BaseException) -> list[tuple[int, str]]:
    """Returns the lines in this file that an error came through."""
    return [
        (line, f.f_code.co_name)
        for f, line in traceback.walk_tb(error.__traceback__)
        if "test_" in f.f_code.co_filename
    ]


def run(compile: Callable[..., Any], does: Any, raises: Any, rows: tuple[int, ...], grad: bool) -> list[Any]:
    """Runs three calls that fail, and two that do not; returns what each gave and left."""
    world, found = World(), []
    step = compile(function(world, does, raises))
    for number, size in enumerate(rows):
        world.fails = number < 3
        x = torch.linspace(-1, 1, 3 * size).reshape(size, 3).requires_grad_(grad)
        GLOBAL.__traceback__ = GLOBAL.__context__ = None
        try:
            result = step(x)
            if grad:
                result.sum().backward()
            outcome: Any = result.detach(), x.grad
        except BaseException as error:
            inner = [type(each) for each in (error.__cause__, error.__context__)]
            outcome = type(error), str(error), error.args if error is not GLOBAL else id(error), inner, lines(error)[1:]
        found.append((outcome, x.detach().clone(), world.state()))
    return found


def agree(compile: Callable[..., Any], *given: Any) -> None:
    expected, got = run(lambda fn: fn, *given), run(compile, *given)
    for number, (mine, its) in enumerate(zip(expected, got, strict=True)):
        for name, x, y in zip(("outcome", "argument", "state"), mine, its, strict=True):
            assert _said(x) == _said(y), (number, name)


def _said(value: Any) -> Any:
    """Returns a value that can be compared by `==`, with tensors as lists."""
    if isinstance(value, sa.TwoTensor):
        return ["TwoTensor", _said(value.a), _said(value.b), _said(value.grad)]
    if isinstance(value, torch.Tensor):
        return [type(value), value.requires_grad, value.tolist()]
    if isinstance(value, torch.nn.Module):
        return _said(
            {**value.state_dict(keep_vars=True), "training": value.training, "extra": vars(value).get("extra")}
        )
    if isinstance(value, BaseException):
        return [type(value), _said(value.args)]
    if isinstance(value, dict):
        return {key: _said(item) for key, item in value.items()}
    return [type(value), [*map(_said, value)]] if isinstance(value, list | tuple) else value


STATIC, CHANGING = (2, 2, 2, 2, 2), (2, 3, 4, 5, 6)


@pytest.mark.parametrize("does", DOES)
@pytest.mark.parametrize(("rows", "grad"), [(STATIC, True), (CHANGING, False)])
def test_what_was_done_before_is_done(does: Any, rows: Any, grad: bool) -> None:
    agree(sa.aot_compile, does, plainly, rows, grad)


@pytest.mark.parametrize("raises", RAISES)
@pytest.mark.parametrize(("rows", "grad"), [(STATIC, False), (CHANGING, True)])
def test_however_it_raises(raises: Any, rows: Any, grad: bool) -> None:
    agree(sa.aot_compile, counts, raises, rows, grad)
    agree(functools.partial(sa.aot_compile, dynamic=True), draws, raises, rows, grad)


@pytest.mark.parametrize("does", [writes, counts, draws])
def test_behind_torch_compile(does: Any) -> None:
    torch._dynamo.reset()
    agree(functools.partial(torch.compile, backend="subclass_aot"), does, plainly, STATIC, True)


class _FailsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: World) -> Any:
        ctx.world = w
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.world.count += 1
        raise ArithmeticError("no gradient")


def _fails(w: World, gradient: Any) -> Any:
    w.count += 1
    raise ArithmeticError("no gradient")


def _prepares(w: World, how: str, x: Any) -> Any:
    w.steps.add_(1)
    w.log.append(torch.rand(3))
    y = x * w.steps
    if how == "a formula":
        return _FailsBackward.apply(y, w)
    if how == "a hook":
        y.register_hook(functools.partial(_fails, w))
    return y * 2


@pytest.mark.parametrize("how", ["a formula", "a hook", "a hook of an argument"])
def test_what_raises_in_backward_raises_there(how: str) -> None:
    """The trace goes backward at the call."""
    found = []
    for compile in (lambda fn: fn, sa.aot_compile):
        world = World()

        hook = functools.partial(_fails, world)
        run, said = compile(functools.partial(_prepares, world, how)), []
        for _ in range(2):
            x = torch.ones(3, requires_grad=True)
            if how == "a hook of an argument":
                x.register_hook(hook)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                result = run(x)
            said.append(len(warned))
            with pytest.raises(ArithmeticError, match="no gradient"):
                result.sum().backward()
        found.append((_said(world.state()), _said(result)))
        if compile is sa.aot_compile and how != "a hook of an argument":
            assert said == [1, 0] and "ArithmeticError: no gradient" in str(warned or "ArithmeticError: no gradient")
    assert found[0] == found[1]


def test_a_trace_that_is_wrong_warns_once() -> None:
    """Whatever a trace runs into, its results are those of eager mode."""
    counts: list[Any] = []

    def step(x: Any) -> Any:
        counts.append(1)
        if torch.compiler.is_compiling():
            raise LookupError("in a trace alone")
        return x * 2

    step = sa.aot_compile(step)
    with pytest.warns(
        UserWarning, match="(.|\n)*LookupError: in a trace alone(.|\n)*test_raising.py:.*raise LookupError"
    ):
        assert step(torch.ones(2)).tolist() == [2, 2]
    assert step(torch.ones(3)).tolist() == [2, 2, 2] and counts == [1, 1]


def test_a_trace_that_fails_with_symbols_alone_is_made_with_numbers() -> None:
    """Also of a function that reads values. No warning comes."""

    def step(x: Any) -> Any:
        if x.sum() > 0 and not isinstance(x.shape[0] + 0, int):
            raise LookupError("with symbols")
        return x * hash(x.shape[0]).__class__(2)

    compiled = sa.aot_compile(step)
    for size in (2, 3, 4):
        assert compiled(torch.ones(size)).tolist() == [2] * size


def test_a_refusal_has_done_nothing() -> None:
    world = World()

    def step(x: Any) -> Any:
        counts(world, x)
        x.set_(torch.ones(3))

    with pytest.raises(MutationError):
        sa.aot_compile(step, values="refuse")(torch.ones(3))
    assert world.count == 0 and world.log == [1]


def test_what_a_class_refuses_in_eager_mode_too_is_an_error_of_the_function() -> None:
    world = World()
    for compile in (lambda fn: fn, sa.aot_compile):
        with pytest.raises(OperatorRuleError):
            compile(function(world, counts, by_a_rule))(torch.ones(3))
    assert world.count == 2


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_has_done_nothing(interruption: type[BaseException]) -> None:
    world = World()

    def interrupts(w: World, x: Any) -> None:
        raise interruption

    with pytest.raises(interruption):
        sa.aot_compile(function(world, counts, interrupts))(torch.ones(3))
    assert world.count == 0


def test_what_a_compiler_raises_is_as_it_is() -> None:
    world, ran = World(), []

    def fails(graph: Any, inputs: Any) -> Any:
        raise LookupError("no kernel")

    def step(x: Any) -> Any:
        ran.append(1)
        counts(world, x)
        return x * 2

    compiled = sa.aot_compile(step, fw_compiler=fails)
    with pytest.raises(LookupError, match="no kernel"):
        compiled(torch.ones(3))
    assert world.count == 0 and len(world.log) == 1


def test_stages_run_nothing() -> None:
    world = World()
    compiled = sa.aot_compile(function(world, counts, plainly))
    with pytest.raises(ValueError, match="long") as caught:
        compiled.stages(torch.ones(3))
    assert world.count == 0 and lines(caught.value)[-1][1] == "plainly"


@pytest.mark.parametrize("with_function", [True, False])
def test_what_a_file_has_goes_on(with_function: bool, tmp_path: Any) -> None:
    model = torch.nn.Linear(3, 3)
    model.register_buffer("steps", torch.zeros(()))
    model.fails = False
    call = type(model).forward

    class Counting(type(model)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            self.steps.add_(1)
            if x.shape[0] == 5:
                raise ValueError("five")
            return call(self, x)

    model.__class__ = Counting
    compiled = sa.aot_compile(model)
    compiled(torch.ones(2, 3))
    compiled.save(tmp_path / "file.sa")
    again = sa.load_compiled(tmp_path / "file.sa", *[model] * with_function, trust=True)
    if not with_function:
        with pytest.raises(sa.errors.CompiledFileError):
            again(torch.ones(5, 3))
        return
    again(torch.ones(2, 3))
    with pytest.raises(ValueError, match="five"):
        again(torch.ones(5, 3))
    assert model.steps == 3


def test_nothing_of_the_trace_is_held() -> None:
    """An error that a program keeps has the steps of eager mode alone, and holds no traced tensor."""
    world = World()

    def raises(w: World, x: Any) -> None:
        y = x * 2
        try:
            next(number for number in (y,) if w.table["absent"])
        except KeyError:
            raise GLOBAL from None

    compiled = sa.aot_compile(function(world, counts, raises))
    for _ in range(3):
        with pytest.raises(ValueError, match="one for all") as caught:
            compiled(torch.ones(3))
    held = [x for f, _ in traceback.walk_tb(caught.value.__traceback__) for x in f.f_locals.values()]
    assert not any(type(x) is sa.MetaTensor for x in held)
    steps = [f.f_code.co_name for f, _ in traceback.walk_tb(GLOBAL.__traceback__)]
    assert steps.count("raises") == 3 and "trace_once" not in steps
    del caught


def _until(w: World, order: list[Any], at: int, x: Any) -> Any:
    for number, does in enumerate(order):
        if number == at:
            raise IndexError(number)
        does(w, x)
    return x * 2


def test_a_longer_program_that_fails_at_each_line_in_turn() -> None:
    random.seed(0)
    order = [random.choice(DOES) for _ in range(5)]
    found = []
    for compile in (lambda fn: fn, sa.aot_compile):
        world, said = World(), []

        run = compile(functools.partial(_until, world, order))
        for at in range(len(order) + 1):
            x = torch.linspace(-1, 1, 6).reshape(2, 3)
            try:
                said.append(_said(run(at, x)))
            except IndexError as error:
                said.append(str(error))
            said.append(_said([x, world.state()]))
        found.append(said)
    assert found[0] == found[1]

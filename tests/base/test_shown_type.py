"""What `type(x)` and `isinstance(n, int)` are in a program that is traced: see Note [Types in a trace]."""

from __future__ import annotations

import copy
import numbers
import pickle
import sys
import sysconfig
import threading
import types
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.base.shown_type import ShownType, modules_of_programs, show_as, types_shown
from tests.plain_subclasses import Tag


class Meta(type):
    pass


class Registered(type):
    """Calls the methods of `type` by its name, as metaclasses of programs do."""

    made: ClassVar[list[str]] = []

    def __new__(mcs, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> Any:
        cls = type.__new__(mcs, name, bases, names)
        mcs.made.append(type.__getattribute__(cls, "__name__"))
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> None:
        type.__init__(cls, name, bases, names)
        type.__setattr__(cls, "scale", 2)

    def __call__(cls, *args: Any) -> Any:
        return type.__call__(cls, *args)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "is": lambda x: x * 2 if type(x) is torch.Tensor else x * 3,
    "equal": lambda x: x * 2 if type(x) == nn.Parameter else x * 3,  # noqa: E721
    "attribute": lambda x: x * (2 if x.__class__ is torch.Tensor else 3) * len(x.__class__.__name__),
    "in": lambda x: x * 2 if type(x) in (torch.Tensor, int) else x * 3,
    "key": lambda x: x * {torch.Tensor: 2, nn.Parameter: 5}.get(type(x), 3),
    "name": lambda x: x * len(type(x).__name__),
    "ancestors": lambda x: x * len(type(x).__mro__),
    "computed": lambda x: x * (2 if type(x + 1) is torch.Tensor else 3),
    "parameter": lambda x: x * (2 if type(nn.Parameter(x.detach())) is nn.Parameter else 3),
    "helper": lambda x: x * (2 if is_dense(x) else 3),
    "method": lambda x: Branching()(x),
    "map": lambda x: x * sum(kind is torch.Tensor for kind in map(type, [x, x + 1])),
    "a class": lambda x: x * len(type("Made", (Tag,), {}).__mro__),
    "a metaclass": lambda x: x * (2 if isinstance(Meta("Made", (), {}), type) and issubclass(Meta, type) else 3),
    "methods of type": lambda x: x * Registered("Made", (), {})().scale,
    "makes it without a class": lambda x: x * len(type.__new__(type, "Made", (int,), {}).__mro__),
    "names of type": lambda x: x * (len(type.__dict__["__mro__"].__get__(int)) + len(type.__subclasses__(Registered))),
    "a typed dict": lambda x: x * len(typing.TypedDict("Made", {"a": int}).__annotations__),  # type: ignore[operator]
    "a copy of type": lambda x: x * (2 if copy.deepcopy(type) == pickle.loads(pickle.dumps(type)) == type else 3),  # noqa: E721
    "attributes": lambda x: x * len(type.mro(int)) * (2 if type == type(int) and hash(type) == hash(type(int)) else 3),  # noqa: E721
    "size": lambda x: x * (2 if type(x.shape[0]) is int else 3),
    "is an int": lambda x: x * (2 if isinstance(x.shape[0], int) else 3),
    "is one of": lambda x: x * (2 if isinstance(x.shape[0], (float, int)) and isinstance(x.numel(), int | str) else 3),
    "is a number": lambda x: x * (2 if isinstance(x.shape[0], numbers.Integral) else 3),
    "is a float": lambda x: x * (2 if isinstance(x.shape[0] / 2, float) else 3),
    "is a bool": lambda x: x * (2 if isinstance(x.shape[0] > 2, bool) else 3),
    "is none": lambda x: x * (2 if isinstance(x.shape[0], str | list) else 3),
    "a pair of it": lambda x: x * len(pair(x.shape[0])),
    "has a shape": lambda x: x * (2 if isinstance(x, Shaped) and not isinstance(x.shape[0], Shaped) else 3),
    "still a tensor": lambda x: x * (2 if isinstance(x, torch.Tensor) and not isinstance(x, sa.TwoTensor) else 3),
}


@runtime_checkable
class Shaped(Protocol):
    shape: Any


def pair(n: Any) -> tuple[Any, Any]:
    return (n, n) if isinstance(n, int) else n[:2]


def is_dense(x: Any) -> bool:
    return type(x) is torch.Tensor


class Branching(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if type(x) is torch.Tensor else x * 3


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_as_in_eager_mode(program: Any) -> None:
    for dynamic in (None, True):
        compiled = sa.aot_compile(program, dynamic=dynamic)
        for x in (torch.ones(3), nn.Parameter(torch.ones(3)), torch.ones(4), torch.ones(5)):
            torch.testing.assert_close(compiled(x), program(x))


SIZES: dict[str, Callable[[Any], Any]] = {
    "labels": lambda x: x[:, 0] + torch.arange(len(x), device=x.device),
    "a mean": lambda x: x.sum(0) / len(x),
    "of what was computed": lambda x: torch.zeros(len(x.t()), len(x + 1)) + 1,
    "a half": lambda x: x[: len(x) // 2] * 2,
    "a helper": lambda x: x.reshape(rows(x), -1) * 2,
    "of several": lambda x: x * sum(map(len, (x, x + 1))),
    "of a wrapper": lambda x: sa.TwoTensor(x, x + 1).a * len(sa.TwoTensor(x, x + 1)),
    "a branch": lambda x: x * 2 if len(x) > 2 else x * 3,
}


def rows(x: Any) -> int:
    return len(x)


@pytest.mark.parametrize("program", SIZES.values(), ids=SIZES)
def test_a_length_is_a_symbol(program: Any) -> None:
    compiled = sa.aot_compile(program)
    for n in (5, 6, 7, 9):
        x = torch.rand(n, 4)
        torch.testing.assert_close(compiled(x), program(x))
    assert len(compiled.recompiles) == 1


LENGTHS: dict[str, Callable[[Any], Any]] = {
    "of a list": lambda x: x * len([x, x]) + len(x.shape) + len("abc"),
    "a list as long": lambda x: x + torch.tensor([1.0] * len(x)),
    "rows": lambda x: sum(x[i] * i for i in range(len(x))),
    "a text": lambda x: x * len(f"{len(x):03d}"),
    "a class of its own": lambda x: x * len(Counted()),
    "a number": lambda x: x * (2 if isinstance(len(x), int) and type(len(x)) is int else 3),
    "an error": lambda x: x * (2 if fails(lambda: len(x.sum())) and fails(lambda: len(3)) else 3),  # type: ignore[arg-type]
}


class Counted:
    def __len__(self) -> int:
        return 4


def fails(function: Callable[[], Any]) -> bool:
    try:
        function()
    except TypeError:
        return True
    return False


@pytest.mark.parametrize("program", LENGTHS.values(), ids=LENGTHS)
def test_other_lengths(program: Any) -> None:
    compiled = sa.aot_compile(program)
    for n in (3, 4, 5):
        x = torch.rand(n)
        torch.testing.assert_close(compiled(x), program(x))


def test_of_a_wrapper_and_of_its_inner_tensors() -> None:
    x = sa.TwoTensor(torch.ones(2), torch.ones(2))
    program: Any = lambda x: x.a * (2 if type(x) is sa.TwoTensor and type(x.a) is torch.Tensor else 3)  # noqa: E731
    assert torch.equal(sa.aot_compile(program)(x), program(x))


def test_a_class_is_assigned() -> None:
    x: Any = sa.MetaTensor(torch.ones(2))
    x.__class__ = sa.MetaTensor
    with pytest.raises(TypeError):
        x.__class__ = sa.TwoTensor
    assert x.__class__ is type(x) is sa.MetaTensor


def test_hooks_in_backward() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: g * 2 if type(g) is torch.Tensor else g * 3)
        return y

    one, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    sa.aot_compile(program)(one).sum().backward()
    program(other).sum().backward()
    assert one.grad is not None and other.grad is not None and one.grad.equal(other.grad)


def test_state_holds_the_builtins() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kinds: dict[str, Any] = {}

        def forward(self, x: Any) -> Any:
            self.kind, self.kinds["asks"], self.pair, self.measure = type, isinstance, (type, x + 1), len
            return x * 2, type

    module = Keeps()
    compiled = sa.aot_compile(module)
    for rows in (2, 3, 4):
        _, kind = compiled(torch.ones(rows))
        assert kind is module.kind is module.pair[0] is type and module.kinds == {"asks": isinstance}
        assert module.measure is len


def test_nothing_is_left() -> None:
    names = vars(sys.modules[__name__])
    with pytest.raises(ZeroDivisionError):
        sa.aot_compile(lambda x: x * (1 / 0) if type(x) is torch.Tensor else x)(torch.ones(2))
    sa.aot_compile(is_dense)(torch.ones(2))
    assert names.keys().isdisjoint({"type", "isinstance", "len"})


def test_a_type_of_its_own_stays() -> None:
    module = types.ModuleType("has_a_type")
    exec("type = lambda x: 'mine'\ndef f(x):\n    return x * (2 if type(x) == 'mine' else 3)", vars(module))
    assert sa.aot_compile(module.f)(torch.ones(2)).tolist() == [2, 2] and module.type(1) == "mine"


def test_blocks_that_overlap() -> None:
    names: dict[str, Any] = {}
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with types_shown([names, names]):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with types_shown([names]):
        thread.start()
        entered.wait(10)
    assert isinstance(names["type"], ShownType)
    leave.set()
    thread.join()
    assert not names


def test_what_a_class_is_shown_as() -> None:
    show_as(Meta, lambda made: int)
    names: dict[str, Any] = {}
    with types_shown([names]):
        shown = names["type"]
        assert shown(Meta("Made", (), {})) is int and shown(1) is int and shown(shown) is ShownType
        assert repr(shown) == repr(type) and (shown | None) == (type | None) == (None | shown)
        assert types.resolve_bases((shown,)) == (type,) and shown.__name__ == "type"


HELPER = """
def pair(n):
    return (n, n) if isinstance(n, int) else n[:2]

def times(x):
    return 2 if type(x).__name__ == "Tensor" else 3

def rows(x):
    return len(x)
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """A module of functions: of the user, or of a package that is installed and knows torch, or does not."""
    kind = request.param
    folder = "/home/user" if kind == "is of the user" else sysconfig.get_path("purelib")
    package = f"library_that_{kind.replace(' ', '_')}"
    for name, text in ((package, "import torch" if kind == "knows torch" else ""), (f"{package}.helper", HELPER)):
        module = types.ModuleType(name)
        module.__file__ = f"{folder}/{name.replace('.', '/')}.py"
        exec(compile(text, module.__file__, "exec"), vars(module))
        monkeypatch.setitem(sys.modules, name, module)
    return sys.modules[f"{package}.helper"]


@pytest.mark.parametrize("library", ["is of the user", "knows torch"], indirect=True)
@pytest.mark.parametrize(
    "program",
    [
        lambda x, at: x.reshape(at.pair(x.shape[0])) * 2,
        lambda x, at: x * at.times(x),
        lambda x, at: x.sum(0) / at.rows(x),
    ],
)
def test_functions_of_modules_that_a_program_may_call(library: Any, program: Any) -> None:
    compiled = sa.aot_compile(lambda x: program(x, library))
    for n in (3, 4, 5):
        x = torch.rand(n, n)
        torch.testing.assert_close(compiled(x), program(x, library))
    assert not {"type", "isinstance", "len"} & vars(library).keys()
    assert len(compiled.recompiles) == 1


@pytest.mark.parametrize("library", ["knows nothing of torch"], indirect=True)
def test_other_modules_are_left_alone(library: Any) -> None:
    assert not any(names is vars(library) for names in modules_of_programs())


class _Net(nn.Module):
    def __init__(self, program: Any) -> None:
        super().__init__()
        self.p, self.program = nn.Parameter(torch.ones(3)), program
        self.register_buffer("b", torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.program(self, x)


OF_PARAMETERS = {
    "cleared": lambda s, x: (vars(s.p).clear(), x * (2 if s.p.__class__ is nn.Parameter else 3))[1],
    "another dict": lambda s, x: (setattr(s.p, "__dict__", {}), x * (2 if type(s.p) is nn.Parameter else 3))[1],
    "counted": lambda s, x: x * len(vars(s.p)) + len(vars(s.b)),
    "a new one": lambda s, x: x * (1 + len(vars(nn.Parameter(x.detach())))),
    "an instance": lambda s, x: (
        x * (2 if isinstance(s.p, nn.Parameter) else 3) * (5 if type(s.b) is nn.Parameter else 7)
    ),
    "detached": lambda s, x: x * (2 if isinstance(s.p.detach(), nn.Parameter) else 3),
    "copied": lambda s, x: x * (2 if isinstance(copy.deepcopy(s.p), nn.Parameter) else 3),
}


@pytest.mark.parametrize("name", OF_PARAMETERS)
def test_a_parameter_is_one_whatever_its_attributes_are(name: str) -> None:
    program, x = OF_PARAMETERS[name], torch.arange(3.0)
    net, compiled = _Net(program), sa.aot_compile(_Net(program))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), net(x))
    assert not vars(net.p)

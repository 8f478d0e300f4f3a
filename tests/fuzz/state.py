"""Random programs over state: attributes, items, contexts, classes and globals that calls and backward change."""

from __future__ import annotations

import functools
import itertools
import linecache
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from subclass_aot.doors.blocks import compile_blocks
from subclass_aot.engine.compile import aot_compile
from subclass_aot.errors import SubclassAotError
from subclass_aot.testing.compare import difference

WORLD = """
import types
import torch
from subclass_aot import TwoTensor
from tests.fuzz.trees import Tagged

COUNT = 1
FLAGS = {"on": True}
other = types.SimpleNamespace(LEVEL=2)

class Config:
    level = 1
    names = {"a": 2}

    def __init__(self):
        self.rate, self.backs = 0.5, 0
        self.inner = types.SimpleNamespace(scale=2.0)

    def factor(self):
        return 2

    @staticmethod
    def shift(y):
        return y + 1

FACTORS = Config.factor, lambda self: 3, lambda self: self.rate
SHIFTS = Config.shift, lambda y: y * 3, lambda y: y.sin()

class Effect(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, cfg):
        ctx.cfg = cfg
        cfg.forwards = getattr(cfg, "forwards", 0) + 1
        return y * 2

    @staticmethod
    def backward(ctx, g):
        ctx.cfg.backs += 1
        ctx.cfg.last = g.sum()
        return g * 2, None

class Child(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.seen = 2, None

    def forward(self, y):
        self.seen = y.detach().mean()
        return y * self.gain

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.p = torch.nn.Parameter(torch.linspace(-1, 1, 3))
        self.w = torch.nn.Parameter(TwoTensor(torch.linspace(0, 1, 3), torch.linspace(1, 2, 3)))
        self.t = Tagged(torch.linspace(0.5, 1, 3), None, 1)
        self.register_buffer("b", torch.ones(3))
        self.n, self.log, self.table, self.grads = 1, [], {"k": 1}, []
        self.kept = torch.full((3,), 0.5)
        self.cfg = Config()
        self.child = Child()

    def count(self):
        self.n += 1

    def note(self, g):
        self.grads.append(g.sum())
        self.noted = g

    def forward(self, x):
        cfg, y = self.cfg, x * self.p
LINES
        return y

net = Net()
"""
"""What a program runs in. Each of the two runs has a module of its own with it."""

READS = (
    "y = y * self.n", "y = y + cfg.rate", "y = y * getattr(self, 'extra', 2)",
    "y = y + (3 if hasattr(cfg, 'flag') else 1)", "y = y * self.table.get('k', 2)", "y = y * Config.level",
    "y = y + COUNT", "y = y * getattr(self.p, 'note', 2)", "y = y * getattr(x, 'note', 3)",
    "y = y * getattr(self.w, 'note', 2)", "y = y + len(self.log)", "y = y * self.t.tag",
    "y = y + getattr(Config, 'extra', 1)", "y = y + other.LEVEL", "y = y * cfg.inner.scale",
    "y = y + sum(v for v in self.log[-2:])", "y = y + self.kept", "y = y * (2 if self.training else 3)",
    "y = y + (self.w * 2).a", "y = y + self.t.value", "y = y + self.b", "y = self.child(y)",
    "y = y * self.child.gain", "y = y + (1 if 'k' in self.table else 0)", "y = y * (2 if FLAGS['on'] else 1)",
    "y = y + Config.names.get('a', 5)", "y = y + cfg.backs", "y = y + (0 if self.p.grad is None else self.p.grad)",
    "y = y * getattr(self.t, 'note', 2)", "y = y + getattr(cfg, 'forwards', 0)", "y = y + len(self.grads)",
    "y = y + getattr(self.b, 'seen', 0)", "y = y * cfg.names['a']",
    "y = y * (self.kept.note if hasattr(self.kept, 'note') else 1)",
    "y = y * (2 if 'note' in vars(self.p) else 3)", "y = y * (self.w.__dict__.get('note') or 2)",
    "y = y * getattr(self.p, 'tag', 2)", "y = y * (3 if hasattr(self.b, 'spec') else 2)",
    "y = y * getattr(x, 'like', 2)",
    "y = y * (2 if type(x) is torch.Tensor else 3)", "y = y * (2 if type(y) is type(self.kept) else 3)",
    "y = y * (2 if isinstance(x.shape[0], int) else 3)", "y = y * (2 if self.p.__class__ is torch.nn.Parameter else 3)",
    "y = y * (2 if isinstance(y.numel() / 2, float) else 3)", "y = y * (2 if self.b.grad is None else 3)",
    "y = y * cfg.factor()", "y = cfg.shift(y)",
    "y = y * (cfg.twice() if hasattr(cfg, 'twice') else 1)", "y = y if self.kept.grad is None else y * self.kept.grad",
    "y = y + sum(p.grad is None for p in (self.p, self.w))",
)  # fmt: skip
"""Lines that read state."""

WRITES = (
    "self.n += 1", "self.extra = 5", "self.__dict__.pop('extra', None)", "cfg.rate = -cfg.rate", "cfg.flag = True",
    "cfg.__dict__.pop('flag', None)", "self.table['k'] = self.table.get('k', 0) + 1", "self.table.pop('k', None)",
    "self.p.note = getattr(self.p, 'note', 0) + 1", "self.w.note = getattr(self.w, 'note', 0) + 1",
    "self.p.__dict__.pop('note', None)", "self.w.__dict__.pop('note', None)", "self.t.tag += 1", "self.log.append(1)",
    "self.log.clear()", "cfg.inner = types.SimpleNamespace(scale=cfg.inner.scale + 1)",
    "cfg.inner.scale = -cfg.inner.scale", "self.kept.mul_(0.5)", "self.b.add_(1)", "self.b = self.b + 1",
    "self.child.gain += 1", "setattr(cfg, f'f{self.n}', 1)", "self.table = dict(self.table, other=self.n)",
    "self.log = [*self.log, 2]", "self.kept.note = 3", "cfg.level = 7", "cfg.__dict__.pop('level', None)",
    "self.b.seen = getattr(self.b, 'seen', 0) + 1", "self.t.note = 4",
    "self.t = Tagged(self.t.value * 2, None, self.t.tag)", "self.t.value.mul_(0.5)", "self.grads.clear()",
    "self.p.tag = self.n", "self.b.spec = getattr(self.b, 'spec', 0) + 1", "self.p.__dict__.clear()",
    "self.p.grad = None", "self.b.grad = self.b * 2", "del self.kept.grad", "self.kept.grad = self.kept * 3",
)  # fmt: skip
"""Lines that write state, in calls and between them."""

OF_CLASSES = (
    "Config.level += 1", "Config.extra = 2", "Config.names['a'] = Config.names.get('a', 0) + 1",
    "Config.names.pop('a', None)", "FLAGS['on'] = not FLAGS['on']", "other.LEVEL += 1", "self.p.grad = None",
    "self.w.grad = None", "globals().__setitem__('COUNT', COUNT + 1)",
    "self.p.data.mul_(0.5)", "self.eval()", "self.train()",
    "type.__delattr__(Config, 'extra') if 'extra' in vars(Config) else None",
    "self.p.requires_grad_(not self.p.requires_grad)", "self.w.requires_grad_(not self.w.requires_grad)",
    "self.p.grad = torch.ones(3)", "Config.factor = FACTORS[0]", "Config.factor = FACTORS[1]",
    "Config.factor = FACTORS[2]", "Config.shift = staticmethod(SHIFTS[0])", "Config.shift = staticmethod(SHIFTS[1])",
    "Config.shift = staticmethod(SHIFTS[2])", "Config.twice = FACTORS[1]", "Config.twice = FACTORS[2]",
    "type.__delattr__(Config, 'twice') if 'twice' in vars(Config) else None", "Child.forward = lambda self, y: y * 5",
)  # fmt: skip
"""Lines that write state of classes and globals, and of modules as a whole: between calls."""

KEPT = (
    "self.kept = y.detach()[0]", "self.log.append(y.detach().sum())",
    "cfg.inner = types.SimpleNamespace(scale=y.detach().sum())", "x.note = getattr(x, 'note', 0) + 1",
    "self.extra = self.n + 1", "cfg.seen = y", "self.seen = [y.detach()]",
)  # fmt: skip
"""Lines that put what was computed into state."""

HOOKS = (
    "y.register_hook(lambda g: self.grads.append(g.sum())) if y.requires_grad else None",
    "y.register_hook(lambda g: self.count()) if y.requires_grad else None",
    "y.register_hook(self.note) if y.requires_grad else None",
    "y.register_hook(lambda g: g * cfg.rate) if y.requires_grad else None",
    "y.register_hook(lambda g: cfg.__dict__.update(last=g)) if y.requires_grad else None", "y = Effect.apply(y, cfg)",
    "y.retain_grad() if y.requires_grad else None; self.middle = y",
)  # fmt: skip
"""Lines of which something happens in backward."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        before: Lines that run before it, outside of what is compiled.
        rows: Of the argument.
        requires_grad: Of the argument.
        backward: How many times it goes backward.
    """

    before: tuple[str, ...] = ()
    rows: int = 2
    requires_grad: bool = True
    backward: int = 1


@dataclass(frozen=True)
class DrawnState:
    """A program, and how it is called.

    Attributes:
        lines: Of the function.
        calls: One after the other.
        dynamic: As for `aot_compile`.
        blocks: Whether the module is one of two equal blocks that are compiled in place.
    """

    lines: tuple[str, ...]
    calls: tuple[Call, ...]
    dynamic: bool | None = None
    blocks: bool = False

    def __repr__(self) -> str:
        calls = "".join(f"\n  {call}" for call in self.calls)
        return f"dynamic={self.dynamic}" + " blocks" * self.blocks + "\n" + "\n".join(self.lines) + calls

    def world(self) -> types.ModuleType:
        """Returns a new module with the program in it."""
        name = f"state_{next(_numbers)}"
        body = "\n".join(" " * 8 + line for line in self.lines)
        source = WORLD.replace("LINES", body)
        file = f"{name}.py"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        world = types.ModuleType(name)
        world.__dict__["__file__"] = file
        exec(compile(source, file, "exec"), world.__dict__)
        return world


class Run:
    """One run of a program: eager, or compiled."""

    def __init__(self, drawn: DrawnState, compiler: Callable[[Any], Callable[..., Any]]) -> None:
        self.world = drawn.world()
        self.net = self.world.net
        self.call = compiler(torch.nn.Sequential(self.net, self.world.Net()) if drawn.blocks else self.net)

    def prepare(self, call: Call) -> None:
        scope = {"self": self.net, "cfg": self.net.cfg}
        for line in call.before:
            exec(line, self.world.__dict__, scope)
        self.x = torch.linspace(-1, 1, 3 * call.rows).reshape(call.rows, 3).requires_grad_(call.requires_grad)

    def state(self) -> dict[str, Any]:
        """Returns what there is, by place; tensors as copies."""
        world, net = self.world, self.net
        found: dict[str, Any] = {"COUNT": world.COUNT, "FLAGS": dict(world.FLAGS)}
        found["other"] = dict(vars(world.other))
        _add(found, "Config", {k: v for k, v in vars(world.Config).items() if not k.startswith("__")})
        _add(found, "net", {k: v for k, v in vars(net).items() if k not in _OF_MODULES})
        _add(found, "child", {k: v for k, v in vars(net.child).items() if k not in _OF_MODULES})
        _add(found, "parameters", dict(net.named_parameters()))
        _add(found, "buffers", dict(net.named_buffers()))
        _add(found, "x", {"x": getattr(self, "x", None)})
        return found


_OF_MODULES = frozenset(vars(torch.nn.Module())) - {"training"} | {"forward", "_is_torch_compile"}  # of compiled ones


def _add(found: dict[str, Any], place: str, value: Any) -> None:
    """Adds a value, and what is below it."""
    if isinstance(value, torch.Tensor):
        found[place] = value.detach().clone()
        found[f"{place}.requires_grad"] = value.requires_grad
        with warnings.catch_warnings():  # of a tensor that is no leaf; `retains_grad` is no fact of compiled ones
            warnings.simplefilter("ignore")
            gradient = value.grad
        if gradient is not None:
            _add(found, f"{place}.grad", gradient)
        inner = {"value", "extra", "a", "b", "_view_of_wrapper"}
        _add(found, place, {key: x for key, x in vars(value).items() if key not in inner and not key.startswith("_")})
    elif isinstance(value, dict):
        found[f"{place} keys"] = list(value)
        for key, item in value.items():
            if not isinstance(item, types.FunctionType | staticmethod | types.GetSetDescriptorType):
                _add(found, f"{place}.{key}", item)
    elif isinstance(value, list):
        found[f"{place} length"] = len(value)
        for at, item in enumerate(value):
            _add(found, f"{place}[{at}]", item)
    elif isinstance(value, torch.nn.Module):
        pass
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        _add(found, place, dict(vars(value)))
    else:
        found[place] = value


def check_state(drawn: DrawnState, compiler: Callable[[Any], Callable[..., Any]] | None = None) -> bool:
    """Runs a program compiled and in eager mode, and compares results, gradients and state after each call.

    Args:
        drawn: The program.
        compiler: Compiles a module; `aot_compile` with "eager" where it is left out.

    Returns:
        Whether all of it ran: False, if it was refused by name. Then state is as it was before.

    Raises:
        AssertionError: There is a difference.
    """
    eager = Run(drawn, lambda net: net)
    compiled = Run(
        drawn, compiler or functools.partial(compile_blocks if drawn.blocks else aot_compile, dynamic=drawn.dynamic)
    )
    for number, call in enumerate(drawn.calls):
        try:
            eager.prepare(call)
            expected = eager.call(eager.x)
        except (TypeError, KeyError, AttributeError, RuntimeError):
            return False  # no program
        compiled.prepare(call)
        before = compiled.state()
        try:
            found = compiled.call(compiled.x)
        except SubclassAotError:
            compare(before, compiled.state(), f"call {number}, refused")
            return False
        compare({"result": expected.detach()}, {"result": found.detach()}, f"call {number}")
        compare(eager.state(), compiled.state(), f"call {number}")
        assert expected.requires_grad == found.requires_grad, f"call {number}: requires_grad"
        for time in range(call.backward if expected.requires_grad else 0):
            last = time + 1 == call.backward
            expected.sum().backward(retain_graph=not last)
            found.sum().backward(retain_graph=not last)
            compare(eager.state(), compiled.state(), f"backward {time} of call {number}")
    return True


def compare(expected: dict[str, Any], found: dict[str, Any], when: str) -> None:
    """Compares two states.

    Raises:
        AssertionError: They differ.
    """
    assert expected.keys() == found.keys(), f"{when}: {sorted(expected.keys() ^ found.keys())}"
    for place, value in expected.items():
        other = found[place]
        if isinstance(value, torch.Tensor):
            said = difference(value, other)
            assert not said, f"{when}: {place}: {said}"
        else:
            assert type(value) is type(other) and value == other, f"{when}: {place}: {value!r}, and compiled {other!r}"


@st.composite
def states(draw: st.DrawFn) -> DrawnState:
    """Draws programs over state."""

    def some(kinds: Sequence[str], most: int) -> list[str]:
        return draw(st.lists(st.sampled_from(kinds), max_size=most))

    lines = draw(st.permutations(some(READS, 3) + some(WRITES, 2) + some(KEPT, 1) + some(HOOKS, 1)))
    calls = draw(
        st.lists(
            st.builds(
                Call,
                before=st.lists(st.sampled_from(WRITES + OF_CLASSES), max_size=2).map(tuple),
                rows=st.sampled_from((2, 2, 3)),
                requires_grad=st.booleans(),
                backward=st.sampled_from((0, 1, 1, 2)),
            ),
            min_size=2,
            max_size=4,
        )
    )
    dynamic, blocks = draw(st.sampled_from((None, None, True))), draw(st.sampled_from((False, False, True)))
    return DrawnState(tuple(lines), tuple(calls), dynamic, blocks)

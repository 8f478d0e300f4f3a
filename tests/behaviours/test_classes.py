"""State of classes, of globals and of other modules of Python: read at each call, and left as eager mode leaves it."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import DataDependentError

MODULE = """
import dataclasses
import torch

LEVEL = 2
TABLE = {"a": 1}
SHIFT = torch.ones(3)

def scaled(x):
    return x * LEVEL

class Base:
    power = 2

class Config(Base):
    level = 3
    table = {"b": [1, 2]}
    seen = []
    kept = None
    shift = torch.full((3,), 2.0)

    @classmethod
    def raised(cls, x):
        return x + cls.level

    @staticmethod
    def shifted(x):
        return x + SHIFT

    @property
    def doubled(self):
        return self.level * LEVEL

@dataclasses.dataclass
class Given:
    own: int = 1
    unit = 5
"""

PROGRAM = """
import torch
import MODULE_NAME as settings
from MODULE_NAME import Config, Given, scaled

COUNT = 1
FLAGS = {"on": True}

class Layer(torch.nn.Module):
    gain = 2

    def __init__(self):
        super().__init__()
        self.config, self.given = Config(), Given()

    def forward(self, x):
        BODY
        return x

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def forward(self, x):
        return self.layer(x)

net = Net()
"""

READS = {
    "x = x * COUNT": "program.COUNT = 4",
    "x = x * (2 if FLAGS['on'] else 3)": "program.FLAGS['on'] = False",
    "x = x * settings.LEVEL": "settings.LEVEL = 7",
    "x = scaled(x)": "settings.LEVEL = 7",
    "x = x + settings.TABLE['a']": "settings.TABLE['a'] = 5",
    "x = x + settings.SHIFT": "settings.SHIFT = torch.zeros(3)",
    "x = x + self.gain": "program.Layer.gain = 9",
    "x = x + Layer.gain": "program.Layer.gain = 10",
    "x = x * self.config.level": "settings.Config.level = 8",
    "x = x * self.config.power": "settings.Base.power = 8",
    "x = x * getattr(Config, 'later', 1)": "settings.Config.later = 2",
    "x = x + len(self.config.table['b'])": "settings.Config.table['b'].append(1)",
    "x = Config.raised(x)": "settings.Config.level = 11",
    "x = Config.shifted(x)": "settings.SHIFT = torch.full((3,), 5.0)",
    "x = x * self.config.doubled": "settings.LEVEL = 9",
    "x = x + Config.shift": "settings.Config.shift = torch.zeros(3)",
    "x = x + self.given.unit": "settings.Given.unit = 6",
    "x = x * type(self).gain": "program.Layer.gain = 12",
}
"""Lines, and for each what changes what it reads."""

WRITES = (
    "global COUNT; COUNT += 1; x = x * COUNT",
    "FLAGS['on'] = not FLAGS['on']; x = x * (2 if FLAGS['on'] else 3)",
    "settings.LEVEL += 1; x = scaled(x)",
    "Config.level += 1; x = x * self.config.level",
    "Config.kept = x * 2; x = x + Config.kept",
    "Config.seen.append(1); x = x + len(Config.seen)",
    "Config.seen.append(x.detach().sum()); x = x + Config.seen[-1]",
    "Config.table['b'] = [*Config.table['b'], 3]; x = x + sum(self.config.table['b'])",
    "Config.shift.mul_(2); x = x + self.config.shift",
    "Layer.calls = getattr(Layer, 'calls', 0) + 1; x = x * self.calls",
    "settings.made = x.detach(); x = x + settings.made",
    "setattr(type(self), 'gain', self.gain + 1); x = x * self.gain",
    "Config.later = 1; del Config.later",
)


class World:
    """The program and the module that it imports, new ones."""

    number = 0

    def __init__(self, body: str, folder: Path) -> None:
        World.number += 1
        names = [f"settings_{World.number}", f"program_{World.number}"]
        texts = (MODULE, PROGRAM.replace("MODULE_NAME", names[0]).replace("BODY", body))
        for name, text in zip(names, texts, strict=True):
            (folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        self.settings, self.program = map(importlib.import_module, names)
        self.net = self.program.net

    def change(self, line: str) -> None:
        exec(line, {"program": self.program, "settings": self.settings, "torch": torch})

    def state(self) -> dict[str, Any]:
        """What all of it holds."""
        owners = [self.settings, self.program, *[getattr(self.settings, n) for n in ("Base", "Config", "Given")]]
        found: dict[str, Any] = {}
        for owner in [*owners, self.program.Layer]:
            for name, value in vars(owner).items():
                if not name.startswith("__") and isinstance(value, int | list | dict | torch.Tensor | None):
                    found[f"{owner.__name__.partition('_')[0]}.{name}"] = value
        return found


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], World]]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda body: World(body, tmp_path)
    for name in set(sys.modules) - before:
        if name.startswith(("settings_", "program_")):
            del sys.modules[name]


def compilers() -> dict[str, Callable[[Any], Callable[..., Any]]]:
    return {
        "module": sa.aot_compile,
        "method": lambda net: sa.aot_compile(net.forward),
        "closure": lambda net: sa.aot_compile(lambda x: net(x)),
        "inductor": lambda net: sa.aot_compile(net, fw_compiler="inductor"),
    }


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.allclose(one, other) and type(one) is type(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def compare(eager: World, compiled: World, call: Callable[..., Any]) -> None:
    x = torch.arange(3.0)
    expected, found = eager.net(x), call(x)
    assert torch.allclose(expected, found), (expected, found)
    before, after = eager.state(), compiled.state()
    assert before.keys() == after.keys()
    assert {name for name, value in before.items() if not same(value, after[name])} == set()


@pytest.mark.every_case
@pytest.mark.parametrize("line", READS)
@pytest.mark.parametrize("how", ["module", "method", "closure"])
def test_what_is_read_is_compared(line: str, how: str, make: Callable[[str], World]) -> None:
    eager, compiled = make(line), make(line)
    call = compilers()[how](compiled.net)
    for change in ("", "", READS[line], ""):
        eager.change(change)
        compiled.change(change)
        compare(eager, compiled, call)
    assert len(call.recompiles) <= 1  # type: ignore[attr-defined]


@pytest.mark.every_case
@pytest.mark.parametrize("line", WRITES)
@pytest.mark.parametrize("how", ["module", "closure"])
def test_what_is_written_is_written_at_each_call(line: str, how: str, make: Callable[[str], World]) -> None:
    eager, compiled = make(line), make(line)
    call = compilers()[how](compiled.net)
    for _ in range(4):
        compare(eager, compiled, call)


@pytest.mark.filterwarnings("ignore:`torch.jit.script")  # torch's own, at the first use of inductor
def test_by_inductor(make: Callable[[str], World]) -> None:
    line = "; ".join(("global COUNT; COUNT += 1", *WRITES[3:6], "x = scaled(x) * COUNT + settings.SHIFT"))
    eager, compiled = make(line), make(line)
    call = compilers()["inductor"](compiled.net)
    for _ in range(3):
        compare(eager, compiled, call)


def test_gradients_reach_tensors_of_classes(make: Callable[[str], World]) -> None:
    worlds = [make("x = x * Config.shift + settings.SHIFT"), make("x = x * Config.shift + settings.SHIFT")]
    for world, compiler in zip(worlds, (lambda net: net, sa.aot_compile), strict=True):
        world.settings.Config.shift = torch.full((3,), 2.0, requires_grad=True)
        compiler(world.net)(torch.arange(3.0)).sum().backward()
    found = [world.settings.Config.shift.grad for world in worlds]
    assert torch.equal(found[0], found[1]) and found[0].abs().sum() > 0


def test_a_recompile_says_what_changed(make: Callable[[str], World]) -> None:
    world = make("x = x * self.config.level")
    compiled = sa.aot_compile(world.net)
    compiled(torch.ones(3))
    world.settings.Config.level = 8
    compiled(torch.ones(3))
    assert compiled.recompiles == ["Config.level: 3 before, 8 now"]


@pytest.mark.every_case
@pytest.mark.parametrize("line", READS)
def test_blocks_share_what_is_compiled_until_it_changes(line: str, make: Callable[[str], World]) -> None:
    eager, compiled = make(line), make(line)
    for world in (eager, compiled):
        world.net = torch.nn.Sequential(*[world.program.Layer() for _ in range(3)])
    sa.compile_blocks(compiled.net)
    for change in ("", "", READS[line], ""):
        eager.change(change)
        compiled.change(change)
        compare(eager, compiled, compiled.net)


def test_files(make: Callable[[str], World], tmp_path: Path) -> None:
    world = make("x = x * self.config.level")
    compiled = sa.aot_compile(world.net)
    compiled(torch.ones(3))
    compiled.save(tmp_path / "net.aot")
    loaded = sa.load_compiled(tmp_path / "net.aot", world.net, trust=True)
    assert torch.equal(loaded(torch.ones(3)), torch.full((3,), 3.0))
    world.settings.Config.level = 6
    assert torch.equal(loaded(torch.ones(3)), torch.full((3,), 6.0))


def test_an_exception_leaves_what_was_done_before_it(make: Callable[[str], World]) -> None:
    world = make("Config.level += 1; Config.kept = x * 2; raise ValueError('mine')")
    with pytest.raises(ValueError, match="mine"):
        sa.aot_compile(world.net)(torch.ones(3))
    assert world.settings.Config.level == 4
    assert type(world.settings.Config.kept) is torch.Tensor and torch.equal(
        world.settings.Config.kept, torch.full((3,), 2.0)
    )


def test_what_is_refused_puts_classes_back(make: Callable[[str], World]) -> None:
    world = make("Config.level += 1; Config.kept = x * 2; x.data_ptr()")
    with pytest.raises(DataDependentError):
        sa.aot_compile(world.net)(torch.ones(3))
    assert world.settings.Config.level == 3 and world.settings.Config.kept is None


def test_methods_that_do_not_run_bring_nothing() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

        def data(self) -> Any:
            return UNRELATED

    compiled = sa.aot_compile(Net())
    compiled(torch.ones(2))
    UNRELATED.append(1)
    compiled(torch.ones(2))
    assert not compiled.recompiles


UNRELATED: list[int] = []


def test_a_class_of_a_library_is_left_alone() -> None:
    library = types.ModuleType("a_library")
    library.__file__ = "/usr/lib/python3/site-packages/a_library.py"
    sys.modules["a_library"] = library
    try:
        kind = type("Kind", (), {"level": 2, "__module__": "a_library"})
        compiled = sa.aot_compile(lambda x: x * kind.level)
        compiled(torch.ones(2))
        kind.level = 3
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    finally:
        del sys.modules["a_library"]

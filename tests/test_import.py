"""`import subclass_aot` brings little beside torch, and what it registers is there in time, whatever comes first."""

from __future__ import annotations

import inspect
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pytest
import torch

import subclass_aot
from subclass_aot import errors

HEAVY = [
    "hypothesis", "numpy", "safetensors", "sympy", "torch._dynamo", "torch._functorch", "torch._inductor",
    "torch._subclasses", "torch.distributed.fsdp", "torch.distributed.tensor", "torch.export",
    "torch.fx.experimental.symbolic_shapes", "torch.onnx", "transformers",
]  # fmt: skip
OF_THE_COMPILER = ["compile", "runtime", "saved", "dynamo", "export", "testing", "benchmark"]


def output_of(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert not ran.returncode, ran.stderr
    return ran.stdout


def test_heavy_modules_wait_until_they_are_used() -> None:
    new = output_of(
        "import sys, torch; before = {*sys.modules}; import subclass_aot; print(*({*sys.modules} - before))"
    ).split()
    of_others = [*HEAVY, *(f"subclass_aot.{room}" for room in OF_THE_COMPILER)]
    assert "subclass_aot.kit.wrapper" in new
    assert not [name for name in new if any(f"{name}.".startswith(f"{heavy}.") for heavy in of_others)]


BOTH = "import torch, subclass_aot as sa; zeros = torch.zeros(2); "
CALL = "; print(aot_compile(torch.sin)(torch.zeros(2)).sum().item())"
USES = {
    "a call": f"{BOTH} print(sa.aot_compile(torch.sin)(zeros).sum().item())",
    "by its name": f"from subclass_aot import aot_compile; import torch{CALL}",
    "all names": f"from subclass_aot import *; import torch{CALL}",
    "a room first": f"import subclass_aot.doors.dynamo; {BOTH} sa.trace_joint(torch.sin, zeros); print(0.0)",
    "load first": f"import subclass_aot.files.compiled.load; {BOTH} print(0.0 if callable(sa.load) else 1)",
    "the backend": "import torch; print(torch.compile(torch.sin, backend='subclass_aot')(torch.zeros(1)).item())",
    "within meta": f"{BOTH}\nwith sa.meta(): f = sa.aot_compile(torch.sin)\nprint(f(zeros).sum().item())",
    "without data": f"{BOTH}\nwith sa.meta(): torch.nn.LSTM(2, 3)(torch.ones(4, 2))\nprint(0.0)",
    "an operator": f"{BOTH} print(0.0 if torch.ops.subclass_aot.mkldnn_rnn_layer_for_training else 1)",
}


SAMPLE = {"a call", "within meta"}


@pytest.mark.parametrize("name", [x if x in SAMPLE else pytest.param(x, marks=pytest.mark.long) for x in USES])
def test_what_is_imported_first_makes_no_difference(name: str) -> None:
    assert output_of(USES[name]).strip() == "0.0"


def test_a_file_of_a_ready_made_class_is_read_at_once(tmp_path: object) -> None:
    path = f"{tmp_path}/x.pt"
    output_of(f"import torch, subclass_aot as sa; torch.save(sa.TwoTensor(torch.ones(2), torch.ones(2)), {path!r})")
    assert output_of(f"import torch, subclass_aot; print(type(torch.load({path!r})).__name__)").strip() == "TwoTensor"


def test_names_that_wait_are_listed_and_others_are_missing() -> None:
    facts = "{*sa.__all__} <= {*dir(sa)}, hasattr(sa, 'compiler'), hasattr(sa, 'trace_joint')"
    assert output_of(f"import subclass_aot as sa; print({facts})").strip() == "True False True"


def _public(room: object, path: str) -> Iterator[tuple[str, object]]:
    """Yields what a room gives to users, each with its path."""
    for name in getattr(room, "__all__", [name for name in vars(room) if not name.startswith("_")]):
        value = getattr(room, name)
        if not inspect.ismodule(value) and not isinstance(value, TypeVar):
            yield f"{path}.{name}", value


def _rooms() -> list[types.ModuleType]:
    return [
        subclass_aot,
        *(room for name in subclass_aot.__all__ if inspect.ismodule(room := getattr(subclass_aot, name))),
    ]


def test_what_a_function_returns_can_be_imported() -> None:
    """So that a user can write the type down: from a room that is listed, or by the path that the reference has."""
    found = dict(chain.from_iterable(_public(room, room.__name__) for room in _rooms()))
    reference = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
    documented = re.findall(r"autoclass:: (\S+)", reference)
    types_here = {path.rpartition(".")[2] for path in [*found, *documented]}
    assert all(pkgutil.resolve_name(path) for path in documented)
    for path, function in found.items():
        if inspect.isfunction(function) and function.__module__.startswith("subclass_aot"):
            for name in re.findall(r"(?<![.\w])(?!None\b)[A-Z]\w+", str(function.__annotations__["return"])):
                there = inspect.unwrap(function).__globals__.get(name)
                of_others = there is not None and not getattr(there, "__module__", "").startswith("subclass_aot")
                assert of_others or name in types_here or isinstance(there, TypeVar), f"{path} returns a {name}"


def test_the_menu_is_short() -> None:
    assert {*dir(subclass_aot)} == {*subclass_aot.__all__, "__version__"} and len(subclass_aot.__all__) < 45
    assert [name for name in subclass_aot.__all__ if name.startswith("_")] == []
    assert len(errors.__all__) <= 10


def test_earlier_names_go_on_working() -> None:
    assert subclass_aot.load is subclass_aot.load_compiled
    assert subclass_aot.Int4Weight is subclass_aot.tensors.Int4Weight


FIRST_CALLS = {
    "pointwise": "aot_compile(lambda x: x * 2 + 1)(torch.ones(3))",
    "training": "aot_compile(nn.Sequential(nn.Linear(3, 4), nn.GELU()))(torch.ones(3)).sum().backward()",
    "attention": "aot_compile(nn.TransformerEncoderLayer(8, 2))(torch.ones(2, 3, 8)).sum().backward()",
    "convolution": "aot_compile(nn.Conv2d(3, 4, 3))(torch.ones(1, 3, 8, 8)).sum().backward()",
    "indices": "aot_compile(lambda x: x[torch.tensor([2, 0])].sort()[0])(torch.ones(3, 2))",
}


@pytest.mark.parametrize("program", FIRST_CALLS.values(), ids=FIRST_CALLS)
def test_a_first_call_imports_neither_the_solver_nor_dynamo(program: str) -> None:
    """Torch's rules for shapes import them, and need next to nothing of them: see `_torch/postponed.py`."""
    new = output_of(
        f"import sys, torch; from torch import nn; from subclass_aot import aot_compile\n{program}\nprint(*sys.modules)"
    ).split()
    slow = ["sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes", "torch.distributed.tensor"]
    assert not [name for name in new if any(f"{name}.".startswith(f"{heavy}.") for heavy in slow)]


def test_what_stands_for_them_becomes_the_real_one() -> None:
    """In a rule for shapes that somebody registers, and when a later call has symbols."""
    program = """
import sys, torch, subclass_aot as sa
@torch.library.custom_op("mine::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@double.register_fake
def _(x):
    import sympy, torch._dynamo, sympy.core
    from torch.fx.experimental.symbolic_shapes import ShapeEnv, guard_or_false
    assert sympy.Integer(2) + 1 == 3 and torch._dynamo.config is not None and sympy.core.Basic is sympy.Basic
    assert isinstance(ShapeEnv(), ShapeEnv) and guard_or_false(True)
    return torch.empty_like(x)
compiled = sa.aot_compile(double)
for size in (3, 4, 5):
    assert compiled(torch.ones(size)).sum() == 2 * size
for name in ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes"):
    assert type(sys.modules[name]) is type(sys), name
assert torch.compile(lambda x: (x + 1).sin(), backend="eager")(torch.zeros(1)).item() > 0.8
"""
    assert output_of(program) == ""


def test_dynamo_that_is_imported_in_a_trace_compiles_nothing_there() -> None:
    program = """
import sys, torch, subclass_aot as sa
from torch import compile
graphs = []
def inner(x):
    return compile(lambda y: y.sin() * 2, backend=lambda graph, inputs: graphs.append(graph) or graph)(x)
compiled = sa.aot_compile(lambda x: inner(x) + 1)
assert "torch._dynamo" not in sys.modules
assert torch.equal(compiled(torch.ones(3)), torch.ones(3).sin() * 2 + 1) and not graphs
assert torch.equal(inner(torch.ones(3)), torch.ones(3).sin() * 2) and len(graphs) == 1
print(*(type(finder).__name__ for finder in sys.meta_path))
"""
    assert "_Finder" not in output_of(program).split()


def test_a_first_price_may_import_them() -> None:
    """Of a part that lets nobody set its spec, as `torch._dynamo.config` is; nothing else had imported it."""
    program = """
import torch, subclass_aot as sa
layer = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
x = torch.ones(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
assert sa.profile(layer, x).flops("forward") == 2 * 2 * 36 * 8 * 27
"""
    assert not output_of(program)


@pytest.mark.filterwarnings("ignore:guard_size_oblivious")  # torch's own rules import it
def test_what_is_said_of_numbers_is_what_the_solver_says() -> None:
    from torch.fx.experimental import symbolic_shapes

    from subclass_aot.base._torch import postponed

    given: dict[str, list[tuple[object, ...]]] = {
        "sym_eq": [((3,), [3]), (2, 3), ((), ()), (torch.Size([2]), (2,)), ([1, 2], (1,))],
        "sym_and": [(True,), (True, False), (True, True)],
        "sym_or": [(False,), (False, True)],
        "free_unbacked_symbols": [(torch.ones(2, 3),), (4,)],
        "is_nested_int": [(3,)],
        "has_guarding_hint": [(3,)],
    }
    for name, function in postponed.OF_SOLVER.items():
        for args in given.get(name, [(True,), (False,)]):
            said = function(*args)
            assert said == getattr(symbolic_shapes, name)(*args), (name, args)

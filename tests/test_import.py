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
    assert "subclass_aot.wrapper" in new
    assert not [name for name in new if any(f"{name}.".startswith(f"{heavy}.") for heavy in of_others)]


BOTH = "import torch, subclass_aot as sa; zeros = torch.zeros(2); "
CALL = "; print(aot_compile(torch.sin)(torch.zeros(2)).sum().item())"
USES = {
    "a call": f"{BOTH} print(sa.aot_compile(torch.sin)(zeros).sum().item())",
    "by its name": f"from subclass_aot import aot_compile; import torch{CALL}",
    "all names": f"from subclass_aot import *; import torch{CALL}",
    "a room first": f"import subclass_aot.dynamo; {BOTH} sa.trace_joint(torch.sin, zeros); print(0.0)",
    "load first": f"import subclass_aot.load; {BOTH} print(0.0 if callable(sa.load) else 1)",
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

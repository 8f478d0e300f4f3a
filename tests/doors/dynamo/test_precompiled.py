"""Torch's precompilation: what it writes into its file runs in another process, without a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.errors import CompiledFileError

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), pytest.mark.filterwarnings("ignore")]

Program = Callable[..., Any]


def of_one(x: Tensor) -> Any:
    return x.sin() * torch.tensor([1.0, 2.0, 3.0]), (x * 2)[1:], x.shape[0]


def of_sizes(x: Tensor) -> Any:
    return x * x.shape[0]


def trained(x: Tensor, w: Tensor) -> Any:
    return (x @ w).sin().sum(0)


def of_a_wrapper(x: Tensor, two: Tensor) -> Any:
    return two * 2 + x


def quantized(x: Tensor, w: Tensor) -> Any:
    return torch.nn.functional.linear(x, w).relu()


def writing(x: Tensor, y: Tensor) -> Any:
    y.add_(1)
    return x + y


PROGRAMS: dict[str, tuple[Program, Callable[[int], tuple[Tensor, ...]]]] = {
    "a constant": (of_one, lambda n: (torch.rand(n, 3),)),
    "sizes": (of_sizes, lambda n: (torch.rand(n, 3),)),
    "training": (trained, lambda n: (torch.rand(n, 3, requires_grad=True), torch.rand(3, 2, requires_grad=True))),
    "a wrapper": (of_a_wrapper, lambda n: (torch.rand(n, 3), TwoTensor(torch.rand(n, 3), torch.rand(n, 3)))),
    "a quantized weight": (quantized, lambda n: (torch.rand(n, 3), Int8Weight.from_float(torch.ones(2, 3)))),
    "a write": (writing, lambda n: (torch.rand(n, 3), torch.rand(n, 3))),
}


def outcome(program: Program, args: tuple[Tensor, ...]) -> Any:
    """Results, gradients, and the arguments afterwards."""
    copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
    result = program(*copies)
    inputs = [x for x in copies if x.requires_grad]
    gradients = torch.autograd.grad((result * result).sum(), inputs) if inputs else ()
    tensors = [*(result if isinstance(result, tuple) else (result,)), *gradients, *copies]
    return [(x.a, x.b) if isinstance(x, TwoTensor) else x for x in tensors if not isinstance(x, Int8Weight)]


def precompiled(name: str, dynamic: bool | None = None, **options: Any) -> Any:
    torch.manual_seed(0)
    program, arguments = PROGRAMS[name]
    with torch._dynamo.config.patch(enable_aot_compile=True):  # it is off in torch 2.11
        compiled: Any = torch.compile(program, backend="subclass_aot", fullgraph=True, dynamic=dynamic, options=options)
        return compiled.aot_compile((arguments(4), {}))


def check(name: str, compiled: Any, *lengths: int) -> None:
    program, arguments = PROGRAMS[name]
    for n in lengths:
        args = arguments(n)
        torch.testing.assert_close(outcome(compiled, args), outcome(program, args))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_it_is_what_was_compiled(name: str, dynamic: bool | None, tmp_path: Path) -> None:
    compiled, path = precompiled(name, dynamic), tmp_path / "compiled"
    lengths = (4, 7) if dynamic else (4,)
    check(name, compiled, *lengths)
    compiled.save_compiled_function(str(path))
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("subclass_aot.engine.trace.trace.trace_once", None)  # nothing is traced
        check(name, torch.compiler.load_compiled_function(file), *lengths)


IN_ANOTHER_PROCESS = """
import sys, torch
from tests.doors.dynamo.test_precompiled import PROGRAMS, outcome
for path in sys.argv[1:]:
    torch.manual_seed(1)
    name = path.rpartition("/")[2]
    with open(path, "rb") as file:
        compiled = torch.compiler.load_compiled_function(file)
    program, arguments = PROGRAMS[name]
    args = arguments(4)
    torch.testing.assert_close(outcome(compiled, args), outcome(program, args))
    print(name)
"""


def test_in_another_process(tmp_path: Path) -> None:
    names = ["training", "a quantized weight"]
    for name in names:
        precompiled(name).save_compiled_function(str(tmp_path / name))
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "ignore", "-c", IN_ANOTHER_PROCESS, *[str(tmp_path / name) for name in names]]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=root, capture_output=True, text=True)
    assert done.stdout.splitlines() == names, done.stderr
    assert "Exception ignored" not in done.stderr


def test_inductor(tmp_path: Path) -> None:
    compiled = precompiled("training", fw_compiler="inductor")
    compiled.save_compiled_function(str(tmp_path / "compiled"))
    with (tmp_path / "compiled").open("rb") as file:
        check("training", torch.compiler.load_compiled_function(file), 4)


def test_what_it_was_not_compiled_for_is_an_error(tmp_path: Path) -> None:
    """Dynamo does not see that arguments share memory, and the file has nothing for it."""
    compiled, path = precompiled("a write"), tmp_path / "compiled"
    compiled.save_compiled_function(str(path))
    with path.open("rb") as file:
        loaded = torch.compiler.load_compiled_function(file)
    with pytest.raises(RuntimeError, match="GuardManager check failed"):
        loaded(torch.rand(5, 3), torch.rand(5, 3))
    x = torch.rand(5, 3)
    with pytest.raises(CompiledFileError, match="no signature in it fits this call"):
        loaded(x[:4], x[1:])


def test_elsewhere_the_backend_returns_a_function() -> None:
    compiled = torch.compile(of_sizes, backend="subclass_aot")
    x = torch.rand(4, 3)
    assert torch.equal(compiled(x), of_sizes(x))

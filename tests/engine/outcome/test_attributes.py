"""What a function puts on tensors that it made, dense ones and wrappers, is on what the compiled function returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as Foreign

from subclass_aot import Int8Weight, TwoTensor, aot_compile, load_compiled


def put(tensor: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor


def two(x: torch.Tensor) -> TwoTensor:
    return TwoTensor(x * 1, x * 2)


def _on_inner(result: Any, *names: str) -> Any:
    tensor = result
    for name in names:
        tensor = getattr(tensor, name)
    put(tensor, note=4)
    return result


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dense": lambda x: put(x * 2, note=4),
    "a wrapper": lambda x: put(two(x), note=4),
    "computed": lambda x: put(two(x) * 3, note="text"),
    "a class of torch": lambda x: put(Foreign(x, x + 1) * 2, note=4),
    "wrappers in a wrapper": lambda x: put(TwoTensor(two(x), two(x + 1)), note=4),
    "an inner wrapper": lambda x: _on_inner(TwoTensor(two(x), two(x + 1)), "b"),
    "an inner leaf": lambda x: _on_inner(two(x), "a"),
    "a leaf in an inner wrapper": lambda x: _on_inner(TwoTensor(two(x), two(x + 1)), "b", "a"),
    "a tensor": lambda x: put(two(x), scale=x.sum()),
    "a wrapper on a wrapper": lambda x: put(two(x), other=put(two(x * 5), note=3)),
    "a wrapper on a dense tensor": lambda x: put(x * 2, other=put(two(x * 5), note=3)),
    "a list": lambda x: [put(two(x), note=[1, 2]), put(two(x * 2), note={"a": x * 1})],
    "a view": lambda x: put(two(x)[1:], note=4),
    "detached": lambda x: put(two(x).detach(), note=4),
    "a size": lambda x: put(two(x), n=x.shape[0]),
    "itself": lambda x: (lambda y: put(y, me=y))(two(x)),
    "with a context": lambda x: put(Int8Weight.from_float(x.expand(4, -1).clone()), note=4),
}


def described(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list | tuple):
        return [described(x, depth) for x in value]
    if isinstance(value, dict):
        return {key: described(x, depth) for key, x in value.items()}
    if not isinstance(value, torch.Tensor) or depth > 3:
        return value if not isinstance(value, torch.Tensor) else "..."
    held = {name: described(x, depth + 1) for name, x in sorted(vars(value).items())}
    return type(value).__name__, held if hasattr(value, "__tensor_flatten__") else value.tolist(), held


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_attributes_of_results(name: str, dynamic: bool | None, requires_grad: bool) -> None:
    program = PROGRAMS[name]
    compiled = aot_compile(program, dynamic=dynamic)
    for n in (3, 3, 4):
        x = torch.arange(1.0, n + 1, requires_grad=requires_grad)
        assert described(compiled(x)) == described(program(x))


@pytest.mark.parametrize("name", PROGRAMS)
def test_attributes_of_what_is_kept(name: str) -> None:
    class Net(torch.nn.Module):
        last: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = PROGRAMS[name](x)
            return x * 2

    nets = Net(), Net()
    compiled = aot_compile(nets[0])
    for _ in range(2):
        compiled(torch.ones(3))
        nets[1](torch.ones(3))
        assert described(nets[0].last) == described(nets[1].last)


def test_what_a_file_holds(tmp_path: Path) -> None:
    compiled = aot_compile(_saved)
    compiled(torch.ones(3))
    compiled.save(tmp_path / "saved")
    loaded = load_compiled(tmp_path / "saved", trust=True)
    assert described(loaded(torch.ones(3))) == described(_saved(torch.ones(3)))


def _saved(x: torch.Tensor) -> Any:
    return _on_inner(put(TwoTensor(two(x), two(x + 1)), note=4, scale=x.sum()), "a", "b")

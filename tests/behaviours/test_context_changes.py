"""Functions that change what wrappers hold beside inner tensors: the object has it after each call, as in eager."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import WrapperTensor, aot_compile, load
from subclass_aot.errors import MutationError

aten: Any = torch.ops.aten


class Declared(WrapperTensor):
    codes: torch.Tensor
    scale: Any = 1
    label: str | None = None

    def to_plain(self) -> torch.Tensor:
        return self.codes * getattr(self.scale, "value", self.scale)

    def from_plain(self, plain: torch.Tensor) -> Declared:
        return Declared(plain / self.scale, self.scale, self.label)


class Foreign(torch.Tensor):
    """The same of another library."""

    @staticmethod
    def __new__(cls, codes: Any, scale: Any = 1, label: Any = None) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, codes.stride(), dtype=codes.dtype)

    def __init__(self, codes: Any, scale: Any = 1, label: Any = None) -> None:
        self.codes, self.scale, self.label = codes, scale, label  # type: ignore[assignment]

    def __repr__(self) -> str:  # type: ignore[override]
        return "Foreign"

    def __tensor_flatten__(self) -> Any:
        return ["codes"], (self.scale, self.label)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["codes"], *context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.detach.default, aten.alias.default, aten.clone.default, aten.view.default):
            return cls(func(args[0].codes, *args[1:]), args[0].scale, args[0].label)

        def plain(x: Any) -> Any:
            return x.codes * getattr(x.scale, "value", x.scale) if isinstance(x, cls) else x

        return func(*torch.utils._pytree.tree_map(plain, args), **(kwargs or {}))


@dataclasses.dataclass(unsafe_hash=True)
class Scale:
    value: int = 1


Program = Callable[[Callable[..., Any], Any], list[Any]]
PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    PROGRAMS[run.__name__] = run
    return run


def repeated(function: Callable[..., Any], x: Any, *args: Any, count: int = 3) -> list[Any]:
    found = []
    for _ in range(count):
        result = function(x, *args)
        found += [result.detach().sum().item() if isinstance(result, torch.Tensor) else result, x.scale, x.label]
    return found


@program
def a_number_of_an_argument(compile: Any, cls: Any) -> list[Any]:
    def function(x: Any) -> Any:
        x.scale += 1
        return x + 0

    return repeated(compile(function), cls(torch.ones(2)))


@program
def of_a_weight(compile: Any, cls: Any) -> list[Any]:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(cls(torch.ones(2)), requires_grad=False)

        def forward(self, x: Any) -> Any:
            self.weight.scale += 1
            return self.weight * x

    model, found = Model(), []
    function = compile(model)
    for _ in range(3):
        found += [function(torch.ones(2)).tolist(), model.weight.scale]
    return found


@program
def of_what_an_object_holds(compile: Any, cls: Any) -> list[Any]:
    state = {"weight": cls(torch.ones(2))}

    def function(x: Any) -> Any:
        state["weight"].scale *= 2
        state["weight"].label = f"scaled by {state['weight'].scale}"
        return x * state["weight"]

    compiled = compile(function)
    return [(compiled(torch.ones(2)).tolist(), state["weight"].scale, state["weight"].label) for _ in range(3)]


@program
def of_an_inner_wrapper(compile: Any, cls: Any) -> list[Any]:
    def function(x: Any) -> Any:
        x.a.scale, x.b.label = x.a.scale + 1, "second"
        return x + 0

    compiled, x = compile(function), TwoTensor(cls(torch.ones(2)), cls(torch.ones(2)))
    return [(compiled(x) is x, x.a.scale, x.b.scale, x.a.label, x.b.label) for _ in range(3)]


@program
def of_a_result_that_is_an_argument(compile: Any, cls: Any) -> list[Any]:
    def function(x: Any) -> Any:
        x.label = "seen"
        return x, x.detach()

    x = cls(torch.ones(2))
    same, other = compile(function)(x)
    return [same is x, x.label, other.label]


@program
def by_an_argument(compile: Any, cls: Any) -> list[Any]:
    def function(x: Any, mode: str) -> Any:
        x.scale, x.label = (3, mode) if mode == "train" else (4, None)
        return x + 0

    compiled, x = compile(function), cls(torch.ones(2))
    return [repeated(compiled, x, mode, count=1) for mode in ("train", "eval", "train")]


@program
def with_gradients(compile: Any, cls: Any) -> list[Any]:
    def function(x: Any) -> Any:
        x.scale += 1
        return x * 2

    compiled, x, found = compile(function), cls(torch.ones(2)).requires_grad_(), []
    for _ in range(3):
        compiled(x).sum().backward()
        found += [x.scale, type(x.grad).__name__]
    return found


@program
def beside_a_write(compile: Any, cls: Any) -> list[Any]:
    def function(x: Any) -> Any:
        x.codes.mul_(2)
        x.scale += 1
        return x + 0

    x = cls(torch.ones(2))
    return [*repeated(compile(function), x), x.codes.tolist()]


@program
def an_object(compile: Any, cls: Any) -> list[Any]:
    def function(x: Any) -> Any:
        x.scale = Scale(x.scale.value + 1)
        return x + 0

    return repeated(compile(function), cls(torch.ones(2), Scale()))


@program
def by_a_hook(compile: Any, cls: Any) -> list[Any]:
    weight = cls(torch.ones(2))

    def function(x: Any) -> Any:
        y = x * weight
        y.register_hook(lambda gradient: setattr(weight, "scale", weight.scale + 1))
        return y

    compiled, found = compile(function), []
    for _ in range(3):
        out = compiled(torch.ones(2, requires_grad=True))
        found.append(weight.scale)
        out.sum().backward()
        found += [weight.scale, out.tolist()]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made_by", ["eager", "inductor"])
@pytest.mark.parametrize("cls", [Declared, Foreign])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_changed_context_is_written_back(name: str, cls: Any, made_by: str) -> None:
    expected = PROGRAMS[name](lambda function: function, cls)
    assert PROGRAMS[name](lambda function: aot_compile(function, fw_compiler=made_by), cls) == expected


@pytest.mark.parametrize("cls", [Declared, Foreign])
def test_a_file_has_it(cls: Any, tmp_path: Any) -> None:
    def function(x: Any) -> Any:
        x.scale += 1
        return x * 2

    compiled, x = aot_compile(function), cls(torch.ones(2))
    compiled(x)
    compiled.save(tmp_path / "file")
    x.scale = 1
    load(tmp_path / "file", function, trust=True)(x)
    assert x.scale == 2


def test_second_derivatives_do_not_change_it_again() -> None:
    def function(x: Any) -> Any:
        x.scale += 1
        return x.sin()

    x = Declared(torch.ones(2)).requires_grad_()
    (gradient,) = torch.autograd.grad(aot_compile(function, double_backward=True)(x).sum(), x, create_graph=True)
    assert x.scale == 2 and gradient.requires_grad


def test_what_nothing_changes_is_not_written() -> None:
    def function(x: Any) -> Any:
        x.scale, x.label = x.scale + 1 - 1, None
        return x * 2

    compiled = aot_compile(function)
    compiled(Declared(torch.ones(2)))
    assert "__dict__" not in compiled.source.split("non_differentiable")[-1]


def in_place(x: Any) -> Any:
    x.scale.value += 1
    return x + 0


def viewed(x: Any) -> Any:
    x.label = "viewed"
    return x.view(1, 2)


def written(x: Any) -> Any:
    x.scale = 3
    x.mul_(2)
    return x.sum()


@pytest.mark.parametrize(
    ("function", "make", "why"),
    [
        (in_place, lambda: Foreign(torch.ones(2), Scale()), r"args\[0\].scale: the function changes this object"),
        (in_place, lambda: Declared(torch.ones(2), Scale()), r"args\[0\].scale: the function changes this object"),
        (viewed, lambda: Foreign(torch.ones(2)), "a result is a view of it"),
        (written, lambda: Declared(torch.ones(2)).requires_grad_().clone(), "where autograd sees that"),
    ],
)
def test_what_cannot_be_repeated_is_refused(function: Any, make: Any, why: str) -> None:
    x = make()
    before = x.scale if isinstance(x.scale, int) else dataclasses.replace(x.scale)
    with pytest.raises(MutationError, match=why):
        aot_compile(function)(x)
    assert x.scale == before

"""Wrappers of classes of others whose inner tensors require grad: computed as in eager mode, with one warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

import subclass_aot as sa
from subclass_aot.base._torch.wrappers import foreign_two_tensor
from subclass_aot.errors import InnerTensorError, TraceError
from subclass_aot.kit.flatten import creation


def fresh(name: str = "Fresh") -> Any:
    """Returns a class of others that was never met before; it requires grad where its first inner tensor does."""

    class Fresh(torch.Tensor):
        a: torch.Tensor
        b: torch.Tensor

        @staticmethod
        def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Fresh:
            made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls, a.shape, strides=a.stride(), dtype=a.dtype, requires_grad=a.requires_grad
            )
            made.a, made.b = a, b
            return made  # type: ignore[no-any-return]

        def __tensor_flatten__(self) -> tuple[list[str], None]:
            return ["a", "b"], None

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Fresh:
            return Fresh(inner["a"], inner["b"])

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            results = []
            for part in "ab":
                given = tree_map_only(Fresh, lambda x, part=part: getattr(x, part), (args, kwargs))
                results.append(func(*given[0], **given[1]))
            made = Fresh(*results) if isinstance(results[0], torch.Tensor) else results[0]
            return return_and_correct_aliasing(func, args, kwargs, made)

    Fresh.__name__ = name
    return Fresh


FRESH = fresh()
TWO = foreign_two_tensor()


def quiet(door: Callable[..., Any], fn: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*this inner tensor of a")
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")  # of Dynamo
        return door(fn)(*args)


DOORS: dict[str, Callable[..., Any]] = {
    "aot_compile": sa.aot_compile,
    "dynamic": lambda fn: sa.aot_compile(fn, dynamic=True),
    "dynamo": lambda fn: torch.compile(fn, backend="subclass_aot"),
}


def _parts() -> tuple[nn.Parameter, nn.Parameter]:
    torch.manual_seed(0)
    return nn.Parameter(torch.rand(3, 2)), nn.Parameter(torch.rand(3, 2))


def _nested() -> Any:
    a, b = _parts()
    return FRESH(FRESH(a, b), FRESH(b, a))


KINDS: dict[str, Callable[[], Any]] = {
    "leaves": lambda: FRESH(*_parts()),
    "non-leaves": lambda: FRESH(*[x * 1 for x in _parts()]),
    "only the first": lambda: FRESH(_parts()[0], _parts()[1].detach()),
    "nested": _nested,
    "torch's own": lambda: TWO(*_parts()),
    "frozen": lambda: FRESH(*_parts()).requires_grad_(False),
    "only the second": lambda: FRESH(_parts()[0].detach(), _parts()[1]),
}


def _writes(w: Any) -> Any:
    with torch.no_grad():
        w.mul_(2)
    return w * 1


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "mul": lambda w: w * 2,
    "matmul": lambda w: (w @ w.t()).sum(),
    "itself": lambda w: w,
    "view": lambda w: w.view(-1),
    "detach": lambda w: w.detach() * 2,
    "writes": _writes,
    "inner, detached": lambda w: w.a.detach() * 2,
    "asks": lambda w: (w * 2 if w.a.requires_grad else w * 3) * (5 if w.requires_grad else 7),
    "without gradients": torch.no_grad()(lambda w: w * 2 + w.a),
}


def seen(result: Any, w: Any) -> list[Any]:
    """What the user sees of a result, and of a backward from it."""

    def of(x: Any) -> list[Any]:
        inner = (
            [of(getattr(x, name)) for name in x.__tensor_flatten__()[0]] if isinstance(x, FRESH | TWO) else x.tolist()
        )
        return [type(x), x.requires_grad, x.is_leaf, inner]

    found = of(result)
    if result.requires_grad:
        result.sum().backward()
    grad = w.grad if w.is_leaf and w.requires_grad else None
    return [found, None if grad is None else of(grad), of(w)]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager_mode(program: str, kind: str, door: str) -> None:
    torch.compiler.reset()
    if door == "dynamo" and kind in ("frozen", "only the second"):
        door = "aot_compile"  # Dynamo itself makes a fake of such a wrapper whose `requires_grad` is another
    fn, one, other = PROGRAMS[program], KINDS[kind](), KINDS[kind]()
    assert seen(quiet(DOORS[door], fn, one), one) == seen(fn(other), other)


@pytest.mark.parametrize("door", ["aot_compile", "dynamo"])
def test_one_warning_for_a_class(door: str) -> None:
    cls = fresh("Warned")
    torch.compiler.reset()
    with pytest.warns(UserWarning, match=r"\.a: this inner tensor of a Warned requires grad, and gets no") as caught:
        for fn in PROGRAMS["mul"], PROGRAMS["view"]:
            DOORS[door](fn)(cls(*_parts()))
    assert len([x for x in caught if "this inner tensor" in str(x.message)]) == 1
    assert cls in creation._warned


def test_another_requires_grad_inside_is_another_signature() -> None:
    compiled: Any = sa.aot_compile(lambda w: w * (2 if w.a.requires_grad else 3))
    for kind, factor in ("frozen", 2), ("leaves", 2), ("frozen", 2):
        w = KINDS[kind]()
        assert quiet(lambda fn: fn, compiled, w).a.equal(w.a.detach() * factor)
    w = FRESH(*[x.detach() for x in _parts()])
    assert compiled(w).a.equal(w.a * 3)
    assert len(compiled.recompiles) == 2


@pytest.mark.parametrize(
    "program",
    [
        lambda w: w.a * 2,
        lambda w: (w * 2, w.a.sin().sum()),
        lambda w: w.a,
        lambda w: w.b.view(-1),
        lambda w: [w.a.t() @ w.b.detach()],
        lambda w: (w.a * w).sum(),
    ],
)
@pytest.mark.parametrize("kind", ["leaves", "frozen", "non-leaves"])
def test_a_gradient_that_eager_mode_would_not_lose_is_refused(program: Callable[[Any], Any], kind: str) -> None:
    with pytest.raises(TraceError, match="a result depends on an inner tensor|A result depends on an inner tensor"):
        quiet(sa.aot_compile, program, KINDS[kind]())


def test_of_an_inner_wrapper_too() -> None:
    with pytest.raises(TraceError, match="A result depends on an inner tensor"):
        quiet(sa.aot_compile, lambda w: w.a * 2, _nested())


def test_results_with_such_inner_tensors_are_refused_by_name() -> None:
    with pytest.raises((InnerTensorError, TraceError), match=r"inner tensor"):
        quiet(sa.aot_compile, lambda w: FRESH(w.a, w.b), KINDS["leaves"]())


def test_declared_classes_refuse_them() -> None:
    a, b = _parts()
    declared = sa.TwoTensor(a.detach(), b.detach())
    declared.a.requires_grad_()
    with pytest.raises(InnerTensorError, match=r"^args\[0\].a: this inner tensor of a TwoTensor requires grad"):
        sa.aot_compile(lambda w: w * 2)(declared)


def test_a_step_of_training() -> None:
    def step(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        return layer(x).square().sum()

    grads = []
    for door in (lambda fn: fn, sa.aot_compile, DOORS["dynamo"]):
        torch.compiler.reset()
        layer = nn.Linear(2, 3)
        layer.weight, layer.bias = nn.Parameter(FRESH(*_parts())), None  # type: ignore[assignment]
        for _ in range(2):
            quiet(door, step, layer, torch.ones(4, 2)).backward()
        assert layer.weight.grad is not None
        grads.append([part.tolist() for part in (layer.weight.grad.a, layer.weight.grad.b)])
    assert grads[0] == grads[1] == grads[2]


def doubled(w: Any) -> Any:
    return w * 2


def test_files(tmp_path: Path) -> None:
    compiled, w = sa.aot_compile(doubled), TWO(*_parts()).requires_grad_(False)
    quiet(lambda fn: fn, compiled, w)
    compiled.save(tmp_path / "x.sa")
    found = quiet(lambda fn: fn, sa.load_compiled(tmp_path / "x.sa", trust=True), w)
    assert not found.a.requires_grad and found.a.equal(w.a.detach() * 2)


class Listed(torch.Tensor):
    """A class of others with a list of inner tensors."""

    parts: list[torch.Tensor]

    @staticmethod
    def __new__(cls, parts: list[torch.Tensor]) -> Listed:
        made = torch.Tensor._make_wrapper_subclass(cls, parts[0].shape, dtype=parts[0].dtype)  # type: ignore[attr-defined]
        made.parts = parts
        return made  # type: ignore[no-any-return]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["parts"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Listed:
        return cls(inner["parts"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        count = next(len(x.parts) for x in args if isinstance(x, Listed))
        return cls([func(*[x.parts[i] if isinstance(x, Listed) else x for x in args]) for i in range(count)])


@pytest.mark.parametrize("trained", [True, False])
def test_in_a_list_and_without_a_constructor_that_mirrors(trained: bool) -> None:
    grads = []
    for door in (lambda fn: fn, sa.aot_compile):
        w = Listed([*_parts()]).requires_grad_(trained)
        result = quiet(door, lambda w: w * 2, w)
        assert [x.requires_grad for x in (result, *result.parts)] == [trained, False, False]
        assert result.parts[0].equal(w.parts[0].detach() * 2)
        if trained:
            result.backward(Listed([torch.ones(3, 2)] * 2))
            grads.append([x.tolist() for x in w.grad.parts])  # type: ignore[attr-defined, union-attr]
    assert grads[:1] == grads[1:]

"""What a signature is made of: another fact compiles once more, says which, and the first entry is still there."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import Outer, TwoTensor, WrapperTensor, aot_compile
from subclass_aot.testing import difference


class Scaled(WrapperTensor):
    """Stands for `plain * factor + shift`."""

    plain: torch.Tensor
    shift: torch.Tensor | None = None
    factor: Any = 1.0

    def outer(self) -> Outer:  # type: ignore[override]
        return Outer.like(self.plain)

    def to_plain(self) -> torch.Tensor:
        plain = self.plain * self.factor
        return plain if self.shift is None else plain + self.shift


class Color(enum.Enum):
    RED = 1
    GREEN = 2


@dataclass(frozen=True)
class Options:
    scale: float
    name: str = "plain"


def number(value: Any) -> float:
    """A number that tells Python values apart."""
    if isinstance(value, Options):
        return value.scale + len(value.name)
    if isinstance(value, Color):
        return float(value.value)
    if isinstance(value, torch.dtype):
        return float(value.itemsize)
    if callable(value):
        return float(value(3.0))
    if value is None:
        return 17.0
    return (len(value) if isinstance(value, (str, bytes)) else value) + 0.5 * isinstance(value, float)


def program(x: Any, y: Any = None, value: Any = 1) -> Any:
    result = x * 2 + number(value)
    return result if y is None else result.sum() + y.sum()


ones, w = torch.ones(2, 3), torch.ones(2, 3)
nan = float("nan")
leaf = torch.ones(2, 3, requires_grad=True)
FACTS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], str]] = {
    "size": ((ones,), (torch.ones(4, 3),), "args[0]: Tensor float32[2, 3] on cpu before, Tensor float32[4, 3]"),
    "stride": ((ones,), (torch.ones(3, 2).t(),), "args[0]: .* on cpu before, .* stride (1, 2) now"),
    "dtype": ((ones,), (ones.double(),), "args[0]: .*float32.* before, .*float64.* now"),
    "device": ((ones,), (ones.to("meta"),), "args[0]: .* on cpu before, .* on meta now"),
    "requires_grad": ((ones,), (leaf,), "args[0]: .* on cpu before, .* requires_grad now"),
    "leaf": ((leaf,), (leaf * 1,), "args[0]: .* requires_grad before, .* requires_grad non-leaf now"),
    "parameter": ((leaf,), (nn.Parameter(ones),), "args[0]: Tensor .* before, Parameter .* now"),
    "class": ((ones,), (TwoTensor(ones, w),), "args[0]: Tensor .* before, .*TwoTensor .* now"),
    "class inside": ((TwoTensor(ones, w),), (TwoTensor(ones, TwoTensor(w, ones * 3)),), "args[0]: .*b: .*TwoTensor.* now"),
    "dtype inside": ((TwoTensor(ones, w),), (TwoTensor(ones, w.double()),), "args[0]: .*b: Tensor float64.* now"),
    "stride inside": ((TwoTensor(ones, w),), (TwoTensor(ones, torch.ones(3, 2).t()),), "args[0]: .*stride.* now"),
    "context": ((Scaled(ones, None, 2.0),), (Scaled(ones, None, 3.0),), "args[0]: .*2.0.* before, .*3.0.* now"),
    "optional": ((Scaled(ones),), (Scaled(ones, w),), "args[0]: .* before, .*shift: Tensor.* now"),
    "tied": ((ones, w), (ones, ones), "args[1]: Tensor .* before, the same tensor as args[0] now"),
    "absent": ((ones, w), (ones,), "structure of the arguments: .* before"),
    "int": ((ones, None, 2), (ones, None, 3), "int 2 before, int 3 now"),
    "int to float": ((ones, None, 2), (ones, None, 2.0), "int 2 before, float 2.0 now"),
    "int to bool": ((ones, None, 1), (ones, None, True), "int 1 before, bool True now"),
    "float": ((ones, None, 0.5), (ones, None, 0.25), "float 0.5 before, float 0.25 now"),
    "nan": ((ones, None, nan), (ones, None, 1.5), "float nan before, float 1.5 now"),
    "zero": ((ones, None, 0.0), (ones, None, -0.0), "float 0.0 before, float -0.0 now"),
    "dtype value": ((ones, None, torch.int8), (ones, None, torch.int64), "dtype torch.int8 before, dtype torch.int64"),
    "enum": ((ones, None, Color.RED), (ones, None, Color.GREEN), "Color <Color.RED: 1> before"),
    "none": ((ones, None, 2), (ones, None, None), "int 2 before, NoneType None now"),
    "string": ((ones, None, "a"), (ones, None, "bc"), "str 'a' before, str 'bc' now"),
    "dataclass": ((ones, None, Options(1.0)), (ones, None, Options(2.0)), "Options(scale=1.0, .* before"),
    "function": ((ones, None, abs), (ones, None, float), "Python value"),
    "list": (([ones, w],), ([ones, w, ones],), "structure of the arguments"),
}


def total(x: Any, *rest: Any) -> Any:
    return sum(t.sum() * (i + 1) for i, t in enumerate(x)) if isinstance(x, list) else program(x, *rest)


def again(call: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same signature in other objects: tensors with the same metadata, equal Python values."""
    twins: dict[int, Any] = {}

    def twin(value: Any) -> Any:
        if isinstance(value, list):
            return [twin(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return float("nan") if value is nan else value
        if id(value) not in twins:
            copy = value.detach().clone()
            copy = nn.Parameter(copy) if isinstance(value, nn.Parameter) else copy.requires_grad_(value.requires_grad)
            twins[id(value)] = copy if value.is_leaf else copy * 1
        return twins[id(value)]

    return tuple(twin(v) for v in call)


@pytest.mark.parametrize("name", FACTS)
def test_another_fact_compiles_once_more(name: str) -> None:
    first, second, reason = FACTS[name]
    compiled = aot_compile(total)
    for call in (first, second, again(first), again(second)) * 2:
        expected, got = total(*call), compiled(*call)
        if expected.device.type == "meta":
            assert got.device.type == "meta" and got.shape == expected.shape
        else:
            assert not difference(expected, got)
    assert len(compiled.recompiles) == 1, compiled.recompiles
    pattern = ".*".join(re.escape(part) for part in reason.split(".*"))
    assert re.search(pattern, compiled.recompiles[-1]), compiled.recompiles[-1]


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


MODES: dict[str, tuple[Callable[[], Any], str]] = {
    "no_grad": (torch.no_grad, "grad mode: True before, False now"),
    "inference": (torch.inference_mode, "inference mode: False before, True now"),
    "autocast": (lambda: torch.autocast("cpu"), "autocast on cpu: None before, torch.bfloat16 now"),
    "autocast to half": (lambda: torch.autocast("cpu", torch.float16), "autocast on cpu: None before, torch.float16 now"),
    "default dtype": (lambda: default_dtype(torch.float64), "default dtype: torch.float32 before, torch.float64 now"),
    "deterministic": (deterministic, "deterministic algorithms: False before, True now"),
}


def mixed(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x @ y, x.detach().to(torch.int64) / 2


@pytest.mark.parametrize("name", MODES)
def test_another_mode_compiles_once_more(name: str) -> None:
    mode, reason = MODES[name]
    compiled, x, y = aot_compile(mixed), torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
    for _ in range(2):
        outside = mixed(x, y), compiled(x, y)
        with mode():
            inside = mixed(x, y), compiled(x, y)
        for expected, got in (*zip(*outside, strict=True), *zip(*inside, strict=True)):
            assert not difference(expected, got)
            assert expected.is_inference() == got.is_inference()
    assert len(compiled.recompiles) == 1 and reason in compiled.recompiles[-1]


def test_another_dtype_of_autocast() -> None:
    compiled, x = aot_compile(lambda x: x @ x), torch.ones(2, 2)
    for dtype in (torch.bfloat16, torch.float16) * 2:
        with torch.autocast("cpu", dtype):
            assert compiled(x).dtype is dtype
    assert compiled.recompiles == ["autocast on cpu: torch.bfloat16 before, torch.float16 now"]


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2)), nn.LayerNorm(2, bias=False))


def add_parameter(m: Any) -> None:
    m[0].register_parameter("extra", nn.Parameter(torch.ones(2)))


def add_buffer(m: Any) -> None:
    m.register_buffer("extra", torch.ones(2))


def freeze(m: Any) -> None:
    m[0].weight.requires_grad_(False)


def add_module(m: Any) -> None:
    m[1][0].add_module("extra", nn.Linear(1, 1))


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "training of the whole": (lambda m: m.eval(), "self.training: True before, False now"),
    "training of a part": (lambda m: m[1][0].eval(), "self.1.0.training: True before, False now"),
    "submodule of another class": (lambda m: m.__setitem__(0, nn.Identity()), "self.0.weight: .* before, absent now"),
    "submodule removed": (lambda m: m.__delitem__(0), "self.0.weight: "),
    "parameter of another shape": (
        lambda m: m[1].__setitem__(1, nn.Linear(3, 5)) or m.__delitem__(2), "self.1.1.weight: .*[2, 3].* before, .*[5, 3].* now",
    ),
    "parameter of another class": (
        lambda m: setattr(m[0], "weight", nn.Parameter(TwoTensor(torch.ones(3, 3), torch.ones(3, 3)))),
        "self.0.weight: .* before, .*TwoTensor.* now",
    ),
    "parameter frozen": (freeze, "self.0.weight: .* requires_grad before, .*on cpu now"),
    "parameter removed": (lambda m: setattr(m[0], "bias", None), "self.0.bias: .* before, absent now"),
    "parameter added": (add_parameter, "self.0.extra: absent before, Parameter .* now"),
    "submodule added": (add_module, "self.1.0.extra.training: absent before, True now"),
    "parameter was absent": (lambda m: setattr(m[2], "bias", nn.Parameter(torch.ones(2))), "self.2.bias: absent before"),
    "buffer added": (add_buffer, "self.extra: absent before, Tensor .* now"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_another_module_compiles_once_more(name: str) -> None:
    change, reason = CHANGES[name]
    module, x = model(), torch.randn(4, 3)
    compiled = aot_compile(module)

    def agree() -> None:
        torch.manual_seed(1)
        expected = module(x)
        torch.manual_seed(1)
        assert not difference(expected, compiled(x))

    agree()
    agree()
    assert not compiled.recompiles
    change(module)
    agree()
    agree()
    assert len(compiled.recompiles) == 1
    pattern = ".*".join(re.escape(part) for part in reason.split(".*"))
    assert re.search(pattern, compiled.recompiles[-1]), compiled.recompiles[-1]


def test_a_parameter_replaced_by_one_alike_is_read_where_it_stands() -> None:
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    compiled = aot_compile(module)
    for _ in range(3):
        module.weight = nn.Parameter(torch.randn(2, 3))
        assert not difference(module(x), compiled(x))
        compiled(x).sum().backward()
        assert module.weight.grad is not None
    assert not compiled.recompiles


def test_a_submodule_replaced_by_one_alike_is_read() -> None:
    module, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(4, 3)
    compiled = aot_compile(module)
    compiled(x)
    for replacement in (nn.Linear(3, 2), nn.Linear(3, 2, bias=False)):
        module[0] = replacement
        assert not difference(module(x), compiled(x))


def test_weights_tied_later() -> None:
    module, x = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)), torch.randn(4, 3)
    compiled = aot_compile(module)
    compiled(x)
    module[1].weight = module[0].weight
    compiled(x).sum().backward()
    gradient, module[0].weight.grad = module[0].weight.grad, None
    module(x).sum().backward()
    torch.testing.assert_close(gradient, module[0].weight.grad)
    assert compiled.recompiles == [
        "self.1.weight: Parameter float32[3, 3] on cpu requires_grad before, the same tensor as self.0.weight now"
    ]


def test_another_function_as_argument() -> None:
    compiled, x = aot_compile(lambda f, x: f(x)), torch.randn(3)
    for f in (torch.sin, torch.cos, torch.sin, torch.cos):
        assert torch.equal(compiled(f, x), f(x))
    assert len(compiled.recompiles) == 1


def test_the_reason_is_told_of_the_nearest_signature() -> None:
    compiled = aot_compile(program)
    compiled(torch.ones(2), None, 1)
    compiled(torch.ones(2, 3), torch.ones(4), 2)
    compiled(torch.ones(2, 3), torch.ones(5), 2)
    assert len(compiled.recompiles) == 2
    assert compiled.recompiles[1] == "args[1]: Tensor float32[4] on cpu before, Tensor float32[5] on cpu now"


@pytest.mark.parametrize("limit", [1, 2])
def test_cache_limit(limit: int) -> None:
    compiled = aot_compile(lambda x: x * 2, cache_limit=limit)
    for n in (1, 2, 3, 3, 3):
        assert compiled(torch.ones(n)).sum() == 2 * n
    assert len(compiled.recompiles) == 2
    assert f"{limit} signature" in compiled.explain()
    compiled(torch.ones(2))  # used longest ago but one: still there if two are kept
    compiled(torch.ones(3))
    assert len(compiled.recompiles) == (2 if limit == 2 else 4)
    compiled(torch.ones(1))
    assert len(compiled.recompiles) == (3 if limit == 2 else 5)

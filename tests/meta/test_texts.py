"""Texts of traced tensors are those of eager mode, and each call has its own."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import pprint
import string
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import MetaTensor, TwoTensor, aot_compile, trace_joint
from subclass_aot.errors import DataDependentError
from subclass_aot.meta.texts import plain_text

Program = Callable[[torch.Tensor], Any]
WEIGHT = torch.nn.Parameter(torch.tensor([1.0, 2.0]))


@dataclasses.dataclass
class Pair:
    """Has a text that Python has generated."""

    first: object
    second: int = 1


class Plain(torch.Tensor):
    """A plain subclass."""


class Spoken(torch.Tensor):
    """A plain subclass with a text of its own."""

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Spoken<{self.sum().item():.1f}|{super().__repr__()}>"


class Holder(torch.Tensor):
    """A wrapper with a text of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Holder({self.inner}, most={self.inner.max()}, {_shown(self.inner)})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: object, size: object, stride: object) -> Holder:
        return Holder(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = torch.utils._pytree.tree_map_only(Holder, lambda x: x.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, Holder, func(*args, **kwargs))


def _shown(x: torch.Tensor) -> str:
    return str(x.sum())


def logged(x: torch.Tensor) -> str:
    stream, log = io.StringIO(), logging.Logger("texts")
    log.addHandler(logging.StreamHandler(stream))
    log.warning("most %s of %r", x.max(), x)
    return stream.getvalue()


def printed(x: torch.Tensor) -> str:
    stream = io.StringIO()
    print(x, x.sum(), file=stream)
    return stream.getvalue()


def warned(x: torch.Tensor) -> str:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn(f"got {x.max()}", stacklevel=1)
        return str(found[0].message)


def raised(x: torch.Tensor) -> str:
    try:
        raise ValueError(f"bad {x.argmax()}")
    except ValueError as error:
        return str(error)


def with_options(x: torch.Tensor) -> str:
    torch.set_printoptions(precision=2)
    try:
        return str(x.sum() / 7)
    finally:
        torch.set_printoptions(profile="default")


def with_dtype(x: torch.Tensor) -> str:
    torch.set_default_dtype(torch.float64)
    try:
        return str(x)
    finally:
        torch.set_default_dtype(torch.float32)


def hooked(x: torch.Tensor) -> str:
    found: list[str] = []
    y = x * 2
    if y.requires_grad:
        y.register_hook(lambda gradient: found.append(f"{gradient.sum()}"))
        y.sum().backward()
    return ",".join(found)


def without_gradients(x: torch.Tensor) -> str:
    with torch.no_grad():
        return str(x * 2)


NUMBERS: dict[str, Program] = {
    "f": lambda x: f"t{x.argmax()}",
    "format": lambda x: "{}|{:>5}".format(x.argmax(), x.sum()),  # noqa: UP032
    "str": lambda x: str(x.argmax()) + str(x.sum()),
    "repr": lambda x: repr(x.sum()),
    "%": lambda x: f"%s %r %d {x.sum()!r:>20}" % (x.argmax(), x.sum(), x.argmax()),  # noqa: UP031
    "by name": lambda x: "{a} {0}".format(x, a=x.sum()),  # noqa: UP032
    "join": lambda x: ",".join(map(str, [x.argmax(), x.sum()])),
    "conversions": lambda x: f"{x.argmax()!r} {x.sum()!s} {x.sum()!a}",
    "with a format": lambda x: f"{x.sum():.3f} {x.argmax():03d} {x.sum():e}",
    "a bool": lambda x: f"{(x > 1).all()} {(x > 1).any()!s}",
    "a complex number": lambda x: f"{x.sum() * (1 + 2j)}",
    "half": lambda x: f"{x.half().sum()} {x.bfloat16().sum()!s}",
    "a branch": lambda x: x * {"t0": 7.0, "t1": 8.0}.get(f"t{x.argmax()}", -1.0),
    "a key": lambda x: {str(x.argmax()): x * 2},
    "a parameter": lambda x: f"{WEIGHT.sum()} {x.sum()}",
    "known": lambda x: f"{torch.arange(3).sum()} {torch.tensor([1, 2])} {torch.ones(())}",
    "of a name": lambda x: string.Template("$a!").substitute(a=x.argmax()),
    "json": lambda x: json.dumps({"a": x.argmax()}, default=str),
    "logged": logged,
    "printed": printed,
    "warned": warned,
    "raised": raised,
    "hooked": hooked,
    "of a distribution": lambda x: repr(torch.distributions.Normal(x.sum(), 1.0)),
}
VECTORS: dict[str, Program] = {
    "str": lambda x: str(x),
    "repr": lambda x: repr(x * 2),
    "f": lambda x: f"{x} {x.long()}",
    "method": lambda x: x.__str__() + x.__repr__(),
    "a list": lambda x: repr([x.sum(), x]),
    "a dict": lambda x: f"{ {'a': x, 'b': (x * 2,)} }",
    "a dataclass": lambda x: repr(Pair(x)) + str(Pair(Pair(x.argmax()))),
    "pprint": lambda x: pprint.pformat({"a": [x, x.sum()]}),
    "a parameter": lambda x: f"{WEIGHT} {x}",
    "written": lambda x: str((x * 1).mul_(2)),
    "views": lambda x: f"{x[:2]} {x.detach()} {x.double()} {x.reshape(1, -1)}",
    "empty": lambda x: f"{x[:0]} {x.reshape(1, -1)[:, :0]} {x.long()[:0]}",
    "nan": lambda x: str(x * float("nan")),
    "signs of zero": lambda x: str((x - 3) * -0.0),
    "long": lambda x: str(x.repeat(600)),
    "bools": lambda x: str(x > 1),
    "complex": lambda x: str(torch.complex(x, x)),
    "beside a result": lambda x: (x * 2, str(x)),
    "default dtype": with_dtype,
    "no gradients": without_gradients,
    "a format": lambda x: f"{x:>3}",  # an error
}


def check(program: Program, calls: list[torch.Tensor], **options: Any) -> Any:
    """Compares a compiled program with eager mode, call by call, and returns it."""
    compiled = aot_compile(program, **options)
    for x in calls:
        copy = x.detach().clone().requires_grad_(x.requires_grad) if type(x) is torch.Tensor else x
        try:
            expected = program(x)
        except TypeError as error:
            with pytest.raises(TypeError, match=str(error)):
                compiled(copy)
            continue
        torch.testing.assert_close(compiled(copy), expected, msg=None) if isinstance(expected, torch.Tensor) else None
        if not isinstance(expected, torch.Tensor):
            again = compiled(copy)
            parts, other = torch.utils._pytree.tree_leaves((expected, again)), None
            assert str(type(again)) == str(type(expected))
            half = len(parts) // 2
            for one, other in zip(parts[:half], parts[half:], strict=True):
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
            if isinstance(expected, dict):
                assert list(expected) == list(again)
    return compiled


def calls(requires_grad: bool) -> list[torch.Tensor]:
    """Twice the same values, others in the end."""
    values = [[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [4.0, 9.0, 3.0]]
    return [torch.tensor(each, requires_grad=requires_grad) for each in values]


@pytest.mark.parametrize("requires_grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", NUMBERS)
def test_texts_of_numbers(name: str, requires_grad: bool) -> None:
    check(NUMBERS[name], calls(requires_grad))


@pytest.mark.parametrize("requires_grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", VECTORS)
def test_texts_of_tensors(name: str, requires_grad: bool) -> None:
    check(VECTORS[name], calls(requires_grad))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ["str", "empty", "long", "a dict"])
def test_sizes_that_change(name: str, dynamic: bool | None) -> None:
    check(VECTORS[name], [torch.arange(3.0 + i) for i in (0, 1, 2, 1)], dynamic=dynamic)


@pytest.mark.parametrize("requires_grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("cls", [Plain, Spoken, Holder])
def test_texts_of_other_classes(cls: Any, requires_grad: bool) -> None:
    def program(x: Any) -> str:
        return f"{x} {x!s} {x.sum()!r} {x.sum()} {[x]} {x * 2!r}"

    make = cls if cls is Holder else lambda x: x.as_subclass(cls)
    check(program, [make(x.detach()).requires_grad_(requires_grad) for x in calls(False)])


def test_sizes_in_the_text_of_a_wrapper_are_numbers() -> None:
    made = [TwoTensor(torch.ones(n), torch.ones(n)) for n in (3, 4, 5)]
    check(lambda x: f"{x} {x * 2!r}", made)  # type: ignore[list-item]


@pytest.mark.filterwarnings("ignore:.*does what only eager mode can do:UserWarning")
@pytest.mark.parametrize("wrapped", [False, True])
def test_of_an_input_with_a_history_the_function_itself_says_it(wrapped: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    given: Any = TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_() if wrapped else x
    assert aot_compile(lambda x: str(x))(given * 2) == str(given * 2)
    assert aot_compile(lambda x: f"{x.sum()}" if not wrapped else "6.0")(x * 2) == "6.0"


def test_another_compiler() -> None:
    check(lambda x: (f"{x.sum()}|{x}", x * 2), calls(False), fw_compiler="inductor")  # type: ignore[arg-type, return-value]


def test_values_that_read_alike_are_compiled_for_once() -> None:
    compiled = aot_compile(lambda x: str(x))
    for x in (1.0, 1.00001, 1.00002, 1.00003):
        assert compiled(torch.tensor([x, 2.5])) == str(torch.tensor([x, 2.5]))
    assert not compiled.recompiles


def test_options_that_change_between_calls() -> None:
    compiled, x = aot_compile(lambda x: str(x / 7)), torch.ones(2)
    assert compiled(x) == "tensor([0.1429, 0.1429])"
    torch.set_printoptions(precision=2)
    try:
        assert compiled(x) == "tensor([0.14, 0.14])"
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.filterwarnings("ignore:.*The function itself ran:UserWarning")
def test_options_that_the_function_sets() -> None:
    check(with_options, calls(True))


def test_for_more_texts_than_the_limit_the_function_itself_runs() -> None:
    compiled = aot_compile(lambda x: f"{x.sum()}", values_limit=2)
    with pytest.warns(UserWarning, match=r"(?s)The function itself ran.*'3.0', '5.0'.*the text of it"):
        assert [compiled(torch.full((2,), i / 2)) for i in range(1, 8, 2)] == ["1.0", "3.0", "5.0", "7.0"]


def test_gradients_are_those_of_the_branch_that_a_text_has_chosen() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if str(x.argmax()) == "tensor(0)" else x.cos()

    compiled = aot_compile(program)
    for x in calls(True):
        (expected,) = torch.autograd.grad(program(x).sum(), x)
        (got,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(got, expected)


def test_nobody_knows_them() -> None:
    message = r"(?s)The text of a tensor is asked for.*f\"\{x.sum\(\)\}\".*x.shape"
    with pytest.raises(DataDependentError, match=message):
        trace_joint(lambda x: f"{x.sum()}", torch.ones(3))
    with pytest.raises(DataDependentError, match=message):
        aot_compile(lambda x: f"{x.sum()}", values="refuse")(torch.ones(3))
    y = aot_compile(lambda x: x.sin())(torch.ones(3, requires_grad=True))
    y.register_hook(lambda gradient: print(gradient))  # outside of a trace
    y.sum().backward()


def test_a_gradient_has_no_text_while_it_is_computed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda gradient: print(gradient))
        return y

    with pytest.raises(DataDependentError, match="The text of a tensor is asked for"):
        aot_compile(program)(torch.ones(3, requires_grad=True)).sum().backward()


def test_messages_of_torch_and_of_this_library_have_the_metadata() -> None:
    found: list[str] = []
    names: dict[str, Any] = {"__name__": "torch.somewhere", "found": found}
    exec("def say(x): found.append(f'{x} {x.sum()}')", names)

    def program(x: torch.Tensor) -> torch.Tensor:
        names["say"](x)
        return x + 1

    compiled = aot_compile(program)
    compiled(torch.ones(2))
    assert found[0] == "MetaTensor([2], float32, cpu) MetaTensor([], float32, cpu)"
    assert not [line for line in compiled.explain().splitlines() if "reads a value" in line]


def test_a_run_without_data() -> None:
    with sa.meta():
        assert f"{torch.arange(3).sum()} {torch.ones(2)}" == "3 MetaTensor([2], float32, cpu)"
    assert f"{MetaTensor(torch.ones(()))}" == "MetaTensor([], float32, cpu)"


def test_plain_texts() -> None:
    x = torch.tensor(1.5, requires_grad=True)
    assert [plain_text(x, None), plain_text(x, ""), plain_text(x, ".2f")] == ["tensor(1.5000)", "1.5", "1.50"]

"""Methods that are compiled where a class defines them: bound as Python binds functions."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import CompiledFunction, TwoTensor, aot_compile

FACTOR = 2.0


class Plain:
    """Methods of every kind, compiled."""

    scale = 3.0

    def __init__(self, shift: float) -> None:
        self.shift, self.calls = shift, 0

    @aot_compile
    def body(self, x: torch.Tensor, *, twice: bool = False) -> torch.Tensor:
        self.calls += 1
        return (x * self.scale + self.shift) * (2 if twice else 1)

    @aot_compile
    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x * 5

    @staticmethod
    @aot_compile
    def static_inside(x: torch.Tensor) -> torch.Tensor:
        return x * 5

    @aot_compile
    @classmethod
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        return x * cls.scale

    @classmethod
    @aot_compile
    def of_class_inside(cls, x: torch.Tensor) -> torch.Tensor:
        return x * cls.scale

    @property
    @aot_compile
    def shifted(self) -> torch.Tensor:
        return torch.ones(2) + self.shift

    @aot_compile
    @property
    def shifted_inside(self) -> torch.Tensor:
        return torch.ones(2) + self.shift

    @functools.cached_property
    @aot_compile
    def kept(self) -> torch.Tensor:
        return torch.ones(2) + self.shift

    @aot_compile
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) - 1

    twice = functools.partialmethod(body, twice=True)


class Derived(Plain):
    """Calls what it derives from."""

    scale = 4.0

    @aot_compile
    def body(self, x: torch.Tensor, *, twice: bool = False) -> torch.Tensor:
        return super().body(x, twice=twice) + 7


@pytest.mark.parametrize("cls, scale, more", [(Plain, 3.0, 0.0), (Derived, 4.0, 7.0)])
def test_methods_of_every_kind_bind(cls: type[Plain], scale: float, more: float) -> None:
    x = torch.arange(3.0)
    for shift in (1.0, 2.0):
        made = cls(shift)
        for calls in (1, 2):
            assert made.body(x).equal(x * scale + shift + more)
            assert made.calls == calls
        for who in (made, cls):
            assert who.static(x).equal(x * 5) and who.static_inside(x).equal(x * 5)
            assert who.of_class(x).equal(x * scale) and who.of_class_inside(x).equal(x * scale)
        for found in (made.shifted, made.shifted_inside, made.kept):
            assert found.equal(torch.ones(2) + shift)
        assert made.kept is made.kept
        assert made(x).equal(x * scale + shift + more - 1)
        assert cls.body(made, x, twice=True).equal((x * scale + shift) * 2 + more)
    assert Plain(1.0).twice(x).equal((x * 3 + 1) * 2)


def test_bound_is_a_method_of_its_object() -> None:
    made = Plain(1.0)
    assert isinstance(made.body, types.MethodType) and made.body.__self__ is made
    assert isinstance(Plain.body, CompiledFunction) and made.body.__func__ is Plain.body
    assert made.body == made.body and made.body != Plain(1.0).body
    assert list(inspect.signature(made.body).parameters) == ["x", "twice"]
    assert made.body.__name__ == "body" and made.body.explain() == Plain.body.explain()


@pytest.mark.parametrize("repeated", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_bound_is_copied_and_pickled(repeated: Callable[[Any], Any]) -> None:
    made, x = Plain(1.0), torch.ones(2)
    again = repeated(made.body)
    assert again(x).equal(x * 3 + 1)
    assert again.__func__ is Plain.body
    assert (again.__self__ is made) == (repeated is copy.copy)
    assert repeated(Plain.body) is Plain.body or repeated is copy.copy  # as functions are
    assert repeated(made).body(x).equal(x * 3 + 1)


class Layer(nn.Module):
    """A module with compiled methods."""

    def __init__(self, n: int, weight: Callable[[torch.Tensor], torch.Tensor] = lambda x: x) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight(torch.arange(float(n * n)).view(n, n)))
        self.register_buffer("seen", torch.zeros(()))

    @aot_compile
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.half(x @ self.weight)

    @aot_compile
    def half(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


@pytest.mark.parametrize("weight", [lambda x: x, lambda x: TwoTensor(x, x)], ids=["dense", "wrapped"])
def test_modules(weight: Callable[[torch.Tensor], torch.Tensor]) -> None:
    layers, x = [Layer(2, weight) for _ in range(3)], torch.ones(1, 2, requires_grad=True)
    for _ in range(2):
        for layer in layers:
            layer(x).sum().backward()
    expected = nn.Parameter(weight(torch.arange(4.0).view(2, 2)))
    for _ in range(2):
        (x @ expected / 2).sum().backward()
    for layer in layers:
        assert layer.seen == 2
        assert torch.equal(torch.as_tensor(layer.weight.grad.sum()), torch.as_tensor(expected.grad.sum()))
    twin = copy.deepcopy(layers[0])
    assert torch.equal(twin(x), layers[0](x)) and twin.seen == 3
    state = aot_compile(nn.Sequential(*layers))
    state(x)
    assert [int(layer.seen) for layer in layers] == [4, 3, 3]


def test_instances_of_other_contents_compile_and_the_limit_holds() -> None:
    class Made:
        def __init__(self, name: str) -> None:
            self.name = name

        @functools.partial(aot_compile, cache_limit=2)
        def go(self, x: torch.Tensor) -> torch.Tensor:
            return x * len(self.name)

    x = torch.ones(2)
    for name in ("a", "a", "bc", "def", "a"):
        assert Made(name).go(x).equal(x * len(name))
    assert len(Made.go._specializations) == 2
    assert len(Made.go.recompiles) == 3  # two others, and the first once more; an object of equal contents fits


def test_objects_are_released() -> None:
    made, x = Plain(1.0), torch.ones(2)
    made.body(x)
    reference = weakref.ref(made)
    del made
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    "fn, expected",
    [
        (nn.Linear(2, 2), None),
        (functools.partial(torch.mul, torch.full((2,), 3.0)), 3.0),
        (torch.exp, torch.e),
        (Plain(1.0).body, 4.0),
        (Plain(1.0), 3.0),
    ],
    ids=["module", "partial", "builtin", "bound method", "object"],
)
def test_what_does_not_bind_in_python_does_not_bind(fn: Callable[..., Any], expected: float | None) -> None:
    class Holder:
        call = aot_compile(fn)

    x = torch.ones(2)
    assert Holder().call is Holder.call
    torch.testing.assert_close(Holder().call(x), fn(x) if expected is None else x * expected)


def test_method_of_a_class_in_c_binds() -> None:
    class Holder(torch.Tensor):
        twice = aot_compile(torch.Tensor.add)

    x = torch.ones(2).as_subclass(Holder)
    assert torch.equal(x.twice(1), x + 1)


class WithModule:
    """A compiled module that a class holds."""

    net = aot_compile(nn.Linear(2, 2))


def test_module_that_a_class_holds_is_read() -> None:
    net, x = WithModule.net.fn, torch.ones(2)
    compiled = aot_compile(lambda x: WithModule.net(x) * 2)
    compiled(x).sum().backward()
    assert net.weight.grad.equal(torch.full((2, 2), 2.0))
    with torch.no_grad():
        net.weight.zero_()
    assert compiled(x).equal(net.bias * 2)


class ReadsGlobal:
    """A compiled method that reads a global."""

    @aot_compile
    def go(self, x: torch.Tensor) -> torch.Tensor:
        return x * FACTOR


@pytest.mark.parametrize("inside", [False, True])
def test_globals_of_methods_are_read(inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made, x = ReadsGlobal(), torch.ones(2)
    call = aot_compile(lambda x: made.go(x)) if inside else made.go
    for factor in (2.0, 3.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        assert call(x).equal(x * factor)


def test_functions_of_a_module_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(at_the_top)) is at_the_top
    assert copy.deepcopy(at_the_top) is at_the_top
    anew = copy.deepcopy(aot_compile(torch.nn.functional.relu))
    assert anew(-torch.ones(1)) == 0


@aot_compile
def at_the_top(x: torch.Tensor) -> torch.Tensor:
    """Stands in its module by its own name."""
    return x + 1


@pytest.mark.parametrize(
    "fn", [functools.cached_property(lambda self: 1), functools.partialmethod(lambda self: 1), 3, None]
)
def test_what_cannot_be_called_is_refused(fn: Any) -> None:
    with pytest.raises(TypeError, match=r"(?s)aot_compile.*cannot be called.*Instead: "):
        aot_compile(fn)


@pytest.mark.parametrize("backend", ["eager", "subclass_aot"])
def test_inside_torch_compile(backend: str) -> None:
    made, x = Plain(1.0), torch.ones(2)
    options: Any = {"backend": backend, "fullgraph": True}
    whole = torch.compile(lambda x: made.body(x) + made.static(x) + WithModule().net(x), **options)
    torch.testing.assert_close(whole(x), x * 3 + 1 + x * 5 + WithModule.net.fn(x))
    with_breaks = torch.compile(lambda x: made.of_class(x) + made.twice(x) + made.shifted + made(x), backend=backend)
    torch.testing.assert_close(with_breaks(x), x * 3 + (x * 3 + 1) * 2 + 2 + x * 3)
    layer = torch.compile(nn.Sequential(Layer(2)), **options)
    assert layer(torch.ones(1, 2)).equal(Layer(2)(torch.ones(1, 2)))


def test_names_texts_and_signatures() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
            return x * scale

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled: Any
    for made, kind in (Net(), "module"), (fn, "function"), (functools.partial(fn), "function"):
        compiled = aot_compile(made)
        name = getattr(made, "__qualname__", type(made).__qualname__)
        assert repr(compiled) == f'<compiled {kind} {name} by "eager": 0 signatures>'
        compiled(torch.ones(2))
        assert repr(compiled) == f'<compiled {kind} {name} by "eager": 1 signature>'
        called = made.forward if isinstance(made, nn.Module) else made
        assert inspect.signature(compiled) == inspect.signature(called)
    assert aot_compile(Net()).__name__ == "Net" and aot_compile(fn).__name__ == "fn"
    with pytest.warns(DeprecationWarning, match="script"):
        scripted = aot_compile(torch.jit.script(nn.Tanh()))
    assert repr(scripted) == '<compiled module RecursiveScriptModule by "eager": 0 signatures>'


class Decoder(nn.Module):
    """Calls itself, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.config = nn.Linear(2, 2), {"steps": 3}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).tanh()  # type: ignore[no-any-return]

    def generate(self, x: torch.Tensor, *, fails: bool = False) -> torch.Tensor:
        for _ in range(self.config["steps"]):
            x = self(x)
        if fails:
            raise ValueError("the model's own")
        return x

    def prepared(self) -> Decoder:
        return self


def test_a_compiled_module_has_what_the_module_has() -> None:
    model, x = Decoder(), torch.ones(3, 2)
    compiled: Any = aot_compile(model)
    assert compiled.config is model.config and compiled.layer is model.layer and compiled.training
    assert (
        list(compiled.parameters()) == list(model.parameters())
        and compiled.state_dict().keys() == model.state_dict().keys()
    )
    assert compiled.eval() is compiled is compiled.prepared() and not model.training
    assert compiled.double() is compiled and model.layer.weight.dtype == torch.float64
    compiled.float()
    with pytest.raises(AttributeError, match="'Decoder' object has no attribute 'nothing'"):
        compiled.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="'CompiledFunction' object has no attribute '_layer'"):
        compiled._layer  # noqa: B018
    with pytest.raises(AttributeError, match="'CompiledFunction' object has no attribute 'parameters'"):
        aot_compile(torch.sin).parameters  # noqa: B018
    assert copy.deepcopy(compiled).config == model.config
    assert compiled.generate.__name__ == "generate" and inspect.signature(compiled.generate).parameters.keys() == {
        "x",
        "fails",
    }
    torch.testing.assert_close(compiled(x), model(x))


def test_a_method_that_calls_the_module_runs_what_is_compiled() -> None:
    model, x, ran = Decoder(), torch.ones(3, 2), []

    def backend(graph: Any, inputs: Any) -> Any:
        ran.append(graph)
        return graph

    compiled: Any = aot_compile(model, fw_compiler=backend)
    expected = model.generate(x)
    torch.testing.assert_close(compiled.generate(x), expected)
    assert ran and "forward" not in vars(model)
    assert isinstance(compiled.forward, CompiledFunction) and torch.equal(compiled.forward(x), compiled(x))
    count = len(ran)
    with pytest.raises(ValueError, match="the model's own"):
        compiled.generate(x, fails=True)
    assert len(ran) == count and "forward" not in vars(model) and torch.equal(model.generate(x), expected)
    model.forward = lambda x: x + 1  # type: ignore[method-assign]
    other: Any = aot_compile(model)
    assert torch.equal(other.generate(x), x + 3) and vars(model)["forward"](x).equal(x + 1)

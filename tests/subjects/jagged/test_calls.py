"""Jagged tensors of `torch.nested`, compared with eager. See Note [Jagged tensors]."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from subclass_aot import aot_compile, load_compiled
from subclass_aot.errors import TraceError

# Torch itself warns where it looks whether it is traced.
pytestmark = pytest.mark.filterwarnings("ignore")

WEIGHT = torch.linspace(-1, 1, 16).view(4, 4)


def jagged(lengths: list[int], width: int = 4, seed: int = 0, grad: bool = True) -> Any:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.rand(length, width, generator=generator) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=grad)


def attention(x: Any) -> Any:
    q, k, v = ((x * i).unflatten(-1, (2, 2)).transpose(1, 2) for i in (1, 2, 3))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


PROGRAMS = {
    "pointwise": lambda x: x.sin() * 2 + x,
    "linear": lambda x: F.linear(x, WEIGHT),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "softmax": lambda x: x.softmax(-1),
    "softmax of rows": lambda x: x.softmax(1),
    "values": lambda x: x.values() * 2,
    "sum": lambda x: x.sum(),
    "mean of columns": lambda x: x.mean(-1),
    "unbind": lambda x: [row * 2 for row in x.unbind()],
    "padded": lambda x: x.to_padded_tensor(0.0) * 2,
    "from values": lambda x: torch.nested.nested_tensor_from_jagged(x.values() * 3, x.offsets()),
    "from a list": lambda x: torch.nested.as_nested_tensor([r * 2 for r in x.unbind()], layout=torch.jagged),
    "attention": attention,
    "a mask": lambda x: torch.where(x > 0.5, x, x * 2),
    "detached": lambda x: x.detach() * x,
}


def dense(results: Any) -> list[torch.Tensor]:
    """The elements and offsets of jagged results."""
    found = []
    for result in results if isinstance(results, list | tuple) else [results]:
        found += [result.values(), result.offsets()] if result.is_nested else [result]
    return found


def loss(results: Any) -> torch.Tensor:
    return sum((part * part).sum() for part in dense(results) if part.is_floating_point())  # type: ignore[return-value]


def compare(program: Any, compiled: Any, make: Any) -> None:
    found = []
    for function in (program, compiled):
        args = make()
        results = function(*args)
        loss(results).backward()
        for x in args:
            assert x.grad is None or x.grad.shape == x.shape and not x.grad.requires_grad
        found.append((results, [None if x.grad is None else dense(x.grad) for x in args], args))
    (expected, expected_gradients, _), (got, gradients, args) = found
    torch.testing.assert_close(dense(got), dense(expected))
    torch.testing.assert_close(gradients, expected_gradients)
    assert type(got) is type(expected) and getattr(got, "is_nested", 0) == getattr(expected, "is_nested", 0)


@pytest.mark.parametrize("dynamic", [False, None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_lengths_are_never_stale(name: str, dynamic: bool | None) -> None:
    """The same again, other offsets with the same total, another total, another number of rows."""
    compiled = aot_compile(PROGRAMS[name], dynamic=dynamic)
    for lengths in ([2, 3, 4], [2, 3, 4], [4, 3, 2], [3, 5, 7], [3, 4, 2, 5], [2, 3, 4]):
        compare(PROGRAMS[name], compiled, lambda lengths=lengths: (jagged(lengths),))


@pytest.mark.parametrize("name", ["pointwise", "linear", "layer_norm", "values", "sum"])
def test_what_does_not_ask_for_lengths_is_compiled_once(name: str) -> None:
    compiled = aot_compile(PROGRAMS[name], dynamic=True)
    for lengths in ([2, 3, 4], [4, 3, 2], [3, 5, 7], [3, 6, 9]):
        compare(PROGRAMS[name], compiled, lambda lengths=lengths: (jagged(lengths),))
    assert not compiled.recompiles


def test_lengths_that_were_read_are_part_of_the_signature() -> None:
    compiled = aot_compile(PROGRAMS["unbind"])
    for lengths in ([2, 3, 4], [4, 3, 2], [2, 3, 4], [4, 3, 2]):
        compiled(jagged(lengths))
    assert compiled.recompiles == ["values of args[0]._offsets: [0, 2, 5, 9] before, [0, 4, 7, 9] now"]


@pytest.mark.parametrize("same", [False, True])
def test_results_have_the_offsets_of_inputs(same: bool) -> None:
    """So that they go together with the input, and with each other, in eager code around."""
    x = jagged([2, 3, 4])
    y = torch.nested.nested_tensor_from_jagged(torch.rand(9, 4), x.offsets() if same else x.offsets().clone())
    first, second = aot_compile(lambda x, y: (x * 2, y * 3))(x, y)
    assert (first + x).shape == x.shape and (second.shape == first.shape) is same


def test_two_inputs_of_one_shape_and_of_two() -> None:
    """Whether they hold one tensor of offsets decides what may be added to what."""

    def add(x: Any, y: Any) -> Any:
        return x * y + x

    def make(lengths: list[int]) -> Any:
        x = jagged(lengths)
        values = torch.linspace(0, 1, sum(lengths) * 4).view(-1, 4).requires_grad_()
        y = torch.nested.nested_tensor_from_jagged(values, x.offsets()).detach().requires_grad_()
        return x, y

    compiled = aot_compile(add)
    for lengths in ([2, 3, 4], [4, 3, 2], [5, 6, 7]):
        compare(add, compiled, lambda lengths=lengths: make(lengths))
    x, _ = make([2, 3, 4])
    for function in (add, compiled):
        with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
            function(x, jagged([2, 3, 4]))
    both = lambda x, y: (x.sin(), y.cos())  # noqa: E731
    compiled = aot_compile(both)
    compare(both, compiled, lambda: (jagged([2, 3, 4]), jagged([2, 3, 4], seed=1)))
    compare(both, compiled, lambda: make([2, 3, 4]))
    assert len(compiled.recompiles) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_that_is_no_leaf_and_one_that_is_written(dynamic: bool) -> None:
    def program(x: Any, y: Any) -> Any:
        y.mul_(2)
        return x * 2 + x.sin()

    found = []
    for function in (program, aot_compile(program, dynamic=dynamic)):
        root, y = jagged([2, 3, 4]), jagged([3, 1], seed=2, grad=False)
        loss(function(root * 2, y)).backward()
        found.append((root.grad.values(), y.values()))
    torch.testing.assert_close(*found)


def test_a_module_that_is_trained() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return attention(x + self.up(self.norm(x)))

    torch.manual_seed(0)
    own = Layer().double()
    compiled = aot_compile(own)
    for lengths in ([2, 3, 4], [5, 1, 2]):
        gradients = []
        for function in (own, compiled):
            own.zero_grad()
            loss(function(jagged(lengths).double())).backward()
            gradients.append([p.grad.clone() for p in own.parameters() if p.grad is not None])
        torch.testing.assert_close(*gradients)


def test_an_input_that_autograd_sees_written() -> None:
    found = []
    for function in ((lambda x: x.mul_(2).sin()), aot_compile(lambda x: x.mul_(2).sin())):
        root = jagged([2, 3, 4])
        x = root * 1
        (loss(function(x)) + loss(x)).backward()
        found.append((root.grad.values(), x.values()))
    torch.testing.assert_close(*found)


def test_views_of_an_input_are_views_of_it() -> None:
    program = lambda x: (x, x.values(), x.offsets(), x.transpose(1, 2), x.unsqueeze(-1))  # noqa: E731
    x = jagged([2, 3, 4])
    expected, got = program(x), aot_compile(program)(x)
    for one, other in zip(expected, got, strict=True):
        assert type(one) is type(other) and one.shape == other.shape and one._base is other._base
    assert got[0] is x and got[2] is x.offsets()


def from_parts(lengths: list[int], grad: bool) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.linspace(0, 1, sum(lengths) * 4).view(-1, 4).requires_grad_(grad)
    return values, torch.tensor([0, *lengths]).cumsum(0)


def with_holes(lengths: list[int], grad: bool) -> Any:
    values, offsets = from_parts([n + 2 for n in lengths], False)
    made = torch.nested.nested_tensor_from_jagged(values, offsets, torch.tensor(lengths))
    return (made.detach().requires_grad_(grad),)


def both(x: Any) -> Any:
    y = x * 2
    return y, y.unflatten(-1, (2, 2)), *y.unbind()


VIEWS: dict[str, Any] = {
    "a row": lambda x: x[1],
    "the last row": lambda x: x[-1],
    "select": lambda x: x.select(0, 2),
    "rows": lambda x: x.unbind(),
    "rows, and one again": lambda x: (*x.unbind(), x[0]),
    "a view of a row": lambda x: x[1].t(),
    "unflatten": lambda x: x.unflatten(-1, (2, 2)),
    "heads": lambda x: x.unflatten(-1, (2, 2)).transpose(1, 2),
    "a row of these": lambda x: x.unflatten(-1, (2, 2)).transpose(1, 2)[1],
    "split": lambda x: x.split(2, -1),
    "detached": lambda x: x.detach()[1],
    "of what it computed": both,
    "made anew": lambda x: torch.nested.nested_tensor_from_jagged(x.values(), x.offsets())[1],
}
OF_PARTS: dict[str, Any] = {
    "jagged": lambda v, o: torch.nested.nested_tensor_from_jagged(v, o),
    "a row": lambda v, o: torch.nested.nested_tensor_from_jagged(v, o)[1],
    "rows": lambda v, o: torch.nested.nested_tensor_from_jagged(v, o).unbind(),
    "heads": lambda v, o: torch.nested.nested_tensor_from_jagged(v, o).unflatten(-1, (2, 2)),
    "of offsets that it computed": lambda v, o: torch.nested.nested_tensor_from_jagged(v, o * 1),
    "of known offsets": lambda v, o: torch.nested.nested_tensor_from_jagged(v, torch.tensor([0, 2, v.shape[0]]))[1],
}


def jagged_arguments(lengths: list[int], grad: bool) -> Any:
    return (jagged(lengths, grad=grad),)


@pytest.mark.parametrize("door", [False, None, True, "torch.compile"])
@pytest.mark.parametrize("grad", [True, False, "inference"])
@pytest.mark.parametrize(
    ("program", "make"),
    [
        *(pytest.param(program, jagged_arguments, id=name) for name, program in VIEWS.items()),
        *(pytest.param(VIEWS[name], with_holes, id=f"{name}, with holes") for name in ("a row", "rows")),
        *(pytest.param(program, from_parts, id=f"{name}, of parts") for name, program in OF_PARTS.items()),
    ],
)
def test_views_as_results(program: Any, make: Any, grad: bool | str, door: bool | str | None) -> None:
    """They are the views that eager mode gives: values, gradients, memory, and what they are views of."""
    _check_views(program, make, grad, door)


def by_ragged_size(x: Any) -> Any:
    return x.view(x.shape[0], x.shape[1], 2, 2)


@pytest.mark.parametrize("door", [False, None, True])
@pytest.mark.parametrize("grad", [True, False, "inference"])
def test_a_view_by_its_ragged_size(grad: bool | str, door: bool | None) -> None:
    _check_views(by_ragged_size, jagged_arguments, grad, door)


@pytest.mark.parametrize("grad", [True, False, "inference"])
def test_a_ragged_size_as_an_argument_is_for_eager_mode(grad: bool | str) -> None:
    """Dynamo passes it beside the tensor."""
    with pytest.warns(UserWarning, match=r"(?s)the function itself ran.*cannot view shape"):
        _check_views(by_ragged_size, jagged_arguments, grad, "torch.compile")


def _check_views(program: Any, make: Any, grad: bool | str, door: bool | str | None) -> None:
    if door == "torch.compile":
        torch._dynamo.reset()
        compiled: Any = torch.compile(program, backend="subclass_aot")
    else:
        compiled = aot_compile(program, dynamic=door)  # type: ignore[arg-type]
    for lengths in ([2, 3, 1], [2, 3, 1], [4, 2, 5], [3, 3, 3, 2]):
        with torch.inference_mode(grad == "inference"):
            expected, got = (_seen(function, make(lengths, grad is True)) for function in (program, compiled))
        assert got[1] == expected[1]
        torch.testing.assert_close(got[0], expected[0], rtol=0, atol=0)


def _seen(function: Any, args: Any) -> Any:
    results = function(*args)
    results = list(results) if isinstance(results, list | tuple) else [results]
    memory = {dense(x)[0].untyped_storage().data_ptr() for x in args}
    bases = [x for x in (*args, *results) if isinstance(x, torch.Tensor)]
    flags = [
        (x.requires_grad, dense(x)[0].untyped_storage().data_ptr() in memory, [x._base is y for y in bases])
        for x in results
    ]
    gradients, ends = [], [x for x in results if x.requires_grad]
    if args[0].requires_grad and ends:
        loss(ends).backward()
        gradients = dense(args[0].grad)
    return (dense(results), gradients), flags


def test_a_view_of_a_jagged_tensor_in_a_file(tmp_path: Any) -> None:
    """What a view is made of is data: it is written, and goes on with other offsets."""
    program = OF_PARTS["heads"]
    compiled = aot_compile(program)
    compiled(*from_parts([2, 3], False))
    compiled.save(tmp_path / "file")
    loaded = load_compiled(tmp_path / "file", program, trust=True)
    values, offsets = from_parts([1, 4], False)
    torch.testing.assert_close(dense(loaded(values, offsets)), dense(program(values, offsets)))
    assert not loaded.recompiles


def test_second_derivatives() -> None:
    found = []
    program = lambda x: x.sin() * x  # noqa: E731
    for function in (program, aot_compile(program, double_backward=True)):
        x = jagged([2, 3, 4])
        (first,) = torch.autograd.grad(function(x).values().sum(), x, create_graph=True)
        loss(first).backward()
        found.append(x.grad.values())
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("program", [lambda x: x * 2, lambda x: x.sum(1), lambda x: x.chunk(2, -1)[0]])
def test_without_autograd(program: Any, mode: Any) -> None:
    with mode():
        x = jagged([2, 3, 4], grad=False)
        torch.testing.assert_close(dense(aot_compile(program)(x)), dense(program(x)))


def test_elements_and_offsets_as_arguments() -> None:
    program = lambda values, offsets: torch.nested.nested_tensor_from_jagged(values, offsets) * 2  # noqa: E731
    compiled = aot_compile(program)
    for ends in ([0, 2, 5, 9], [0, 4, 5, 9], [0, 2, 9]):
        values, offsets = torch.rand(9, 4, requires_grad=True), torch.tensor(ends)
        result = compiled(values, offsets)
        loss(result).backward()
        assert result.offsets() is offsets and len(result.unbind()) == len(ends) - 1
        torch.testing.assert_close(values.grad, values.detach() * 8)


def test_lengths_beside_offsets_and_saved_tensors_elsewhere() -> None:
    def make() -> Any:
        offsets, lengths = torch.tensor([0, 2, 5, 9]), torch.tensor([1, 2, 3])
        values = torch.linspace(0, 1, 36).view(9, 4)
        return torch.nested.nested_tensor_from_jagged(values, offsets, lengths).detach().requires_grad_()

    x = make()
    result = aot_compile(lambda x: (x * x).sin())(x)
    assert result.shape == x.shape and result.lengths() is x.lengths()
    y = jagged([2, 3])
    with torch.autograd.graph.save_on_cpu():
        result = aot_compile(lambda x: (x * x).sin())(y)
    loss(result).backward()
    assert y.grad.shape == y.shape


def test_with_inductor() -> None:
    compiled = aot_compile(PROGRAMS["pointwise"], fw_compiler="inductor")
    for lengths in ([2, 3, 4], [4, 3, 2], [3, 5, 7]):
        compare(PROGRAMS["pointwise"], compiled, lambda lengths=lengths: (jagged(lengths),))


def test_a_gradient_that_is_expanded_and_one_that_does_not_come() -> None:
    program = lambda x, y: (x * 2, y * 3)  # noqa: E731
    for function in (program, aot_compile(program)):
        x, y = jagged([2, 3]), jagged([2, 3])
        function(x, y)[0].values().sum().backward()
        assert x.grad.values().eq(2).all() and y.grad is None


def test_a_ragged_size_is_no_number() -> None:
    x = jagged([2, 3])
    with pytest.raises(TraceError, match="size of a ragged dimension"):
        aot_compile(lambda x: (x * 2, x.shape[1]))(x)
    with pytest.raises(TraceError, match="size of a ragged dimension"):
        aot_compile(lambda x: (x * 2, x.shape))(x)


def test_dropout_in_attention_is_refused() -> None:
    x = jagged([2, 3])

    def program(x: Any) -> Any:
        q = x.unflatten(-1, (2, 2)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    with pytest.raises(TraceError, match="without dropout"):
        aot_compile(program)(x)


def test_strided_nested_tensors_are_refused() -> None:
    rows = [torch.rand(2, 4), torch.rand(3, 4)]
    for dynamic in (False, None, True):
        with pytest.raises(TraceError, match="layout torch.jagged"):
            aot_compile(lambda x: x * 2, dynamic=dynamic)(torch.nested.nested_tensor(rows))
    with pytest.raises(TraceError, match="layout torch.jagged"):
        aot_compile(lambda x, y: torch.nested.as_nested_tensor([x, y]))(*rows)

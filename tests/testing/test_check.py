"""`check_compiled` passes what is right, tells what is wrong, and prints the smallest program that shows it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.errors import DataDependentError, DifferenceError, NondeterministicError
from subclass_aot.testing import check_compiled
from tests.fuzz.trees import Parts, Tagged

aten: Any = torch.ops.aten


def rand(*size: int, **options: Any) -> torch.Tensor:
    return torch.rand(size, **options) + 0.5


def long_program(x: Any, w: Any, y: Any) -> Any:
    h = torch.tanh(x @ w.t()).relu()
    with torch.no_grad():
        y.mul_(2)
    z = h.softmax(-1) + y
    first, second = z.unbind(0)[:2]
    q = torch.sin(first) * second
    y[1:].add_(x.a[:3, :5])
    v = y.view(-1)
    return {"loss": q.sum(), "z": z}, [v[2:4], w, y.exp()]


def make_arguments() -> list[Any]:
    return [TwoTensor(rand(4, 6), rand(4, 6)).requires_grad_(), torch.nn.Parameter(rand(5, 6)), rand(4, 5)]


def shape_of_calls(program: str) -> tuple[int, str]:
    """How many lines the function of a printed program has, its last one apart, and its text."""
    body = program.split("def program(")[1].split("\n\n")[0].splitlines()[1:-1]
    return len([line for line in body if not line.strip().startswith("with ")]), "\n".join(body)


def fails_alike(error: DifferenceError, **names: Any) -> None:
    """Runs the printed program."""
    with pytest.raises(DifferenceError) as caught:
        exec(error.program, {"__name__": "printed", **names})
    kinds = [str(e).split("Difference: ")[1].split()[0] for e in (error, caught.value)]
    assert kinds[0] == kinds[1]


def changed(change: Callable[[Any], None]) -> Callable[..., Any]:
    """A compiler that does `change` to every node of its graph, and runs what comes of it."""

    def compiler(graph: Any, inputs: Any) -> Any:
        for node in list(graph.graph.nodes):
            change(node)
        graph.recompile()
        return graph.forward

    return compiler


def cosine(node: Any) -> None:
    if node.target is aten.sin.default:
        node.target = aten.cos.default


def no_softmax(node: Any) -> None:
    if node.target is aten._softmax.default:
        node.replace_all_uses_with(node.args[0])
        node.graph.erase_node(node)


def no_writes(node: Any) -> None:
    if node.target is aten.copy_.default:
        node.graph.erase_node(node)


def wrong_gradient(node: Any) -> None:
    if node.target is aten.tanh_backward.default:
        node.target = aten.mul.Tensor


def raises(node: Any) -> None:
    if node.target is aten._softmax.default:
        raise KeyError("no softmax here")


@pytest.mark.parametrize(
    ("change", "most", "kept", "said"),
    [
        (cosine, 1, "torch.sin", "result"),
        (no_softmax, 1, "softmax", "result"),
        (no_writes, 1, "_(", "result"),
        (wrong_gradient, 1, "torch.tanh", "gradient"),
        (raises, 1, "softmax", "the call raises KeyError"),
    ],
)
def test_a_wrong_compiler(change: Any, most: int, kept: str, said: str) -> None:
    compiler = changed(change)
    with pytest.raises(DifferenceError) as caught:
        check_compiled(long_program, make_arguments(), fw_compiler=compiler)
    message = str(caught.value)
    assert f"Difference: {said}" in message
    count, body = shape_of_calls(caught.value.program)
    assert count <= most and kept in body, message
    assert "# compiler: yours" in message
    fails_alike(caught.value, compiler=compiler)


def test_arguments_stay_as_they_are() -> None:
    arguments = make_arguments()
    before = [x.detach().clone() for x in arguments]
    with pytest.raises(DifferenceError):
        check_compiled(long_program, arguments, fw_compiler=changed(cosine), tries=5)
    for x, y in zip(arguments, before, strict=True):
        assert torch.equal(x, y) if type(x) is not TwoTensor else torch.equal(x.a, y.a)
        assert x.grad is None and x.is_leaf and x._version == 0


def test_what_is_right_passes() -> None:
    x = TwoTensor(rand(2, 3), rand(2, 3)).requires_grad_()
    shared = rand(4, 3)
    computed = rand(2, 3).requires_grad_().exp()

    def program(x: Any, y: Any, *, scale: float, more: dict[str, Any]) -> Any:
        y.mul_(scale)
        more["view"].add_(1)
        return x * more["whole"].sum(), more["view"].sum() + y, x.a

    more = {"whole": shared, "view": shared[1:]}
    assert check_compiled(program, [x, computed], {"scale": 2.0, "more": more}) is None
    with torch.no_grad():
        check_compiled(program, [x, computed], {"scale": 2.0, "more": more})
    with torch.inference_mode():
        check_compiled(program, [x, computed], {"scale": 2.0, "more": more})
    right = changed(lambda node: None)
    check_compiled(program, [x, computed], {"scale": 2.0, "more": more}, fw_compiler=right)


def test_modules() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4, bias=False))
    module[2].weight = torch.nn.Parameter(TwoTensor(rand(4, 4), rand(4, 4)))
    check_compiled(module, [rand(5, 3)])
    assert module[1].num_batches_tracked == 0 and module[0].weight.grad is None
    with pytest.raises(DifferenceError) as caught:
        check_compiled(torch.nn.Sequential(module, torch.nn.Softmax(-1)), [rand(5, 3)], fw_compiler=changed(no_softmax))
    assert shape_of_calls(caught.value.program)[0] == 1
    fails_alike(caught.value, compiler=changed(no_softmax))


def test_what_eager_mode_raises() -> None:
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        check_compiled(lambda x: x.mul_(2), [rand(2).requires_grad_()])


def test_what_is_refused() -> None:
    with pytest.raises(DataDependentError):
        check_compiled(lambda x: x * x.data_ptr(), [rand(2)])
    check_compiled(lambda x: x * x.sum().item(), [rand(2)])
    check_compiled(lambda x: x * x.numpy().sum(), [rand(2)])


def test_what_is_not_the_same_twice() -> None:
    runs = itertools.count()

    def program(x: Any) -> Any:
        return x * next(runs)

    with pytest.raises(NondeterministicError, match="result 0: values"):
        check_compiled(program, [rand(2)])
    check_compiled(lambda x: torch.nn.functional.dropout(x) * torch.rand_like(x), [rand(5)])


def test_a_wrong_stage_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that share memory are found and kept; what has nothing to do with it goes."""
    monkeypatch.setattr("subclass_aot.engine.trace.mutations.bases_of", lambda *args: [])

    def program(x: Any, y: Any, z: Any) -> Any:
        h = torch.tanh(y)
        x.mul_(3)
        return (h @ z.t()).relu(), x.exp() + y.sum()

    inner = rand(4, 4)
    with pytest.raises(DifferenceError) as caught:
        check_compiled(program, [inner[1:], TwoTensor(inner[1:], rand(3, 4)), rand(3, 4)])
    count, body = shape_of_calls(caught.value.program)
    assert count <= 2 and "_(" in body and "as_strided" in caught.value.program, caught.value
    fails_alike(caught.value)


def test_what_is_wrong_with_one_class_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in what a class does when it is compiled: the program keeps a tensor of that class, nested or not."""
    from subclass_aot.engine.call import flatten
    from subclass_aot.testing import check

    def broken(fn: Any, **options: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            for x in flatten(result)[0]:
                if type(x) is Parts:
                    x.parts[-1].zero_()
            return result

        return call

    monkeypatch.setattr(check, "aot_compile", broken)

    def program(x: Any, y: Any, z: Any) -> Any:
        return (x * 2).exp(), (z.sin() * 3).relu(), y * 2

    two = TwoTensor(rand(2, 3), TwoTensor(rand(2, 3), rand(2, 3)))
    parts = Parts([TwoTensor(rand(2, 3), rand(2, 3)), rand(2, 3)]).requires_grad_()
    with pytest.raises(DifferenceError) as caught:
        check_compiled(program, [two, Tagged(rand(2), None, 3), parts])
    count, body = shape_of_calls(caught.value.program)
    assert count <= 1, caught.value
    assert "x0 = Parts(parts=[torch.rand((1, 1)), torch.rand((1, 1))])" in caught.value.program, caught.value
    fails_alike(caught.value)


def test_an_error_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from subclass_aot.testing import check

    def silent(fn: Any, **options: Any) -> Any:
        def call(x: Any, *rest: Any) -> Any:
            try:
                return fn(x, *rest)
            except RuntimeError:
                return x

        return call

    monkeypatch.setattr(check, "aot_compile", silent)
    with pytest.raises(DifferenceError, match="the call should raise RuntimeError: shape '.7.' is invalid") as caught:
        check_compiled(lambda x, y: (x * 2 + y).sin().view(7).exp(), [rand(2, 3), rand(2, 3)])
    count, body = shape_of_calls(caught.value.program)
    assert count == 1 and "x0.view(7)" in body
    fails_alike(caught.value)


def test_values_that_matter_are_printed() -> None:
    def no_relu(node: Any) -> None:
        if node.target is aten.relu.default:
            node.replace_all_uses_with(node.args[0])

    with pytest.raises(DifferenceError) as caught:
        check_compiled(lambda x: x.relu() * 2, [torch.tensor([[-1.5, 2.0]])], fw_compiler=changed(no_relu))
    assert "torch.tensor([-1.5, 2.0], dtype=torch.float32)" in caught.value.program
    fails_alike(caught.value, compiler=changed(no_relu))


def test_a_tensor_that_the_function_closes_over() -> None:
    def subtracts(node: Any) -> None:
        if node.target is aten.add.Tensor:
            node.target = aten.sub.Tensor

    table, compiler = rand(3), changed(subtracts)
    with pytest.raises(DifferenceError) as caught:
        check_compiled(lambda x: (x + table).exp(), [rand(3)], fw_compiler=compiler)
    assert shape_of_calls(caught.value.program)[0] == 1
    fails_alike(caught.value, compiler=compiler)


def test_without_looking_for_a_smaller_one() -> None:
    with pytest.raises(DifferenceError) as caught:
        check_compiled(torch.sin, [rand(3)], fw_compiler=changed(cosine), tries=0)
    assert not caught.value.program and "smallest" not in str(caught.value)


def test_what_the_calls_do_not_show() -> None:
    """The operators inside of an `autograd.Function` have other gradients than the function."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 3

    def no_triple(node: Any) -> None:
        if node.target is aten.mul.Tensor and node.args[1] == 3:
            node.args = (node.args[0], 4)

    with pytest.raises(DifferenceError) as caught:
        check_compiled(lambda x: Double.apply(x).sum(), [rand(3).requires_grad_()], fw_compiler=changed(no_triple))
    assert "gradient 0" in str(caught.value) and "do not show it" in str(caught.value) and not caught.value.program


def test_long_programs_are_cut_in_pieces() -> None:
    def program(x: Any) -> Any:
        for _ in range(60):
            x = (x @ x).tanh()
        return torch.sin(x) + x

    with pytest.raises(DifferenceError) as caught:
        check_compiled(program, [rand(8, 8).requires_grad_()], fw_compiler=changed(cosine))
    assert shape_of_calls(caught.value.program)[0] == 1
    tries = int(str(caught.value).split(" tries:")[0].split()[-1])
    assert tries < 60, caught.value

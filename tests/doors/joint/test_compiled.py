"""A joint graph, compiled, does what the function does: called with the tensors, and bound to a module."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch import Tensor, nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile, compile_joint, quantize_, trace_joint
from subclass_aot.errors import CompilerResultError, JointGraphError, TangentError


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


class Layer(nn.Module):
    def __init__(self, wrapped: bool) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        if wrapped:
            quantize_(self, Int8Weight)
        self.scale = 2.0

    def forward(self, x: Tensor, *, shift: float = 0.0) -> dict[str, Tensor]:
        y = self.linear(self.norm(x))
        return {"y": y * self.scale + shift, "x": x}


def leaves(value: Any) -> list[Tensor]:
    return [value.a, value.b] if isinstance(value, TwoTensor) else [value]


@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
@pytest.mark.parametrize(("wrapped", "compiler"), [(False, "eager"), (True, "eager"), (True, "inductor")])
def test_training_is_as_in_eager_mode(wrapped: bool, compiler: str) -> None:
    module, x = Layer(wrapped), torch.rand(3, 4)
    other = copy.deepcopy(module)
    decompositions = "inductor" if compiler == "inductor" else None
    compiled = compile_joint(trace_joint(module, x, decompositions=decompositions), fw_compiler=compiler)
    bound = compiled.bind(module)
    for each, run in ((module, bound), (other, other)):
        optimizer = torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.1)
        for _ in range(3):
            result = run(x)
            assert result["x"] is x
            result["y"].sin().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for (name, found), expected in zip(module.state_dict().items(), other.state_dict().values(), strict=True):
        if isinstance(found, Tensor) and not isinstance(found, Int8Weight):
            torch.testing.assert_close(found, expected, msg=name)


@pytest.mark.parametrize("wrapped", [False, True], ids=["dense", "two"])
def test_called_with_the_tensors_in_order(wrapped: bool) -> None:
    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    if wrapped:
        layer.weight = nn.Parameter(two(2, 3))
    compiled = compile_joint(trace_joint(layer, x))
    assert compiled.call_order == ("weight", "bias", "args[0]")
    for _ in range(2):
        result = compiled(layer.weight, layer.bias, x)
        for found, expected in zip(leaves(result), leaves(layer(x)), strict=True):
            torch.testing.assert_close(found, expected)
    result.sum().backward()
    assert type(layer.weight.grad) is (TwoTensor if wrapped else Tensor)


def test_parameters_are_read_at_each_call() -> None:
    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    bound = compile_joint(trace_joint(layer, x)).bind(layer)
    bound(x)
    layer.weight = nn.Parameter(torch.rand(2, 3))
    torch.testing.assert_close(bound(x), layer(x))
    layer.load_state_dict(nn.Linear(3, 2).state_dict(), assign=True)
    for p in layer.parameters():
        p.requires_grad_()
    torch.testing.assert_close(bound(x), layer(x))
    other = nn.Linear(3, 2)
    torch.testing.assert_close(compile_joint(trace_joint(layer, x)).bind(other)(x), other(x))


def program(models: list[nn.Module], x: Tensor) -> Any:
    return [model(x) for model in models]


def test_a_function_of_modules() -> None:
    models, x = [nn.Linear(2, 2), nn.Linear(2, 2)], torch.rand(3, 2)
    bound = compile_joint(trace_joint(program, models, x)).bind(program)
    others: list[nn.Module] = [nn.Linear(2, 2), nn.Linear(2, 2)]
    for some in (models, others):
        for found, expected in zip(bound(some, x), program(list(some), x), strict=True):
            torch.testing.assert_close(found, expected)


def test_inputs_that_are_written() -> None:
    def writes(x: Tensor, count: Any) -> Any:
        count.add_(1)
        return x * count

    x, count = torch.rand(3, requires_grad=True), two(3)
    compiled = compile_joint(trace_joint(writes, x, count))
    mine, theirs = two(3), None
    theirs = copy.deepcopy(mine)
    found, expected = compiled(x, mine), writes(x, theirs)
    assert torch.equal(found.a, expected.a) and torch.equal(mine.b, theirs.b)
    assert compiled.bind(writes)(x, mine).a.tolist() == writes(x, theirs).a.tolist()


def test_what_objects_get() -> None:
    """A function that puts a tensor into an object is bound, and not called with values."""

    def fill(cache: dict[str, Tensor], holder: Any, x: Tensor) -> Tensor:
        holder.seen = x * 2
        return x.sin()

    class Holder:
        pass

    x = torch.rand(2)
    compiled = compile_joint(trace_joint(fill, {}, Holder(), x))
    holder = Holder()
    torch.testing.assert_close(compiled.bind(fill)({}, holder, x), x.sin())
    assert torch.equal(holder.seen, x * 2)  # type: ignore[attr-defined]
    with pytest.raises(JointGraphError, match=r"changes or gives out objects, args\[1\]"):
        compiled(x)


class Guesses(nn.Module):
    """As models of `transformers` do, it notes in its first call what it is used for."""

    use: str | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.use = self.use or "sine"
        return x.sin()


def test_what_the_function_changes_itself_is_told_apart() -> None:
    module, x = Guesses(), torch.rand(2)
    bound = compile_joint(trace_joint(module, x)).bind(module)
    torch.testing.assert_close(bound(x), x.sin())
    assert module.use == "sine"
    with pytest.raises(
        JointGraphError, match=r"self.use: .*'sine' now\n.*\n.*\n  The function itself changes self.use"
    ):
        bound(x)
    bound = compile_joint(trace_joint(module, x)).bind(module)
    for _ in range(2):
        torch.testing.assert_close(bound(x), x.sin())


def test_long_texts_are_told_apart() -> None:
    class Named(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x: Tensor) -> Tensor:
            return x.sin() if self.name.endswith("sine") else x.cos()

    x = torch.rand(2)
    compiled = compile_joint(trace_joint(Named("a" * 100 + "sine"), x))
    torch.testing.assert_close(compiled.bind(Named("a" * 100 + "sine"))(x), x.sin())
    with pytest.raises(JointGraphError, match="self.name"):
        compiled.bind(Named("a" * 100 + "cosine!"))(x)


@pytest.mark.filterwarnings("ignore")  # Dynamo warns of what it does itself
def test_where_it_may_be_called() -> None:
    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    compiled = compile_joint(trace_joint(layer, x))
    bound = compiled.bind(layer)
    for call in (lambda x: bound(x) * 2, lambda x: compiled(layer.weight, layer.bias, x) * 2):
        torch.testing.assert_close(torch.compile(call, backend="eager")(x), layer(x) * 2)
        for inside, given in ((torch.vmap(call), x[None]), (aot_compile(call), x)):
            with pytest.raises(JointGraphError, match="called inside a trace, or a transform"):
                inside(given)


def test_pickle_is_refused() -> None:
    compiled = compile_joint(trace_joint(torch.sin, torch.rand(2)))
    for each in (compiled, compiled.bind(torch.sin)):
        with pytest.raises(TypeError, match="pickle the joint graph"):
            pickle.dumps(each)


def test_torchs_partitioner_and_its_hints() -> None:
    """`meta["recompute"]` of a pass reaches the min-cut partitioner; what is drawn again is the same."""
    from torch.utils.checkpoint import CheckpointPolicy

    module, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(), nn.Linear(8, 2)), torch.rand(3, 4)
    joint = trace_joint(module, x)
    for node in joint.graph_module.graph.nodes:
        if node.op == "call_function" and node.meta["partitioner_tag"] == "is_forward":
            node.meta["recompute"], node.meta["ac_graph_id"] = CheckpointPolicy.MUST_RECOMPUTE, 0
    saved: list[tuple[int, ...]] = []

    def note(graph: Any, inputs: list[Any]) -> Any:
        saved.extend(tuple(x.shape) for x in inputs)
        return lambda *args: graph(*args)

    bound = compile_joint(
        joint, partition_fn=min_cut_rematerialization_partition, bw_compiler=note, lazy_backward=False
    ).bind(module)
    assert (3, 8) not in saved
    found = []
    for run in (bound, module):
        torch.manual_seed(0)
        module.zero_grad()
        result = run(x)
        torch.rand(3)  # between forward and backward others may draw
        result.sum().backward()
        found.append([result, *(p.grad for p in module.parameters())])
    torch.testing.assert_close(*found)


def test_a_partitioner_that_drops_an_input() -> None:
    def partition(joint: Any, inputs: Any, *, num_fwd_outputs: int) -> Any:
        from subclass_aot.engine.passes import default_partition

        forward, backward = default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)
        forward.graph.erase_node(forward.graph.find_nodes(op="placeholder")[2])
        return forward, backward

    joint = trace_joint(lambda x, y, z: x * 2, *(torch.rand(2, requires_grad=True) for _ in range(3)))
    with pytest.raises(CompilerResultError, match="has 2 inputs, but the call has 3"):
        compile_joint(joint, partition_fn=partition)


def test_a_gradient_of_another_kind_is_refused() -> None:
    """A backward for it would have to be traced, and would lack what passes did."""
    x = two(3).requires_grad_()
    result = compile_joint(trace_joint(torch.sin, x))(x)
    with pytest.raises(TangentError, match="compile_joint compiles the backward that stands in the joint graph"):
        result.backward(torch.ones(3))


MISFITS: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "missing": (lambda m: m.__setattr__("bias", None), r"self.bias: Parameter float32\[2\].* before, absent now"),
    "class": (lambda m: m.__setattr__("weight", nn.Parameter(two(2, 3))), r"self.weight: .*, .*two_tensor.TwoTensor"),
    "size": (lambda m: m.__setattr__("weight", nn.Parameter(torch.rand(4, 3))), r"self.weight: .*\[2, 3\].*\[4, 3\]"),
    "dtype": (lambda m: m.to(torch.bfloat16), r"self.weight: Parameter float32.* Parameter bfloat16"),
    "device": (lambda m: m.to("meta"), r"self.weight: .* on cpu .* on meta"),
    "frozen": (lambda m: m.requires_grad_(False), r"self.weight: .* requires_grad before"),
    "mode": (lambda m: m.eval(), r"self.training: True before, False now"),
    "attribute": (lambda m: m.__setattr__("in_features", 7), r"self.in_features: 3 before, 7 now"),
}


@pytest.mark.parametrize("name", MISFITS)
@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
def test_a_module_that_does_not_fit_is_named(name: str, first: bool) -> None:
    change, expected = MISFITS[name]
    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    bound = compile_joint(trace_joint(layer, x)).bind(layer)
    if not first:
        bound(x)
    change(layer)
    with pytest.raises(JointGraphError, match=expected):
        bound(x)


def test_a_context_that_does_not_fit_is_named() -> None:
    model, x = quantize_(nn.Sequential(nn.Linear(32, 32)), Int8Weight), torch.rand(2, 32)
    bound = compile_joint(trace_joint(model, x)).bind(model)
    other = nn.Linear(32, 32).to(torch.bfloat16)
    model[0].weight = quantize_(nn.Sequential(other), Int8Weight)[0].weight
    with pytest.raises(JointGraphError, match=r"self.0.weight: .*float32.* before, .*bfloat16"):
        bound(x)


def test_other_values_are_named() -> None:
    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    compiled = compile_joint(trace_joint(layer, x))
    with pytest.raises(JointGraphError, match=r"called with 1 values, and takes 3: weight, bias, args\[0\]"):
        compiled(x)
    with pytest.raises(JointGraphError, match=r"args\[0\]: Tensor float32\[5, 3\] on cpu before, .*\[6, 3\]"):
        compiled(layer.weight, layer.bias, torch.rand(6, 3))
    with torch.no_grad(), pytest.raises(JointGraphError, match="grad mode: True before, False now"):
        compiled(layer.weight, layer.bias, x)


def test_values_that_share_memory_where_one_is_written() -> None:
    compiled = compile_joint(trace_joint(lambda x, y: x.mul_(2) + y, torch.rand(3), torch.rand(3)))
    base = torch.rand(6)
    compiled(base[:3].clone(), base[3:].clone())
    with pytest.raises(JointGraphError, match=r"leaves that share storage: none before, \[\(0, 1\)\] now"):
        compiled(base[:3], base[1:4])
    with pytest.raises(JointGraphError, match=r"args\[1\]: .* before, the same tensor as args\[0\] now"):
        compiled(base, base)


def test_values_that_begin_elsewhere_where_that_counts() -> None:
    def program(x: Tensor) -> Tensor:
        return x.as_strided((2,), (1,), 3) * 2

    memory = torch.arange(9.0)
    joint = trace_joint(program, memory[2:6])
    compiled = compile_joint(joint)
    assert torch.equal(compiled(memory[2:6]), program(memory[2:6]))
    differs = r"storage offset of args\[0\]: 2 before, 3 now"
    with pytest.raises(JointGraphError, match=differs):
        compiled(memory[3:7])
    with pytest.raises(JointGraphError, match=differs):
        compiled.bind(program)(memory[3:7])
    assert torch.equal(compile_joint(pickle.loads(pickle.dumps(joint)))(memory[2:6]), program(memory[2:6]))


def test_another_function_or_class_is_refused() -> None:
    class Linear(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * 2

    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    compiled = compile_joint(trace_joint(layer, x))
    with pytest.raises(JointGraphError, match=r"\.bind\(Linear, another of that name\): .* traced from Linear"):
        compiled.bind(Linear(3, 2))
    by_sine = compile_joint(trace_joint(lambda x: x.sin(), x))
    with pytest.raises(JointGraphError, match="another of that name"):
        by_sine.bind(lambda x: x.cos())
    outer = nn.Sequential(nn.Linear(3, 2))
    bound = compile_joint(trace_joint(outer, x)).bind(nn.Sequential(Linear(3, 2)))
    with pytest.raises(JointGraphError, match=r"class of self.0: torch.nn.modules.linear.Linear before, .*Linear now"):
        bound(x)


class Applies(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Any:
        return self.function(self.linear(x))


def hooked(module: Applies) -> None:
    module.linear.register_forward_hook(lambda module, args, result: result * 100)


def patched(module: Applies) -> None:
    module.linear.forward = lambda x: x[:, :2]  # type: ignore[method-assign]


def replaced(module: Applies) -> None:
    module.function = lambda x: x * 3


@pytest.mark.parametrize("change", [hooked, patched, replaced])
@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
def test_other_code_is_refused(change: Callable[[Applies], None], first: bool) -> None:
    """What a module runs may be another function in an attribute, a hook, or a `forward` of its own."""
    module, x = Applies(lambda x: x * 2), torch.rand(5, 3)
    bound = compile_joint(trace_joint(module, x)).bind(module)
    if not first:
        torch.testing.assert_close(bound(x), module(x))
    change(module)
    with pytest.raises(JointGraphError, match=r"class of self\.(linear|function).*: .* before, function .* now"):
        bound(x)


def test_a_copy_runs_the_same_code() -> None:
    module, x = Applies(lambda x: x * 2), torch.rand(5, 3)
    hooked(module)
    bound = compile_joint(trace_joint(module, x)).bind(copy.deepcopy(module))
    torch.testing.assert_close(bound(x), module(x))


def test_partials_of_two_functions() -> None:
    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    once, twice = (functools.partial(f, layer) for f in (lambda f, x: f(x), lambda f, x: f(x) * 2))
    compiled = compile_joint(trace_joint(once, x))
    torch.testing.assert_close(compiled.bind(once)(x), layer(x))
    with pytest.raises(JointGraphError, match=r"class of fn.func: function <lambda>"):
        compiled.bind(twice)(x)


def test_symbolic_sizes_that_are_not_met() -> None:
    layer = nn.Linear(3, 2)
    bound = compile_joint(trace_joint(layer, torch.rand(5, 3), dynamic=True)).bind(layer)
    assert bound(torch.rand(9, 3)).shape == (9, 2)
    with pytest.raises(JointGraphError, match="s0 >= 2 before, not so now, where s0 = 1"):
        bound(torch.rand(1, 3))


def written(x: Tensor) -> Tensor:
    y = x.sin()
    y.mul_(2)
    return y


def test_symbolic_numbers_of_a_program_that_writes() -> None:
    """The strides of the tangent are results of forward, and backward is the first to ask for them."""
    x = torch.rand(2, 3, 4, requires_grad=True)
    joint = trace_joint(written, x, dynamic=True)
    assert all(not made.is_backward for made in joint.outputs if made.kind == "number")
    for partition_fn in (None, default_partition, min_cut_rematerialization_partition):
        step = compile_joint(joint, partition_fn=partition_fn).bind(written)
        given = torch.rand(5, 6, 7, requires_grad=True)
        (found,) = torch.autograd.grad(step(given).sum(), given)
        torch.testing.assert_close(found, given.cos() * 2)


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.inner, self.last = nn.Parameter(torch.ones(2)), nn.Linear(2, 2), None

    def forward(self, x: Tensor) -> Tensor:
        self.last = x * 2
        self.inner.calls = getattr(self.inner, "calls", 0) + 1
        return self.inner(x * self.weight)


def test_a_bound_module_changes_itself_and_not_the_one_that_was_traced() -> None:
    traced, other, x = Remembers(), Remembers(), torch.ones(2)
    compiled = compile_joint(trace_joint(traced, x))
    compiled.bind(other)(x)
    assert traced.last is None and not hasattr(traced.inner, "calls")
    assert other.last is not None and other.last.tolist() == [2, 2] and other.inner.calls == 1
    gone = weakref.ref(traced)
    del traced
    gc.collect()
    assert gone() is None, "a joint graph holds no module"
    assert (
        pickle.loads(pickle.dumps(compiled.joint)).signature.outcome.objects == compiled.joint.signature.outcome.objects
    )

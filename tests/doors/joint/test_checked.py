"""What passes may change in a joint graph, and what they may not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.split_module import split_module

from subclass_aot import Int8Weight, TwoTensor, compile_joint, quantize_, trace_joint
from subclass_aot.doors.joint import Joint
from subclass_aot.errors import JointGraphError
from subclass_aot.meta.symbols import SizesMustBeKnown

aten: Any = torch.ops.aten


def layer(wrapped: bool = False) -> nn.Linear:
    torch.manual_seed(0)
    made = nn.Linear(4, 2)
    if wrapped:
        made.weight = nn.Parameter(TwoTensor(torch.rand(2, 4), torch.rand(2, 4)))
    return made


def insert(joint: Joint, old: fx.Node, target: Any, *more: Any, users: Callable[[fx.Node], bool] = bool) -> fx.Node:
    """Puts a node behind another, without any `meta`, and has its users read that."""
    graph = joint.graph_module.graph
    with graph.inserting_after(old):
        new = graph.call_function(target, (old, *more))
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new and users(user))
    joint.graph_module.recompile()
    return new


def gradients(module: nn.Module, run: Callable[[Tensor], Any], x: Tensor) -> dict[str, Any]:
    module.zero_grad()
    run(x).sum().backward()
    return {name: p.grad for name, p in module.named_parameters()}


@pytest.mark.parametrize("wrapped", [False, True], ids=["dense", "wrapper"])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_pass_that_doubles_one_gradient(wrapped: bool, lazy: bool) -> None:
    module, x = layer(wrapped), torch.rand(3, 4)
    joint = trace_joint(module, x)
    for gradient in joint.gradients_of("weight"):
        insert(joint, gradient.node, aten.mul.Tensor, 2.0)
    found = gradients(module, compile_joint(joint, lazy_backward=lazy).bind(module), x)
    expected = gradients(module, module, x)
    torch.testing.assert_close(found["bias"], expected["bias"])
    if wrapped:
        torch.testing.assert_close(found["weight"].a, 2 * expected["weight"].a)
        torch.testing.assert_close(found["weight"].b, 2 * expected["weight"].b)
    else:
        torch.testing.assert_close(found["weight"], 2 * expected["weight"])


def test_the_joint_graph_stays_as_it_is_and_is_compiled_again() -> None:
    module, x = layer(), torch.rand(3, 4)
    with torch.no_grad():
        joint = trace_joint(module, x)
        before = joint.graph_module.code
        for _ in range(2):
            torch.testing.assert_close(compile_joint(joint).bind(module)(x), module(x))
        assert joint.graph_module.code == before


def test_shapes_are_inferred_anew() -> None:
    """A pass that makes something else of a saved tensor, and leaves the meta of what was there."""
    module, x = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()), torch.rand(3, 4)
    joint = trace_joint(module, x)
    (saved,) = joint.graph_module.graph.find_nodes(op="call_function", target=aten.sigmoid.default)
    in_backward = lambda user: user.meta.get("partitioner_tag") == "is_backward"  # noqa: E731
    half = insert(joint, saved, aten._to_copy.default, users=in_backward)
    back = insert(joint, half, aten._to_copy.default)
    half.kwargs, back.kwargs = {"dtype": torch.float16}, {"dtype": torch.float32}
    half.meta, back.meta = dict(saved.meta), {**saved.meta, "partitioner_tag": "is_backward"}
    dtypes: list[torch.dtype] = []

    def note(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        dtypes.extend(x.dtype for x in inputs)
        return lambda *args: graph(*args)

    run = compile_joint(joint, bw_compiler=note, lazy_backward=False).bind(module)
    assert torch.float16 in dtypes
    found, expected = gradients(module, run, x), gradients(module, module, x)
    torch.testing.assert_close(found["0.weight"], expected["0.weight"], atol=1e-3, rtol=1e-3)


def test_fakes_that_a_pass_leaves_in_meta_do_no_harm() -> None:
    module, x = layer(), torch.rand(3, 4)
    joint = trace_joint(module, x)
    with FakeTensorMode():
        for node in joint.graph_module.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = torch.empty_strided(node.meta["val"].shape, node.meta["val"].stride())
    found, expected = gradients(module, compile_joint(joint).bind(module), x), gradients(module, module, x)
    torch.testing.assert_close(found, expected)


def test_another_graph_module() -> None:
    module, x = layer(), torch.rand(3, 4)
    joint = trace_joint(module, x)
    other = fx.symbolic_trace(joint.graph_module)  # which forgets everything that stood in `meta`
    found = gradients(module, compile_joint(joint.with_graph_module(other)).bind(module), x)
    torch.testing.assert_close(found, gradients(module, module, x))


def test_what_belongs_to_a_wrapper_keeps_its_strides() -> None:
    x = TwoTensor(torch.rand(2, 3), torch.rand(2, 3)).requires_grad_()
    joint = trace_joint(lambda x: (x * 2).t(), x)
    for out in joint.outputs:
        if out.kind == "output":
            insert(joint, out.node, aten.clone.default).kwargs = {"memory_format": torch.contiguous_format}
    result = compile_joint(joint)(x)
    assert result.stride() == result.a.stride() == (1, 3)
    torch.testing.assert_close(result.a, (x.a * 2).t())


@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
def test_passes_that_parallelize_do() -> None:
    """Aliases behind all inputs and outputs, with their `meta`, an einsum, and passes of inductor's on joint graphs."""
    from torch._inductor.fx_passes.joint_graph import patterns
    from torch._inductor.fx_passes.post_grad import remove_noop_ops

    module, x = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2)), torch.rand(2, 3, 4)
    joint = trace_joint(module, x)
    graph = joint.graph_module.graph
    with joint.fakes():
        (mm,) = graph.find_nodes(op="call_function", target=aten.mm.default)[:1]
        view, weight = mm.all_input_nodes
        (result,) = mm.users
        with graph.inserting_before(mm):
            product = graph.call_function(aten.einsum.default, ("abk,kn->abn", [view.all_input_nodes[0], weight]))
        product.meta.update(result.meta)
        result.replace_all_uses_with(product)
        graph.eliminate_dead_code()
        remove_noop_ops(graph)
        patterns.apply(joint.graph_module)
        for node in (*graph.find_nodes(op="placeholder"), *graph.output_node().all_input_nodes):
            if node.users and node.next.op != "root":
                with graph.inserting_before(next(iter(n for n in graph.nodes if n.op != "placeholder"))):
                    alias = graph.call_function(aten.alias.default, (node,))
                if node.op != "placeholder":
                    node.append(alias)
                alias.meta.update(node.meta)
                node.replace_all_uses_with(alias, delete_user_cb=lambda user, alias=alias: user is not alias)
        graph.lint()
        joint.graph_module.recompile()
    found, expected = gradients(module, compile_joint(joint).bind(module), x), gradients(module, module, x)
    torch.testing.assert_close(found, expected)


def erase(joint: Joint) -> None:
    (bias,) = joint["bias"]
    (user,) = bias.node.users
    user.replace_input_with(bias.node, joint["args[0]"][0].node)
    joint.graph_module.graph.erase_node(bias.node)


def add(joint: Joint) -> None:
    with joint.graph_module.graph.inserting_before(joint.inputs[-1].node):
        joint.graph_module.graph.placeholder("seed")


def move(joint: Joint) -> None:
    joint["weight"][0].node.prepend(joint["bias"][0].node)


def shard(joint: Joint) -> None:
    node = joint["weight"][0].node
    node.meta["val"] = torch.empty(1, 4, device="meta")


def drop(joint: Joint) -> None:
    output = joint.graph_module.graph.output_node()
    output.args = (output.args[0][:-1],)  # type: ignore[index]


def cast(joint: Joint) -> None:
    insert(joint, joint.gradients_of("weight")[0].node, aten.to.dtype, torch.bfloat16)


def zero(joint: Joint) -> None:
    output = joint.graph_module.graph.output_node()
    output.args = ((*output.args[0][:-1], None),)  # type: ignore[index]


def swap(joint: Joint) -> None:
    tangent = joint.inputs[-1].node
    insert(joint, joint.outputs[0].node, aten.mul.Tensor, tangent)


def write(joint: Joint) -> None:
    insert(joint, joint.outputs[0].node, aten.mul_.Tensor, 2.0)


def hide(joint: Joint) -> None:
    (x,) = joint["args[0]"]
    insert(joint, x.node, aten.alias.default)
    alias = x.node.next
    alias.target, alias.args = aten.einsum.default, ("ij->ij", [x.node])


def write_by_method(joint: Joint) -> None:
    node = joint.outputs[0].node
    graph = joint.graph_module.graph
    with graph.inserting_after(node):
        graph.call_method("mul_", (node, 2.0))


def unknown(joint: Joint) -> None:
    insert(joint, joint.outputs[0].node, aten.mm.default, 2.0)


WRONG = {
    erase: r"taken the input bias out of the graph",
    add: r"an input that no call brings: seed",
    move: r"input 0 of the graph is bias now, and was weight",
    shard: r"weight is float32\[1, 4\] on meta in the graph that passes left, and was traced as float32\[2, 4\] on cpu",
    drop: r"has 2 outputs now, and had 3",
    cast: r"gradient of weight is bfloat16\[2, 4\] on cpu .* and was float32\[2, 4\] on cpu",
    zero: r"gradient of bias is absent .* and was float32\[2\] on cpu",
    swap: r"output\[0\] is a result of forward, and reads what backward computes, by way of mul",
    write: r"calls aten.mul_.Tensor, which writes into its arguments",
    write_by_method: r"calls mul_, which writes into its arguments",
    hide: r"calls aten.einsum.default, which gives a view of its argument here",
    unknown: r"The shape of what mm gives|the shape of what mm.* gives, a call of aten.mm.default, is not known",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_what_a_pass_must_not_do_is_refused_by_name(change: Callable[[Joint], None]) -> None:
    joint = trace_joint(layer(), torch.rand(3, 4))
    change(joint)
    with pytest.raises(JointGraphError, match=WRONG[change]):
        compile_joint(joint)


def test_a_graph_that_is_split_into_submodules() -> None:
    """By layer and phase, as passes do that treat each layer alike; and a method is called."""
    module, x = quantize_(nn.Sequential(layer(), nn.Sigmoid(), nn.Linear(2, 3)), Int8Weight), torch.rand(3, 4)
    joint = trace_joint(module, x)
    parts: list[tuple[str, bool]] = []

    def part_of(node: fx.Node) -> int:
        backward = node.meta["partitioner_tag"] == "is_backward"
        modules = node.meta.get("fwd_nn_module_stack" if backward else "nn_module_stack", {"": ""})
        part = [*modules][-1], backward
        if not parts or parts[-1] != part:
            parts.append(part)
        return len(parts)

    split = split_module(joint.graph_module, None, part_of)  # type: ignore[arg-type]
    graph = split.graph
    with graph.inserting_before(graph.output_node()):
        first, *rest = graph.output_node().args[0]  # type: ignore[misc]
        graph.output_node().args = ((graph.call_method("relu", (first,)), *rest),)
    split.recompile()
    assert {name for name, _ in parts} == {"0", "1", "2"}
    with pytest.raises(
        JointGraphError, match="calls submod_., a submodule or a method, and this compiler takes\n  operators"
    ):
        compile_joint(joint.with_graph_module(split), fw_compiler="inductor")
    step = compile_joint(joint.with_graph_module(split)).bind(module)
    torch.testing.assert_close(step(x), module(x).relu())
    found, expected = gradients(module, step, x), gradients(module, module, x)
    torch.testing.assert_close(found, expected)


def test_what_a_compiler_wants_taken_apart() -> None:
    with pytest.raises(JointGraphError, match=r"calls aten.t.default, .*\n.*decompositions=\"inductor\""):
        compile_joint(trace_joint(layer(), torch.rand(3, 4)), fw_compiler="inductor")


def test_values_are_not_asked_of_symbolic_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`arange` of a symbol has no known values; asking for them would make a number of it, and torch warns."""
    warned: list[Any] = []
    monkeypatch.setattr(
        logging.getLogger("torch.fx.experimental.symbolic_shapes"), "warning", lambda *text: warned.append(text)
    )
    joint = trace_joint(lambda x: x * torch.arange(x.shape[0]), torch.rand(5, requires_grad=True), dynamic=True)
    compile_joint(joint)
    assert not warned


def test_an_operator_that_takes_no_symbolic_sizes_is_named() -> None:
    def needs_sizes(x: Tensor) -> Tensor:
        raise SizesMustBeKnown

    x = torch.ones(4)
    joint = trace_joint(torch.sin, x, dynamic=True)
    insert(joint, joint["args[0]"][0].node, needs_sizes)
    with pytest.raises(JointGraphError, match="needs_sizes.* is not known"):
        compile_joint(joint)


def test_symbolic_sizes_stay_what_they_are() -> None:
    module, x = layer(), torch.rand(3, 4)
    joint = trace_joint(module, x, dynamic=True)
    insert(joint, joint.gradients_of("bias")[0].node, aten.mul.Tensor, 2.0)
    run = compile_joint(joint).bind(module)
    for batch in (3, 7):
        x = torch.rand(batch, 4)
        found, expected = gradients(module, run, x), gradients(module, module, x)
        torch.testing.assert_close(found["weight"], expected["weight"])
        torch.testing.assert_close(found["bias"], 2 * expected["bias"])

"""What runs once runs once, by any partitioner: draws of random numbers, and operators without a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._functorch.config
import torch.nn.functional as F
from functorch.compile import min_cut_rematerialization_partition
from torch import Tensor, fx, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import subclass_aot as sa
from subclass_aot.backends.once import RemovedOnce
from subclass_aot.engine.passes import default_partition, is_symint
from subclass_aot.errors import CompilerResultError

pytestmark = pytest.mark.filterwarnings("ignore")

torch.manual_seed(0)
LINEAR = nn.Linear(6, 6)
INT8 = sa.Int8Weight.from_float(torch.randn(6, 6))


@torch.library.custom_op("subclass_aot_test_once::noise", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def noise(x: Tensor) -> Tensor:
    return torch.rand(x.shape)


noise.register_fake(torch.empty_like)


def between(draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A draw whose argument and result backward reads."""
    return lambda x: draw((x @ LINEAR.weight).sin()).sin() @ LINEAR.weight


def nobody_reads(x: Any) -> Any:
    torch.rand(3)
    return F.dropout(x.sin(), 0.5).sin()


def read_in_a_hook(x: Any) -> Any:
    drawn, y = torch.rand_like(x), x.sin()
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * drawn)
    return y * 2


def in_a_hook(x: Any) -> Any:
    y = x.sin()
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * torch.rand_like(gradient))
    return F.dropout(y * 2, 0.5)


def behind_a_seed(x: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        y = F.dropout(x.sin(), 0.5)
    return F.dropout(y.sin(), 0.3).sin()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "dropout": between(lambda h: F.dropout(h, 0.5)),
    "dropout twice": lambda x: between(lambda h: F.dropout(h, 0.3))(between(lambda h: F.dropout(h, 0.5))(x)),
    "rand_like": between(lambda h: h * torch.rand_like(h)),
    "bernoulli": between(lambda h: h * torch.bernoulli(h.sigmoid()).detach()),
    "multinomial": between(lambda h: h[:, torch.multinomial(torch.ones(6), 4)] @ torch.ones(4, 6)),
    "randperm": between(lambda h: h[torch.randperm(h.shape[0])]),
    "rrelu": between(lambda h: F.rrelu(h, training=True)),
    "native_dropout": between(lambda h: torch.native_dropout(h, 0.5, True)[0]),
    "attention": between(lambda h: F.scaled_dot_product_attention(*[h[None, None]] * 3, dropout_p=0.4)[0, 0]),
    "a custom operator": between(lambda h: h * noise(h).detach()),
    "int8 weights": lambda x: F.dropout(F.linear(F.dropout(F.linear(x, INT8), 0.4).sin(), INT8), 0.5).sin(),
    "nobody reads it": nobody_reads,
    "read in a hook": read_in_a_hook,
    "in a hook": in_a_hook,
    "behind a seed": behind_a_seed,
    "a checkpoint": lambda x: checkpoint(lambda x: F.dropout(x.sin(), 0.5).sin(), x, use_reentrant=False),
}


def part(joint: fx.GraphModule, inputs: list[fx.Node], outputs: list[Any]) -> fx.GraphModule:
    graph, copies, needed = fx.Graph(), dict[fx.Node, fx.Node](), set[fx.Node]()
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    todo = [x for x in outputs if isinstance(x, fx.Node)]
    while todo:
        node = todo.pop()
        if node not in copies and node not in needed:
            needed.add(node)
            todo += node.all_input_nodes
    for node in joint.graph.nodes:
        if node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[x] if isinstance(x, fx.Node) else x for x in outputs))
    return fx.GraphModule(joint, graph)


def saves_inputs_only(joint: fx.GraphModule, _: object, *, num_fwd_outputs: int) -> Any:
    """A partitioner that computes everything again in backward."""
    outputs: Any = joint.graph.output_node().args[0]
    inputs = joint.graph.find_nodes(op="placeholder")
    primals = [n for n in inputs if "tangents" not in n.name]
    symbols = [n for n in primals if is_symint(n)]
    tensors = [n for n in primals if not is_symint(n)]
    forward = part(joint, primals, [*outputs[:num_fwd_outputs], *tensors, *symbols])
    tangents = [n for n in inputs if "tangents" in n.name]
    return forward, part(joint, [*symbols, *tensors, *tangents], list(outputs[num_fwd_outputs:]))


def renames(joint: fx.GraphModule, inputs: object, *, num_fwd_outputs: int) -> Any:
    forward, backward = saves_inputs_only(joint, inputs, num_fwd_outputs=num_fwd_outputs)
    for node in backward.graph.nodes:
        if node.op == "call_function":
            node.name = f"other_{node.name}"
    return forward, backward


PARTITIONERS = {
    "min-cut that saves little": (min_cut_rematerialization_partition, 0.1),
    "min-cut": (min_cut_rematerialization_partition, 1.0),
    "saves inputs only": (saves_inputs_only, 1.0),
    "renames": (renames, 1.0),
}


def step(function: Any, seed: int, rows: int = 4) -> list[Any]:
    x = torch.linspace(-1, 1, rows * 6).view(rows, 6).requires_grad_()
    torch.manual_seed(seed)
    y = function(x)
    middle = torch.get_rng_state()
    gradients = torch.autograd.grad(y.sum(), [x, LINEAR.weight], allow_unused=True)
    return [y.detach(), middle, *gradients, torch.get_rng_state()]


def equal(got: list[Any], expected: list[Any]) -> None:
    for a, b in zip(got, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_reads_what_forward_drew(name: str, partitioner: str, dynamic: bool | None) -> None:
    program, (partition_fn, budget) = PROGRAMS[name], PARTITIONERS[partitioner]
    with torch._functorch.config.patch(activation_memory_budget=budget):
        compiled = sa.aot_compile(program, partition_fn=partition_fn, dynamic=dynamic)
        for seed, rows in enumerate((4, 4, 5)):
            equal(step(compiled, seed, rows), step(program, seed, rows))


@pytest.mark.parametrize("name", ["dropout", "rand_like", "a custom operator", "a checkpoint"])
def test_joint_graphs(name: str) -> None:
    program = PROGRAMS[name]
    joint = sa.trace_joint(program, torch.ones(4, 6, requires_grad=True))
    compiled = sa.compile_joint(joint, partition_fn=saves_inputs_only).bind(program)
    equal(step(compiled, 1), step(program, 1))


def test_what_a_policy_recomputes_is_drawn_again_from_the_state_before() -> None:
    def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_RECOMPUTE

    def program(x: Any) -> Any:
        context = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
        return checkpoint(lambda x: F.dropout(x.sin(), 0.5).sin(), x, use_reentrant=False, context_fn=context)

    compiled = sa.aot_compile(program, partition_fn=min_cut_rematerialization_partition)
    for seed in range(2):
        equal(step(compiled, seed), step(program, seed))


def test_a_graph_without_draws_is_given_as_it_is() -> None:
    joint = sa.trace_joint(lambda x: x.sin(), torch.ones(3, requires_grad=True)).graph_module
    assert RemovedOnce(joint, 1).given is joint


def test_inputs_that_are_missing() -> None:
    def loses_one(joint: Any, inputs: Any, *, num_fwd_outputs: int) -> Any:
        forward, backward = default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)
        placeholder = forward.graph.find_nodes(op="placeholder")[-1]
        with forward.graph.inserting_after(placeholder):
            placeholder.replace_all_uses_with(forward.graph.call_function(torch.ones, (3,)))
        forward.graph.erase_node(placeholder)
        return forward, backward

    with pytest.raises(CompilerResultError, match="must keep every input of forward"):
        sa.aot_compile(lambda x: F.dropout(x, 0.5), partition_fn=loses_one)(torch.ones(3, requires_grad=True))

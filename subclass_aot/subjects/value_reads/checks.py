"""Checks of the values that a program read: where they stand in a graph, and how they are compiled.

See Note [Reads of values]. A check is a node of the forward graph, behind the tensor that was read. `"eager"` runs it
where it stands, so that nothing ever runs on a guess. Other compilers want graphs of operators alone: there the check
waits until an operator comes that must not run on a guess (it writes, draws random numbers, or may fail on another
value), and the graph is compiled in parts, with the checks between them.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.codegen import Source
from subclass_aot.base.operators import effects_of, runs_once
from subclass_aot.engine.compilers import BACKENDS, Backend, BoxedFunction, compiled, example_inputs
from subclass_aot.engine.descriptors import Intermediate, LookedAt, Number, OutputDescriptor, describe, descriptor_of
from subclass_aot.engine.graph import DRAW_ELSEWHERE, Look, generators
from subclass_aot.engine.objects import same_constant
from subclass_aot.engine.passes import draws, is_symint, shows_symbols
from subclass_aot.engine.runtime import OtherValue, value_checks
from subclass_aot.engine.signature import JointSignature
from subclass_aot.meta.symbols import RuntimeAssert

_aten = torch.ops.aten


@value_checks.put_checks.put
def put_checks(graph: fx.GraphModule, signature: JointSignature, computed: Mapping[OutputDescriptor, Any]) -> None:
    """Puts the checks of a signature into its forward graph.

    Args:
        graph: The forward graph.
        signature: The signature.
        computed: The nodes of what forward computes.
    """
    last: dict[fx.Node, fx.Node] = {}
    for position, look in enumerate(signature.assumptions.looks):
        _after(graph, [computed[LookedAt(position)]], _check_of_look(look, position), last)
    for runtime_assert in signature.assumptions.runtime_asserts:
        symints = [computed[Number(symbol)] for symbol in runtime_assert.symints]
        read = [number for number in symints if isinstance(number, fx.Node)]  # others are known by now
        for node in read:
            source: Any = node.args[0]
            if node.target is _aten.sym_size.int and source.op != "placeholder":
                source.append(node)  # read as soon as it is known, so that nothing runs before the check
        if read:
            _after(graph, symints, _check_of_assert(runtime_assert), last)
    if last:
        _put_effects_behind_checks(graph.graph)
        for node in _draws_before_reads(graph.graph):
            node.meta["drawn_as_recorded"] = True


def _put_effects_behind_checks(graph: fx.Graph) -> None:
    """Moves operators with an effect, and what reads their results, behind the checks: the call begins again where one
    fails. What a check reads depends on none of them. See Note [Effects of operators].
    """
    moved: dict[fx.Node, None] = {}
    waiting: list[fx.Node] = []
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "output":
            break
        if runs_once(node.target) or not moved.keys().isdisjoint(node.all_input_nodes):
            moved[node] = None
            waiting.append(node)
        elif value_checks.is_check(node):
            last, waiting = node, []
    if last is not None:
        for node in [n for n in moved if n not in set(waiting)][::-1]:
            last.append(node)


def _draws_before_reads(graph: fx.Graph) -> list[fx.Node]:
    """Returns the draws that decide what checks find: those that they read, and those that come before.

    A compiler that draws in its own way would find other values than the trace did, again and again.
    """
    found: list[fx.Node] = []
    drawn: set[fx.Node] = set()
    count = 0
    for node in graph.nodes:
        random = draws(node)
        if random:
            found.append(node)
        if random or not drawn.isdisjoint(node.all_input_nodes):
            drawn.add(node)
            if value_checks.is_check(node):
                count = len(found)
    return found[:count]


def _after(
    graph: fx.GraphModule, args: Sequence[Any], check: Callable[..., None], checks: dict[fx.Node, fx.Node]
) -> None:
    """Adds a check behind the last of the nodes that it reads, and behind the `checks` that stand there by now."""
    last = max(arg for arg in args if isinstance(arg, fx.Node))
    placeholders = graph.graph.find_nodes(op="placeholder")
    behind = checks.get(last, placeholders[-1] if last.op == "placeholder" else last)
    with graph.graph.inserting_after(behind):
        node = checks[last] = graph.graph.call_function(check, tuple(args))
    node.meta = {"is_check": True, "stack_trace": last.meta.get("stack_trace", ""), "val": None}


def _check_of_look(look: Look, position: int) -> Callable[..., None]:
    """Returns a function of the tensor that was read."""
    expected = look.value
    source = Source("check_value", "asked", "Compares the value of a tensor with the one that was traced.")
    of_text = None if look.form is None else source.const(look.compared, "text_of")
    source.line(f"value = {'asked.tolist()' if of_text is None else f'{of_text}(asked)'}")
    if isinstance(expected, bool):
        other = f"value is not {expected}"
    else:
        other = f"not {source.const(same_constant, 'same')}(value, {source.const(expected, 'expected')})"
    source.line(f"if {other}: raise {source.const(OtherValue, 'OtherValue')}({position}, value)")
    return source.build()


def _check_of_assert(runtime_assert: RuntimeAssert) -> Callable[..., None]:
    """Returns a function of the numbers in what the program says, or assumed."""
    names = {symbol: f"n{i}" for i, symbol in enumerate(runtime_assert.symints)}
    given = ", ".join(names.values())
    source = Source("check_numbers", given, f"Compares numbers: what is {runtime_assert.by} of them.")
    source.globals |= {"math": math, "torch": torch}
    other = source.const(OtherValue, "OtherValue")
    failed = source.const(runtime_assert, "runtime_assert")
    source.line(f"if not ({runtime_assert.text(names)}): raise {other}(None, ({failed}, [{given}]))")
    return source.build()


@value_checks.compiled_in_parts.put
def compiled_in_parts(backend: Backend, graph: fx.GraphModule) -> BoxedFunction:
    """Compiles a forward graph with checks in it, or with operators that no compiler gets. If a check fails, no random
    number counts as drawn.

    Args:
        backend: What compiles it.
        graph: The graph.
    """
    nodes = list(graph.graph.nodes)
    run = compiled(backend, graph, example_inputs(graph), False) if backend.one_by_one else _in_parts(backend, graph)
    elsewhere = any(node.target is DRAW_ELSEWHERE for node in nodes)
    return _without_draws(run, elsewhere) if any(map(value_checks.is_check, nodes)) and any(map(draws, nodes)) else run


def _without_draws(run: BoxedFunction, elsewhere: bool) -> BoxedFunction:
    def run_or_put_back(inputs: list[Any]) -> Sequence[Any]:
        state = generators(elsewhere)
        try:
            return run(inputs)
        except OtherValue:
            state.put_back()
            raise

    return run_or_put_back


def _runs_as_it_is(node: fx.Node) -> bool:
    """Returns whether no compiler gets a node: it would take for granted what a check is still to say of numbers, or
    draw other numbers than a check expects.
    """
    meta = node.meta
    return (
        value_checks.is_alone(node)
        or bool(meta.get("unbacked"))
        or bool(meta.get("drawn_as_recorded"))
        or is_symint(node)
    )


def _compares_numbers(check: fx.Node) -> bool:
    """Returns whether a check is about numbers.

    It does not wait: with other sizes, compiled code would leave its memory.
    """
    return any(map(is_symint, check.all_input_nodes))


def _in_parts(backend: Backend, graph: fx.GraphModule) -> BoxedFunction:
    """Compiles what stands between the checks, each part on its own."""
    steps: list[tuple[list[str], BoxedFunction | fx.Node, list[str]]] = []
    groups = list(_groups(graph.graph))
    output = graph.graph.output_node()
    needs = [_needs(graph.graph, group) for group in groups]
    for i, group in enumerate(groups):
        later = {n for needed in needs[i + 1 :] for n in needed} | set(output.all_input_nodes)
        if value_checks.is_check(group[0]):
            for check in group:
                steps.append(([n.name for n in check.all_input_nodes], check, []))
            continue
        made = [n for n in group if n in later]
        part = _part(graph, group, needs[i], made)
        as_it_is = _runs_as_it_is(group[0]) or all(n.target is _aten.copy_.default for n in group)
        run = compiled(BACKENDS["eager"] if as_it_is else backend, part, example_inputs(part), False)
        names = [n.name for n in part.graph.nodes if n.op == "placeholder"]
        steps.append((names, run, [n.name for n in made]))
    inputs = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    last_use = {name: i for i, (names, _, _) in enumerate(steps) for name in names}
    results: Any = output.args[0]
    wanted = {r.name for r in output.all_input_nodes}

    def run_parts(given: list[Any]) -> Sequence[Any]:
        values = dict(zip(inputs, given, strict=True))
        given.clear()
        for i, (names, step, made) in enumerate(steps):
            arguments = [values[name] for name in names]
            for name in names:
                if last_use[name] == i and name not in wanted:
                    values.pop(name, None)
            if isinstance(step, fx.Node):
                step.target(*arguments)  # type: ignore[operator]
            else:
                values.update(zip(made, step(arguments), strict=True))
        return [values[r.name] if isinstance(r, fx.Node) else r for r in results]

    return run_parts


def _groups(graph: fx.Graph) -> Iterator[list[fx.Node]]:
    """Runs of operators and runs of checks in turn; each check of a value as late as it may be."""
    group: list[fx.Node] = []
    waiting: list[fx.Node] = []
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or node.target is operator.getitem:
            continue
        if value_checks.is_check(node):
            waiting.append(node)
            if not _compares_numbers(node):
                continue
            yield from filter(None, (group, waiting))
            group, waiting = [], []
            continue
        other = bool(group) and _runs_as_it_is(node) is not _runs_as_it_is(group[0])
        if other or waiting and not may_run_on_a_guess(node):
            yield from filter(None, (group, waiting))
            group, waiting = [], []
        group += _with_items(node)
    yield from filter(None, (group, waiting))


def _with_items(node: fx.Node) -> Iterator[fx.Node]:
    """Yields a node, and what is taken out of its results."""
    yield node
    for user in node.users:
        if user.target is operator.getitem:
            yield from _with_items(user)


def _needs(graph: fx.Graph, group: Sequence[fx.Node]) -> list[fx.Node]:
    """Returns what a part of a graph is given: what it reads, and for a compiler what its sizes are read off."""
    inside = set(group)
    given = dict.fromkeys(n for node in group for n in node.all_input_nodes if n not in inside)
    if value_checks.is_check(group[0]) or _runs_as_it_is(group[0]):
        return [*given]
    before = itertools.takewhile(lambda node: node is not group[0], graph.nodes)
    return [*given, *shows_symbols(given, group, before)]


def _part(
    graph: fx.GraphModule, group: Sequence[fx.Node], given: Sequence[fx.Node], made: Sequence[fx.Node]
) -> fx.GraphModule:
    """Returns some nodes of a graph as one of their own, which takes `given` and gives `made`."""
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    static = []
    for i, node in enumerate(given):
        copy = copies[node] = part.placeholder(node.name)
        copy.meta = dict(node.meta)
        if descriptor_of(node) is None:
            describe(copy, Intermediate(node.name))
        if node.op == "placeholder" and node.meta.get("is_static_input"):
            static.append(i)
    for node in group:
        copies[node] = part.node_copy(node, copies.__getitem__)
    outputs: Any = graph.graph.output_node().args[0]
    descs = dict(zip(outputs, descriptor_of(graph.graph.output_node()), strict=True))
    output = part.output(tuple(copies[node] for node in made))
    describe(output, tuple(descs.get(node) or Intermediate(node.name) for node in made))
    module = _torch.graphs.make_graph_module(graph, part, "Forward")
    module.meta["static_input_indices"] = tuple(static)
    if "cuda_graphs" in graph.meta:
        module.meta["cuda_graphs"] = graph.meta["cuda_graphs"]
    return module


def may_run_on_a_guess(node: fx.Node) -> bool:
    """Returns whether a node computes, and cannot fail, whatever the values are: it may run before a check.

    What writes, draws, communicates, reads at places that another tensor names, or is a custom operator, may not.
    """
    if node.op == "get_attr" or node.target is operator.getitem or not _torch.operators.is_overload(node.target):
        return True  # arithmetic of sizes has no effect
    operation: Any = node.target
    effects = effects_of(operation)
    if effects.random or effects.writes or effects.data_dependent or operation.namespace != "aten":
        return False
    if any(viewed is not None for viewed in effects.returns_view_of):
        return True
    name = _torch.operators.schema_of(operation).name.removeprefix("aten::")
    spec = node.meta.get("spec")
    if torch.Tag.pointwise in operation.tags and name not in _FAIL_ON_VALUES:
        return spec is not None and (spec.dtype.is_floating_point or name not in _FAIL_ON_INTEGERS)
    return name in _NEVER_FAIL


_FAIL_ON_VALUES = frozenset({"binary_cross_entropy"})
_FAIL_ON_INTEGERS = frozenset({"div", "remainder", "fmod", "floor_divide", "pow"})
_NEVER_FAIL = frozenset(
    {
        "mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "convolution", "sum", "mean", "amax", "amin", "max",
        "min", "any", "all", "argmax", "argmin", "prod", "var", "std", "var_mean", "logsumexp", "cumsum", "cumprod",
        "sort", "topk", "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm",
        "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "_fused_rms_norm", "cat", "stack",
        "clone", "copy", "_to_copy", "full", "zeros", "ones", "empty", "full_like", "zeros_like", "ones_like",
        "empty_like", "new_zeros", "new_ones", "new_full", "new_empty", "arange", "scalar_tensor",
        "lift_fresh_copy", "constant_pad_nd", "flip", "roll", "repeat", "slice_scatter", "select_scatter",
        "as_strided_scatter", "diagonal_scatter", "tril", "triu", "norm", "linalg_vector_norm", "avg_pool2d",
        "max_pool2d_with_indices", "_adaptive_avg_pool2d", "upsample_nearest2d", "upsample_bilinear2d",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", "_unsafe_view",
    }
)  # fmt: skip
"""Operators that compute something whatever the values are, beside pointwise ones and views."""

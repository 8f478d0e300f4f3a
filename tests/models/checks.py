"""What is compared: a model and its compiled twin, in every way that a model is used."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import subclass_aot as sa
from subclass_aot import Int8Weight, MetaTensor, aot_compile, compile_joint, to_meta, trace_joint

Inputs = Callable[[int], dict[str, Any]]


EPSILON = 1e-5
"""Of the optimizer: below it gradients are rounding errors, and Adam would make steps of full length of them."""

HUGE = 10**9


ROUNDING: dict[str, float] = {"rtol": 1e-3, "atol": 1e-4}
"""How far kernels that fuse operators may be from eager mode."""


def same(got: Any, expected: Any, path: str = "result", **tolerance: float) -> None:
    """Equal classes, tensors and values, down to what objects hold."""
    assert type(got) is type(expected), path
    if isinstance(got, Tensor) and hasattr(got, "__tensor_flatten__"):
        (names, context), described = got.__tensor_flatten__(), expected.__tensor_flatten__()
        assert (names, context) == described, path
        for name in names:
            same(getattr(got, name), getattr(expected, name), f"{path}.{name}", **tolerance)
    elif isinstance(got, Tensor):
        torch.testing.assert_close(got, expected, equal_nan=True, msg=lambda text: f"{path}: {text}", **tolerance)
        assert got.requires_grad == expected.requires_grad, path
    elif isinstance(got, dict):
        assert list(got) == list(expected), path
        for key in got:
            same(got[key], expected[key], f"{path}[{key!r}]", **tolerance)
    elif isinstance(got, list | tuple):
        assert len(got) == len(expected), path
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            same(a, b, f"{path}[{i}]", **tolerance)
    elif hasattr(got, "__dict__") and not callable(got) and type(got).__eq__ is object.__eq__:
        same(vars(got), vars(expected), f"{path}.{type(got).__name__}", **tolerance)
    else:
        assert got == expected, path


def seeded(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """With one state of the random generator: dropout is on."""
    torch.manual_seed(1)
    return function(**given)


def loss_of(result: Any) -> Tensor:
    """What is trained: the loss of a model that has one."""
    if isinstance(result, Tensor):
        return result.square().mean()
    return result.loss if hasattr(result, "loss") else loss_of(result.sample)  # type: ignore[no-any-return]


def same_tensors(ours: nn.Module, eager: nn.Module, gradients: bool = False, **tolerance: float) -> None:
    """Parameters, buffers and, if asked for, gradients."""
    for (path, parameter), other in zip(ours.named_parameters(), eager.parameters(), strict=True):
        same(parameter, other, path, **tolerance)
        if gradients:
            same(parameter.grad, other.grad, f"{path}.grad", **tolerance)
    same(dict(ours.named_buffers()), dict(eager.named_buffers()), "buffers", **tolerance)


Compile = Callable[[Any], Any]


def check_training(model: nn.Module, inputs: Inputs, compile_model: Compile = aot_compile, **tolerance: float) -> None:
    """Three steps of AdamW, with two batch sizes: results, gradients, buffers, and what becomes of the parameters."""
    eager, ours = model.train(), copy.deepcopy(model)
    compiled = compile_model(ours)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3, eps=EPSILON) for m in (eager, ours)]
    for batch in (2, 2, 3):
        given = inputs(batch)
        expected, got = (seeded(f, given) for f in (eager, compiled))
        same(got, expected, **tolerance)
        loss_of(expected).backward()
        loss_of(got).backward()
        same_tensors(ours, eager, gradients=True, **tolerance)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    same_tensors(ours, eager, **tolerance)


def check_inference(model: nn.Module, inputs: Inputs, compile_model: Compile = aot_compile, **tolerance: float) -> None:
    """Two batch sizes, without gradients."""
    eager, ours = model.eval(), copy.deepcopy(model)
    compiled = compile_model(ours)
    with torch.no_grad():
        for batch in (2, 3, 2):
            given = inputs(batch)
            expected, got = (seeded(f, given) for f in (eager, compiled))
            same(got, expected, **tolerance)
    same_tensors(ours, eager, **tolerance)


def check_generation(model: Any, inputs: Inputs) -> None:
    """`generate` calls the compiled forward: a prompt with padding, then one token after the other."""
    eager, ours = model.eval(), copy.deepcopy(model)
    ours.forward = aot_compile(ours.forward)
    options = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    for batch in (2, 3):
        given = {name: value for name, value in inputs(batch).items() if name != "labels"}
        expected, got = (m.generate(**given, max_new_tokens=6, min_new_tokens=6, **options) for m in (eager, ours))
        same(got, expected)
    same_tensors(ours, eager)


def check_sampling(model: Any, inputs: Inputs) -> None:
    """Random numbers are drawn between the calls of the compiled forward."""
    eager, ours = model.eval(), copy.deepcopy(model)
    ours.forward = aot_compile(ours.forward)
    given = {name: value for name, value in inputs(2).items() if name != "labels"}
    expected, got = (seeded(m.generate, {**given, "max_new_tokens": 4, "do_sample": True}) for m in (eager, ours))
    same(got, expected)


def check_beams(model: Any, inputs: Inputs) -> None:
    """Beam search reorders the cache between the calls of the compiled forward."""
    eager, ours = model.eval(), copy.deepcopy(model)
    ours.forward = aot_compile(ours.forward)
    given = {name: value for name, value in inputs(2).items() if name != "labels"}
    expected, got = (m.generate(**given, max_new_tokens=4, num_beams=2, do_sample=False) for m in (eager, ours))
    same(got, expected)


def quantize(model: nn.Module, to: Callable[[Tensor], Tensor] = Int8Weight.from_float) -> nn.Module:
    """The model with frozen integer weights in all of its linear layers."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(to(module.weight), requires_grad=False)
    return model


def check_without_data(model: nn.Module, inputs: Inputs, compiled: bool = False, device: str = "meta") -> None:
    """A batch of a billion, on tensors without data: looks as two small batches with data let one expect.

    Args:
        model: Any model.
        inputs: Of it, by the size of the batch.
        compiled: Whether it is compiled on both sides.
        device: What tensors without data claim. On the meta device, what a model makes itself has no data either.
    """
    twin = to_meta(model.train(), device=device)
    ours, eager = (aot_compile(twin), aot_compile(model)) if compiled else (twin, model)
    small = [geometries(eager, model, inputs(batch)) for batch in (2, 3)]
    with torch.device("meta"):
        given = {name: MetaTensor(x, device=device) if isinstance(x, Tensor) else x for name, x in inputs(HUGE).items()}
    reads = nullcontext() if compiled else sa.meta(assume=True)  # of masks: whether there is something to mask
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as memory, reads:
        huge = geometries(ours, twin, given)
    assert list(huge) == list(small[0])
    pairs = {path: zip(small[0][path], small[1][path], strict=True) for path in huge}
    assert huge == {path: [extended(*pair) for pair in pairs[path]] for path in huge}
    assert sum(event.cpu_memory_usage for event in memory.events() if event.cpu_parent is None) < HUGE // 1000


def geometries(function: Callable[..., Any], module: nn.Module, given: dict[str, Any]) -> dict[str, list[Any]]:
    """Sizes, strides and dtypes of all results and gradients of a training step."""
    module.zero_grad()
    result = function(**given)
    loss_of(result).backward()
    found = dict(tensors_in(result, "result"))
    found.update({f"{name}.grad": p.grad for name, p in module.named_parameters() if p.grad is not None})
    if type(next(module.parameters())) is MetaTensor:
        assert all(type(x) is MetaTensor or x.is_meta for x in found.values())
    return {path: [*x.shape, *strides_that_matter(x), x.dtype] for path, x in found.items()}


def strides_that_matter(x: Tensor) -> list[int]:
    """That of a size of one is any number."""
    return [stride if size > 1 else 0 for size, stride in zip(x.shape, x.stride(), strict=True)]


def extended(two: Any, three: Any) -> Any:
    """What a number becomes for a huge batch, from what it is for a batch of two and one of three."""
    return two + (three - two) * (HUGE - 2) if type(two) is int else two


def tensors_in(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """All tensors in structures and objects, by where they are."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key in value:
            yield from tensors_in(value[key], f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for i, element in enumerate(value):
            yield from tensors_in(element, f"{path}[{i}]")
    elif hasattr(value, "__dict__") and not callable(value):
        yield from tensors_in(vars(value), f"{path}.{type(value).__name__}")


def check_joint(model: nn.Module, inputs: Inputs) -> None:
    """Two steps of AdamW through a joint graph that is bound to the model; and all names of the model are found."""
    given = inputs(2)
    model.train()(**given)  # which may change its configuration, once
    eager, ours = model, copy.deepcopy(model)
    joint = seeded(lambda **given: trace_joint(ours, **given), given)
    names = [name for name, _ in ours.named_parameters()]
    assert (
        list(joint.parameters)[: len(names)] == names
    )  # copies of torchao's layers hold those that they are copies of
    assert set(joint.buffers) == {name for name, _ in ours.named_buffers()}
    for name, parameter in ours.named_parameters(remove_duplicate=False):
        assert len(joint[name]) == (len(parameter.__tensor_flatten__()[0]) if is_wrapper(parameter) else 1), name
        assert all(leaf.kind == "parameter" for leaf in joint[name]), name
    bound = compile_joint(joint).bind(ours)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3, eps=EPSILON) for m in (eager, ours)]
    for _ in range(2):
        expected, got = seeded(eager, given), seeded(bound, given)
        same(got, expected)
        for result in (expected, got):
            loss_of(result).backward()
        same_tensors(ours, eager, gradients=True)
        learned = {name for name, parameter in ours.named_parameters() if parameter.grad is not None}
        assert learned == {name for name in names if joint.gradients_of(name)}
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    same_tensors(ours, eager)


def is_wrapper(tensor: Tensor) -> bool:
    return hasattr(tensor, "__tensor_flatten__")

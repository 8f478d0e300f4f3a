"""The programs that grow: each is made for a number of its units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import subclass_aot as sa
from benchmarks.demo.vit import ViT


@dataclass(frozen=True)
class Program:
    """A function or module, and what it is called with.

    Args:
        function: What is compiled.
        arguments: Those of the first call.
        others: Those of the second call, of other sizes; `None` where nothing has another size.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    others: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Subject:
    """One kind of growth.

    Args:
        unit: What there are more of.
        largest: How many of them at most.
        make: Makes the program of so many.
        with_torch: Whether torch's side is measured, too.
    """

    unit: str
    largest: int
    make: Callable[[int], Program]
    with_torch: bool = True

    def smaller(self, divisor: int) -> Subject:
        """Returns the same with fewer at most."""
        return replace(self, largest=max(8, self.largest // divisor))


def of_sizes(function: Callable[..., Any], make: Callable[[int], tuple[Any, ...]]) -> Program:
    """Returns a program that is called with tensors of three rows, then of five."""
    return Program(function, make(3), make(5))


def _vit(layers: int) -> Program:
    model = ViT(image=16, patch=8, layers=layers, width=16, heads=2, hidden=32, classes=3)
    return of_sizes(model, lambda rows: (torch.randn(rows, 3, 16, 16),))


def _llama(layers: int) -> Program:
    options = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 50, "use_cache": False, "pad_token_id": 0,
    }  # fmt: skip
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**options))

    def logits(ids: Tensor) -> Any:
        return model(input_ids=ids).logits

    return of_sizes(Returns(model, logits), lambda rows: (torch.randint(1, 50, (rows, 8)),))


class Returns(nn.Module):
    """A module that gives what a function makes of its arguments."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _operators(count: int) -> Program:
    def function(x: Tensor) -> Tensor:
        for i in range(count):
            x = x.sin() if i % 3 == 0 else x * 1.5 if i % 3 == 1 else x + 0.5
        return x

    return of_sizes(function, lambda rows: (_leaf(rows),))


def _parameters(count: int) -> Program:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(count // 2)))
    return of_sizes(model, lambda rows: (torch.randn(rows, 2),))


def _leaf(*size: int) -> Tensor:
    return torch.randn(size, requires_grad=True)


def _pair(*size: int, requires_grad: bool = True) -> Tensor:
    made: Any = sa.TwoTensor(torch.randn(size), torch.randn(size))
    return made.requires_grad_(requires_grad)  # type: ignore[no-any-return]


def _wrappers(count: int) -> Program:
    def function(*xs: Tensor) -> list[Tensor]:
        return [x * 2 for x in xs]

    return of_sizes(function, lambda rows: tuple(_pair(rows) for _ in range(count)))


def _listed_wrappers(count: int) -> Program:
    def function(xs: list[Tensor]) -> list[Tensor]:
        return [x * 2 for x in xs]

    return of_sizes(function, lambda rows: ([_pair(rows, requires_grad=False) for _ in range(count)],))


def _nested(leaves: int) -> Program:
    def tree(count: int, rows: int) -> Tensor:
        half = count // 2
        return torch.randn(rows) if count < 2 else sa.TwoTensor(tree(half, rows), tree(half, rows))

    def function(x: Tensor) -> Tensor:
        return (x * 2).sin()

    return of_sizes(function, lambda rows: (tree(leaves, rows).requires_grad_(),))


class Experts(nn.Module):
    """A mixture in which each expert is weighted by its share."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.choose = nn.Linear(4, count)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4)) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        shares = self.choose(x).softmax(-1)
        best, chosen = shares.topk(min(2, len(self.experts)), -1)
        mixed = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            share = torch.where(chosen == i, best, 0.0).sum(-1, keepdim=True)
            mixed = mixed + share * expert(x)
        return mixed


def _experts(count: int) -> Program:
    return of_sizes(Experts(count), lambda rows: (torch.randn(rows, 4),))


def _adamw(count: int) -> Program:
    parameters = [_leaf(2) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(2)
    optimizer = torch.optim.AdamW(parameters, foreach=False)

    def step() -> None:
        optimizer.step()

    return Program(step, (), ())


def _loop(steps: int) -> Program:
    cell = nn.LSTMCell(3, 3)

    def function(x: Tensor) -> Tensor:
        h = c = torch.zeros_like(x)
        for _ in range(steps):
            h, c = cell(x, (h, c))
        return h

    return of_sizes(Returns(cell, function), lambda rows: (torch.randn(rows, 3),))


def _read_values(reads: int) -> Program:
    def function(x: Tensor) -> Tensor:
        for _ in range(reads):
            x = x + x.sum().item()
        return x

    return of_sizes(function, lambda rows: (torch.zeros(rows),))


def _mutated(count: int) -> Program:
    def function(*xs: Tensor) -> Tensor:
        for x in xs:
            x.add_(1)
        return xs[0] * 2

    return of_sizes(function, lambda rows: tuple(torch.randn(rows) for _ in range(count)))


def _views(count: int) -> Program:
    def function(*views: Tensor) -> list[Tensor]:
        return [view * 2 for view in views]

    return of_sizes(function, lambda rows: torch.randn(count, rows).unbind())


def _written_views(count: int) -> Program:
    def function(*views: Tensor) -> list[Tensor]:
        views[0].add_(1)
        return [view * 2 for view in views]

    return of_sizes(function, lambda rows: torch.randn(count, rows).unbind())


def _aliases(count: int) -> Program:
    def function(x: Tensor) -> list[Tensor]:
        return [x[i] for i in range(count)]

    return of_sizes(function, lambda rows: (torch.randn(count, rows),))


def _entries(count: int) -> Program:
    def function(x: Tensor, entries: dict[str, Any]) -> Tensor:
        return x * entries["entry_0"]

    numbers: dict[str, Any] = {f"entry_{i}": i for i in range(count)}
    return of_sizes(function, lambda rows: (_leaf(rows), dict(numbers)))


def _tensor_entries(count: int) -> Program:
    def function(x: Tensor, entries: dict[str, Tensor]) -> Tensor:
        for entry in entries.values():
            x = x + entry
        return x

    return of_sizes(function, lambda rows: (_leaf(rows), {f"entry_{i}": torch.randn(rows) for i in range(count)}))


SUBJECTS: dict[str, Subject] = {
    "layers of a ViT": Subject("layer", 80, _vit),
    "layers of a Llama": Subject("layer", 32, _llama),
    "operators in a row": Subject("operator", 10_000, _operators),
    "parameters": Subject("parameter", 5_000, _parameters),
    "wrappers, arguments": Subject("wrapper", 2_000, _wrappers),
    "wrappers in a list, inference": Subject("wrapper", 2_000, _listed_wrappers),
    "nested wrappers": Subject("leaf", 1_024, _nested),
    "experts": Subject("expert", 128, _experts),
    "AdamW": Subject("parameter", 1_000, _adamw),
    "steps of an LSTM": Subject("step", 400, _loop),
    "reads of values": Subject("read", 480, _read_values),
    "inputs that are written": Subject("input", 2_000, _mutated),
    "views of one tensor, arguments": Subject("view", 2_000, _views),
    "views of one tensor, one written": Subject("view", 1_000, _written_views),
    "outputs that are views of an input": Subject("output", 2_000, _aliases),
    "numbers in a dict": Subject("entry", 10_000, _entries),
    "tensors in a dict": Subject("entry", 2_000, _tensor_entries),
}

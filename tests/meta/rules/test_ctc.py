from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from subclass_aot import aot_compile
from subclass_aot.meta.rules.ctc import ctc_loss
from subclass_aot.testing import check_compiled

X = torch.randn(10, 3, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
TARGETS = torch.tensor([[1, 2, 3, 4], [4, 3, 1, 0], [1, 1, 0, 0]])


class Values:
    """Knows the values of some tensors."""

    def __init__(self, *known: torch.Tensor) -> None:
        self.tensors = known

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        return tensor if any(tensor is t for t in self.tensors) else None

    def lengths(self, tensor: torch.Tensor, most: int) -> torch.Tensor | None:
        return self.known(tensor)

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class Calls(TorchDispatchMode):
    """Writes down what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.append((func, args))
        return func(*args, **(kwargs or {}))


def lengths() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([10, 9, 3]), torch.tensor([4, 3, 2])


@pytest.mark.parametrize("options", [(), (4,), (0, True)])
def test_known_lengths_are_given_as_numbers(options: Any) -> None:
    given, wanted = lengths()
    got = ctc_loss(Values(given, wanted), X, TARGETS, given, wanted, *options)
    expected = torch.ops.aten._ctc_loss.Tensor(X, TARGETS, given, wanted, *options)
    torch.testing.assert_close(got[0], expected[0])  # of the others, a part is memory that nobody wrote
    assert [x.shape for x in got] == [x.shape for x in expected]


def test_options_are_passed_on() -> None:
    given, wanted = lengths()
    with Calls() as calls:
        ctc_loss(Values(given, wanted), X, TARGETS, given, wanted, 4, True)
    ((func, args),) = calls.found
    assert func is torch.ops.aten._ctc_loss.default and args[2:] == ([10, 9, 3], [4, 3, 2], 4, True)


def test_of_unknown_lengths_nothing_is_said() -> None:
    given, wanted = lengths()
    assert ctc_loss(Values(), X, TARGETS, given, wanted) is None
    assert ctc_loss(Values(given), X, TARGETS, given, wanted) is None
    assert ctc_loss(Values(wanted), X, TARGETS, given, wanted) is None


@pytest.mark.parametrize("loss", [torch.nn.functional.ctc_loss, torch.ctc_loss])
@pytest.mark.parametrize("as_names", [False, True])
@pytest.mark.parametrize("options", [{}, {"reduction": "none", "zero_infinity": True}, {"blank": 4}])
def test_lengths_that_are_numbers(loss: Any, as_names: bool, options: dict[str, Any]) -> None:
    if loss is torch.ctc_loss and "reduction" in options:
        options = {**options, "reduction": 0}
    given, wanted = (tuple(x.tolist()) for x in lengths())

    def program(x: torch.Tensor) -> torch.Tensor:
        if as_names:
            return loss(x, TARGETS, input_lengths=given, target_lengths=list(wanted), **options)  # type: ignore[no-any-return]
        return loss(x, TARGETS, given, wanted, **options)  # type: ignore[no-any-return]

    check_compiled(program, [X.clone().requires_grad_()])
    check_compiled(program, [X.clone().requires_grad_()], dynamic=True)


def padded(x: Any, targets: Any, given: Any, wanted: Any, **options: Any) -> Any:
    return functional.ctc_loss(x, targets, given, wanted, **options)


def chosen(x: Any, targets: Any, given: Any, wanted: Any, **options: Any) -> Any:
    learned = targets >= 0
    return functional.ctc_loss(x, targets.masked_select(learned), given, learned.sum(-1), **options)


def by_index(x: Any, targets: Any, given: Any, wanted: Any, **options: Any) -> Any:
    return functional.ctc_loss(x, targets[targets >= 0], given, wanted, **options)


def of_some_rows(x: Any, targets: Any, given: Any, wanted: Any, **options: Any) -> Any:
    rows = (given > 3).nonzero()[:, 0]
    return functional.ctc_loss(x[:, rows], targets[rows].clamp(min=1), given[rows], wanted[rows], **options)


def of_some_time(x: Any, targets: Any, given: Any, wanted: Any, **options: Any) -> Any:
    return functional.ctc_loss(x[x[:, 0, 0] < 100], targets.clamp(min=1), given, wanted, **options)


@pytest.mark.parametrize("options", [{}, {"reduction": "none", "zero_infinity": True}])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("program", [padded, chosen, by_index, of_some_rows, of_some_time])
def test_targets_whose_number_depends_on_data(program: Any, gradients: bool, options: dict[str, Any]) -> None:
    compiled = aot_compile(program)
    for batch in (3, 4):
        torch.manual_seed(batch)
        x = torch.randn(10, batch, 5).log_softmax(-1).requires_grad_(gradients)
        targets = torch.randint(1, 5, (batch, 4))
        targets[0, 3:] = -100
        args = x, targets, torch.full((batch,), 10), (targets >= 0).sum(-1)
        results = [function(*args, **options) for function in (compiled, program)]
        torch.testing.assert_close(*results)
        if gradients:
            torch.testing.assert_close(*(torch.autograd.grad(loss.sum(), x)[0] for loss in results))

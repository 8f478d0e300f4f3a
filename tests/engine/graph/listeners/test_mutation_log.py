"""What is noted of writes and of operators that change a look, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor, Spec
from subclass_aot.engine.graph import Recorder
from subclass_aot.errors import MutationError
from subclass_aot.meta import Storage
from tests.engine.graph.recording import gone_backward, recorded

SQUARE = Spec.of(torch.ones(3, 3))


def test_a_write_is_one_into_the_storage_and_of_its_phase() -> None:
    forward, (x, _) = recorded(lambda x: (x, x[1:].mul_(2)))
    fork, y = gone_backward(forward, lambda tangent: (x.add_(1), tangent)[1])
    storage = Storage.of(x)
    assert forward.mutations.written == {storage: {"forward"}}
    assert fork.mutations.written == {storage: {"forward", "backward"}} and fork.mutations.changed == [storage]
    assert fork.written_nodes() == {x.meta_tag} and Storage.of(y) not in fork.mutations.written


def test_nothing_is_noted_of_operators_that_compute() -> None:
    recorder, _ = recorded(lambda x: (x.sin(), x[1:], x.t(), torch.zeros(3)))
    assert not recorder.mutations and recorder.mutations.changed == []


def test_what_one_backward_writes_is_not_written_for_others() -> None:
    forward, (kept, _) = recorded(lambda x: (torch.zeros(3), x))
    first, _ = gone_backward(forward, lambda tangent: kept.add_(tangent))
    second, _ = gone_backward(forward, torch.sin)
    assert first.mutations and not second.mutations and not forward.mutations


def test_operators_that_change_a_look_are_listed_in_order() -> None:
    recorder, x = recorded(lambda x: x.t_().unsqueeze_(0), SQUARE)
    found = [(tensor is x, str(how.operator), how.args, sees) for tensor, how, sees in recorder.mutations.metadata]
    assert found == [(True, "aten.t_.default", (), True), (True, "aten.unsqueeze_.default", (0,), True)]
    assert recorder.mutations and not recorder.mutations.written and recorder.mutations.version_before == {id(x): 1}


def test_a_storage_is_as_large_as_it_ever_was() -> None:
    recorder, x = recorded(lambda x: x.resize_(5).resize_(2))
    assert recorder.mutations.extents == {Storage.of(x): 5} and recorder.mutations.resized[x].size == (2,)
    assert not recorder.fork().mutations.written and recorder.fork().mutations.extents == {Storage.of(x): 5}


TABLE = torch.zeros(3)
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a tensor that is no argument": (lambda x: TABLE.add_(x), "writes into a tensor that is not an argument of it"),
    "its size": (lambda _: TABLE.resize_(5), "writes into a tensor that is not an argument of it"),
    "one place in memory": (lambda x: x[:1].expand(3).add_(x), "several elements are one place in memory"),
    "other memory": (lambda x: x.set_(x + 1), "gives an input other memory"),
    "another type": (lambda x: x.view(torch.int32).resize_(2), "A view of another type"),
    "an input as out=": (lambda x: torch.add(x, x[:1].expand(2, 3), out=x), "has another size, stride or offset"),
    "an input, turned, as out=": (
        lambda x: torch.add(x[None], 1, out=x.unsqueeze_(1)),  # which has as many elements as it needs
        r"has another size, stride or offset after the call than before.\n  Before: Spec\(\[3, 1\]",
    ),
    "a view as out=": (lambda x: torch.add(x, x, out=(x * 1)[:1]), "too small for the result, and shares its storage"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_graph_can_do_is_refused(name: str) -> None:
    program, message = REFUSED[name]
    with pytest.raises(MutationError, match=message) as caught:
        recorded(program)
    assert name.startswith("an input") or f"{__file__}:" in str(caught.value)


def test_views_of_what_was_turned_since_are_refused() -> None:
    def program(x: MetaTensor) -> Any:
        y = x.requires_grad_() * 2
        view = y[1:]
        y.t_()
        with pytest.raises(MutationError, match="a view of it is used that was made before"):
            view.sin()
        return y.sin()

    recorder = Recorder()
    recorded(program, SQUARE, recorder=recorder)
    assert [n.name for n in recorder.in_order()][-1] == "sin"

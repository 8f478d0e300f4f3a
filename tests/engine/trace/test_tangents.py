"""The gradients that come in: what they look like, and the placeholders that stand for them."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.descriptors import OutputDescriptor, PlainOutput, descriptor_of
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.trace.tangents import Tangents
from subclass_aot.meta import Spec

FIRST, SECOND = PlainOutput(0), PlainOutput(1)


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


def ends() -> dict[OutputDescriptor, torch.Tensor]:
    """Two results: a wrapper, and one of which several elements are one place in memory."""
    return {FIRST: two(2, 3).requires_grad_(), SECOND: torch.rand(1, requires_grad=True).expand(4)}


def of(kinds: dict[int, Any]) -> Tangents:
    return Tangents.of(ends(), ends().values(), kinds)


def test_what_is_expected_looks_like_the_results_and_has_memory_of_its_own() -> None:
    tangents = of({0: None, 1: None})
    assert tangents.outputs == (FIRST, SECOND)
    assert [(spec.size, spec.stride) for spec in tangents.specs] == [((2, 3), (3, 1))] * 2 + [((4,), (1,))]


def test_another_kind_is_taken_apart_as_it_is_and_who_is_not_named_gets_none() -> None:
    tangents = of({0: torch.ones(2, 3, dtype=torch.float64)})
    assert tangents.outputs == (FIRST,) and len(tangents.ends) == 1
    assert [spec.dtype for spec in tangents.specs] == [torch.float64]


def test_kinds_belong_to_the_results_at_their_positions() -> None:
    tangents = of({1: two(4), 0: None})
    assert [spec.size for spec in tangents.specs] == [(2, 3), (2, 3), (4,), (4,)]


def test_the_signature_has_what_comes_in_and_why_it_must_not() -> None:
    first, second = of({0: None, 1: None}).described({1: "it was written"}, {0})
    assert (first.output, len(first.specs), first.error, first.runs_code) == (FIRST, 2, None, True)
    assert (second.output, len(second.specs), second.error, second.runs_code) == (SECOND, 1, "it was written", False)


def test_each_tensor_has_a_placeholder() -> None:
    recorder = Recorder()
    with recorder:
        wrapper, dense = of({0: None, 1: None}).make(recorder)
        names = [(n.name, str(descriptor_of(n))) for n in recorder.graph.find_nodes(op="placeholder")]
        assert type(wrapper) is TwoTensor and [recorder.node_of(x).name for x in (wrapper.a, wrapper.b, dense)] == [
            "tangents_1",
            "tangents_2",
            "tangents_3",
        ]
    assert names == [
        ("tangents_1", "tangent of output[0].a"),
        ("tangents_2", "tangent of output[0].b"),
        ("tangents_3", "tangent of output[1]"),
    ]


def test_the_structure_of_a_jagged_tensor_does_not_come_in() -> None:
    result = torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(4, 3)], layout=torch.jagged, requires_grad=True)
    tangents = Tangents.of([FIRST], [result], {0: None})
    assert [spec.size for spec in tangents.specs] == [(6, 3)]
    assert any(x is result.offsets() for x in tangents.given.values())
    assert all(tangents.leaves[slot] is None for slot in tangents.given)
    assert sum(isinstance(leaf, Spec) for leaf in tangents.leaves) == 1

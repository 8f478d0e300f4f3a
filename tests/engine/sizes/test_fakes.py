"""Traced fakes: of the class of what they stand for, without data, with symbols for some sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.sizes import DynamicSizes, fake_with_sizes, plan_of_fakes, symbolic_fakes
from subclass_aot.kit.flatten import create_subclass_meta, walk
from subclass_aot.meta import MetaTensor
from subclass_aot.meta.symbols import Symbols, is_symbolic
from tests.fuzz.trees import Parts


def fakes(*args: Any, dynamic: DynamicSizes | None = None) -> list[Any]:
    return symbolic_fakes(Arguments.of(lambda *args: None, args, {}), dynamic or DynamicSizes(), Symbols())


def hints(numbers: Sequence[Any]) -> tuple[int, ...]:
    return tuple(n.node.hint if is_symbolic(n) else n for n in numbers)


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


VALUES = {
    "dense": torch.rand(4, 6),
    "turned": torch.rand(4, 6).t(),
    "part": torch.rand(4, 8)[1:, 2:5],
    "expanded": torch.rand(4, 1).expand(4, 6),
    "scalar": torch.tensor(1.0, dtype=torch.float64),
    "empty": torch.rand(0, 6),
    "wrapper": two(4, 6),
    "wrapper of wrappers": TwoTensor(two(4, 6), two(4, 6)),
    "wrapper of inner tensors that look otherwise": Int8Weight.from_float(torch.rand(4, 6)),
    "wrapper of several": Parts([torch.rand(4), torch.rand(4)]),
}


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    (meta,) = create_subclass_meta([value])
    return ((path, part) for path, part, _ in walk(value, meta) if isinstance(part, torch.Tensor))


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_fake_looks_like_what_it_stands_for(name: str, symbolic: bool) -> None:
    """The oracle is the tensor itself: outside and at each inner tensor."""
    value = VALUES[name]
    paths = {f"args[0]{path}": set(range(part.dim())) for path, part in parts(value)}
    (fake,) = fakes(value, dynamic=DynamicSizes(paths if symbolic else {}))
    assert type(fake) is (type(value) if type(value) is not torch.Tensor else MetaTensor)
    for (path, part), (fake_path, fake_part) in zip(parts(value), parts(fake), strict=True):
        assert path == fake_path
        assert (hints(fake_part.shape), fake_part.dtype, fake_part.device) == (part.shape, part.dtype, part.device)
        assert hints(fake_part.stride()) == part.stride()
    assert any(map(is_symbolic, fake.shape)) is (symbolic and name != "scalar")


def test_only_what_is_asked_for_is_a_symbol() -> None:
    first, second = fakes(torch.rand(4, 6), torch.rand(4, 6), dynamic=DynamicSizes({"args[1]": {1}}))
    assert not any(map(is_symbolic, (*first.shape, *second.stride()[1:]))) and is_symbolic(second.shape[1])
    assert not is_symbolic(second.shape[0]) and is_symbolic(second.stride(0)), "a stride is the product of sizes"


def test_strides_that_follow_from_no_size() -> None:
    value = torch.rand(4, 8)[:, :6]
    (known,) = fakes(value, dynamic=DynamicSizes({"args[0]": {0}}))
    (fake,) = fakes(value, dynamic=DynamicSizes({"args[0]": {0}}, {"args[0]": {0}}))
    assert known.stride() == (8, 1) and is_symbolic(fake.stride(0)) and hints(fake.stride()) == (8, 1)


def test_inner_tensors_follow_where_the_user_marked_the_size() -> None:
    """A mark is for good, so what has that size follows; a size that differed once is a symbol by itself."""
    seen = {"args[0]": {0}}
    (marked,) = fakes(two(4, 6), dynamic=DynamicSizes(seen, {}, {"args[0]": {0: (0, None)}}))
    assert str(marked.a.shape[0]) == str(marked.b.shape[0]) == str(marked.shape[0])
    assert not is_symbolic(marked.a.shape[1])


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_gradient_has_the_sizes_of_its_result(wrapped: bool) -> None:
    n: Any = Symbols().size(4, "x.size(0)")
    gradient = two(4, 6) if wrapped else torch.rand(4, 6)
    fake = fake_with_sizes(gradient, (n, 6))
    for part in (fake, fake.a, fake.b) if wrapped else (fake,):
        assert str(part.shape[0]) == str(n) and part.shape[1] == 6
    known = fake_with_sizes(gradient, (4, 6))
    assert hints(known.shape) == known.shape == (4, 6) and type(known) is type(fake)


def test_symbolic_sizes_of_a_wrapper_are_leaves_of_the_plan() -> None:
    args = (two(4, 6), torch.rand(4))
    arguments = Arguments.of(lambda *args: None, args, {})
    known = plan_of_fakes(symbolic_fakes(arguments, DynamicSizes(), Symbols()), arguments)
    dynamic = DynamicSizes({"args[0]": {0}, "args[0].a": {0}, "args[0].b": {0}, "args[1]": {0}})
    plan = plan_of_fakes(symbolic_fakes(arguments, dynamic, Symbols()), arguments)
    kinds = [slot.kind for slot in known.index_map.slots]
    assert kinds == ["leaf"] * 3 and [slot.kind for slot in plan.index_map.slots] == ["leaf", "leaf", "size", "leaf"]


def test_inner_tensors_do_not_follow_by_themselves() -> None:
    """Only the outer size differed: the inner ones are what they were."""
    value = ForeignTensor(torch.rand(4, 6), torch.rand(4, 6))
    (fake,) = fakes(value, dynamic=DynamicSizes({"args[0]": {0}}))
    assert is_symbolic(fake.shape[0]) and fake.a.shape == (4, 6) and not any(map(is_symbolic, fake.a.shape))

"""Who has drawn a number of Python's generator or numpy's is seen, and they get back what they had."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy
import pytest

from subclass_aot.base.generators_elsewhere import drawn_elsewhere, put_back_elsewhere, states_elsewhere

DRAWS: dict[str, tuple[Callable[[], object], list[str]]] = {
    "nothing": (lambda: None, []),
    "of Python": (random.random, ["random"]),
    "of numpy": (numpy.random.rand, ["numpy.random"]),
    "a normal number": (numpy.random.randn, ["numpy.random"]),
    "an integer": (lambda: numpy.random.randint(5), ["numpy.random"]),
    "both": (lambda: (random.randint(0, 9), numpy.random.shuffle([1, 2, 3])), ["random", "numpy.random"]),
    "a seed": (lambda: (random.seed(8), numpy.random.seed(8)), ["random", "numpy.random"]),
    "the next block": (lambda: numpy.random.rand(400), ["numpy.random"]),
    "another object": (lambda: numpy.random.RandomState(0).rand(), []),
}


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    of_python, of_numpy = random.getstate(), numpy.random.get_state()
    yield
    random.setstate(of_python)
    numpy.random.set_state(of_numpy)


@pytest.mark.every_case
@pytest.mark.parametrize("is_left_over", [False, True])
@pytest.mark.parametrize("name", DRAWS)
def test_draws(name: str, is_left_over: bool) -> None:
    """Of two normal numbers that numpy draws together one may be left over, which its memory does not say."""
    draw, expected = DRAWS[name]
    numpy.random.seed(3)
    if is_left_over:
        numpy.random.randn()
    before = states_elsewhere()
    assert (before.memory is None) == is_left_over and not drawn_elsewhere(before)
    following = random.random(), numpy.random.randn(), numpy.random.rand()
    put_back_elsewhere(before)
    draw()
    assert drawn_elsewhere(before) == expected
    put_back_elsewhere(before)
    put_back_elsewhere(before)
    assert not drawn_elsewhere(before) and following == (random.random(), numpy.random.randn(), numpy.random.rand())


def test_another_kind_of_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    own = numpy.random.mtrand._rand  # type: ignore[attr-defined]
    monkeypatch.setattr(numpy.random.mtrand, "_rand", numpy.random.RandomState(numpy.random.PCG64(3)))
    before = states_elsewhere()
    assert before.memory is None and not drawn_elsewhere(before)
    numpy.random.mtrand._rand.rand()  # type: ignore[attr-defined]
    assert drawn_elsewhere(before) == ["numpy.random"]
    put_back_elsewhere(before)
    assert not drawn_elsewhere(before) and own is not numpy.random.mtrand._rand  # type: ignore[attr-defined]


def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "numpy.random.mtrand")
    before = states_elsewhere()
    assert before.numpy is None
    monkeypatch.undo()
    numpy.random.rand()
    assert not drawn_elsewhere(before)  # who imports it in a call begins with a seed by chance
    put_back_elsewhere(before)

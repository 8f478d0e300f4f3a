"""Places in memory that strided tensors have: whether two have one in common, and whether one has a place twice.

Note [Strided sets]
~~~~~~~~~~~~~~~~~~~
The places of a strided tensor are an offset, and sums of one multiple of each stride. Two tensors have a place in
common if a sum of multiples of all their strides is a certain number, where each multiple is bounded by a size. In
general such sums are a hard problem. Those of tensors are not: dims that follow on one another without a gap are one,
also where they are of two tensors, and of what is left a multiple of a long stride leaves few choices for the shorter
ones. So the search is exact, up to a number of steps that no tensor of a program has been seen to need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

Term = tuple[int, int]
"""A step, and how often it may be taken: from zero times to this."""

_STEPS = 20_000


class TooHard(Exception):
    """The search takes too long."""


def has_common_place(one: Sequence[Term], one_begins: int, other: Sequence[Term], other_begins: int) -> bool:
    """Returns whether two sets of places have one in common.

    Args:
        one: The strides of the first, each with its size less one. None is negative.
        one_begins: Where it begins.
        other: Likewise.
        other_begins: Likewise.

    Raises:
        TooHard: The search takes too long.

    >>> columns = [(4, 2), (2, 1)]  # the even columns of three rows of four, and the odd ones
    >>> has_common_place(columns, 0, columns, 1), has_common_place(columns, 0, columns, 4)
    (False, True)
    """
    ends = other_begins + sum(step * times for step, times in other)
    return is_sum((*one, *other), ends - one_begins)  # the other is counted from its end


def has_place_twice(terms: Sequence[Term]) -> bool:
    """Returns whether two elements of a tensor are one place.

    Args:
        terms: Its strides, each with its size less one. None is negative.

    Raises:
        TooHard: The search takes too long.

    >>> has_place_twice([(1, 9), (1, 2)]), has_place_twice([(3, 3), (1, 2)])  # windows that overlap, and that do not
    (True, False)
    """
    terms = sorted(((step, times) for step, times in terms if times > 0), reverse=True)
    reach = 0
    for i, (step, times) in reversed([*enumerate(terms)]):
        # This index differs, those before are the same: some multiple of this stride is one way back by the shorter.
        if step <= reach:
            shorter = [(s, 2 * t) for s, t in terms[i + 1 :]]
            if is_sum([*shorter, (step, times - 1)], reach + step * times):
                return True
        reach += step * times
    return False


def covers(terms: Sequence[Term], places: Sequence[Term], begins: int) -> bool:
    """Returns whether one set of places is certainly a part of another.

    It is where each step of the one is a step, or several, of the other one: so tensors are made of one another.

    Args:
        terms: The strides of the other one, each with its size less one. None is negative.
        places: Those of the one.
        begins: Where the one begins, after the other one.

    >>> every_second = [(2, 5)]
    >>> covers(every_second, [(4, 2)], 2), covers(every_second, [(4, 2)], 1), covers(every_second, [(4, 3)], 2)
    (True, False, False)
    """
    left = [begins, *(step for step, _ in places)]
    taken = [1, *(times for _, times in places)]
    if begins < 0:
        return False
    for step, times in _joined(terms):
        found = [min(n // step, times) for n in left]
        left = [n - step * many for n, many in zip(left, found, strict=True)]
        if sum(many * often for many, often in zip(found, taken, strict=True)) > times:
            return False
    return not any(n for n, often in zip(left, taken, strict=True) if often)


def is_sum(terms: Iterable[Term], wanted: int) -> bool:
    """Returns whether a number is a sum of steps, each taken as often as it may be or less.

    Args:
        terms: The steps. None is negative.
        wanted: The number.

    Raises:
        TooHard: The search takes too long.

    >>> is_sum([(5, 2), (3, 1)], 8), is_sum([(5, 2), (3, 1)], 6)
    (True, False)
    """
    terms = _joined(terms)
    reaches, divisors = [0], [0]  # of the terms after each one: their sum, and what divides each of their sums
    for step, times in reversed(terms):
        reaches.append(reaches[-1] + step * times)
        divisors.append(math.gcd(divisors[-1], step))
    reaches.reverse()
    divisors.reverse()
    failed: set[tuple[int, int]] = set()

    def search(i: int, rest: int) -> bool:
        if not 0 <= rest <= reaches[i] or (rest % divisors[i] if divisors[i] else rest):
            return False
        if i >= len(terms) - 1:
            return True
        if (i, rest) in failed:
            return False
        step, times = terms[i]
        least, most = max(0, -((reaches[i + 1] - rest) // step)), min(times, rest // step)
        # Of these, only every so many leave what the others divide.
        every = divisors[i + 1] // math.gcd(step, divisors[i + 1])
        fitting = (n for n in range(least, min(most + 1, least + every)) if (rest - n * step) % divisors[i + 1] == 0)
        if any(search(i + 1, rest - n * step) for n in range(next(fitting, most + 1), most + 1, every)):
            return True
        failed.add((i, rest))
        if len(failed) > _STEPS:
            raise TooHard
        return False

    return search(0, wanted)


def _joined(terms: Iterable[Term]) -> list[Term]:
    """Makes one term of those that follow on one another, the longest step first."""
    found: list[Term] = []
    for step, times in sorted((step, times) for step, times in terms if step > 0 and times > 0):
        # Below this step there are sums of a shorter one that fill it without a gap.
        for i, (shorter, often) in enumerate(found):
            if step % shorter == 0 and step // shorter <= often + 1:
                found[i] = shorter, often + step // shorter * times
                break
        else:
            found.append((step, times))
    return found[::-1]

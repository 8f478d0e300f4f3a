"""Decides how sizes compare, mostly without sympy: as polynomials with whole coefficients.

Note [Polynomials of sizes]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
A trace asks thousands of questions about sizes: whether a stride is that of a packed tensor, which of two is greater.
Sympy takes milliseconds for one, since it makes a relation, and asks what is assumed of each part of it.

Nearly all of them are answered by a difference. Sizes are sums of products of symbols and of quotients `n // 8`. So an
expression is a polynomial: a dict of products, each a sorted tuple of the numbers of what is multiplied, with how many
times it is taken. The difference of two is the empty one, or a constant, or it is never less than what it is where each
symbol is as small as it may be: `s0*s1 - s0`, with `2 + a` for `s0` and `2 + b` for `s1`, is `2 + a + 2*b + a*b`.

Of a quotient the remainder alone is a thing of its own: `(n + 11) // 8` is `1 + (n + 3) // 8`, and `n % 8` is
`n - 8 * (n // 8)`. So two forms of one size are the same polynomial. That `n // 8` lies between `(n - 7) / 8` and
`n / 8` answers the rest, as that `8 * ((n + 7) // 8) - n` is not negative.

Such an answer holds for every size that the symbols may have. All other questions go to torch's solver. The guard that
it puts is kept with the difference, and answers the next question about the same one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # brings sympy
    import sympy
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

Product = tuple[int, ...]
Polynomial = dict[Product, int]

_LESS, _EQUAL, _GREATER = 1, 2, 4
_ANY = _LESS | _EQUAL | _GREATER
SIGNS = {
    "lt": _LESS, "le": _LESS | _EQUAL, "eq": _EQUAL, "ne": _LESS | _GREATER, "ge": _EQUAL | _GREATER, "gt": _GREATER,
}  # fmt: skip
"""By comparison, of which differences it holds."""
_REVERSED = {signs: (signs & _EQUAL) | (signs & _LESS) << 2 | (signs & _GREATER) >> 2 for signs in range(8)}
_LONGEST, _DEEPEST = 128, 8
"""Of how many products a polynomial may be a sum, and how many factors each of them may have."""

Question = tuple[frozenset[tuple[Product, int]], int]
"""A difference, and of which signs of it something holds."""


class Polynomials:
    """The polynomials of one solver, and what is known of them.

    Args:
        solver: The solver.
    """

    # More than ten attributes: what is known, and by which sizes each part of it is found.

    def __init__(self, solver: ShapeEnv) -> None:
        self._ranges = solver.var_to_range
        self._sizes = solver.backed_var_to_val
        self._of: dict[sympy.Basic, Polynomial | None] = {}
        self._numbers: dict[object, int] = {}
        self._atoms: list[_Atom] = []
        self._signs: dict[frozenset[tuple[Product, int]], int] = {}
        self._keys: dict[int, dict[frozenset[tuple[Product, int]], None]] = {}  # by the things in the differences
        self._equal: dict[int, Polynomial] = {}
        self._written_with: dict[int, dict[int, None]] = {}  # by a thing, those that are or were written with it
        self._guards = 0  # how many were put: with each, more may follow of what was asked before
        self._asked: dict[frozenset[tuple[Product, int]], int] = {}

    def of(self, expression: sympy.Basic) -> Polynomial | None:
        """Returns an expression as a polynomial; None if it is none, is too long, or depends on data.

        Args:
            expression: Of whole numbers.
        """
        if expression not in self._of:
            try:
                self._of[expression] = self._made(expression)
            except _TooLong:
                self._of[expression] = None
        return self._of[expression]

    def decide(self, comparison: str, one: sympy.Basic, other: sympy.Basic) -> bool | Question | None:
        """Returns whether something holds of all sizes, or of none; where it depends on them, what it asks.

        Args:
            comparison: One of `SIGNS`.
            one: What is compared.
            other: What it is compared with.
        """
        found = self._difference(one, other)
        if found is None:
            return None
        difference, is_negated = found
        asked = SIGNS[comparison]
        asked = _REVERSED[asked] if is_negated else asked
        signs = self._signs_of(difference)
        if not signs & ~asked:
            return True
        return (frozenset(difference.items()), asked) if signs & asked else False

    def learn(self, question: Question, answer: bool) -> None:
        """Keeps an answer that a guard checks.

        Args:
            question: What `decide` has returned.
            answer: The answer.
        """
        key, asked = question
        self._guards += 1
        signs = self._keep(key, self._signs.get(key, _ANY) & (asked if answer else _ANY & ~asked))
        difference = dict(key)
        if signs == _EQUAL:
            self._write_as_equal(difference)
        elif not signs & _LESS:
            self._keep_least(difference, signs)

    def _keep_least(self, difference: Polynomial, signs: int) -> None:
        """Keeps what one thing is never less than, if a difference is that thing and a number."""
        products = [product for product in difference if product]
        if len(products) == 1 == len(products[0]) and difference[products[0]] == 1:
            atom, least = self._atoms[products[0][0]], -difference.get((), 0) + (signs == _GREATER)
            atom.kept = least if atom.kept is None else max(atom.kept, least)

    def _write_as_equal(self, difference: Polynomial) -> None:
        """Has one thing written as another one, as some quotient times its divisor, if a difference is zero."""
        products = sorted([product for product in difference if product], key=_order, reverse=True)
        if len(products) > 2 or any(len(product) > 1 for product in products):
            return
        for product in products:
            others = {other: -times * difference[product] for other, times in difference.items() if other != product}
            if abs(difference[product]) != 1 or product[0] in self._equal:
                continue
            kept, equal = self._of, self._equal
            self._of, self._equal = {}, {**equal, product[0]: others}
            try:
                users = [number for number in self._written_with.get(product[0], ()) if number in equal]
                written = {number: self._written(equal[number].items(), product[0]) for number in users}
            except _TooLong:
                written = {}
            self._equal.update(written)
            for number, polynomial in {**written, product[0]: others}.items():
                for factor in _factors(polynomial):
                    self._written_with.setdefault(factor, {})[number] = None
            if all(self.of(self._expression({other: 1})) == {other: 1} for other in others if other):
                self._write_what_is_known(product[0])
                return
            self._of, self._equal = kept, equal

    def least(self, expression: sympy.Basic) -> int | None:
        """Returns a number that an expression is never less than, if there is one."""
        polynomial = self.of(expression)
        return None if polynomial is None else self._least(polynomial)

    def same(self, one: sympy.Basic, other: sympy.Basic) -> bool:
        """Returns whether two expressions are equal for all sizes, as far as that is known."""
        first = self.of(one)
        return first is not None and first == self.of(other)

    def _write_what_is_known(self, number: int) -> None:
        """Writes the differences of which something is known without a thing that is written as another one."""
        for key in list(self._keys.get(number, ())):
            try:
                difference, is_negated = self._normal(self._written(key, number))
            except _TooLong:
                continue
            same, signs = frozenset(difference.items()), self._signs[key]
            self._keep(same, self._signs.get(same, _ANY) & (_REVERSED[signs] if is_negated else signs))

    def _keep(self, key: frozenset[tuple[Product, int]], signs: int) -> int:
        """Keeps which signs a difference may have, and returns them."""
        if key not in self._signs:
            for factor in _factors(dict(key)):
                self._keys.setdefault(factor, {})[key] = None
        self._signs[key] = signs
        return signs

    def _written(self, difference: Iterable[tuple[Product, int]], number: int) -> Polynomial:
        found: Polynomial = {}
        for product, times in difference:
            written: Polynomial = {(): times}
            for factor in product:
                written = _product(written, self._equal[number] if factor == number else {(factor,): 1})
            found = _sum(found, written)
        return found

    def signs(self, one: sympy.Basic, other: sympy.Basic) -> tuple[bool, bool]:
        """Returns whether a number is never less than another, and whether it is never greater."""
        found = self._difference(one, other)
        if found is None:
            return False, False
        difference, is_negated = found
        signs = self._signs_of(difference)
        signs = _REVERSED[signs] if is_negated else signs
        return not signs & _LESS, not signs & _GREATER

    def quotient(self, whole: sympy.Basic, by: sympy.Basic) -> sympy.Basic | None:
        """Returns how many times a number above zero is in another one, if that leaves no rest for any size.

        Args:
            whole: What is divided.
            by: What it is divided by.
        """
        found = self._without_rest(whole, by)
        return None if found is None else self._expression(found)

    def rest(self, whole: sympy.Basic, by: sympy.Basic) -> sympy.Basic | None:
        """Returns the remainder of a number, if that is zero for all sizes, or the number itself.

        Args:
            whole: What is divided.
            by: What it is divided by, above zero.
        """
        import sympy

        if self._without_rest(whole, by) is not None:
            return sympy.S.Zero
        dividend, divisor = self.of(whole), self.of(by)
        is_less = dividend is not None and divisor is not None and self._is_less(dividend, divisor)
        return whole if is_less else None

    def _without_rest(self, whole: sympy.Basic, by: sympy.Basic) -> Polynomial | None:
        dividend, divisor = self.of(whole), self.of(by)
        if not dividend or not divisor or (self._least(divisor) or 0) < 1:
            return None
        return _divided(dividend, divisor)

    def _is_less(self, dividend: Polynomial, divisor: Polynomial) -> bool:
        """Returns whether a number is not negative, and less than another one, for all sizes."""
        least = self._least(dividend)
        try:
            return least is not None and least >= 0 and (self._least(_sum(divisor, dividend, -1)) or 0) > 0
        except _TooLong:
            return False

    def _expression(self, polynomial: Polynomial) -> sympy.Basic:
        import sympy
        from torch.utils._sympy.functions import FloorDiv

        def of_atom(atom: _Atom) -> Any:
            if atom.dividend is None:
                return atom.expression
            return FloorDiv(self._expression(atom.dividend), sympy.Integer(atom.divisor))

        parts = [sympy.Mul(times, *[of_atom(self._atoms[n]) for n in product]) for product, times in polynomial.items()]
        return sympy.Add(*parts)

    def _made(self, expression: sympy.Expr) -> Polynomial | None:
        if expression.is_Integer:
            return {(): int(expression)} if expression else {}
        if expression.is_Symbol:
            return self._atom(expression) if expression in self._sizes and expression.is_integer else None
        if expression.is_Add or expression.is_Mul:
            return self._joined(expression)
        if expression.is_Pow:
            return self._power(*expression.args)
        if not expression.is_integer or not expression.free_symbols <= self._sizes.keys():
            return None
        name = type(expression).__name__
        found = None
        if name in ("FloorDiv", "CleanDiv", "Mod", "PythonMod"):
            is_rest = name.endswith("Mod")
            divide = self._by_number if expression.args[1].is_Integer else self._by_size
            found = divide(expression.args[0], expression.args[1], is_rest)
        return self._atom(expression) if found is None else found

    def _joined(self, expression: sympy.Expr) -> Polynomial | None:
        found: Polynomial = {} if expression.is_Add else {(): 1}
        for part in expression.args:
            polynomial = self.of(part)
            if polynomial is None:
                return None
            found = _sum(found, polynomial) if expression.is_Add else _product(found, polynomial)
        return found

    def _power(self, base: sympy.Expr, exponent: sympy.Expr) -> Polynomial | None:
        polynomial = self.of(base)
        if polynomial is None or not exponent.is_Integer or not 0 < exponent <= _DEEPEST:
            return None
        found: Polynomial = {(): 1}
        for _ in range(int(exponent)):
            found = _product(found, polynomial)
        return found

    def _by_size(self, dividend: sympy.Expr, divisor: sympy.Expr, is_rest: bool) -> Polynomial | None:
        found = self._without_rest(dividend, divisor)
        if found is not None:
            return {} if is_rest else found
        whole, by = self.of(dividend), self.of(divisor)
        if whole is None or by is None or not self._is_less(whole, by):
            return None
        return whole if is_rest else {}

    def _by_number(self, dividend: sympy.Expr, divisor: sympy.Expr, is_rest: bool) -> Polynomial | None:
        whole, by = self.of(dividend), int(divisor)
        if whole is None or by < 1:
            return None
        quotient = self._reduced(whole, by)
        return _sum(whole, quotient, -by) if is_rest else quotient

    def _reduced(self, dividend: Polynomial, divisor: int) -> Polynomial:
        """Divides by a number: of each product as often as it goes, and the rest is a quotient of its own."""
        rest = {product: times % divisor for product, times in dividend.items() if times % divisor}
        quotient = {product: times // divisor for product, times in dividend.items() if times // divisor}
        return _sum(quotient, self._quotient(rest, divisor)) if rest.keys() - {()} else quotient

    def _quotient(self, dividend: Polynomial, divisor: int) -> Polynomial:
        """Makes a quotient; that of a quotient and a number is one of what was divided first."""
        products = [product for product in dividend if product]
        common = math.gcd(divisor, *[dividend[product] for product in products])
        if common > 1:  # what is left of the number counts only where it makes up for it
            dividend, divisor = {p: n // common for p, n in dividend.items() if n // common}, divisor // common
            if divisor == 1:
                return dividend
        inner = self._atoms[products[0][0]] if len(products) == len(products[0]) == dividend[products[0]] == 1 else None
        if inner is not None and inner.dividend is not None:
            more: Polynomial = {(): dividend.get((), 0) * inner.divisor}
            return self._reduced(_sum(inner.dividend, more), divisor * inner.divisor)
        return self._atom((frozenset(dividend.items()), divisor), dividend, divisor)

    def _atom(self, key: Any, dividend: Polynomial | None = None, divisor: int = 1) -> Polynomial:
        if key not in self._numbers:
            self._numbers[key] = len(self._atoms)
            self._atoms.append(_Atom(key, dividend, divisor))
        number = self._numbers[key]
        return self._equal.get(number, {(number,): 1})

    def _least_of_atom(self, number: int) -> int | None:
        kept, found = self._atoms[number].kept, self._least_by_definition(number)
        return found if kept is None else kept if found is None else max(kept, found)

    def _least_by_definition(self, number: int) -> int | None:
        atom = self._atoms[number]
        if atom.dividend is None and atom.expression.is_Symbol:  # more may be found out about it
            lower = self._ranges[atom.expression].lower if atom.expression in self._ranges else None
            return int(lower) if lower is not None and lower.is_Integer else None
        if atom.asked != self._guards:
            atom.asked = self._guards
            if atom.dividend is None:
                atom.least = self._least_of_other(atom.expression)
            else:
                least = self._least(atom.dividend)
                atom.least = None if least is None else least // atom.divisor
        return atom.least

    def _least_of_other(self, expression: sympy.Expr) -> int | None:
        found: int | None = 1 if expression.is_positive else 0 if expression.is_nonnegative else None
        if type(expression).__name__ == "Max":
            given = [self.least(part) for part in expression.args]
            found = max([n for n in (*given, found) if n is not None], default=None)
        return found

    def _difference(self, one: sympy.Basic, other: sympy.Basic) -> tuple[Polynomial, bool] | None:
        first, second = self.of(one), self.of(other)
        if first is None or second is None:
            return None
        try:
            return self._normal(_sum(first, second, -1))
        except _TooLong:
            return None

    def _normal(self, difference: Polynomial) -> tuple[Polynomial, bool]:
        """Returns a difference without what is common to its products, and whether its sign is another one then."""
        if not difference:
            return difference, False
        products = iter(difference)
        common = list(next(products))
        for product in products:
            common = _in_both(common, product)
        common = [number for number in common if (self._least_of_atom(number) or 0) > 0]
        by = math.gcd(*difference.values())
        is_negated = difference[max(difference, key=_order)] < 0
        if not common and by == 1 and not is_negated:
            return difference, False
        by = -by if is_negated else by
        return {_without(product, common) or (): times // by for product, times in difference.items()}, is_negated

    def _signs_of(self, difference: Polynomial) -> int:
        """Returns which signs a difference may have."""
        if not difference:
            return _EQUAL
        key = frozenset(difference.items())
        found = self._signs.get(key, _ANY)
        if found not in (_LESS, _EQUAL, _GREATER) and self._asked.get(key) != self._guards:
            found = self._keep(key, found & self._bounds(difference))
            self._asked[key] = self._guards
        return found

    def _bounds(self, difference: Polynomial) -> int:
        signs = _ANY
        step = math.gcd(*[times for product, times in difference.items() if product])
        if step and difference.get((), 0) % step:
            signs = _LESS | _GREATER
        least = self._least(difference)
        if least is not None and least >= 0:
            return signs & (_GREATER if least > 0 else _EQUAL | _GREATER)
        most = self._least({product: -times for product, times in difference.items()})
        if most is not None and most >= 0:
            return signs & (_LESS if most > 0 else _LESS | _EQUAL)
        return signs

    def _least(self, polynomial: Polynomial, quotients: int = 4) -> int | None:
        """Returns what a polynomial is never less than, as far as that is found.

        Args:
            polynomial: It.
            quotients: Of how many quotients the bounds may be taken by what is divided.
        """
        try:
            found = self._least_by_parts(polynomial)
            if found is not None or not quotients:
                return found
            numbers = [n for product in polynomial for n in product if self._atoms[n].dividend is not None]
            if not numbers:
                return None
            number = max(numbers)  # which may be made of others
            bound = self._without_quotient(polynomial, number)
        except _TooLong:
            return None
        least = None if bound is None else self._least(bound, quotients - 1)
        return None if least is None else -(-least // self._atoms[number].divisor)

    def _least_by_parts(self, polynomial: Polynomial) -> int | None:
        """Returns it where no part is taken away once each is written as the least it may be, and how much more."""
        found: Polynomial = {}
        for product, times in polynomial.items():
            shifted: Polynomial = {(): times}
            for number in product:
                least = self._least_of_atom(number)
                if least is None:
                    return None
                shifted = _product(shifted, {(number,): 1, (): least} if least else {(number,): 1})
            found = _sum(found, shifted)
        if any(times < 0 for product, times in found.items() if product):
            return None
        return found.get((), 0)

    def _without_quotient(self, polynomial: Polynomial, number: int) -> Polynomial | None:
        """Returns a polynomial that is never greater than another, times the divisor of a quotient in that one.

        A quotient `n // d` lies between `(n - d + 1) / d` and `n / d`.
        """
        atom, found = self._atoms[number], dict[Product, int]()
        assert atom.dividend is not None
        for product, times in polynomial.items():
            if number not in product:
                found = _sum(found, {product: times * atom.divisor})
                continue
            others = _without(product, [number])
            leasts = [] if others is None else map(self._least_of_atom, others)
            if others is None or any(least is None or least < 0 for least in leasts):
                return None
            bound = atom.dividend if times < 0 else _sum(atom.dividend, {(): atom.divisor - 1}, -1)
            found = _sum(found, _product({others: times}, bound))
        return found


class _Atom:
    """Stands for a part of polynomials: a symbol, a quotient, or an expression that is neither a sum nor a product.

    Args:
        expression: It, but for a quotient.
        dividend: What is divided, of a quotient by a number.
        divisor: What it is divided by.
    """

    __slots__ = ("expression", "dividend", "divisor", "least", "asked", "kept")

    def __init__(self, expression: sympy.Expr, dividend: Polynomial | None, divisor: int) -> None:
        self.expression = expression
        self.dividend = dividend
        self.divisor = divisor
        self.least: int | None = None
        self.asked = -1
        self.kept: int | None = None


class _TooLong(Exception):
    """Raised where a polynomial is longer than what is worth it."""


def _order(product: Product) -> tuple[int, Product]:
    return len(product), product


def _sum(one: Polynomial, other: Polynomial, times: int = 1) -> Polynomial:
    found = dict(one)
    for product, n in other.items():
        total = found.get(product, 0) + n * times
        if total:
            found[product] = total
        else:
            found.pop(product, None)
    if len(found) > _LONGEST:
        raise _TooLong
    return found


def _factors(polynomial: Iterable[Product]) -> set[int]:
    """Returns the things that a polynomial is made of."""
    return {factor for product in polynomial for factor in product}


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    if len(one) * len(other) > _LONGEST:
        raise _TooLong
    found: Polynomial = {}
    for first, n in one.items():
        for second, m in other.items():
            product = tuple(sorted(first + second)) if first and second else first or second
            if len(product) > _DEEPEST:
                raise _TooLong
            found[product] = found.get(product, 0) + n * m
    return {product: times for product, times in found.items() if times}


def _in_both(one: list[int], other: Product) -> list[int]:
    left, found = list(other), []
    for number in one:
        if number in left:
            left.remove(number)
            found.append(number)
    return found


def _without(product: Product, factors: list[int] | Product) -> Product | None:
    """Returns a product without some factors; None if it does not have them."""
    left = list(product)
    for number in factors:
        if number not in left:
            return None
        left.remove(number)
    return tuple(left)


def _divided(dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """Returns a quotient that leaves no rest; None without one, or if it is not found."""
    first = max(divisor, key=_order)
    found: Polynomial = {}
    for _ in range(_LONGEST):
        if not dividend:
            return found
        product = max(dividend, key=_order)
        times, rest = divmod(dividend[product], divisor[first])
        left = _without(product, first)
        if rest or left is None:
            return None
        part = {left: times}
        found = _sum(found, part)
        try:
            dividend = _sum(dividend, _product(divisor, part), -1)
        except _TooLong:
            return None
    return None

"""What is written reads back: of classes that round coarsely, too, and of none that is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int4Weight, NF4Weight, Outer, Sparse24Weight, WrapperTensor, structure
from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.law import CLAUSES
from subclass_aot.testing.contract.trial import Trial
from tests.testing.contract.classes import Held, Scaled, broken, held, scaled
from tests.testing.contract.mutated_classes import make_coded


class Sign(Scaled):
    """It keeps the sign, and the mean of each row."""

    def from_plain(self, plain: torch.Tensor) -> Any:
        return Sign(plain.sign(), plain.abs().mean(-1, keepdim=True).expand_as(self.scale).clone())


class Halved(Scaled):
    """Of each pair of columns the larger one stays, as in a pattern of zeros."""

    def from_plain(self, plain: torch.Tensor) -> Any:
        pairs = plain.unflatten(-1, (-1, 2)) if plain.shape[-1] % 2 == 0 else plain.unsqueeze(-1)
        is_largest = pairs.abs() >= pairs.abs().amax(-1, keepdim=True)
        return Halved((pairs * is_largest).reshape(plain.shape), torch.ones_like(self.scale))


class Shifted(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return Shifted(plain + plain.abs().amax() / 4, torch.ones_like(self.scale))


class OfEqual(Scaled):
    """Of equal values it divides nothing by nothing."""

    def from_plain(self, plain: torch.Tensor) -> Any:
        low, high = plain.amin(), plain.amax()
        return OfEqual((plain - low) / (high - low) * (high - low) + low, torch.ones_like(self.scale))


class Bounded(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return Bounded(plain.clamp(-8, 8), torch.ones_like(self.scale))


class OfSelf(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        scale = self.scale.clone()
        return OfSelf((plain / scale * 64).round() / 64, scale)


class SharesScale(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return SharesScale(plain / self.scale, self.scale)


class Raises(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return Raises(plain.unflatten(0, (5, -1)), self.scale)


class OtherClass(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return Scaled(plain.clone(), torch.ones_like(self.scale))


class OtherDtype(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return OtherDtype(plain.clone(), torch.ones_like(self.scale, dtype=torch.float64))

    def outer_metadata(self) -> Any:
        return Outer.like(self.codes)

    def to_plain(self) -> torch.Tensor:
        return (self.codes * self.scale).to(self.codes.dtype)


class Unreadable(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return Unreadable(plain.clone(), torch.ones(5, 1))


class Writes(Scaled):
    def to_plain(self) -> torch.Tensor:
        return self.codes.mul_(1) * self.scale


class Restless(Scaled):
    asked = 0

    def to_plain(self) -> torch.Tensor:
        Restless.asked += 1
        return self.codes * self.scale + 1e-3 * (Restless.asked % 2)


class ReadsNoSign(Scaled):
    """Nothing else shows it: what was read once is written and read again as it is."""

    def to_plain(self) -> torch.Tensor:
        return self.codes.abs() * self.scale


class WritesNoSign(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return WritesNoSign(plain.abs(), torch.ones_like(self.scale))


class SignIsMasked(Scaled):
    """Codes of a table, of which the bit of the sign is cut off."""

    def to_plain(self) -> torch.Tensor:
        return torch.arange(0, 8.0)[self.codes.int() & 7] * self.scale

    def from_plain(self, plain: torch.Tensor) -> Any:
        scale = plain.abs().amax().clamp(min=1e-9) / 7
        return SignIsMasked((plain.abs() / scale).round() + (plain < 0) * 8, scale.expand_as(self.scale).clone())


class FirstRow(Scaled):
    """It reads the first row for each."""

    def to_plain(self) -> torch.Tensor:
        return (self.codes * self.scale)[:1].expand(self.codes.shape).clone()


class Mirrored(Scaled):
    """A matrix that is its own transpose: half of it is read for the other half."""

    def to_plain(self) -> torch.Tensor:
        codes = self.codes
        return codes.triu() + codes.triu(1).mT if codes.dim() == 2 and codes.shape[0] == codes.shape[1] else codes * 1


class NonNegative(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return NonNegative(plain.clamp(min=0), torch.ones_like(self.scale))


class LosesSign(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default and isinstance(args[0], Held):
            args = (args[0], getattr(args[1], "held", args[1]).abs())
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize(
    "make",
    [
        scaled(Sign),
        scaled(Halved),
        make_coded,
        lambda: Int4Weight.from_float(torch.randn(4, 64)),
        lambda: NF4Weight.from_float(torch.randn(4, 64).bfloat16()),
        lambda: Sparse24Weight.from_float(torch.randn(4, 64)),
    ],
)
def test_classes_that_round_are_right(make: Any) -> None:
    found = broken(make, (0,))
    # What `scaled` draws a class of signs, or of pairs, cannot hold.
    assert set(found) <= ({"own values"} if make().__class__ in (Sign, Halved) else set())


@pytest.mark.parametrize(
    ("cls", "name", "why"),
    [
        (Shifted, "own values", "wrong values"),
        (OfEqual, "equal values", "wrong values, off by inf"),
        (Bounded, "values that are 1000 times larger", "wrong values"),
        (OfSelf, "of another", "values that a tensor with other values takes"),
        (SharesScale, "of another", "after a write into what from_plain gave"),
        (Raises, "from_plain", "from_plain raises, of what the tensor itself means: RuntimeError"),
        (OtherClass, "from_plain", "from_plain gives a Scaled"),
        (OtherDtype, "from_plain", "from_plain gives scale of torch.float64, not torch.float32, as x has it"),
        (Unreadable, "own values", "a tensor that drawn values were written into cannot be read: RuntimeError"),
        (Writes, "reading", "reading 0 of x writes into codes"),
    ],
)
def test_what_is_wrong_is_named(cls: type, name: str, why: str) -> None:
    found = broken(scaled(cls), (0,))
    assert name in found and why in found[name], found


@pytest.mark.parametrize("cls", [ReadsNoSign, WritesNoSign, SignIsMasked, FirstRow])
def test_a_class_that_is_far_off_for_all_values(cls: type) -> None:
    def make() -> Any:
        return cls(torch.randn(4, 6).abs().round(), torch.rand(4, 1) + 0.5) if cls is SignIsMasked else scaled(cls)()

    found = broken(make, (0,))
    assert "zeros in their place by 1" in found["drawn values"], found


@pytest.mark.parametrize("cls", [Sign, Halved, NonNegative, Mirrored])
@pytest.mark.parametrize("size", [(4, 6), (3, 3), (2, 2), (4, 1), (64, 64)])
def test_no_class_that_rounds_is_further_off_than_zeros(cls: type, size: tuple[int, int]) -> None:
    assert "drawn values" not in broken(scaled(cls, *size), (0,))


def test_a_reading_that_gives_something_else_each_time() -> None:
    with pytest.raises(ValueError, match="gives other values each time"):
        broken(scaled(Restless), (0,))


def test_a_class_by_hand() -> None:
    assert "values" in broken(held(LosesSign), (0,))["own values"]
    assert broken(held(Held), (0,)) == {}


class OneBit(WrapperTensor):
    """A base, and one bit beside each of its elements: it holds no other values."""

    base: torch.Tensor = structure()
    bits: torch.Tensor  # bool
    step: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.base, dtype=self.step.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.base.to(self.step.dtype) + (self.bits.to(self.step.dtype) * 2 - 1) * self.step

    def from_plain(self, plain: torch.Tensor) -> Any:
        off = plain - self.base.to(plain.dtype)
        return type(self)(self.base.clone(), off > 0, off.abs().mean())


class OneBitReversed(OneBit):
    def from_plain(self, plain: torch.Tensor) -> Any:
        made = super().from_plain(plain)
        return OneBitReversed(made.base, made.bits.flip(-1), made.step)


def one_bit(cls: Any) -> Any:
    return lambda: cls(torch.randn(4, 8), torch.rand(4, 8) > 0.5, torch.tensor(0.1))


def beside_its_base(like: Any, drawn: torch.Tensor) -> torch.Tensor:
    return like.base + torch.where(drawn > 0, 0.3, -0.3)


def test_values_that_a_class_holds_may_be_given() -> None:
    right, wrong = one_bit(OneBit), one_bit(OneBitReversed)
    assert check_subclass(right, only=[0], quick=True).broken  # of zeros, for example
    assert not check_subclass(right, only=[0], quick=True, values=beside_its_base).broken
    told = [str(check_subclass(wrong, only=[0], quick=True, values=v)) for v in (None, beside_its_base)]
    assert "what x holds, written and read, has wrong values" in told[1] and "what x holds" not in told[0]


def test_values_of_another_size_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"values= gives a Tensor of \[4\]; .* their size \[4, 8\] is wanted"):
        check_subclass(one_bit(OneBit), only=[0], values=lambda like, drawn: drawn[:, 0])
    case = check_subclass.cases(one_bit(OneBit), only=[0], values=beside_its_base)
    assert case.args[0] == "case"  # type: ignore[attr-defined]


def test_structure_is_no_value_that_another_tensor_may_have() -> None:
    (clause,) = [clause for clause in CLAUSES if clause.name == "of another"]
    clause.check(Trial(one_bit(OneBit)))

"""Amounts in words."""

from subclass_aot.cost.profiling.words import amount, unit_of


def test_amounts_have_prefixes() -> None:
    assert [amount(n) for n in (0, 1023, 1024, -(3 << 40))] == ["0 B", "1023 B", "1.00 KiB", "-3.00 TiB"]
    assert amount(10**18, "FLOP") == "1.00 EFLOP"
    assert [amount(s, "s") for s in (0.0, 2.5, 2.5e-3, 3e-8)] == ["0.00 s", "2.50 s", "2.50 ms", "30.00 ns"]


def test_a_unit_is_that_of_its_amount() -> None:
    for number, unit in ((0, "B"), (1023, "B"), (1536, "B"), (5 << 40, "B"), (10**12, "FLOP"), (2.5e-5, "s"), (9, "s")):
        factor, name = unit_of(number, unit)
        written = amount(number, unit).split()
        assert name == written[1] and float(written[0]) == float(f"{number / factor:.2f}")

"""Amounts in words."""

from subclass_aot.cost.profiling.words import amount


def test_amounts_have_prefixes() -> None:
    assert [amount(n) for n in (0, 1023, 1024, -(3 << 40))] == ["0 B", "1023 B", "1.00 KiB", "-3.00 TiB"]
    assert amount(10**18, "FLOP") == "1.00 EFLOP"
    assert [amount(s, "s") for s in (0.0, 2.5, 2.5e-3, 3e-8)] == ["0.00 s", "2.50 s", "2.50 ms", "30.00 ns"]

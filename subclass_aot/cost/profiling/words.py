"""Amounts in words."""


def amount(number: float, unit: str = "B") -> str:
    """Returns a number with a prefix: of bytes those of 1024, of all else those of 1000.

    >>> amount(1536), amount(2.5e12, "FLOP"), amount(3e-6, "s")
    ('1.50 KiB', '2.50 TFLOP', '3.00 us')
    """
    if unit == "s" and number and abs(number) < 1:
        factor, prefix = next(((f, p) for f, p in ((1e3, "m"), (1e6, "u")) if abs(number) * f >= 1), (1e9, "n"))
        return f"{number * factor:.2f} {prefix}s"
    base, prefixes = (1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")) if unit == "B" else (1000, ("", *"kMGTPE"))
    sign, number = ("-", -number) if number < 0 else ("", number)
    i = 0
    while number >= base and i < len(prefixes) - 1:
        number, i = number / base, i + 1
    return f"{sign}{number:.{0 if not i and unit != 's' else 2}f} {prefixes[i]}{unit}"

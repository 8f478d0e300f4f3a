"""Amounts in words."""


def amount(number: float, unit: str = "B") -> str:
    """Returns a number with a prefix: of bytes those of 1024, of all else those of 1000.

    >>> amount(1536), amount(2.5e12, "FLOP"), amount(3e-6, "s")
    ('1.50 KiB', '2.50 TFLOP', '3.00 us')
    """
    factor, name = unit_of(number, unit)
    return f"{number / factor:.{0 if factor == 1 and unit != 's' else 2}f} {name}"


def unit_of(number: float, unit: str = "B") -> tuple[float, str]:
    """Returns a unit in which a number is at least 1: how many of `unit` that is, and its name.

    >>> unit_of(1536), unit_of(2.5e12, "FLOP"), unit_of(0, "s")
    ((1024, 'KiB'), (1000000000000, 'TFLOP'), (1, 's'))
    """
    number = abs(number)
    if unit == "s" and 0 < number < 1:
        return next(((f, f"{p}s") for f, p in ((1e-3, "m"), (1e-6, "u")) if number >= f), (1e-9, "ns"))
    base, prefixes = (1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")) if unit == "B" else (1000, ("", *"kMGTPE"))
    i = 0
    while number >= base ** (i + 1) and i < len(prefixes) - 1:
        i += 1
    return base**i, f"{prefixes[i]}{unit}"

"""Numbers of Python that are symbols while a function is traced: in arithmetic, calls, classes, texts and as keys."""

from subclass_aot.subjects.numbers import around as around

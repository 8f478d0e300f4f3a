"""What is in a file of compiled functions, as text. It is read as data: no class is looked up, and nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from subclass_aot.saved import SavedFile, SavedSpecialization, read_file


def describe_file(path: str | PathLike[str]) -> str:
    """Describes a file that `save` of a compiled function has written.

    Args:
        path: The file.

    Returns:
        What was compiled, with what, for which calls, and the graphs.

    Raises:
        CompiledFileError: It is no such file, or damaged.
    """
    file = read_file(path, trust=False)
    return "\n".join(_lines(file, Path(path).stat().st_size))


def _lines(file: SavedFile, size: int) -> Iterator[str]:
    count = len(file.specializations)
    yield f"{file.function}, compiled: {count} signature{'s' if count > 1 else ''}, {size:,} bytes"
    yield "written with " + ", ".join(f"{name} {version}" for name, version in file.versions.items())
    yield "options"
    for name, value in file.options.items():
        yield f"  {name} = {value[0] if isinstance(value, list) else value!r}"
    if file.classes:
        yield "classes"
        yield from (f"  {name}, source {source}" for name, source in file.classes.items())
    for name, made in file.artifacts.items():
        yield f"compiled by {name}, read with trust=True only"
        yield from (f"  {part}: {len(data):,} bytes" for part, data in made.items())
    for number, saved in enumerate(file.specializations, 1):
        yield ""
        yield f"signature {number}: {saved.reason}"
        if saved.needs:
            yield f"  needs the function or module, for {saved.needs}"
        yield "  calls"
        yield from (f"    {name}: {fact}" for name, fact in saved.facts.items())
        yield from _symbols(saved)
        for which in ("forward", "backward"):
            if saved.written[which] is not None:
                yield from _graph(saved, which)


def _symbols(saved: SavedSpecialization) -> Iterator[str]:
    if saved.symbols is None:
        return
    yield "  symbols"
    for number, size in enumerate(saved.symbols.sizes):
        most = "" if size.most is None else f", at most {size.most}"
        yield f"    s{number} is {size.where}, {size.hint} when it was compiled, at least {size.least}{most}"
    yield from (f"    assumed: {_words(words)}" for words in saved.symbols.assumed)


def _words(written: object) -> str:
    """An expression over symbols: `Equality(Mod(s0, 2), 0)`."""
    if not isinstance(written, list):
        return str(written)
    return f"{_at(written, 0, '?')}({', '.join(map(_words, written[1:]))})"


def _graph(saved: SavedSpecialization, which: str) -> Iterator[str]:
    nodes = _at(saved.written[which], 2, [])
    nodes = nodes if isinstance(nodes, list) else []
    names = [str(_at(node, 1, "?")) for node in nodes]
    count = sum(_at(node, 0, "") == "call_function" for node in nodes)
    yield f"  {which} graph: {count} operators"
    for node in nodes:
        op, name, target, args, kwargs, val = (_at(node, i, None) for i in range(6))
        given = [_text(arg, names) for arg in (args[1:] if isinstance(args, list) else [])]
        pairs = kwargs[1:] if isinstance(kwargs, list) else []
        given += [f"{_at(pair, 0, '?')}={_text(_at(pair, 1, None), names)}" for pair in pairs]
        made = _val(val, saved.specs)
        match op:
            case "placeholder":
                yield f"    {name}: {made}  # {_descriptor(_at(target, 0, None))}"
            case "output":
                yield f"    return {', '.join(given)}"
            case "get_attr":
                yield f"    {name}: {made} = a constant"
            case _:
                yield f"    {name}: {made} = {target}({', '.join(given)})"


def _at(written: object, position: int, otherwise: object) -> Any:
    return written[position] if isinstance(written, list) and position < len(written) else otherwise


def _text(written: object, names: list[str]) -> str:
    """An argument, as Python would have it."""
    if not isinstance(written, list):
        return repr(written)
    word, rest = _at(written, 0, "?"), written[1:]
    if word == "NodeAt":
        position = _at(rest, 0, -1)
        return names[position] if isinstance(position, int) and 0 <= position < len(names) else "?"
    inside = ", ".join(_text(part, names) for part in rest)
    if word in ("list", "tuple"):
        return f"[{inside}]" if word == "list" else f"({inside})"
    if word == "float":
        return str(float.fromhex(rest[0])) if rest and isinstance(rest[0], str) and "x" in rest[0] else inside
    return f"torch.{_at(rest, 0, '?')}" if word in ("dtype", "layout", "memory_format") else f"{word}({inside})"


def _val(written: object, specs: object) -> str:
    if not isinstance(written, list):
        return repr(written)
    word = _at(written, 0, "")
    if word == "symint":
        return _words(_at(written, 1, "?"))
    if word == "symbolic spec":
        size = _at(written, 1, [])
        sizes = ", ".join(map(_words, size)) if isinstance(size, list) else "?"
        return f"{_at(_at(written, 4, None), 1, '?')}[{sizes}]"
    if word != "spec":
        return f"({', '.join(_val(part, specs) for part in written[1:])})"
    position = _at(written, 1, -1)
    spec = _at(specs, position, None) if isinstance(position, int) and position >= 0 else None
    return f"{_at(_at(spec, 3, None), 1, '?')}{_at(spec, 0, '?')}"


def _descriptor(written: object) -> str:
    """What an input is: `Inner(PlainInput(args[0]), codes)`."""
    if not isinstance(written, list):
        return str(written)
    return f"{_at(written, 0, '?')}({', '.join(map(_descriptor, written[1:]))})"

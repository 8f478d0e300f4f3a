"""Shows what is in a file of compiled functions, as text.

A file is read as data: the text in it is JSON, and no more is made of it than strings. Whoever wrote it may have
written anything there, so each place is read as what it is, or shown as it stands.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.plain_values import Json
from subclass_aot.errors import CompiledFileError
from subclass_aot.files.compiled import read_document

_NOT_SHOWN = "it is nothing that save has written, and cannot be shown: {kind}: {error}"

_LONG = 2000
"""Characters of a line that are shown."""

_REFERRED = 120
"""Characters that are shown of what stands in a file once, and may be referred to from many places."""


def describe_file(path: str | PathLike[str]) -> str:
    """Describes a file that `save` of a compiled function has written. Nothing of it is imported, run or made.

    Args:
        path: The file.

    Returns:
        What was compiled, with what, for which calls, and the graphs.

    Raises:
        CompiledFileError: It is no such file, or damaged.
    """
    document, blobs = read_document(path)
    try:
        return "\n".join(map(_shown, _lines(document, blobs, Path(path).stat().st_size)))
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        pass_on_interruption(error)
        what = _NOT_SHOWN.format(kind=type(error).__name__, error=_shown(str(error)))
        raise CompiledFileError(fspath(path), "", what) from error


def _shown(line: str) -> str:
    """Gives a line as a terminal may have it: a text from elsewhere can hold what a terminal obeys."""
    line = line if len(line) <= _LONG else f"{line[:_LONG]}..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def _lines(document: dict[str, Json], blobs: Sequence[bytes], size: int) -> Iterator[str]:
    listed = document["specializations"]
    specs = functools.cache(lambda position: _spec(document["specs"][position]))
    yield f"{document['function']}, compiled: {len(listed)} signature{'s' * (len(listed) > 1)}, {size:,} bytes"
    yield "written with " + ", ".join(f"{name} {document[name]}" for name in ("library", "torch", "python"))
    yield "options"
    for name, value in document["options"].items():
        yield f"  {name} = {value[0] if isinstance(value, list) else value!r}"
    if document["classes"]:
        yield "classes"
        yield from (f"  {name}, source {source}" for name, source in document["classes"].items())
    for name, made in document["artifacts"].items():
        yield f"compiled by {name}"
        yield from (f"  {part}: {len(blobs[position]):,} bytes" for part, position in made.items())
    for number, written in enumerate(listed, 1):
        yield ""
        yield f"signature {number}: {written['reason']}"
        if written["needs"]:
            yield f"  needs the function or module, for {written['needs']}"
        yield "  calls"
        yield from (f"    {name}: {fact}" for name, fact in written["facts"].items())
        yield from _symbols(written["symbols"])
        for which in ("forward", "backward"):
            if written[which] is not None:
                yield from _graph(written[which], which, specs)


def _symbols(written: Json) -> Iterator[str]:
    """Yields lines on the symbols: `{"SavedSymbols": [sizes, assumed]}`."""
    if written is None:
        return
    sizes, assumed = written["SavedSymbols"]
    yield "  symbols"
    for number, (where, hint, least, most) in enumerate(size["SavedSize"] for size in sizes):
        up_to = "" if most is None else f", at most {most}"
        yield f"    s{number} is {where}, {hint} when it was compiled, at least {least}{up_to}"
    yield from (f"    assumed: {_call(words)}" for words in assumed)


def _call(written: Json) -> str:
    """Gives words as a call: `Equality(Mod(s0, 2), 0)`, or `Inner(PlainInput(args[0]), codes)`."""
    if isinstance(written, dict):
        ((word, written),) = written.items()
        return _call(written) if word == "list" else f"{word}({', '.join(map(_call, written))})"
    if not isinstance(written, list):
        return str(written)
    word, *rest = written
    return f"{word}({', '.join(map(_call, rest))})"


Specs = Callable[[int], str]
"""The text of a spec, by its position: made once, however many nodes have it."""


def _graph(written: Json, which: str, specs: Specs) -> Iterator[str]:
    _, _, nodes = written
    names = [_referred(str(node[1])) for node in nodes]
    yield f"  {which} graph: {sum(node[0] == 'call_function' for node in nodes)} operators"
    for op, name, target, args, kwargs, val in nodes:
        given = [_text(arg, names) for arg in args]
        given += [f"{key}={_text(value, names)}" for key, value in kwargs["dict"]]
        made = "" if op == "output" else _val(val, specs)
        match op:
            case "placeholder":
                yield f"    {name}: {made}  # {_call(target[0])}"
            case "output":
                yield f"    return {', '.join(given)}"
            case "get_attr":
                yield f"    {name}: {made} = a constant"
            case _:
                yield f"    {name}: {made} = {target}({', '.join(given)})"


def _text(written: Json, names: list[str]) -> str:
    """Gives an argument as Python would have it."""
    if isinstance(written, list):
        return f"({', '.join(_text(part, names) for part in written)})"
    if not isinstance(written, dict):
        return repr(written)
    ((word, parts),) = written.items()
    if word == "NodeAt":
        return str(names[parts[0]])
    if word in ("dtype", "layout", "memory_format", "float"):
        return parts if word == "float" else f"torch.{parts}"
    inside = ", ".join(_text(part, names) for part in (parts if isinstance(parts, list) else [parts]))
    return f"[{inside}]" if word == "list" else f"{word}({inside})"


def _val(written: Json, specs: Specs) -> str:
    """Returns the value of a node as text: `float32[2, s0]`."""
    if isinstance(written, list):
        return f"({', '.join(_val(part, specs) for part in written)})"
    match written:
        case {"symint": words}:
            return _call(words)
        case {"symbolic spec": [sizes, _, _, {"dtype": dtype}, *_]}:
            return f"{dtype}[{', '.join(map(_call, sizes))}]"
        case {"spec": position}:
            return specs(position)
    return repr(written)


def _spec(written: Json) -> str:
    size, _, _, dtype, *_ = written
    return _referred(f"{dtype['dtype']}{json.dumps(size)}")


def _referred(text: str) -> str:
    return text if len(text) <= _REFERRED else f"{text[:_REFERRED]}..."

"""Writes the index of error messages, `docs/errors.md`, from the sources: python -m tests.error_index"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from subclass_aot import errors

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
CLASSES = {
    name: cls
    for name, cls in vars(errors).items()
    if isinstance(cls, type) and issubclass(cls, errors.SubclassAotError)
}

_HEAD = """# What an error means

Search this page for the first line of a message; `...` stands for what differs from case to case. The lines after the
first say why, name your line, and say what to write instead.

All errors are `SubclassAotError`, and each is also the built-in error that fits, so `except ValueError` takes it. Those
for `except` are in `sa.errors.__all__`; the others say more exactly what happened, and may change between versions.
"""


def _text(node: ast.expr | None, constants: dict[str, str]) -> str | None:
    """Returns the text of an expression, with `...` for what is put in; None if it is made elsewhere."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return constants.get(name)
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            text = _text(value, constants)
            return text and re.sub(r"\{[^{}]*\}", "...", text)
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, constants) or "..." for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = [_text(each, constants) for each in (left, right)]
            return None if texts[0] is None else "".join(text or "..." for text in texts)
    return None


def messages() -> Iterator[tuple[str, str]]:
    """Yields the class and the first line of each message that the package has."""
    texts = [path.read_text() for path in sorted((ROOT / "subclass_aot").rglob("*.py"))]
    trees = [ast.parse(text) for text in texts if "Error(" in text or re.search(r'^[A-Z]\w+ = "', text, re.MULTILINE)]
    shared: dict[str, str] = {}
    for tree in trees:
        own = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
        shared |= {name: text for name, text in own.items() if not name.startswith("_")}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES and node.args:
                text = _text(
                    node.args[2 if node.func.id == "CompiledFileError" and len(node.args) > 2 else 0], shared | own
                )
                line = re.sub(r"(\.\.\.\W?)+(?=\.\.\.)", "", (text or "").strip().partition("\n")[0])
                if len(re.findall(r"[a-z]{2,}", line)) > 2:
                    yield node.func.id, line


def page() -> str:
    """Returns the page: a section for each class, and in it the first lines of its messages."""
    found: dict[str, set[str]] = {name: set() for name in CLASSES}
    for name, line in messages():
        found[name].add(line)
    parts = [_HEAD]
    for name, cls in sorted(CLASSES.items()):
        base = next(base for base in cls.__mro__ if base.__module__ == "builtins")
        parents = [each.__name__ for each in cls.__bases__ if each not in (errors.SubclassAotError, base)]
        kind = ", ".join(f"`{each}`" for each in [*parents, base.__name__])
        what = (cls.__doc__ or "").partition("\n\n")[0].replace("\n    ", " ")
        lines = "\n".join(f"- `{line.replace('`', chr(39))}`" for line in sorted(found[name], key=str.lower))
        parts.append(f"## {name}\n\n{what} ({kind})\n{lines and chr(10)}{lines}{lines and chr(10)}")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())

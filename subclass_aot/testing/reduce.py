"""Makes a script that shows something as small as can be, step by step, as long as it still shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from subclass_aot.testing.inputs import Capture, Given, Leaf, Storage, Tree, Wrapped, leaves_of
from subclass_aot.testing.script import Script, Statement


def reduced(script: Script, shows: Callable[[Script], bool], tries: int) -> Script:
    """Returns the smallest script found that still shows what `script` shows.

    Args:
        script: What to begin with.
        shows: Whether a script shows it, too.
        tries: How many scripts to try, at the most.

    Returns:
        A script for which `shows` said yes; `script` itself, if no smaller one does.
    """
    left = tries

    def works(candidate: Script) -> bool:
        nonlocal left
        left -= 1
        return shows(candidate)

    before = None
    while before is not script and left > 0:
        before = script
        for move in MOVES:
            script = _greedily(script, move, works, lambda: left > 0)
    return script.renamed()


Move = Callable[[Script], Iterator["Script | None"]]


def _greedily(script: Script, move: Move, works: Callable[[Script], bool], more: Callable[[], bool]) -> Script:
    """Makes one kind of move as often as it works."""
    again = True
    while again:
        again = False
        for candidate in move(script):
            if not more():
                return script
            if candidate is not None and works(candidate):
                script, again = candidate, True
                break
    return script


def _fewer_statements(script: Script) -> Iterator[Script | None]:
    """Yields scripts without some statements, many at a time to begin with; what they computed becomes an input."""
    count = len(script.statements)
    size = max(count // 2, 1)
    while count:
        for start in reversed(range(0, count, size)):
            yield _without(script, start, start + size)
        if size == 1:
            return
        size = (size + 1) // 2


def _without(script: Script, start: int, stop: int) -> Script | None:
    kept = (*script.statements[:start], *script.statements[stop:])
    gone = {s.target for s in script.statements[start:stop] if s.target}
    wanted = [name for s in kept for name in s.reads() if name in gone]
    results = tuple(name for name in script.results if name not in gone)
    read = {name for s in kept for name in s.reads()}
    inputs = list(script.inputs)
    renamed: dict[str, str] = {}
    values = script.values() if wanted or not results else {}
    for name in dict.fromkeys(wanted):
        if not isinstance(values.get(name), torch.Tensor):
            return None
        renamed[name] = _fresh(inputs)
        inputs.append(_like(values[name], renamed[name]))
    if not results:
        ends = [s.target for s in kept if s.target and s.target not in read]
        results = tuple(name for name in ends if isinstance(values.get(name), torch.Tensor))
    if not results and not kept:
        return None
    return replace(script, inputs=tuple(inputs), statements=kept, results=results).substituted(renamed)


def _fresh(inputs: list[Given]) -> str:
    taken = {given.name for given in inputs}
    return next(f"x{i}" for i in range(len(inputs) + 1) if f"x{i}" not in taken)


def _like(tensor: torch.Tensor, name: str) -> Given:
    """Returns an input in the place of a value."""
    given = Capture(values=False).given(tensor, name)
    return replace(given, base=None, history="computed" if tensor.requires_grad else "")


def _fewer_results(script: Script) -> Iterator[Script]:
    if len(script.results) > 1:
        for name in dict.fromkeys(script.results):
            yield replace(script, results=(name,))
    for i in range(len(script.results)):
        yield replace(script, results=(*script.results[:i], *script.results[i + 1 :]))


def _bypassed(script: Script) -> Iterator[Script]:
    """Takes what a statement reads for what it computes."""
    for i, statement in enumerate(script.statements):
        for name in statement.reads() if statement.target else ():
            kept = (*script.statements[:i], *script.statements[i + 1 :])
            yield replace(script, statements=kept).substituted({statement.target: name})


def _simpler_statements(script: Script) -> Iterator[Script]:
    for i, old in enumerate(script.statements):
        if old.mode:
            yield _with_statement(script, i, Statement(old.target, old.text))


def _with_statement(script: Script, i: int, new: Statement) -> Script:
    return replace(script, statements=(*script.statements[:i], new, *script.statements[i + 1 :]))


def _fewer_inputs(script: Script) -> Iterator[Script]:
    used = {*script.results, *(name for s in script.statements for name in s.reads())}
    for given in script.inputs:
        rest = tuple(g for g in script.inputs if g is not given)
        if given.name in used:
            continue
        if all(g.base is not given for g in rest):
            yield replace(script, inputs=rest)
        elif given.role == "argument":
            yield _with_input(script, given, replace(given, role="hidden"))


def _simpler_inputs(script: Script) -> Iterator[Script]:
    for given in script.inputs:
        for simpler in _simpler(given):
            yield _with_input(script, given, simpler)
    yield from _random_values(script)
    leaves = [leaf for given in script.inputs for leaf in leaves_of(given.tree)]
    for leaf in dict.fromkeys(leaves):
        if not leaf.whole or any(other.storage is leaf.storage and other is not leaf for other in leaves):
            yield _mapped(script, _instead({leaf: _whole(leaf.size, leaf)}))


def _random_values(script: Script) -> Iterator[Script]:
    """Yields scripts with random values in place of those that were given: all of them, or those of one storage."""
    storages = dict.fromkeys(leaf.storage for given in script.inputs for leaf in leaves_of(given.tree))
    without = {s: replace(s, values=None) for s in storages if s.values is not None}
    if len(without) > 1:
        yield _mapped(script, storage=_instead(without))
    for old, new in without.items():
        yield _mapped(script, storage=_instead({old: new}))


def _instead(new: dict[Any, Any]) -> Callable[[Any], Any]:
    return lambda old: new.get(old, old)


def _simpler(given: Given) -> Iterator[Given]:
    if given.role == "constant":
        yield replace(given, role="argument")
    if given.base is not None:
        yield replace(given, base=None, history="computed")
    if given.parameter:
        yield replace(given, parameter=False)
    if given.history:
        yield replace(given, history="", parameter=False, base=None)
    if given.history == "computed" and given.base is None:
        yield replace(given, history="leaf")
    if given.base is None:
        for tree in _simpler_trees(given.tree):
            yield replace(given, tree=tree)


def _simpler_trees(tree: Tree) -> Iterator[Tree]:
    """Yields a dense tensor in the place of a wrapper."""
    if isinstance(tree, Leaf):
        return
    leaves = list(leaves_of(tree))
    yield next((leaf for leaf in leaves if leaf.size == tree.size), None) or _whole(tree.size, leaves[-1])
    for name, inner in tree.inner.items():
        for simpler in _simpler_trees(inner):
            yield replace(tree, inner={**tree.inner, name: simpler})


def _smaller(script: Script) -> Iterator[Script]:
    """Yields scripts with smaller sizes, in inputs and in the text of the statements; then with plain floats."""
    leaves = [leaf for given in script.inputs for leaf in leaves_of(given.tree)]
    for old in sorted({n for leaf in leaves for n in leaf.size if n > 1}, reverse=True):
        for new in sorted({1, 2, old // 2}):
            if new < old:
                smaller = _resized(script, old, new)
                yield smaller
                pattern = re.compile(rf"(?<![\w.]){old}(?![\w.])")
                texts = [replace(s, text=pattern.sub(str(new), s.text)) for s in smaller.statements]
                if tuple(texts) != smaller.statements:
                    yield replace(smaller, statements=tuple(texts))
    if any(leaf.dtype.is_floating_point and leaf.dtype is not torch.float32 for leaf in leaves):
        yield _mapped(
            script,
            lambda leaf: replace(leaf, dtype=torch.float32) if leaf.dtype.is_floating_point else leaf,
            lambda s: replace(s, dtype=torch.float32, values=None) if s.dtype.is_floating_point else s,
        )


def _resized(script: Script, old: int, new: int) -> Script:
    def size(given: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new if n == old else n for n in given)

    def leaf(given: Leaf) -> Leaf:
        if old not in given.size:
            return given
        return _whole(size(given.size), given) if given.whole else replace(given, size=size(given.size))

    def wrapped(given: Wrapped) -> Wrapped:
        if old not in given.size:
            return given
        stride = torch.empty(size(given.size), device="meta").stride()
        return replace(given, size=size(given.size), stride=stride)

    return _mapped(script, leaf, wrapped=wrapped)


def _whole(size: tuple[int, ...], like: Leaf) -> Leaf:
    """Returns a dense tensor on memory of its own."""
    shape = torch.empty(size, device="meta")
    return Leaf(Storage(shape.numel(), like.dtype, like.storage.device), size, shape.stride(), 0, like.dtype)


def _with_input(script: Script, old: Given, new: Given) -> Script:
    """Returns the script with another recipe, also where it is the base of others."""
    inputs = tuple(new if g is old else replace(g, base=new) if g.base is old else g for g in script.inputs)
    return replace(script, inputs=inputs)


def _mapped(
    script: Script,
    leaf: Callable[[Leaf], Leaf] = lambda leaf: leaf,
    storage: Callable[[Storage], Storage] = lambda s: s,
    wrapped: Callable[[Wrapped], Wrapped] = lambda w: w,
) -> Script:
    """Returns the script with other leaves, storages and wrappers; what was shared is shared again."""
    storages: dict[int, Storage] = {}
    trees: dict[int, Tree] = {}
    done: dict[int, Given] = {}

    def tree(old: Tree) -> Tree:
        if id(old) not in trees:
            if isinstance(old, Leaf):
                new = leaf(old)
                kept = storages.setdefault(id(new.storage), storage(new.storage))
                trees[id(old)] = new if kept is new.storage else replace(new, storage=kept)
            else:
                trees[id(old)] = replace(wrapped(old), inner={name: tree(x) for name, x in old.inner.items()})
        return trees[id(old)]

    def given(old: Given) -> Given:
        if id(old) not in done:
            base = None if old.base is None else given(old.base)
            done[id(old)] = replace(old, tree=tree(old.tree), base=base)
        return done[id(old)]

    return replace(script, inputs=tuple(map(given, script.inputs)))


MOVES: tuple[Move, ...] = (
    _fewer_statements,
    _fewer_results,
    _bypassed,
    _fewer_inputs,
    _simpler_statements,
    _simpler_inputs,
    _smaller,
)

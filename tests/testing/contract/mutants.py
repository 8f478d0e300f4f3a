"""Mutation testing of the kit: `mutated_classes.py` with one mistake at a time. Is it found, and is it named?

    python -m tests.testing.contract.mutants > docs/benchmarks/mutants.md

Each mutation is a small change of one function: of a number, an operator, an argument, a branch, a statement, a copy.
A mutant that cannot be imported or made is none. One that no clause can see does the same as the right class, or what
the contract leaves open: `EQUIVALENT` says why, by class, function and change.
"""

from __future__ import annotations

import ast
import collections
import copy
import difflib
import functools
import linecache
import re
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb

from subclass_aot.base._stack import first_line
from subclass_aot.testing import check_subclass
from tests.testing.contract import mutated_classes

SOURCE = Path(mutated_classes.__file__).read_text()
MAKERS = {name.removeprefix("make_"): name for name in vars(mutated_classes) if name.startswith("make_")}

_LEFT_OUT = ("make_", "__repr__", "rule", "register", "Read", "share_memory_")
"""What is no part of a class, or says nothing of its values."""


@dataclass(frozen=True)
class Mutant:
    """A class with one mistake.

    Attributes:
        maker: Makes a tensor of it.
        function: The function that was changed.
        line: Its first line.
        end: Its last line.
        change: What was changed, and into what.
        source: The whole module.
    """

    maker: str
    function: str
    line: int
    end: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.maker}.{self.function}: {self.change}"


@dataclass(frozen=True)
class Outcome:
    """What the kit said of a mutant.

    Attributes:
        mutant: The mutant.
        verdict: "found": something is to mend; "refuses": it refuses by name more than the right class, and nothing is
            wrong; or "missed".
        is_named: Whether the first line of the report names the function, by one of its lines.
        first: The first line.
    """

    mutant: Mutant
    verdict: str
    is_named: bool
    first: str


@functools.cache
def mutants() -> tuple[Mutant, ...]:
    """Returns all mutants, in the order of the source."""
    return tuple(_mutants(ast.parse(SOURCE)))


def _mutants(tree: ast.Module) -> Iterator[Mutant]:
    for maker, function in _functions(tree):
        before = ast.unparse(function)
        for place, node in enumerate(ast.walk(function)):
            for change in _CHANGES:
                for variant in range(_MOST):
                    if not change(copy.deepcopy(node), variant):
                        break
                    mutated = copy.deepcopy(function)
                    other = next(node for at, node in enumerate(ast.walk(mutated)) if at == place)
                    change(other, variant)
                    ast.fix_missing_locations(mutated)
                    try:
                        after = ast.unparse(mutated)
                    except Exception:
                        continue
                    if after != before:
                        yield _mutant(maker, function, mutated)
        yield from _kept_readings(maker, function)


def outcome(mutant: Mutant, number: int) -> Outcome | None:
    """Returns what the kit says of a mutant; None if there is no such class."""
    module = types.ModuleType(f"tests_mutant_{number}")
    module.__file__ = f"/mutants/{number}.py"
    sys.modules[module.__name__] = module
    linecache.cache[module.__file__] = (len(mutant.source), None, mutant.source.splitlines(True), module.__file__)
    make: Callable[[], object] | None = None
    try:
        exec(compile(mutant.source, module.__file__, "exec"), vars(module))
        make = getattr(module, MAKERS[mutant.maker])
        make()
    except Exception:
        return None
    try:
        report = check_subclass(make, quick=True)
        if not report.broken:
            report = check_subclass(lambda: make())
    except Exception as error:  # it cannot even be read, or gives other values each time
        ran = {frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)}
        return Outcome(mutant, "found", mutant.function in ran, first_line(error))
    finally:
        sys.modules.pop(module.__name__)
    first = str(report).splitlines()[0]
    lines = [int(line) for line in re.findall(rf"\({number}\.py:(\d+)\)", first)]
    is_named = any(mutant.line <= line <= mutant.end for line in lines)
    not_offered = {finding.clause.name for finding in report.not_offered} - _not_offered(mutant.maker)
    verdict = "found" if report.broken else "refuses" if not_offered else "missed"
    return Outcome(mutant, verdict, is_named, first)


@functools.cache
def _not_offered(maker: str) -> frozenset[str]:
    """Returns what the right class does not offer."""
    make = getattr(mutated_classes, MAKERS[maker])
    return frozenset(finding.clause.name for finding in check_subclass(lambda: make()).not_offered)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yields the functions to change, each with what makes a tensor of its class."""
    names = {name.capitalize(): name for name in MAKERS}
    helpers = {"plain": "sum", "dense": "coded", "joined": "halves"}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in names:
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and not each.name.startswith(_LEFT_OUT):
                    yield names[node.name], each
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith(_LEFT_OUT):
            yield helpers.get(node.name) or node.name.partition("_")[0], node


def _mutant(maker: str, function: ast.FunctionDef, mutated: ast.FunctionDef) -> Mutant:
    told = _told(ast.unparse(function), ast.unparse(mutated))
    assert function.end_lineno is not None
    return Mutant(maker, function.name, _first_line(function), function.end_lineno, told, _with(function, mutated))


def _with(function: ast.FunctionDef, mutated: ast.FunctionDef) -> str:
    """Returns the source of the module with another function, whose lines are where they were as far as possible."""
    lines = SOURCE.splitlines()
    first = _first_line(function)
    assert function.end_lineno is not None
    text = ["    " * bool(function.col_offset) + line for line in ast.unparse(mutated).splitlines()]
    room = function.end_lineno - first + 1
    text += [""] * (room - len(text))
    return "\n".join([*lines[: first - 1], *text, *lines[function.end_lineno :]]) + "\n"


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _told(before: str, after: str) -> str:
    """Returns the line that changed, before and after."""
    changes = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    gone, come = ([line[2:].strip() for line in changes if line.startswith(sign)] for sign in "-+")
    return f"{' '.join(gone)} -> {' '.join(come) or 'nothing'}"


_MOST = 4
"""Variants of one change of one node."""

Change = Callable[[ast.AST, int], bool]


def _constant(node: ast.AST, variant: int) -> bool:
    """Changes a number, or negates a flag."""
    if not isinstance(node, ast.Constant) or variant or isinstance(node.value, str | None):
        return False
    if isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node.value, int):
        node.value = node.value + 1 if node.value != 1 else 0
    elif isinstance(node.value, float):
        node.value = node.value * 1.5
    return True


_OTHER: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.MatMult: ast.Add,
}  # fmt: skip
_OTHER_COMPARISON: dict[type, type] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def _operator(node: ast.AST, variant: int) -> bool:
    """Puts another operator in the place of one."""
    if variant:
        return False
    if isinstance(node, ast.BinOp) and type(node.op) in _OTHER:
        node.op = _OTHER[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER_COMPARISON:
        node.ops[0] = _OTHER_COMPARISON[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op
    else:
        return False
    return True


def _without_operand(node: ast.AST, variant: int) -> bool:
    """Leaves out an operand: a term, a factor."""
    if not isinstance(node, ast.Return | ast.Assign) or not isinstance(node.value, ast.BinOp) or variant > 1:
        return False
    node.value = node.value.left if variant == 0 else node.value.right
    return True


def _without_argument(node: ast.AST, variant: int) -> bool:
    """Leaves out an argument of a call, the last first."""
    if not isinstance(node, ast.Call) or variant >= len(node.keywords) + (len(node.args) > 1):
        return False
    if variant < len(node.keywords):
        del node.keywords[variant]
    else:
        del node.args[-1]
    return True


def _swapped_arguments(node: ast.AST, variant: int) -> bool:
    """Swaps two arguments that stand side by side: two fields, for example."""
    if not isinstance(node, ast.Call) or variant >= len(node.args) - 1:
        return False
    node.args[variant], node.args[variant + 1] = node.args[variant + 1], node.args[variant]
    return True


_NOT_CALLED = frozenset("clone abs round clamp to detach repeat_interleave expand contiguous t unflatten".split())
_OTHER_CALL = {"amax": "amin", "amin": "amax", "round": "floor", "sum": "mean", "zero_": "detach", "copy_": "add_"}


def _without_call(node: ast.AST, variant: int) -> bool:
    """Leaves out a call of a method: a copy, a rounding, a bound, a cast."""
    for each in ast.iter_child_nodes(node) if variant == 0 else ():
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _NOT_CALLED:
            _replace(node, each, each.func.value)
            return True
    return False


def _other_call(node: ast.AST, variant: int) -> bool:
    """Calls another method."""
    if variant or not isinstance(node, ast.Attribute) or node.attr not in _OTHER_CALL:
        return False
    node.attr = _OTHER_CALL[node.attr]
    return True


def _copied(node: ast.AST, variant: int) -> bool:
    """Copies an argument of what makes a tensor, which should be an alias perhaps."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or variant >= min(2, len(node.args)):
        return False
    if node.func.id != "cls" and not node.func.id[0].isupper():
        return False
    if ast.unparse(node.args[variant]).endswith("clone()"):
        return False
    copied = ast.Attribute(value=node.args[variant], attr="clone", ctx=ast.Load())
    node.args[variant] = ast.Call(func=copied, args=[], keywords=[])
    return True


def _without_statement(node: ast.AST, variant: int) -> bool:
    """Leaves out a statement."""
    body = getattr(node, "body", None)
    if not isinstance(body, list) or variant >= len(body) - isinstance(node, ast.FunctionDef):
        return False
    if isinstance(body[variant], ast.Return) and isinstance(node, ast.FunctionDef):
        return False
    body[variant] = ast.Pass()
    return True


def _of_self(node: ast.AST, variant: int) -> bool:
    """Takes the scale or the zero point of self in place of the one that was just computed."""
    if variant or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "Grouped":
        return False
    for at, each in enumerate(node.args):
        if isinstance(each, ast.Name) and each.id in ("scale", "zero"):
            node.args[at] = ast.Attribute(value=ast.Name(id="self", ctx=ast.Load()), attr=each.id, ctx=ast.Load())
            return True
    return False


def _other_dtype(node: ast.AST, variant: int) -> bool:
    """Has another dtype."""
    if variant or not isinstance(node, ast.keyword) or node.arg != "dtype":
        return False
    node.value = ast.parse("torch.float64", mode="eval").body
    return True


_CHANGES: Sequence[Change] = (
    _constant, _operator, _without_operand, _without_argument, _swapped_arguments, _without_call, _other_call, _copied,
    _without_statement, _of_self, _other_dtype,
)  # fmt: skip


def _kept_readings(maker: str, function: ast.FunctionDef) -> Iterator[Mutant]:
    """Yields readings that keep what they gave, or write into what they read."""
    if function.name not in ("to_plain", "read"):
        return
    kept = copy.deepcopy(function)
    last = kept.body[-1]
    assert isinstance(last, ast.Return) and last.value is not None
    value = ast.unparse(last.value)
    for text in (
        f"if not hasattr(self, '_kept'):\n    self._kept = {value}\nreturn self._kept",
        f"result = {value}\nself.__dict__[self.__tensor_flatten__()[0][0]].zero_()\nreturn result",
    ):
        kept.body = [*function.body[:-1], *ast.parse(text.replace("return", "_ =")).body]
        kept.body[-1] = ast.Return(ast.parse(text.rpartition("return ")[2], mode="eval").body)
        ast.fix_missing_locations(kept)
        yield _mutant(maker, function, kept)


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for name, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, name, new)
        elif isinstance(value, list) and any(each is old for each in value):
            value[:] = [new if each is old else each for each in value]


def run(every: int = 1, start: int = 0) -> list[Outcome]:
    """Returns the outcomes of mutants, of each `every`th from `start` on."""
    found = []
    for number, mutant in enumerate(mutants()):
        if number % every == start:
            began = time.time()
            came = outcome(mutant, number)
            if came is not None:
                found.append(came)
                told = (
                    f"{number} {time.time() - began:.1f} s: {came.verdict}, {'named' if came.is_named else 'not named'}"
                )
                print(f"{told}: {mutant}\n      {came.first}", file=sys.stderr, flush=True)
    return found


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns what came of the mutants of each class, those missed, and why others do the same, as Markdown."""
    lines = [
        "| class | mutants | found | refuse by name | missed | do the same | named in the first line, of the found |",
        "|---|---|---|---|---|---|---|",
    ]
    for maker in (*MAKERS, "all"):
        mine = [each for each in outcomes if maker in (each.mutant.maker, "all")]
        same = sum(each.verdict == "missed" and reason(each.mutant) != "" for each in mine)
        counts = collections.Counter(each.verdict for each in mine)
        named = sum(each.verdict == "found" and each.is_named for each in mine)
        share = f"{100 * named // max(counts['found'], 1)}%"
        numbers = [len(mine), counts["found"], counts["refuses"], counts["missed"] - same, same, share]
        lines.append(f"| {maker.capitalize()} | {' | '.join(map(str, numbers))} |")
    missed = [each for each in outcomes if each.verdict == "missed"]
    reasons = collections.Counter(reason(each.mutant) for each in missed)
    unknown = [f"- `{each.mutant}`{_why_missed(each.mutant)}" for each in missed if not reason(each.mutant)]
    lines += ["", "Missed:", "", *unknown] if unknown else []
    refusing = [f"- `{each.mutant}`" for each in outcomes if each.verdict == "refuses"]
    lines += ["", "Refuse by name, where the right class does not:", "", *refusing] if refusing else []
    lines += ["", "Do the same:", "", *(f"- {count}: {why}" for why, count in reasons.most_common() if why)]
    return "\n".join(lines)


EQUIVALENT: tuple[tuple[str, str], ...] = (
    (r"__new__: raise ValueError\(.*clone", "another error is raised"),
    (r"return NotImplemented -> pass", "the operator, run on dense tensors, calls the other class"),
    (
        r"(quantize|grouped\.from_plain): .* -> .*(floor\(\)|1\.5e-12|/ 255\)|/ 128$|clamp\(-127\)|, 128\)|\(-128, )",
        "it rounds in another way, as a class may",
    ),
    (
        r"(quantize|grouped\.from_plain): .* -> .*(scale\)\)?\.round\(\)($|\.to)|scale\)\)?\.clamp\(-127, 127\))",
        "it rounds in another way, as a class may",
    ),
    (
        r"(quantize|grouped\.from_plain): .* -> (scale = \(high - low\) / 254|.*keepdim=True\) / 127)$",
        "a quotient of zeros is the code zero",
    ),
    (r"kwargs = kwargs or \{\} -> pass|\.read\(\).* -> .*args\[1\]\.dtype", "torch gives a dict, and a dtype in it"),
    (r": @(rule|Product\.implements)\(", "the order of operators says nothing; without a rule a view reads the whole"),
    (r"zip\(.* -> .*zip\(.*strict=False|zip\(.* -> (?!.*strict)", "both lists have one length"),
    (r"zip\(.* -> .*\.(one|two), \*args\[1:\]\)", "operators that give lists have no keywords"),
    (r"coded_slice\(.*dim: int=1|args\[:3\]|-> .*non_blocking: bool=True", "a default that no call takes"),
    (r"masked\.from_plain: .*-> return Masked\(plain, ", "what it is given is new, or is copied from what it gives"),
    (r"product_t: .*-> return x$", "autograd makes a view of what it is given"),
    (r"grouped.* -> .*(dim=\+1|unflatten\(\+1)", "it is a matrix, and so is each of its views that is of the class"),
    (r"grouped\.to_plain: .*-> return self\.spread\(self\.zero\)", "the middle of each group, in all operators alike"),
    (r"sum\.read: .*-> return self\.one( - self\.two)?$", "another meaning, in all operators alike"),
    (r"func\(args\[0\]\.(one|two), args\[1\]\)\.clone\(\)", "a copy of what is new"),
    (r"values = func\(plain\(args\[0\]\)\.clone.* -> values = func\(plain\(args\[0\]\), ", "a copy of what is new"),
    (r"product_t: .*clone\(\)", "it takes no write, which a copy would lose"),
    (
        r"\.storage_offset\(\), dtype=.* -> .*\.stride\(\), dtype=",
        "nobody reads where in memory it begins, having none",
    ),
    (r"func\(args\[0\]\.one.* -> .*func\(args\[0\]\.two.*func\(args\[0\]\.one", "a sum has no order"),
    (r"func\(x\.high.* -> .*func\(x\.low.*, func\(x\.high", "a sum has no order"),
    (r"-> .*\[cls\(two, one, args|-> return cls\(\(values - high\.to\(.*, high, values", "a sum has no order"),
    (
        r"halves\.read: .*-> return self\.(high \+ self\.low\.to|high\.to\(self\.outside\) \+ self\.low$)",
        "as wide a sum",
    ),
    (r"out = cls\(func\(x\.high.* -> .*args\[1:\]\), (x\.dtype|func)", "one part has another memory format inside"),
    (r"if func in SCALED .* -> .*isinstance\(args\[0\]", "a product is computed of dense operands"),
    (r"return_and_correct_aliasing\(func, args, kwargs, out\) -> pass", "a product is computed of dense operands"),
    (r"coded_mm: .*-> (pass$|.*b\.scale\.shape\[0\] == 0)", "a product is computed of dense operands"),
    (r"coded_mul: .*-> return func\(dense\(b\), dense\(a\)\)", "a product has no order"),
    (r"-> .*issubclass\((Sum|Coded|Halves), other\)", "only classes that derive from it would see that"),
    (
        r"coded_slice: (scale = scale\.detach\(\) -> |if scale is x\.scale: )",
        "an inner tensor in the place of its alias",
    ),
    (r"coded_copy: .*-> .*quantize\(dense\(source\)\.expand", "copy_ casts the scale"),
    (r"halves\.of: .*-> (high = values$|return cls\(high, values - high\.to)", "parts of more bits mean the same"),
    (r"halves\.of: .*-> return cls\(high, \(values - high\)\.to", "a difference is in the wider dtype"),
    (
        r"(grouped\.to_plain|coded\.read): .*-> return self\.codes \* ",
        "a product of integers and numbers is of numbers",
    ),
)
"""What a mutant does that is as right as the class, by a pattern of its text."""


_MISSED: tuple[tuple[str, str], ...] = (
    (r"coded\.quantize: .*-> return \(\(values / scale\).*127\), scale\)", "codes that are floats mean the same"),
    (r"coded_copy: dim = .* else 1$", "only tensors whose columns share a scale would see it, and none is made"),
)
"""Why a mistake is not found, by a pattern of its text."""


def _why_missed(mutant: Mutant) -> str:
    return next((f": {why}" for pattern, why in _MISSED if re.search(pattern, str(mutant))), "")


_OF_NEW = (
    "coded_like", "coded_clone", "coded_to", "coded_mul", "grouped_mul", "grouped_neg", "masked_abs", "from_plain",
    "of",
)  # fmt: skip
"""Functions that make new tensors alone."""


def reason(mutant: Mutant) -> str:
    """Returns why a mutant does the same as the right class, or "" if it does not."""
    before, _, after = mutant.change.partition(" -> ")
    if after.count(".clone()") > before.count(".clone()") and mutant.function in _OF_NEW:
        return "a copy of what is new"
    return next((why for pattern, why in EQUIVALENT if re.search(pattern, str(mutant))), "")


if __name__ == "__main__":
    print(table(run(*map(int, sys.argv[1:]))))

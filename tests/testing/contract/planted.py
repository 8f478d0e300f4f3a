"""Mistakes planted by hand in right classes, of other kinds than `mutants.py` makes: found, named, told how to mend?

    python -m tests.testing.contract.planted

Each says what the first line of the report must name, and what its advice must speak of.
"""

from __future__ import annotations

import linecache
import re
import sys
import types
from pathlib import Path
from typing import NamedTuple

from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.report import Report
from tests.testing.contract import planted_by_hand, planted_declared

SOURCES = {each.__name__.rpartition(".")[2]: Path(str(each.__file__)) for each in (planted_declared, planted_by_hand)}


class Planted(NamedTuple):
    """A mistake.

    Attributes:
        module: Where the right class is.
        maker: Makes a tensor of it.
        names: A pattern of what the first line must name.
        old: What is written in the right class.
        new: What is written in its place.
        advice: A pattern of what to write.
    """

    module: str
    maker: str
    names: str
    old: str
    new: str
    advice: str

    def source(self) -> str:
        """Returns the module with the mistake."""
        right = SOURCES[self.module].read_text()
        assert right.count(self.old) >= 1, self.old
        return right.replace(self.old, self.new, 1)


def report_of(planted: Planted, number: int) -> Report:
    """Returns what the kit says."""
    module = types.ModuleType(f"planted_{number}")
    source = planted.source()
    module.__file__ = f"/planted/{number}.py"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(True), module.__file__)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, module.__file__, "exec"), vars(module))
        make = vars(module)[planted.maker]
        return check_subclass(lambda: make(), quick=True)
    finally:
        del sys.modules[module.__name__]


class Outcome(NamedTuple):
    """What came of a mistake: whether it is found, named in the first line, and the advice speaks of it."""

    is_found: bool
    is_named: bool
    is_mended: bool
    lines: list[str]


def outcome(planted: Planted, number: int) -> Outcome:
    """Returns whether the kit finds and names a mistake, and whether its advice is right."""
    report = report_of(planted, number)
    if not report.broken:
        return Outcome(False, False, False, [])
    first, write, *_ = lines = str(report).splitlines()
    blamed = first.partition(": ")[2].partition(": ")[0]
    return Outcome(True, bool(re.search(planted.names, blamed)), bool(re.search(planted.advice, write)), lines[:2])


PLANTED: tuple[Planted, ...] = (
    Planted(
        "planted_declared",
        "m_nvfp4",
        "to_plain",
        "self.scale.repeat_interleave(4, -1)",
        "self.scale.repeat(1, 4)",
        "to_plain",
    ),
    Planted(
        "planted_declared",
        "m_nvfp4",
        "from_plain",
        "(groups.abs().amax(-1) / 6)",
        "(groups.amax(-1) / 6)",
        "from_plain",
    ),
    Planted(
        "planted_declared",
        "m_nvfp4",
        "outer_metadata",
        (
            "        return sa.Outer.like(self.codes, dtype=self.scale.dtype)\n"
            "\n"
            "    def to_plain(self) -> Any:\n"
            "        levels"
        ),
        "        return sa.Outer.like(self.codes)\n\n    def to_plain(self) -> Any:\n        levels",
        "outer|Outer",
    ),
    Planted(
        "planted_declared",
        "m_nvfp4",
        "to_plain",
        "levels = torch.tensor(LEVELS, device=self.device, dtype=self.scale.dtype)",
        "levels = torch.tensor(LEVELS, device=self.device, dtype=torch.float32)",
        "to_plain|dtype",
    ),
    Planted(
        "planted_declared",
        "m_nvfp4",
        "to_plain",
        "levels = torch.tensor(LEVELS, device=self.device, dtype=self.scale.dtype)",
        ("self.scale.mul_(1)\n        levels = torch.tensor(LEVELS, device=self.device, dtype=self.scale.dtype)"),
        "without a write",
    ),
    Planted(
        "planted_declared",
        "m_nvfp4",
        "from_plain",
        "levels = torch.tensor(LEVELS, device=plain.device, dtype=plain.dtype)",
        "levels = torch.tensor(LEVELS, dtype=plain.dtype, device='cpu')",
        "device",
    ),
    Planted(
        "planted_declared",
        "m_nvfp4",
        "from_plain",
        "        return NVFP4(codes.flatten(-2).to(torch.uint8), scale",
        "        return NVFP4(codes.flatten(-2), scale",
        "dtype|uint8|to_plain|codes",
    ),
    Planted(
        "planted_declared",
        "m_ternary",
        "mm",
        " or b.scale.shape[0] != 1:\n        return NotImplemented",
        ":\n        return NotImplemented",
        "mm|operator means",
    ),
    Planted(
        "planted_declared",
        "m_ternary",
        "mm",
        "(a @ b.codes.to(a.dtype)) * b.scale",
        "(a @ b.codes.to(torch.float32)) * b.scale",
        "operator means|dtype",
    ),
    Planted(
        "planted_declared",
        "m_ternary",
        "mm",
        "(a @ b.codes.to(a.dtype)) * b.scale",
        "(a @ b.codes.to(a.dtype)) * b.scale.mean()",
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_ternary",
        "Ternary|views",
        'class Ternary(sa.WrapperTensor, views="broadcast")',
        'class Ternary(sa.WrapperTensor, views={"scale": "keep"})',
        "views",
    ),
    Planted(
        "planted_declared",
        "m_ternary",
        "from_plain",
        "(plain / scale).round().clamp(-1, 1).to(torch.int8), scale)",
        "(plain / scale).round().clamp(-1, 1).to(torch.int8), scale.float())",
        "from_plain",
    ),
    Planted(
        "planted_declared",
        "m_kron",
        "mul",
        "return Kron(a.left * b, a.right.clone())",
        "return Kron(a.left * b, a.right * b)",
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_kron",
        "outer_metadata",
        (
            "dtype=self.left.dtype, device=self.left.device)\n"
            "\n"
            "    def to_plain(self) -> Any:\n"
            "        return torch.kron"
        ),
        ("dtype=torch.float64, device=self.left.device)\n\n    def to_plain(self) -> Any:\n        return torch.kron"),
        "outer|Outer",
    ),
    Planted(
        "planted_declared",
        "m_kron",
        "aten.t",
        "def kron_t(x: Any) -> Any:\n    return NotImplemented",
        "def kron_t(x: Any) -> Any:\n    return Kron(x.right.t(), x.left.t())",
        "view",
    ),
    Planted(
        "planted_declared",
        "m_kron",
        "mul",
        (
            "    if not isinstance(a, Kron) or isinstance(b, torch.Tensor):\n"
            "        return NotImplemented\n"
            "    return Kron(a.left * b"
        ),
        "    if not isinstance(a, Kron):\n        return NotImplemented\n    return Kron(a.left * b",
        "operator means|NotImplemented",
    ),
    Planted("planted_declared", "m_triangle", "to_plain|from_plain", "        out[j, i] = self.flat\n", "", "to_plain"),
    Planted(
        "planted_declared",
        "m_triangle",
        "from_plain",
        "((plain + plain.t()) / 2)[i, j]",
        "(plain + plain.t())[i, j]",
        "from_plain",
    ),
    Planted(
        "planted_declared",
        "m_triangle",
        "from_plain",
        "return Triangle(((plain + plain.t()) / 2)[i, j], self.side)",
        "return Triangle(((plain + plain.t()) / 2)[i, j].float(), self.side)",
        "from_plain",
    ),
    Planted(
        "planted_declared",
        "m_triangle",
        "to_plain",
        "out = self.flat.new_zeros(self.side, self.side)",
        "out = torch.zeros(self.side, self.side)",
        "to_plain|dtype|device",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "from_plain|to_plain",
        "plain[self.order.argsort()]",
        "plain[self.order]",
        "from_plain|to_plain",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "outer_metadata",
        "return sa.Outer.like(self.rows)",
        "return sa.Outer.like(self.order)",
        "outer|Outer",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "cumsum",
        "class Circulant(",
        (
            "@Permuted.implements(aten.cumsum.default)\n"
            "def _(x: Any, dim: Any, dtype: Any = None) -> Any:\n"
            "    return Permuted(x.rows.cumsum(dim), x.order.clone())\n"
            "\n"
            "\n"
            "class Circulant("
        ),
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "add",
        "class Circulant(",
        (
            "@Permuted.implements(aten.add.Tensor)\n"
            "def _(a: Any, b: Any, alpha: Any = 1) -> Any:\n"
            "    if not (isinstance(a, Permuted) and isinstance(b, Permuted)):\n"
            "        return NotImplemented\n"
            "    return Permuted(a.rows + alpha * b.rows, a.order.clone())\n"
            "\n"
            "\n"
            "class Circulant("
        ),
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "mul",
        "class Circulant(",
        (
            "@Permuted.implements(aten.mul.Tensor)\n"
            "def _(a: Any, b: Any) -> Any:\n"
            "    if not isinstance(a, Permuted) or isinstance(b, Permuted):\n"
            "        return NotImplemented\n"
            "    return Permuted(a.rows * b, a.order.clone())\n"
            "\n"
            "\n"
            "class Circulant("
        ),
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "zero_",
        "class Circulant(",
        (
            "@Permuted.implements(aten.zero_.default)\n"
            "def _(x: Any) -> Any:\n"
            "    return Permuted(torch.zeros_like(x.rows), x.order.clone())\n"
            "\n"
            "\n"
            "class Circulant("
        ),
        "return x|in place|write",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "clone",
        "class Circulant(",
        (
            "@Permuted.implements(aten.clone.default)\n"
            "def _(x: Any, memory_format: Any = None) -> Any:\n"
            "    return Permuted(x.rows.clone(), x.order.sort().values)\n"
            "\n"
            "\n"
            "class Circulant("
        ),
        "every|all of them|mean",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "sum",
        "class Circulant(",
        (
            "@Permuted.implements(aten.sum.default)\n"
            "def _(x: Any, dtype: Any = None) -> Any:\n"
            "    return x.rows.mean() * x.rows.shape[0]\n"
            "\n"
            "\n"
            "class Circulant("
        ),
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_permuted",
        "t.default|t ",
        "class Circulant(",
        (
            "@Permuted.implements(aten.t.default)\n"
            "def _(x: Any) -> Any:\n"
            "    return x.to_plain().t()\n"
            "\n"
            "\n"
            "class Circulant("
        ),
        "view",
    ),
    Planted(
        "planted_declared",
        "m_circulant",
        "mm",
        "torch.fft.rfft(b, dim=0), n=n, dim=0)",
        "torch.fft.rfft(b, dim=0), n=n, dim=0).flip(0)",
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_circulant",
        "mm",
        "torch.fft.rfft(a.column)[:, None]",
        "torch.fft.rfft(a.column)[:, None].conj()",
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_circulant",
        "mm",
        "torch.fft.rfft(b, dim=0), n=n, dim=0)",
        "torch.fft.rfft(b, dim=0), n=n, dim=0).float()",
        "operator means|dtype",
    ),
    Planted(
        "planted_declared",
        "m_circulant",
        "to_plain|from_plain",
        "return self.column[(at[:, None] - at) % n]",
        "return self.column[(at - at[:, None]) % n]",
        "to_plain|from_plain",
    ),
    Planted(
        "planted_declared",
        "m_paged",
        "to_plain|from_plain",
        "return self.pages[self.table].flatten(0, 1)",
        "return self.pages[: self.table.shape[0]].flatten(0, 1)",
        "to_plain",
    ),
    Planted(
        "planted_declared",
        "m_paged",
        "from_plain",
        "return Paged(pages, self.table.clone())",
        "return Paged(pages, self.table)",
        "from_plain|clone|memory",
    ),
    Planted(
        "planted_declared", "m_paged", "outer_metadata", "(self.table.shape[0] * s, d)", "(p * s, d)", "outer|Outer"
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "pointwise|rule",
        "    out = op(*plain, **kwargs)\n    return out\n",
        "    out = op(*plain, **kwargs)\n    return Counted(out, args[0].mask.clone())\n",
        "operator means|take the rule out",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "pointwise|rule",
        "plain = [a.to_plain() if isinstance(a, Counted) else a for a in args]",
        "plain = [a.content if isinstance(a, Counted) else a for a in args]",
        "operator means",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "add_",
        "def m_nvfp4()",
        (
            "@Counted.implements(aten.add_.Tensor)\n"
            "def _(a: Any, b: Any, alpha: Any = 1) -> Any:\n"
            "    return Counted(a.content + b, a.mask)\n"
            "\n"
            "\n"
            "def m_nvfp4()"
        ),
        "return x|in place",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "sum",
        "def m_nvfp4()",
        (
            "@Counted.implements(aten.sum.dim_IntList)\n"
            "def _(x: Any, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Any:\n"
            "    return x.to_plain().sum(dim, dtype=dtype)\n"
            "\n"
            "\n"
            "def m_nvfp4()"
        ),
        "each of its arguments",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "_softmax",
        "def m_nvfp4()",
        (
            "@Counted.implements(aten._softmax.default)\n"
            "def _(x: Any, dim: Any, half: Any) -> Any:\n"
            "    return torch.softmax(x.to_plain(), -1)\n"
            "\n"
            "\n"
            "def m_nvfp4()"
        ),
        "each of its arguments",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "cat",
        "def m_nvfp4()",
        (
            "@Counted.implements(aten.cat.default)\n"
            "def _(ts: Any, dim: Any = 0) -> Any:\n"
            "    return Counted(torch.cat([t.content for t in ts], dim), torch.cat([t.mask"
            " for t in ts], dim))\n"
            "\n"
            "\n"
            "def m_nvfp4()"
        ),
        "each of its arguments",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "clamp",
        "def m_nvfp4()",
        (
            "@Counted.implements(aten.clamp.default)\n"
            "def _(x: Any, min: Any = None, max: Any = None) -> Any:\n"
            "    return x.to_plain().clamp(min=min)\n"
            "\n"
            "\n"
            "def m_nvfp4()"
        ),
        "each of its arguments",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "index",
        "def m_nvfp4()",
        (
            "@Counted.implements(aten.index.Tensor)\n"
            "def _(x: Any, indices: Any) -> Any:\n"
            "    return x.to_plain()[indices[0]]\n"
            "\n"
            "\n"
            "def m_nvfp4()"
        ),
        "each of its arguments",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "pow",
        "def m_nvfp4()",
        (
            "@Counted.implements(aten.pow.Tensor_Scalar)\n"
            "def _(x: Any, exponent: Any) -> Any:\n"
            "    return x.to_plain().square()\n"
            "\n"
            "\n"
            "def m_nvfp4()"
        ),
        "each of its arguments",
    ),
    Planted(
        "planted_declared",
        "m_counted",
        "native_layer_norm",
        "def m_nvfp4()",
        (
            "@Counted.implements(aten.native_layer_norm.default)\n"
            "def _(x: Any, shape: Any, weight: Any, bias: Any, eps: Any) -> Any:\n"
            "    out = torch.nn.functional.layer_norm(x.to_plain(), shape, weight, bias, 1e-5)\n"
            "    return torch.ops.aten.native_layer_norm.default(out, shape, weight, bias, eps)\n"
            "\n"
            "\n"
            "def m_nvfp4()"
        ),
        "each of its arguments",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "__tensor_flatten__|__tensor_unflatten__",
        'return ["codes", "scale"], (self.block, self.outside)',
        'return ["codes"], (self.block, self.outside)',
        "flatten",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "__tensor_unflatten__|__tensor_flatten__",
        'return cls(inner["codes"], inner["scale"], *context)',
        'return cls(inner["codes"], inner["scale"], context[0], torch.float32)',
        "pass|context",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "__new__",
        "dtype=outside, device=codes.device",
        "dtype=scale.dtype, device=codes.device",
        "__new__|dtype",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "__new__",
        "dtype=outside, device=codes.device",
        "dtype=outside, device='cpu'",
        "__new__|device",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "__new__",
        "codes.shape, codes.stride(), codes.storage_offset(), dtype",
        "codes.shape, dtype",
        "stride",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "_to_copy",
        "x.block, dtype or x.outside)\n\n\n@implements(aten.empty",
        "x.block, x.outside)\n\n\n@implements(aten.empty",
        "dtype|_to_copy",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "_to_copy",
        "return cls(codes, func(x.scale, device=device), x.block, dtype or x.outside)",
        "return cls(codes, x.scale.clone(), x.block, dtype or x.outside)",
        "device|_to_copy",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "clone",
        "func(x.codes, memory_format=memory_format), func(x.scale), x.block",
        "func(x.codes, memory_format=memory_format), x.scale.detach(), x.block",
        "clone|every|all of them",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "detach|alias",
        (
            "out = cls(func(x.codes), func(x.scale), x.block, x.outside)\n"
            "    return return_and_correct_aliasing(func, (x,), {}, out)\n"
            "\n"
            "\n"
            "@implements(aten.clone"
        ),
        ("out = cls(x.codes.clone(), x.scale.clone(), x.block, x.outside)\n    return out\n\n\n@implements(aten.clone"),
        "view|alias",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "aten.t",
        "out = cls(func(x.codes), func(x.scale), x.block[::-1], x.outside)",
        "out = cls(func(x.codes), x.scale, x.block[::-1], x.outside)",
        "view|aten.t",
    ),
    Planted("planted_by_hand", "m_coded", "copy_", "    x.scale.copy_(new.scale)\n", "", "copy_"),
    Planted(
        "planted_by_hand",
        "m_coded",
        "copy_",
        "values = source.read() if isinstance(source, Coded) else source",
        "values = source.codes if isinstance(source, Coded) else source",
        "copy_",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "slice",
        "func(x.codes, dim, start, end, step), func(x.scale, dim, start, end, step)",
        "func(x.codes, dim, start, end), func(x.scale, dim, start, end)",
        "slice|view",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "slice",
        "func(x.scale, dim, start, end, step), x.block",
        (
            "x.scale[: end - (start or 0)] if end is not None and end < 99 else"
            " func(x.scale, dim, start, end, step), x.block"
        ),
        "slice|view",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "mm",
        "and not isinstance(a, Coded) and b.scale.shape[0] == 1:",
        "and not isinstance(a, Coded):",
        "operator means",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "addmm",
        "return bias * beta + (a @ b) * alpha",
        "return bias + (a @ b)",
        "each of its arguments",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "__torch_dispatch__",
        "args, kwargs = tree_map_only(Coded, Coded.read, (args, kwargs))",
        "args = [a.read() if isinstance(a, Coded) else a for a in args]",
        "dispatch|list|argument",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "empty_like|zeros_like",
        "torch.ones_like(x.scale, device=device), x.block",
        "x.scale, x.block",
        "zeros_like|empty_like|new inner",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "__repr__",
        'return f"Coded({list(self.shape)})"',
        'return f"Coded({self.codes.tolist()})"',
        "__repr__|tolist|values",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "mul_",
        "    x.scale.mul_(other)\n    return x\n",
        "    return cls(x.codes, x.scale * other, x.block, x.outside)\n",
        "return x|in place|write",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "neg",
        "return cls(-x.codes, x.scale.clone(), x.block, x.outside)",
        "return cls(-x.codes, -x.scale, x.block, x.outside)",
        "operator means",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "__torch_dispatch__",
        (
            "        if any(argument.alias_info is not None for argument in"
            " func._schema.arguments):\n"
            '            raise NotImplementedError(f"{func}")\n'
            "        args, kwargs = tree_map_only(Coded"
        ),
        "        args, kwargs = tree_map_only(Coded",
        "write|view|raise",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "of|copy_",
        "scale = (values.abs().amax(dims, keepdim=True)",
        "scale = (values.amax(dims, keepdim=True)",
        "copy_|of",
    ),
    Planted(
        "planted_by_hand",
        "m_coded",
        "data",
        "        self.codes, self.scale = other.codes, other.scale\n",
        "        self.codes = other.codes\n",
        "data",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "__torch_dispatch__",
        "out = cls(func(x.base_), func(x.b), func(x.a), x.gain)",
        "out = cls(func(x.base_), func(x.b), func(x.a))",
        "gain|context|pass|view",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "__torch_dispatch__",
        "out = cls(func(x.base_), func(x.b), func(x.a), x.gain)",
        "out = cls(func(x.base_), func(x.a), func(x.b), x.gain)",
        "view",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "__tensor_flatten__|__tensor_unflatten__",
        'inner["b"], context[0])',
        'inner["b"])',
        "pass|context|__new__",
    ),
    Planted("planted_by_hand", "m_low", "__torch_dispatch__", "            x.a.mul_(args[1])\n", "", "write"),
    Planted(
        "planted_by_hand",
        "m_low",
        "__torch_dispatch__",
        "cls(func(x.base_, args[1]), func(x.a, args[1]), x.b.clone(), x.gain)",
        "cls(func(x.base_, args[1]), func(x.a, args[1]), x.b, x.gain)",
        "new inner|clone|all of them|every",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "__torch_dispatch__",
        "cls(func(x.base_, args[1]), func(x.a, args[1]), x.b.clone(), x.gain)",
        "cls(func(x.base_, args[1]), func(x.a, args[1]), func(x.b, args[1]), x.gain)",
        "operator|means",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "__torch_dispatch__",
        "(args[0] @ w.a) @ w.b * w.gain",
        "(args[0] @ w.a) @ w.b",
        "operator|means",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "__torch_dispatch__",
        "            x.a.zero_()\n            x.b.zero_()\n",
        "",
        "copy_|write",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "__torch_dispatch__",
        "            source = args[1].read() if isinstance(args[1], cls) else args[1]\n",
        "            source = args[1].base_ if isinstance(args[1], cls) else args[1]\n",
        "copy_|write",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "__new__",
        (
            "            if part.requires_grad or part.is_neg() or part.is_conj():\n"
            '                raise ValueError("parts must not require grad, nor have bits")\n'
        ),
        "            pass\n",
        "requires_grad|resolve_neg",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "to_plain|read",
        (
            "        return Read.apply(self)\n"
            "\n"
            "    def __repr__(self, *, tensor_contents: Any = None) -> Any:\n"
            '        return f"Low'
        ),
        (
            "        return self.read()\n"
            "\n"
            "    def __repr__(self, *, tensor_contents: Any = None) -> Any:\n"
            '        return f"Low'
        ),
        "autograd.Function",
    ),
    Planted(
        "planted_by_hand",
        "m_low",
        "share_memory_|44",
        (
            "    def share_memory_(self) -> Any:\n"
            '        raise NotImplementedError("no memory")\n'
            "\n"
            "    @property\n"
            "    def data(self) -> Any:\n"
            "        return self.detach()\n"
            "\n"
            "    @data.setter\n"
            "    def data(self, other: Any) -> Any:\n"
            "        self.base_"
        ),
        (
            "    @property\n"
            "    def data(self) -> Any:\n"
            "        return self.detach()\n"
            "\n"
            "    @data.setter\n"
            "    def data(self, other: Any) -> Any:\n"
            "        self.base_"
        ),
        "share_memory_",
    ),
)


if __name__ == "__main__":
    outcomes = [outcome(planted, number) for number, planted in enumerate(PLANTED)]
    for planted, came in zip(PLANTED, outcomes, strict=True):
        print(
            f"{came[:3]} {planted.maker}, {planted.names}: {planted.new.strip()[-60:]!r}", *came.lines, sep="\n      "
        )
    print(f"{len(PLANTED)} planted;", *(f"{sum(came[at] for came in outcomes)} {said}" for at, said in enumerate(
        ("found", "named", "told how to mend")
    )))  # fmt: skip

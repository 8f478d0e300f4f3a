"""Remedies: what to write where a clause is not kept."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Sequence

from subclass_aot.kit.declaration import Declaration, Field
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.testing.contract.blame import Method
from subclass_aot.testing.contract.clause import Clause
from subclass_aot.testing.contract.trial import READINGS

_BY_HAND = {
    0: "in the rule for aten.copy_, what reads back as what was copied: codes and scales of its values alone",
    1: "no memory: in __new__ what `_make_wrapper_subclass` of torch.Tensor gives, with size, strides, dtype, device",
    2: "in __new__ the size, dtype and device of what operators see: dtype=scale.dtype, not codes.dtype",
    3: "inner = inner.resolve_neg().resolve_conj(), in __new__; or raise where inner.is_neg() or inner.is_conj()",
    4: "if inner.requires_grad: raise ValueError(...), in __new__; or make the tensor in an autograd.Function",
    5: "only sizes and dtypes of inner tensors in __new__ and __repr__: no .item(), no .tolist(), no branch on values",
    6: "the constant as an inner tensor, or made where it is used: torch.tensor([...], device=x.device)",
    7: "return {cls}(inner['...'], *context), as a static or class method __tensor_unflatten__",
    8: "return [name for name in NAMES if getattr(self, name) is not None], context",
    9: "names in a list or tuple of the class, never in a set",
    10: "pass inner tensors, context, outer_size and outer_stride on to __new__, all of them",
    11: "in __tensor_unflatten__ take the size of outer_size, not one that was kept",
    12: "return {cls}(inner['...'], ...), without clone, contiguous or to",
    13: "a plain attribute: self.inner = inner; or a setter of the property",
    14: "in __tensor_flatten__ read attributes of self, and compute nothing",
    15: "a tuple, or a frozen dataclass, of numbers, text, dtypes and such; tensors are inner tensors",
    16: "a frozen dataclass at the top of a module as context; no locks, weak references or functions in it",
    17: "a tuple in place of a list; and __hash__ with __eq__: @dataclass(frozen=True) makes both",
    18: "return before == now, as a class method __metadata_guard__(cls, before, now)",
    19: "a digest of repr(...) by hashlib: hash() of text is another one in each process, id() at each call",
    20: "if not all(issubclass(cls, t) for t in types): return NotImplemented, at the top of __torch_dispatch__",
    21: "the same with operators of torch on inner tensors: no numpy, .item(), .tolist() or .data_ptr()",
    22: "{cls}(func(x.inner, *args), ...), of views of inner tensors, through return_and_correct_aliasing",
    23: "write into inner tensors (x.inner.mul_(...)) and return x; where a part shares a scale, write the whole again",
    24: "{cls}(x.inner.clone(), ...) with every inner tensor; of zeros, codes that mean zero: scale 1, not 0",
    25: "a rule for the operator, or in __torch_dispatch__: out = func.decompose(*args, **kwargs)",
    26: "draw once by torch.rand_like of one inner tensor, without a generator of your own",
    27: "a rule that computes on what the tensor means: func(x.to_plain(), ...); or raise NotImplementedError",
    28: "a rule for aten.zeros_like and aten.new_zeros: autograd calls them for a gradient that does not come",
    29: "in the rule for aten.clone pass memory_format on, and give the strides outside to __new__",
    30: "def __coerce_same_metadata_as_tangent__(self, context, expected_type=None): self if it is its own",
    31: "return self where self is canonical, in __coerce_tangent_metadata__",
    32: "a rule for the operator of backward that differs; what is outside of dispatch, in an autograd.Function",
    33: "in the rule for the operator write inner tensors in place; and put what __new__ needs into the context",
    34: "put into the context whatever changes what is computed, beside inner tensors and sizes",
    35: "outer tensors carry autograd: no requires_grad of your own, no detach in a rule but that of aten.detach",
    36: "sizes as they are given: no int(size), no branch on one, no list of sizes made beforehand",
    37: "torch.serialization.add_safe_globals([{cls}]); in __reduce_ex__ inner tensors, context and requires_grad",
    38: "a rule for aten.copy_, of a dense tensor and of one of the class",
    39: "attributes in the context, or set in __new__: nn.Parameter calls detach, and keeps what it keeps",
    40: "zeros_like that is dense, or exact enough for the state of an optimizer; mul_, add_, lerp_, addcdiv_ in place",
    41: "a rule for the operator that differs; nothing in dispatch that depends on modes",
    42: "rules for the operators of the module; names of inner tensors that are attributes",
    43: "rules for aten.split, slice, new_zeros, copy_ and view; def fsdp_pre_all_gather and def fsdp_post_all_gather",
    44: "def {name}(self, ...): raise NotImplementedError(...)",
    45: "no reference to self in what self holds; weakref.ref(self) where one is needed",
}  # fmt: skip
"""By number of the contract."""

_DECLARED = {
    0: "from_plain(self, plain) so that to_plain() of it is plain, rounded: of self only sizes and the context count",
    2: "return sa.Outer.like({outer}), in outer_metadata",
    22: 'class {cls}(sa.WrapperTensor, views="broadcast") has views without rules; a rule gives views of each field',
    23: "take the rule out: writes go through from_plain then; or @{cls}.implements(aten.add_.Tensor) that returns x",
    24: "declare from_plain, by which new_zeros is made; a rule for zeros_like, if any, is to give fields that mean 0",
    27: "take the rule out: operators use to_plain then; or @{cls}.implements(aten.....): what it means",
    37: "declare what is kept as a field: note: str = ''; and leave __reduce_ex__ and __deepcopy__ to WrapperTensor",
    39: "declare the attribute as a field: note: str = ''",
}
"""Of a `WrapperTensor`, where that is less."""

_CLONE = "@{cls}.implements(torch.ops.aten.clone.default): return {cls}({clones}), every field"

_BY_NAME = {
    "the class comes back": "{cls}(func(x.inner), ...) for aten.detach, alias, clone, _to_copy and empty_like",
    "FSDP hooks": "both def fsdp_pre_all_gather(self, ...) and def fsdp_post_all_gather(self, ...), or neither",
    "clone": "return {cls}(x.inner.clone(), ...) in the rule for aten.clone, every inner tensor",
    "Module.to(dtype)": "in the rule for aten._to_copy, inner tensors and size outside in the wanted dtype",
    "data": "a property data, whose setter takes the inner tensors of the other, or raises",
    "device": "device= of the operator for each inner tensor: {cls}(func(x.inner, device=device), ...)",
    "to_empty": "in the rule for aten.empty_like, each inner tensor on the device that is asked for; aten.copy_ of all",
    "swap_tensors": "no slots and no weak references to the tensor that torch.utils.swap_tensors cannot exchange",
    "repr": "in __repr__ sizes and dtypes; values only where the inner tensors have some",
}


_IN_A_RULE = {
    22: "views of each inner tensor, in {cls}(...)",
    23: "write inner tensors in place and return x",
    24: "new inner tensors, all of them, that mean what the operator gives",
    26: "draw once, by torch.rand_like of one inner tensor",
    32: "what backward calls it for, too: each argument in any order, and a gradient that is dense",
}
"""In a rule of a class, by number of the contract."""

_WITHOUT_IT = {
    22: "; or take the rule out where the class statement says views=",
    23: "; or take the rule out: writes go through from_plain then",
    24: "; or take the rule out",
}
"""What else a declared class may do."""

_SAFE = "torch.serialization.add_safe_globals([{cls}]), once, after the class"

_BY_WORDS: tuple[tuple[str, str], ...] = (
    (
        r"has strides .* not \(",
        "pass strides= and storage_offset= of an inner tensor on to `_make_wrapper_subclass`, in __new__",
    ),
    (
        r"is on .* not on|device .* outside, not",
        "device= of an inner tensor, in __new__; and in the rule the device that is asked for, for each",
    ),
    (
        r"dtype .* outside, not|after it was written, not torch",
        "in __new__ the dtype that the context says, or that of the inner tensor that has it",
    ),
    (
        r"reading \d+ .* does not require grad",
        "compute it in an autograd.Function, whose backward gives the gradient on, and return Function.apply(self)",
    ),
    (r"UnpicklingError: Weights only", _SAFE),
    (
        r"(it returns|gives) another object",
        "write into inner tensors and return the very argument, args[0], in __torch_dispatch__",
    ),
)
"""Of classes by hand: what to write, by what was found. The fields of declared classes say this."""


SHARES = "which has the memory of"
"""Words of a finding on what an operator gives."""


def remedy(clause: Clause, cls: type, methods: Sequence[Method] = (), why: str = "") -> str:
    """Returns the line to write.

    Args:
        clause: That is not kept.
        cls: By this class.
        methods: What is to blame in it, if that is known.
        why: What was found.

    >>> from subclass_aot import TwoTensor
    >>> from subclass_aot.testing.contract.context import CLAUSES
    >>> remedy(CLAUSES[-1], TwoTensor)
    'a digest of repr(...) by hashlib: hash() of text is another one in each process, id() at each call'
    """
    text = (
        _of_words(cls, methods, why) or _of_method(clause, cls, methods, why) or _of_clause(clause, cls, methods, why)
    )
    called = clause.name.partition(" ")[0]
    return _with_fields(text, cls).replace("{cls}", cls.__name__).replace("{name}", called)


def _of_words(cls: type, methods: Sequence[Method], why: str) -> str:
    """Returns what to write by what was found, if that says it."""
    if re.search(r"(expected|same) device|different from other tensors on", why):
        return f"{f'in {methods[0]}, ' if methods else ''}device= of a tensor that is there, wherever one is made"
    if not issubclass(cls, WrapperTensor):
        said = next((text for words, text in _BY_WORDS if re.search(words, why)), "")
        asked = methods and "_to_copy" in methods[0].name and "dtype" in said
        return f"in {methods[0]}, the dtype that is asked for; or {said}" if asked else said
    differs = re.match(r"(shape|dtype) of (\S+) is .* outside, and (.*) of what it means", why)
    return _outside(*differs.groups()) if differs else ""


def _of_method(clause: Clause, cls: type, methods: Sequence[Method], why: str) -> str:
    """Returns what to write in the method that is to blame, by what it is for; "" if the clause says it."""
    if not methods:
        return ""
    method = methods[0]
    if method.kind == "rule":
        number = _number_of(clause, method, why)
        what = _IN_A_RULE.get(number, "")
        what += _WITHOUT_IT.get(number, "") * issubclass(cls, WrapperTensor)
        return f"in {method}, {what or _MEANS[_kind_of(cls)]}"
    if method.name == VIEWS_STATEMENT:
        return f"in {method}, {_VIEWS}"
    if method.name == "from_plain":
        return _in_from_plain(clause, cls, methods, why)
    if method.name in READINGS and len(methods) == 1 and "does not require grad" not in why:
        if " raises " in why:
            return f"in {method}, what works in all of its forms: sizes, dtype and device of self, and not others"
        return f"in {method}, what the tensor means, computed of inner tensors at each call, without a write"
    return ""


def _in_from_plain(clause: Clause, cls: type, methods: Sequence[Method], why: str) -> str:
    if SHARES in why:
        return f"in {methods[0]}, a copy of each inner tensor that it takes of self: clone()"
    readings = [method for method in methods if method.name in READINGS]
    text = f"in {methods[0]}, what to_plain() gives back as plain, rounded; of self only sizes and context count"
    if readings:
        text = (
            f"in {methods[0]} or in {readings[0]}: what is written as plain is what is read, rounded; of self only "
            "sizes and context count where it is written"
        )
    if read := values_read(cls):
        text += f". It reads self.{read[0]}: if that says where values are, mark it {read[0]}: torch.Tensor = "
        text += "sa.structure(); if not, compute it of plain"
    if clause.number == 0 and clause.name not in ("own values", "from_plain", "drawn values", "of another"):
        text += ". If the class cannot hold such values, give check_subclass values= that it holds"
    return text


def _of_clause(clause: Clause, cls: type, methods: Sequence[Method], why: str) -> str:
    declared = issubclass(cls, WrapperTensor)
    text = _BY_NAME.get(clause.name) or (declared and _DECLARED.get(clause.number)) or _BY_HAND[clause.number]
    if declared and clause.name == "clone":
        text = _CLONE
    if methods and methods[0].name == "__torch_dispatch__":
        number = 24 if SHARES in why else 22 if clause.name in _OF_FORMS else 0
        text = f"in {methods[0]}, for what is tried here: {_IN_A_RULE.get(number, text)}"
    return text


_OF_FORMS = ("reading", "own values")
"""Clauses of number 0 that read what views and casts make of the tensor."""


_VIEWS = (
    'how each field follows a view: "broadcast" (along each dim as long as the tensor, or 1), "blocks" or "keep"; or '
    "leave views= out, so that views read and write through the whole"
)


def _outside(fact: str, what: str, meant: str) -> str:
    """Returns what to write where the metadata outside is not that of what the tensor means."""
    if what != "x":  # of the tensor itself it is right
        return f"in to_plain, the {fact} that outer_metadata says, of self: no dtype or size that is written out"
    made = "sa.Outer(size, None, dtype=..., device=...)" if fact == "shape" else "dtype= of the field that has it"
    return f"in outer_metadata, the {fact} of what to_plain() gives, {meant}: {made}"


def _number_of(clause: Clause, rule: Method, why: str) -> int:
    """Returns the number that says what to write in a rule; 0 if it should mean something else."""
    if SHARES in why:
        return 24
    if clause.name in _OF_FORMS and not _writes(rule):
        return 22
    is_slip = " raises " in why and "RuleResultError" not in why
    return 0 if is_slip or (clause.number == 23 and not _writes(rule)) else clause.number


_MEANS = {
    "to_plain": "what the operator means on to_plain(), for each of its arguments; or take the rule out: operators use "
    "to_plain then",
    "fields": "what the operator means on each inner tensor, for each of its arguments; or NotImplemented; or, if the "
    "tensor means something else than each of them, readings=[...] of check_subclass that say what",
    "by hand": "what the operator means on the dense tensor, for each of its arguments; or raise NotImplementedError "
    "for those that it does not serve",
}
"""In a rule of a class, by what else serves its operators."""


def _kind_of(cls: type) -> str:
    if not issubclass(cls, WrapperTensor):
        return "by hand"
    return "fields" if getattr(cls, "to_plain", None) is getattr(WrapperTensor, "to_plain", None) else "to_plain"


VIEWS_STATEMENT = "views="
"""The name of the part of a class statement that says how fields follow views."""


def _writes(rule: Method) -> bool:
    """Returns whether a rule is for operators in place, and not for what these are made of."""
    return any(re.search(r"_(\.|$)|in_place", each) for each in rule.name.split(", "))


def _with_fields(text: str, cls: type) -> str:
    """Returns a line with the names of the tensors that a declared class has."""
    declaration = Declaration.of(cls)
    fields = [] if declaration is None else [each for each in declaration.fields.values() if each.kind != "context"]
    values = [each.name for each in fields if each.kind == "tensor" and not each.is_structure] or ["codes"]
    outer = f"self.{values[0]}" + (f", dtype=self.{values[1]}.dtype" if len(values) > 1 else "")
    clones = ", ".join(f"x.{each.name}.clone()" for each in fields if each.kind == "tensor") or "x.codes.clone()"
    return text.replace("{outer}", outer).replace("{clones}", clones)


def values_read(cls: type) -> list[str]:
    """Returns the tensor fields, but for structure, of which `from_plain` reads values, and not sizes or dtype alone.

    Args:
        cls: A declared class.
    """
    declaration = Declaration.of(cls)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(cls, "from_plain", None))))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):  # written where no source is, or not at all
        return []
    functions = [each.args.args for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    this = functions[0][0].arg if functions and functions[0] else ""
    asked = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr in _METADATA}
    asked |= {
        id(argument)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_like")
        for argument in call.args[:1]
    }
    read = [
        each.attr
        for each in ast.walk(tree)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == this
        if id(each) not in asked
    ]
    fields = {} if declaration is None else declaration.fields
    return [name for name in dict.fromkeys(read) if name in fields and _is_value(fields[name])]


_METADATA = (
    "shape", "size", "dtype", "device", "dim", "ndim", "numel", "stride", "new_empty", "new_zeros", "new_ones",
    "new_full", "layout", "requires_grad",
)  # fmt: skip
"""What is asked of a tensor, and has no values of it."""


def _is_value(field: Field) -> bool:
    return field.kind == "tensor" and not field.is_structure

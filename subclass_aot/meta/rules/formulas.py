"""Sizes, strides and offsets of results, as formulas over those of arguments. See Note [Results by example].

Each formula takes the arguments of an operator by name, tensors as specs, and returns a place, or a list of places
where the operator gives several results. It raises `NoFormula` where the answer depends on values of symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.meta import strides
from subclass_aot.meta.rules.elementwise import ORDER_OF_OPERANDS, is_iterated
from subclass_aot.meta.symbols import Number

if TYPE_CHECKING:
    from subclass_aot.meta.spec import Spec

Sizes = Sequence[Number]
Place = tuple[tuple[Number, ...], tuple[Number, ...], Number]
"""Size, stride and offset of a result."""
Formula = Callable[..., Place | list[Place | None]]


class NoFormula(Exception):
    """Raised where a formula gives no answer."""


def formula_of(func: Operator) -> Formula | None:
    """Returns the formula of an operator, or None."""
    found = _formulas.get(func)
    if found is not None or not is_iterated(func):
        return found
    effects = effects_of(func)
    if effects.pure and len(effects.returns_view_of) == 1:
        return partial(_elementwise, ORDER_OF_OPERANDS.get(func))
    return _in_place if [name for _, name in effects.writes] == ["self"] else None


def of_first(func: Operator, given: Mapping[str, Any]) -> Spec | None:
    """Returns the tensor whose dtype and device the result has, if the formula says all else; None if it does not.

    Args:
        func: An operator with a formula.
        given: Its arguments by name, tensors as specs.
    """
    if func in ALIKE:
        return given["self"]  # type: ignore[no-any-return]
    if func not in ARITHMETIC:
        return None
    first: Spec | None = None
    for name, value in given.items():
        for each in value if type(value) is list or type(value) is tuple else (value,):
            if hasattr(each, "stride"):
                first = each if first is None else first
                if each.dtype is not first.dtype or each.dtype not in _PLAIN or each.device != first.device:
                    return None
            elif not (each is None or type(each) in _NUMBERS or name == "keepdim" or name == "approximate"):
                return None
    return first


_PLAIN = (torch.float32, torch.float64)
_NUMBERS = (int, float, torch.SymInt)


def _need(*conditions: bool) -> None:
    if not all(conditions):
        raise NoFormula


def _same(one: Number, other: Number) -> bool:
    """Returns whether two numbers are one expression."""
    return one is other or _torch.symbolic.is_same_expression(one, other)


def _equal(one: Number, other: Number) -> bool:
    """Returns whether two numbers are equal, which an operator needs, and puts a guard on it if they are only here."""
    if _same(one, other):
        return True
    if type(one) is type(other) is int or _torch.symbolic.example_of(one) != _torch.symbolic.example_of(other):
        return False
    return bool(one == other)


def _all_equal(one: Sizes, other: Sizes) -> bool:
    return len(one) == len(other) and all(map(_equal, one, other))


def _alike(one: Sizes, other: Sizes) -> bool:
    return len(one) == len(other) and all(map(_same, one, other))


def _is_several(size: Number) -> bool:
    """Returns whether a size is two or more, and puts a guard on it: zero and one are compiled on their own."""
    return _is_at_least(size, 2)


def _are_several(sizes: Sizes) -> bool:
    return all(n > 1 if type(n) is int else _is_several(n) for n in sizes)


def _is_at_least(number: Number, least: int) -> bool:
    """Returns whether a number is no less than another, and puts a guard on that if it is not known of all sizes."""
    if _torch.symbolic.least_of(number) >= least:
        return True
    if not isinstance(number, torch.SymInt) or not bool(number >= least):
        return False
    _torch.symbolic.keep_least(number, least)
    return True


def _packed(size: Sizes, offset: Number = 0) -> Place:
    return tuple(size), strides.packed(size), offset


def _is_packed(spec: Spec) -> bool:
    return _alike(spec.stride, strides.packed(spec.size))


def _dim(dim: int, rank: int) -> int:
    _need(type(dim) is int, -rank <= dim < rank)
    return dim % rank


# Elementwise.


def _elementwise(names: Sequence[str] | None = None, **given: Any) -> Place:
    """Says it of operands of which each two dims lie in memory one in the other whatever the sizes are.

    Args:
        names: The parameters in the order in which the kernel takes them, if that is not theirs.
        **given: The arguments.
    """
    ordered: list[Any] = list(given.values()) if names is None else [given.get(name) for name in names]
    operands: list[Spec] = [x for x in ordered if hasattr(x, "stride")]
    _need(bool(operands), not any(isinstance(x, list | tuple) for x in given.values()))
    if all(_alike(x.size, operands[0].size) and _is_packed(x) for x in operands):
        return _packed(operands[0].size)
    sizes = [tuple(map(_one_as_number, x.size)) for x in operands]
    size = _broadcast(sizes)
    if all(_alike(own, size) and _is_packed(x) for own, x in zip(sizes, operands, strict=True)):
        return _packed(size)
    _need(all(map(_is_several, [n for n in size if type(n) is not int])))
    rank = len(size)
    steps = [_steps(own, x.stride, size) for own, x in zip(sizes, operands, strict=True)]
    found = [[0] * rank for _ in size]
    for a in range(rank):
        for b in range(a):
            found[a][b] = _order(a, b, size, steps)
            found[b][a] = -found[a][b]
    order = _sorted([row[:] for row in found])
    return size, strides.packed(size, order), 0


def _one_as_number(n: Number) -> Number:
    """Returns a size as the number one if it is one here, and puts a guard on it: it is repeated along others."""
    is_one = type(n) is not int and _torch.symbolic.example_of(n) == 1 and bool(n == 1)
    return 1 if is_one else n


def _steps(own: Sizes, stride: Sizes, size: Sizes) -> list[Number]:
    """Returns the strides of an operand in the dims of the result: 0 where it is repeated."""
    absent = len(size) - len(own)
    dims = zip(own, size[absent:], stride, strict=True)
    return [0] * absent + [0 if _is_one(n) and not _is_one(other) else step for n, other, step in dims]


def _order(a: int, b: int, size: Sizes, steps: Sequence[Sizes]) -> int:
    """Returns 1 if `a` lies outside of `b`, -1 if inside, and 0 if no operand says it: `strides.sorted_dims`."""
    for each in steps:
        if 0 in (each[a], each[b]) if type(each[a]) is type(each[b]) is int else _is_zero(each[a]) or _is_zero(each[b]):
            continue
        if not _same(each[a], each[b]):
            return 1 if _is_less(each[b], each[a]) else -1
        if not _same(size[a], size[b]) and _is_less(size[b], size[a]):
            return 1
    return 0


def _sorted(found: Sequence[Sequence[int]]) -> list[int]:
    """Sorts dims as `strides.sorted_dims` does."""
    dims = list(reversed(range(len(found))))
    for i in range(1, len(dims)):
        at = i
        for before in reversed(range(i)):
            order = found[dims[before]][dims[at]]
            if order > 0:
                dims[before], dims[at] = dims[at], dims[before]
                at = before
            elif order < 0:
                break
    return dims[::-1]


def _is_one(n: Number) -> bool:
    return type(n) is int and n == 1


def _is_zero(n: Number) -> bool:
    return type(n) is int and n == 0


def _is_less(one: Number, other: Number) -> bool:
    """Returns which of two numbers is less that are not one expression, and puts a guard on it if that may differ."""
    if type(one) is int and type(other) is int:
        return one < other
    if _torch.symbolic.least_of(other - one) > 0 or _torch.symbolic.is_greater_product(other, one):
        return True
    if _torch.symbolic.least_of(one - other) > 0 or _torch.symbolic.is_greater_product(one, other):
        return False
    if bool(one < other):
        return True
    _need(bool(other < one))
    return False


def _in_place(self: Spec, **given: Any) -> Place:
    operands = [x for x in given.values() if hasattr(x, "stride")]
    _need(_alike(_broadcast([self.size, *(x.size for x in operands)]), self.size))
    return self.size, self.stride, self.offset


def _broadcast(sizes: Sequence[Sizes]) -> tuple[Number, ...]:
    rank = max(map(len, sizes))
    found: list[Number] = [1] * rank
    for size in sizes:
        for dim, n in enumerate(size, rank - len(size)):
            if type(n) is int and n == 1:
                continue
            if type(found[dim]) is int and found[dim] == 1:
                found[dim] = n
            _need(_equal(found[dim], n))
    return tuple(found)


def _like(self: Spec, memory_format: torch.memory_format | None = None, **_: Any) -> Place:
    if memory_format is torch.contiguous_format:
        return _packed(self.size)
    _need(memory_format in (None, torch.preserve_format))
    return _elementwise(None, self=self)


def _as_first(name: str, **given: Any) -> Place:
    """Says it of what is as large as one argument, and as packed."""
    _need(_is_packed(given[name]))
    return _packed(given[name].size)


# Views.


def _permuted(self: Spec, dims: Sequence[int]) -> Place:
    order = [_dim(dim, len(self.size)) for dim in dims]
    _need(sorted(order) == list(range(len(self.size))))
    return tuple([self.size[d] for d in order]), tuple([self.stride[d] for d in order]), self.offset


def _transposed(self: Spec, dim0: int, dim1: int) -> Place:
    order = list(range(len(self.size)))
    if order:
        a, b = _dim(dim0, len(order)), _dim(dim1, len(order))
        order[a], order[b] = order[b], order[a]
    return _permuted(self, order)


def _t(self: Spec) -> Place:
    _need(len(self.size) < 3)
    return _permuted(self, range(len(self.size))[::-1])


def _alias(self: Spec) -> Place:
    return self.size, self.stride, self.offset


def _unsqueezed(self: Spec, dim: int) -> Place:
    at = _dim(dim, len(self.size) + 1)
    step = self.size[at] * self.stride[at] if at < len(self.size) else 1
    size, stride = (numbers[:at] + (n,) + numbers[at:] for numbers, n in ((self.size, 1), (self.stride, step)))
    return size, stride, self.offset


def _squeezed(self: Spec, dim: int | Sequence[int]) -> Place:
    dims = {_dim(d, len(self.size)) for d in ((dim,) if type(dim) is int else dim)}  # type: ignore[union-attr]
    _need(all(type(self.size[d]) is int or _is_several(self.size[d]) for d in dims))
    kept = [d for d in range(len(self.size)) if d not in dims or type(self.size[d]) is not int or self.size[d] != 1]
    return tuple([self.size[d] for d in kept]), tuple([self.stride[d] for d in kept]), self.offset


def _expanded(self: Spec, size: Sizes, implicit: bool = False) -> Place:
    new = len(size) - len(self.size)
    _need(new >= 0)
    found: list[tuple[Number, Number]] = []
    for dim, n in enumerate(size):
        if dim < new:
            _need(_is_several(n))
            found.append((n, 0))
            continue
        own, step = self.size[dim - new], self.stride[dim - new]
        if type(n) is int and n == -1 or _same(n, own):
            found.append((own, step))
        else:
            _need(type(own) is int and own == 1, _is_several(n))
            found.append((n, 0))
    return tuple([n for n, _ in found]), tuple([step for _, step in found]), self.offset


def _selected(self: Spec, dim: int, index: Number) -> Place:
    at = _dim(dim, len(self.size))
    least = _torch.symbolic.least_of(self.size[at])
    _need(type(index) is int, -least <= index < least)
    first = index if index >= 0 else self.size[at] + index
    rest = [d for d in range(len(self.size)) if d != at]
    offset = self.offset + first * self.stride[at]
    return tuple([self.size[d] for d in rest]), tuple([self.stride[d] for d in rest]), offset


def _sliced(
    self: Spec, dim: int = 0, start: Number | None = None, end: Number | None = None, step: Number = 1
) -> Place:
    at = _dim(dim, len(self.size))
    whole = self.size[at]

    def place(given: Number | None, otherwise: Number) -> Number:
        """Returns where a slice begins or ends, counted from the start."""
        if given is None or type(given) is int and given >= _ALL:
            return whole if given is not None else otherwise
        if _is_at_least(given, 0):
            _need(_is_at_least(whole - given, 0))
            return given
        _need(_is_at_least(whole + given, 0))
        return whole + given

    first, last = place(start, 0), place(end, whole)
    length = last - first
    _need(type(step) is int and step > 0, _is_at_least(length, 0))
    if step != 1:
        length = (length + (step - 1)) // step
    size = (*self.size[:at], length, *self.size[at + 1 :])
    stride = (*self.stride[:at], self.stride[at] * step, *self.stride[at + 1 :])
    return size, stride, self.offset + first * self.stride[at]


_ALL = 1 << 48
"""No size of a tensor in memory is greater."""


def _viewed(self: Spec, size: Sizes) -> Place:
    whole = _product(self.size)
    left = [dim for dim, n in enumerate(size) if type(n) is int and n == -1]
    _need(len(left) < 2)
    if left:
        others = _product([n for n in size if not (type(n) is int and n == -1)])
        _need(_is_at_least(others, 1))
        rest = whole // others
        size = [rest if dim in left else n for dim, n in enumerate(size)]
    _need(_equal(_product(size), whole), all(_is_at_least(n, 0) for n in size))
    if _is_packed(self):
        return _packed(size, self.offset)
    if _alike(size, self.size):
        return self.size, self.stride, self.offset
    try:
        found = strides.viewed(self.size, self.stride, size)
    except strides.Unknown:
        raise NoFormula from None
    _need(found is not None, all(_is_at_least(n, 1) for n in size))
    return tuple(size), found, self.offset  # type: ignore[return-value]  # as needed


def _product(size: Sizes) -> Number:
    found: Number = 1
    for n in size:
        found = found * n
    return found


# New tensors.


def _reduced(self: Spec, dim: int | Sequence[int] | None = None, keepdim: bool = False, **_: Any) -> Place:
    rank = len(self.size)
    listed = range(rank) if dim is None or dim == [] else (dim,) if type(dim) is int else dim
    dims = {_dim(d, rank) for d in listed}  # type: ignore[union-attr]
    _need(len(dims) == len(listed))  # type: ignore[arg-type]
    size = [1 if d in dims else n for d, n in enumerate(self.size) if keepdim or d not in dims]
    return _packed(size)


def _is_never_channels_last(spec: Spec) -> bool:
    """Returns whether kernels take a tensor for a packed one when they choose a memory format, whatever its sizes."""
    if _is_packed(spec) or len(spec.size) not in (4, 5):
        return True
    return _is_one(spec.stride[-1]) and not _is_one(spec.size[1]) and _is_several(spec.size[-1])


def _mm(self: Spec, mat2: Spec) -> Place:
    _need(len(self.size) == len(mat2.size) == 2, _equal(self.size[1], mat2.size[0]))
    return _packed((self.size[0], mat2.size[1]))


def _bmm(self: Spec, mat2: Spec) -> Place:
    _need(len(self.size) == len(mat2.size) == 3)
    _need(_equal(self.size[0], mat2.size[0]), _equal(self.size[2], mat2.size[1]))
    return _packed((*self.size[:2], mat2.size[2]))


def _addmm(self: Spec, mat1: Spec, mat2: Spec, **_: Any) -> Place:
    place = _mm(mat1, mat2)
    _need(_alike(_broadcast([self.size, place[0]]), place[0]))
    return place


def _embedding(weight: Spec, indices: Spec, **_: Any) -> Place:
    _need(len(weight.size) == 2)
    return _packed((*indices.size, weight.size[1]))


def _concatenated(tensors: Sequence[Spec], dim: int = 0) -> Place:
    tensors = [x for x in tensors if not (len(x.size) == 1 and _is_zero(x.size[0]))]  # which fits everywhere
    _need(bool(tensors), len({len(x.size) for x in tensors}) == 1, all(map(_is_never_channels_last, tensors)))
    first = tensors[0].size
    at = _dim(dim, len(first))
    _need(all(_equal(n, first[d]) for x in tensors for d, n in enumerate(x.size) if d != at))
    total = sum([x.size[at] for x in tensors[1:]], first[at])
    return _packed((*first[:at], total, *first[at + 1 :]))


def _indexed(self: Spec, indices: Sequence[Spec | None]) -> Place:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    _need(bool(given), _is_packed(self), all(_is_packed(index) for _, index in given))
    _need(all(index.dtype in _POSITIONS for _, index in given), _are_several_or_one(self.size))
    _need(all(_are_several_or_one(index.size) for _, index in given))
    size, dims = _broadcast([index.size for _, index in given]), [dim for dim, _ in given]
    begin, end = dims[0], dims[-1] + 1
    if dims == list(range(begin, end)):
        return _packed((*self.size[:begin], *size, *self.size[end:]))
    return _packed((*size, *(n for dim, n in enumerate(self.size) if dim not in dims)))


_POSITIONS = (torch.int64, torch.int32)


def _are_several_or_one(sizes: Sizes) -> bool:
    """Returns whether each size is the number one, or two and more."""
    return all(type(n) is int or _is_several(n) for n in sizes)


def _stacked(tensors: Sequence[Spec], dim: int = 0) -> Place:
    first = tensors[0].size
    at = _dim(dim, len(first) + 1)
    _need(all(_all_equal(x.size, first) and _is_packed(x) for x in tensors))
    return _packed((*first[:at], len(tensors), *first[at:]))


def _of_size(name: str, **given: Any) -> Place:
    size = given[name]
    _need(given.get("memory_format") is None, given.get("layout") in (None, torch.strided))
    _need(all(_is_at_least(n, 0) for n in size))
    return _packed(size)


def _arange(end: Number, start: Number = 0, step: Number = 1, **_: Any) -> Place:
    _need(type(step) is int and step == 1, all(isinstance(n, int | torch.SymInt) for n in (start, end)))
    length = end - start
    _need(_is_at_least(length, 0))
    return _packed((length,))


def _padded(self: Spec, pad: Sizes, **_: Any) -> Place:
    _need(_is_never_channels_last(self), len(pad) % 2 == 0)
    size = list(self.size)
    for at in range(len(pad) // 2):
        size[-1 - at] = size[-1 - at] + pad[2 * at] + pad[2 * at + 1]
    _need(all(_is_at_least(n, 1) for n in size))
    return _packed(size)


def _layer_norm(input: Spec, normalized_shape: Sizes, **_: Any) -> list[Place | None]:  # noqa: A002  # its name
    _need(_is_packed(input) or _are_several(input.size), bool(normalized_shape))
    before = len(input.size) - len(normalized_shape)
    _need(_alike(input.size[before:], normalized_shape))
    moments = _packed(input.size[:before] + (1,) * len(normalized_shape))
    return [_packed(input.size), moments, moments]


def _layer_norm_backward(
    input: Spec,  # noqa: A002  # its name
    weight: Spec | None,
    bias: Spec | None,
    output_mask: Sequence[bool],
    **_: Any,
) -> list[Place | None]:
    _need(_is_packed(input) or _are_several(input.size))
    given = zip((input, weight, bias), output_mask, strict=True)
    return [_packed(like.size) if like is not None and is_given else None for like, is_given in given]


def _batch_norm(input: Spec, training: bool = False, **_: Any) -> list[Place | None]:  # noqa: A002  # its name
    _need(_is_packed(input))
    saved = _packed((input.size[1] if training else 0,))
    return [_packed(input.size), saved, saved]


def _batch_norm_backward(
    grad_out: Spec,
    input: Spec,  # noqa: A002  # its name
    output_mask: Sequence[bool],
    **_: Any,
) -> list[Place | None]:
    _need(_is_packed(input), _is_packed(grad_out), _are_several(input.size))
    places = [_packed(input.size), _packed(input.size[1:2]), _packed(input.size[1:2])]
    return [place if is_given else None for place, is_given in zip(places, output_mask, strict=True)]


def _rolled(self: Spec, shifts: Sizes, dims: Sequence[int] = ()) -> Place:
    _need(bool(dims), _is_packed(self), _are_several(self.size))
    return _packed(self.size)


def _group_norm(input: Spec, N: Number, group: Number, **_: Any) -> list[Place | None]:  # noqa: A002, N803  # its names
    _need(_is_packed(input))
    return [_packed(input.size), _packed((N, group)), _packed((N, group))]


def _convolution_backward(
    input: Spec,  # noqa: A002  # its name
    weight: Spec,
    bias_sizes: Sizes | None,
    output_mask: Sequence[bool],
    **_: Any,
) -> list[Place | None]:
    _need(_is_packed(input), _is_packed(weight))
    places = [_packed(input.size), _packed(weight.size), None if bias_sizes is None else _packed(bias_sizes)]
    return [place if is_given else None for place, is_given in zip(places, output_mask, strict=True)]


def _split(self: Spec, split_sizes: Sizes, dim: int = 0) -> list[Place | None]:
    at = _dim(dim, len(self.size))
    _need(_same(sum(split_sizes[1:], split_sizes[0]), self.size[at]), all(_is_at_least(n, 0) for n in split_sizes))
    found: list[Place | None] = []
    offset = self.offset
    for n in split_sizes:
        found.append(((*self.size[:at], n, *self.size[at + 1 :]), self.stride, offset))
        offset = offset + n * self.stride[at]
    return found


def _unbound(self: Spec, dim: int = 0) -> list[Place | None]:
    count = self.size[_dim(dim, len(self.size))]
    _need(type(count) is int)
    return [_selected(self, dim, i) for i in range(int(count))]


def _losses(self: Spec, target: Spec, weight: Spec | None, reduction: int, **_: Any) -> list[Place | None]:
    _need(len(self.size) == 2, _alike(self.size[:1], target.size))
    return [_packed(target.size if reduction == 0 else ()), _packed(())]


def _loss_backward(grad_output: Spec, self: Spec, target: Spec, **_: Any) -> Place:
    _need(len(self.size) == 2, _alike(self.size[:1], target.size), _is_packed(self))
    return _packed(self.size)


def _embedding_backward(grad_output: Spec, indices: Spec, num_weights: Number, **_: Any) -> Place:
    _need(_all_equal(grad_output.size[:-1], indices.size))
    return _packed((num_weights, grad_output.size[-1]))


def _attention(query: Spec, key: Spec, value: Spec, **_: Any) -> list[Place | None]:
    batch, heads, length, width = query.size
    _need(all(map(_is_several, (batch, heads, length, width))))
    _need(_same(key.size[0], batch), _same(key.size[2], value.size[2]), _same(key.size[3], width))
    result, sums = (batch, length, heads, width), (batch, length, heads)
    order = (0, 2, 1, 3)
    return [
        _permuted_place(_packed(result), order),
        _permuted_place(_packed(sums), order[:3]),
    ]


def _attention_backward(query: Spec, key: Spec, value: Spec, **_: Any) -> list[Place | None]:
    found: list[Place | None] = []
    for x in (query, key, value):
        batch, heads, length, width = x.size
        _need(all(map(_is_several, x.size)))
        found.append(_permuted_place(_packed((batch, length, heads, width)), (0, 2, 1, 3)))
    return found


def _permuted_place(place: Place, order: Sequence[int]) -> Place:
    size, stride, offset = place
    return tuple([size[d] for d in order]), tuple([stride[d] for d in order]), offset


def _group_norm_backward(input: Spec, C: Number, **_: Any) -> list[Place | None]:  # noqa: A002, N803  # its names
    _need(_is_packed(input))
    return [_packed(input.size), _packed((C,)), _packed((C,))]


def _convolved(
    input: Spec,  # noqa: A002  # its name
    weight: Spec,
    bias: Spec | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Place:
    rank = len(input.size) - 2
    _need(len(weight.size) == rank + 2, _is_packed(input), _is_packed(weight))
    _need(all(type(n) is not int or n > 1 for n in input.size[1:]))  # else it may be channels-last, too
    _need(all(_is_several(n) for n in input.size))
    of_stride, of_padding, of_dilation, extra = (
        list(given) * (rank if len(given) == 1 else 1) for given in (stride, padding, dilation, output_padding)
    )
    size: list[Number] = [input.size[0], weight.size[1] * groups if transposed else weight.size[0]]
    for i, n in enumerate(input.size[2:]):
        reach = of_dilation[i] * (weight.size[2 + i] - 1)
        if transposed:
            size.append((n - 1) * of_stride[i] - 2 * of_padding[i] + reach + extra[i] + 1)
        else:
            size.append((n + 2 * of_padding[i] - reach - 1) // of_stride[i] + 1)
    _need(all(_is_at_least(n, 1) for n in size))
    return _packed(size)


_aten = torch.ops.aten
_formulas: dict[Operator, Formula] = {
    _aten.mm.default: _mm,
    _aten.bmm.default: _bmm,
    _aten.addmm.default: _addmm,
    _aten.embedding.default: _embedding,
    _aten.cat.default: _concatenated,
    _aten.stack.default: _stacked,
    _aten.index.Tensor: _indexed,
    _aten.constant_pad_nd.default: _padded,
    _aten.convolution.default: _convolved,
    _aten.convolution_backward.default: _convolution_backward,
    _aten.split_with_sizes.default: _split,
    _aten.unbind.int: _unbound,
    _aten.nll_loss_forward.default: _losses,
    _aten.nll_loss_backward.default: _loss_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
    _aten._native_batch_norm_legit_no_training.default: _batch_norm,
    _aten._native_batch_norm_legit.default: _batch_norm,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.native_batch_norm_backward.default: _batch_norm_backward,
    _aten.roll.default: _rolled,
    _aten.native_group_norm.default: _group_norm,
    _aten.native_group_norm_backward.default: _group_norm_backward,
    _aten.transpose.int: _transposed,
    _aten.permute.default: _permuted,
    _aten.t.default: _t,
    _aten.detach.default: _alias,
    _aten.alias.default: _alias,
    _aten.unsqueeze.default: _unsqueezed,
    _aten.squeeze.dim: _squeezed,
    _aten.squeeze.dims: _squeezed,
    _aten.expand.default: _expanded,
    _aten.select.int: _selected,
    _aten.slice.Tensor: _sliced,
    _aten.view.default: _viewed,
    _aten._unsafe_view.default: _viewed,
    _aten.arange.default: _arange,
    _aten.arange.start: _arange,
    _aten.arange.start_step: _arange,
    **dict.fromkeys(
        (_aten.clone.default, _aten._to_copy.default, _aten.empty_like.default, _aten.zeros_like.default,
         _aten.ones_like.default, _aten.full_like.default, _aten.rand_like.default, _aten.randn_like.default),
        _like,
    ),
    **dict.fromkeys(
        (_aten._softmax.default, _aten._log_softmax.default, _aten._safe_softmax.default, _aten.cumsum.default,
         _aten.tril.default, _aten.triu.default, _aten.flip.default, _aten.bernoulli.p,
         _aten.slice_scatter.default, _aten.select_scatter.default, _aten.index_put.default),
        partial(_as_first, "self"),
    ),
    **dict.fromkeys(
        (_aten.masked_fill.Scalar, _aten.masked_fill.Tensor),
        partial(_elementwise, ("self", "mask")),
    ),
    **dict.fromkeys(
        (_aten.copy_.default, _aten.fill_.Scalar, _aten.fill_.Tensor, _aten.masked_fill_.Scalar, _aten.zero_.default,
         _aten.bernoulli_.float),
        _in_place,
    ),
    **dict.fromkeys(
        (_aten._softmax_backward_data.default, _aten._log_softmax_backward_data.default),
        partial(_as_first, "grad_output"),
    ),
    **dict.fromkeys(
        (_aten.sum.dim_IntList, _aten.mean.dim, _aten.amax.default, _aten.amin.default, _aten.sum.default,
         _aten.mean.default, _aten.any.dim, _aten.all.dim),
        _reduced,
    ),
    **dict.fromkeys((_aten.select_backward.default, _aten.slice_backward.default), partial(_of_size, "input_sizes")),
    **dict.fromkeys(
        (_aten.new_zeros.default, _aten.new_empty.default, _aten.new_ones.default, _aten.new_full.default,
         _aten.zeros.default, _aten.ones.default, _aten.full.default, _aten.empty.memory_format, _aten.rand.default,
         _aten.randn.default),
        partial(_of_size, "size"),
    ),
}  # fmt: skip
"""By operator. What is elementwise has one formula for all."""

ALIKE = frozenset({
    _aten.transpose.int, _aten.permute.default, _aten.t.default, _aten.detach.default, _aten.alias.default,
    _aten.unsqueeze.default, _aten.squeeze.dim, _aten.squeeze.dims, _aten.expand.default, _aten.select.int,
    _aten.slice.Tensor, _aten.view.default, _aten._unsafe_view.default, _aten.clone.default,
})  # fmt: skip
"""Operators that give a tensor of the dtype and the device of `self`."""
ARITHMETIC = frozenset({
    _aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor, _aten.mul.Scalar, _aten.div.Scalar,
    _aten.add.Scalar, _aten.pow.Tensor_Scalar, _aten.neg.default, _aten.exp.default, _aten.sin.default,
    _aten.cos.default, _aten.rsqrt.default, _aten.sqrt.default, _aten.tanh.default, _aten.sigmoid.default,
    _aten.relu.default, _aten.silu.default, _aten.silu_backward.default, _aten.threshold_backward.default,
    _aten.gelu.default, _aten.gelu_backward.default, _aten.softplus.default, _aten.softplus_backward.default,
    _aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.cat.default, _aten.stack.default,
    _aten.sum.dim_IntList, _aten.mean.dim,
    _aten.slice_backward.default, _aten.select_backward.default,
})  # fmt: skip
"""Operators that give and take floats of one precision, if they are given no dtype."""

"""The one place that every operator on leaves goes through.

`run` infers the result's specs, makes the result leaves, and keeps the leaves' aliasing right. `Stream` is the
dispatch mode that brings operators here that no leaf carries (factories, real tensors met on the way), and that
listeners (the graph recorder, the profiler) derive from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import DataDependentError, MutationError, TraceError
from subclass_aot.meta.collectives import FUNCTIONAL_FORMS
from subclass_aot.meta.ctc import CTC, ctc_loss
from subclass_aot.meta.infer import asks_for_values, infer, on_new_rule, solver_of_call
from subclass_aot.meta.operators import Effects, argument_at, effects_of
from subclass_aot.meta.packed import PACK, pack
from subclass_aot.meta.sparse import embedding_bag_backward, sparse_of
from subclass_aot.meta.spec import STRIDED_NESTED, Spec, indexed, native_device
from subclass_aot.meta.symbols import key_of
from subclass_aot.meta.unbacked import unbacked_rule

REAL_WRITTEN = """A result without data would be written into a real one: the tensor `{name}`.
  Your line:  {line}
  Instead: use a MetaTensor there, too, as in MetaTensor.like(tensor)."""

_DATA_REPLACED = """The traced function assigns to `.data`, which gives a tensor other memory.
  Your line:  {line}
  The tensor: {tensor}
  A graph can write into the memory of its inputs, but not exchange it.
  Instead: write into the tensor, as in `with torch.no_grad(): x.copy_(value)`, or use `value` itself from there on."""


_HIGHER_ORDER = """`{name}` is an operator that takes functions, and there is no rule for it without data.
  Your line:  {line}
  Instead: call it outside, or write it with other operators, as torch.where for torch.cond."""

_NO_MEMORY = """`{call}` asks for the memory of a tensor, and a traced tensor has none.
  Your line:  {line}
  The tensor: {tensor}
  Instead: call it outside the traced function, or put what needs the memory into a custom operator."""


_OVER = """{operator} is given a tensor that belongs to a trace that is over, and has no data.
  Your line:  {line}
  The tensor: {tensor}
  It was kept while a function was traced, in a place that a later call does not fill again.
  Instead: return it from the function, or keep it in an attribute of an argument or of a module that is compiled."""


_GRAD: Any = torch.Tensor.grad  # the property


class MetaTensor(torch.Tensor):
    """A tensor without data: it has a `Spec`, takes part in autograd, and costs no memory and no arithmetic.

    Args:
        tensor: Any dense tensor; its size, stride, dtype and device are taken, its data is not.
        device: The device to claim instead of the tensor's. Hardware is not needed.

    Raises:
        TraceError: For sparse tensors and for lazily conjugated or negated ones.

    >>> x = MetaTensor(torch.rand(10**10, 3, device="meta"))
    >>> (x @ x.new_empty(3, 5)).shape
    torch.Size([10000000000, 5])
    """

    __slots__ = ("spec", "base", "tag")
    __torch_function__ = _torch.disabled_torch_function_impl

    spec: Spec
    base: MetaTensor | None
    """The tensor whose storage this one shares, if it was made as a view."""
    tag: Any
    """Belongs to the listener; None where there is none. One whose `graph` says `is_over` is of a finished trace."""

    def __new__(cls, tensor: torch.Tensor, device: str | torch.device | None = None) -> MetaTensor:
        return new_leaf(Spec.of(tensor, indexed(device) if device is not None else None))

    @staticmethod
    def like(tensor: Any, device: str | torch.device | None = None) -> Any:
        """A tensor without data like `tensor`: same class, sizes, strides, dtype and `requires_grad`.

        A wrapper tensor stays one: its inner tensors become `MetaTensor`s.

        Args:
            tensor: A dense tensor, a traceable wrapper, or a parameter of either kind.
            device: The device to claim instead of the tensor's own.
        """
        return _like(tensor, torch.device(device) if device is not None else None)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if not (_LEAF_TYPES.issuperset(types) or only_leaves(types)):
            return NotImplemented
        for a in args:
            if type(a) is MetaTensor:
                if a.tag is not None:
                    _refuse_if_over(func, a)
            elif type(a) is list:
                for b in a:
                    if type(b) is MetaTensor and b.tag is not None:
                        _refuse_if_over(func, b)
        return run(_PHYSICAL.get(func, func), args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.spec.device

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        """True, since it has no data; in a trace, what the tensor says that it stands for."""
        return getattr(self, "tag", None) is None or self.spec.device.type == "meta"

    @property
    def data(self) -> Any:
        """This tensor without its autograd history. Assigning gives it the looks of another, except in a trace."""
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: Any) -> None:
        if getattr(self, "tag", None) is not None:  # a listener knows it
            raise MutationError(_DATA_REPLACED.format(line=user_line(), tensor=self))
        for mode in _torch.dispatch_modes():
            if isinstance(mode, Stream):
                mode.replaced(self, value)
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.spec = value.spec if isinstance(value, MetaTensor) else Spec.of(value)

    @property
    def grad(self) -> Any:
        """Its gradient. A trace hears that it was asked for: whether an input has one is a fact of the call."""
        node: Any = getattr(self, "tag", None)
        if hasattr(node, "graph") and hasattr(node.graph, "grads_read"):
            node.graph.grads_read.append(node)
        return _GRAD.__get__(self)

    @grad.setter
    def grad(self, value: Any) -> None:
        _GRAD.__set__(self, value)

    @grad.deleter
    def grad(self) -> None:
        _GRAD.__delete__(self)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As of any tensor; a device without an index, which C++ would ask for the current one, may be absent."""
        other = args[0] if args else kwargs.pop("other", None)
        if isinstance(other, torch.Tensor):  # C++ does not know the device that it claims
            args = other.device, other.dtype, *args[1:]
        if kwargs.get("device") is not None:
            kwargs["device"] = indexed(kwargs["device"])
        args = tuple([indexed(a) if isinstance(a, str | torch.device) else a for a in args])
        return torch.Tensor.to(self, *args, **kwargs)

    def cuda(self, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As of any tensor, in `meta()` without the hardware, too."""
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
        return self.to(device, None, *args, **kwargs)

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """As of any tensor. What autograd makes on the way has no data either."""
        from subclass_aot.meta.mode import gradients_without_data  # which is made of this file

        with gradients_without_data(self):
            torch.Tensor.backward(self, *args, **kwargs)  # type: ignore[no-untyped-call]

    def untyped_storage(self) -> torch.UntypedStorage:
        """Its storage, which has no memory."""
        storage = torch.Tensor.untyped_storage(self)
        if getattr(self, "tag", None) is not None:  # all else that reads a storage asks whether it has memory
            storage.byteswap = _refuse_byteswap  # type: ignore[method-assign]
        return storage

    def data_ptr(self) -> int:
        """Zero, and an error in a trace."""
        if getattr(self, "tag", None) is not None:
            raise self._no_memory("data_ptr()")
        return torch.Tensor.data_ptr(self)

    def tolist(self) -> Any:
        """The elements, where they are known."""
        stream = _torch.current_dispatch_mode()
        if self.dim() and isinstance(stream, Stream) and stream.looks(_aten._local_scalar_dense.default, (self,)):
            values = stream.known(self)
            if values is not None:
                return values.tolist()
        try:
            return [part.tolist() for part in self.unbind()] if self.dim() else self.item()
        except DataDependentError:
            return torch.Tensor.tolist(self)  # says what was called

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.dim() and spec else torch.Tensor.__format__(self, spec)  # type: ignore[no-untyped-call]

    def apply_(self, callable: Any) -> Any:
        """An error: it would run on memory that is not there."""
        raise self._no_memory("apply_()")

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._no_memory("__dlpack__()")  # consumers would read at address zero

    def __dlpack_device__(self) -> Any:  # consumers ask this first
        raise self._no_memory("__dlpack_device__()")

    def _no_memory(self, call: str) -> DataDependentError:
        return DataDependentError(_NO_MEMORY.format(call=call, line=user_line(), tensor=self))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"MetaTensor({self.spec!r}{grad})".replace("Spec(", "", 1).replace(")", "", 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> MetaTensor:
        if getattr(self, "tag", None) is not None and self.is_leaf:  # in a trace, a copy is computed
            made: Any = self.detach().clone().requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                made = torch.nn.Parameter(made, self.requires_grad)
            memo[id(self)] = made
            return made  # type: ignore[no-any-return]
        fake: MetaTensor = _rebuild(self.spec, self.requires_grad, isinstance(self, torch.nn.Parameter))
        memo[id(self)] = fake
        return fake

    def __reduce_ex__(self, protocol: Any) -> Any:
        if getattr(self, "tag", None) is not None:
            raise self._no_memory("copy or pickle")
        return _rebuild, (self.spec, self.requires_grad, isinstance(self, torch.nn.Parameter))


class Stream(_torch.DispatchMode):
    """Brings every operator to `run`, and hears of each one.

    A subclass overrides `on_operator` (a recorder, a profiler), `lift` (what stands for a tensor that is not a leaf)
    and `value_of` (a number that is known although the leaf has no data).

    Args:
        decompositions: Operators to replace by a function of others, as in AOTAutograd.
    """

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decompositions = decompositions or {}

    def on_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Called after each operator, with the leaves it was given and the ones it made."""

    def on_wrapper_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called before an operator on a wrapper goes to the wrapper's class."""

    def lift(self, tensor: torch.Tensor) -> MetaTensor:
        """The leaf that stands for a real tensor met on the way."""
        return MetaTensor(tensor)

    def materialized(self, source: Any, copy: Any) -> None:
        """Hears that `copy` was computed where eager has a view of `source`: a lazy conjugation or negation."""

    def replaced(self, leaf: MetaTensor, other: Any) -> None:
        """Hears that a leaf no listener has a tag on is given the data of another tensor."""

    def value_of(self, leaf: MetaTensor) -> torch.Tensor | None:
        """The real tensor behind `leaf`, where it is known."""
        return None

    def looks(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether an operator that asks for values gets those that `look` gives."""
        return False

    def look(self, leaf: MetaTensor) -> torch.Tensor | None:
        """The values of a leaf in this call, which others then have to have, too."""
        return None

    def known(self, tensor: torch.Tensor, by_looking: bool = True) -> torch.Tensor | None:
        """The values of a tensor, where they are the same at each call: see `known_value`.

        Args:
            tensor: The tensor.
            by_looking: Whether the call that is traced may say them, if nothing else does.
        """
        with _torch.disable_current_modes():
            leaf = self._admitted(tensor)
        value = self.value_of(leaf)
        return self.look(leaf) if value is None and by_looking else value

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes that a real tensor, which an operator gave, has the same values at each call, and gives it back."""
        return tensor

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _torch.is_higher_order(func):
            raise TraceError(_HIGHER_ORDER.format(name=func.name(), line=user_line()))
        if not (_LEAF_TYPES.issuperset(types) or only_leaves(types)):
            self.on_wrapper_operator(func, args, kwargs or {})
            return NotImplemented
        kwargs = kwargs or {}
        if func in _OF_PROFILER:  # names parts of a program for a profiler, and computes nothing
            with _torch.disable_current_modes():
                return func(*args, **kwargs)
        decomposition = self.decompositions.get(func) or _schema_fixup(func)
        if decomposition is not None:
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                if func in _PHYSICAL:
                    self.materialized(args[0], result)
                return result
        by_values = _BY_VALUES.get(func)
        if by_values is not None:
            with self:
                result = by_values(self, *args, **kwargs)
            if result is None:
                raise asks_for_values(func)
            return result
        effects = effects_of(func)
        if effects.composite:  # autograd takes these apart; inference mode does not
            with self:
                return func.decompose(*args, **kwargs)
        args = tuple([self._admitted(a) for a in args])
        if kwargs:
            kwargs = {name: self._admitted(a) for name, a in kwargs.items()}
        if effects.data_dependent and not effects.writes:
            known = self._known(func, args, kwargs, self.value_of)
            if known is None and self.looks(func, args):
                known = self._known(func, args, kwargs, self.look)
            if known is not None:
                return known
        result = run(func, args, kwargs)
        self.on_operator(func, args, kwargs, result)
        return result

    def _known(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        value_of: Callable[[MetaTensor], torch.Tensor | None],
    ) -> Any:
        """The result of an operator that asks for values, if those of all its tensors are known."""
        tree: Any = (args, kwargs)
        leaves, structure = optree.tree_flatten(tree, none_is_leaf=True)
        for i, leaf in enumerate(leaves):
            if type(leaf) is MetaTensor:
                leaves[i] = value_of(leaf)
                if leaves[i] is None:
                    return None
        tree = optree.tree_unflatten(structure, leaves)
        args, kwargs = tree
        with _torch.disable_current_modes(), torch.no_grad():
            result = func(*args, **kwargs)

        def leaf_of(value: Any) -> Any:
            return self.lift(self.literal(value)) if isinstance(value, torch.Tensor) else value

        return optree.tree_map(leaf_of, result, none_is_leaf=True)

    def _admitted(self, value: Any) -> Any:
        kind = type(value)
        if kind is MetaTensor or kind in _SCALARS:
            return value
        if kind is list or kind is tuple:
            return [self._admitted(v) for v in value]
        return self.lift(value) if isinstance(value, torch.Tensor) else value


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs one operator on leaves.

    Args:
        func: The operator overload.
        args: Its arguments; tensors are `MetaTensor`s or plain ones.
        kwargs: Its keyword arguments, likewise.

    Returns:
        What the operator returns, with `MetaTensor`s for tensors. A written argument comes back as the same object,
        a view knows its base.
    """
    # A number's type matters to promotion, and 1 == 1.0 == True: types are in the key beside values. Symbolic numbers
    # are in lists, which have no hash: theirs would make an assumption.
    key: list[Any] = [func, torch.get_default_dtype()]
    for a in args:
        kind = type(a)
        if kind is MetaTensor:
            key.append(a.spec)
        elif kind is list or kind is tuple:
            _list_key(a, key)
        elif isinstance(a, torch.Tensor):
            key.append(Spec.of(a))
        else:
            key.append(kind)
            key.append(a if kind not in _SYMBOLIC else [a])
    for name in kwargs:
        key.append(name)
        a = kwargs[name]
        if isinstance(a, torch.Tensor):
            key.append(Spec.of(a) if type(a) is not MetaTensor else a.spec)
        elif type(a) in (list, tuple):
            _list_key(a, key)
        else:
            key.append(type(a))
            key.append(a if type(a) not in _SYMBOLIC else [a])
    try:
        effects, specs = _cache[tuple(key)]
    except (KeyError, TypeError):  # not there yet, or an argument that cannot be hashed
        effects, specs = _inferred(key, func, _specs(args), _specs(kwargs))
    if type(specs) is Spec:
        if effects.pure:
            return new_leaf(specs)
        viewed = effects.returns_view_of[0]
        if viewed is not None:
            return _view(specs, argument_at(viewed, args, kwargs))
    if effects.pure:
        return _blanks(specs)
    return _aliased(effects, specs, args, kwargs)


def _inferred(key: list[Any], func: Any, args: Any, kwargs: Any) -> tuple[Effects, Any]:
    """Infers, and remembers where the arguments can be hashed: with symbolic numbers, for as long as their trace."""
    effects = effects_of(func)
    if unbacked_rule(func) is not None:  # each time another result
        return effects, infer(func, args, kwargs)
    solver = solver_of_call(key)
    cache = _cache if solver is None else vars(solver).setdefault("subclass_aot_inferred", {})
    frozen = tuple(key_of(*part) if type(part) is list else part for part in key)
    try:
        found = cache.get(frozen)
    except TypeError:
        return effects, infer(func, args, kwargs)
    if found is None:
        found = effects, infer(func, args, kwargs)
        if len(cache) > _CACHE_LIMIT:
            cache.clear()
        cache[frozen] = found
    return found


def new_leaf(spec: Spec) -> MetaTensor:
    """A new leaf with `spec` and a storage of its own."""
    leaf: MetaTensor = _make(MetaTensor, *spec._blank_args)
    leaf.spec = spec
    leaf.base = leaf.tag = None
    return leaf


def is_over(value: Any) -> bool:
    """Whether a value is a tensor of a trace that is over."""
    return isinstance(value, MetaTensor) and getattr(getattr(value.tag, "graph", None), "is_over", False)


def _refuse_byteswap(dtype: torch.dtype) -> None:
    raise DataDependentError(_NO_MEMORY.format(call="byteswap()", line=user_line(), tensor="of that storage"))


def _refuse_if_over(func: Any, leaf: MetaTensor) -> None:
    if is_over(leaf):
        raise TraceError(_OVER.format(operator=func, line=user_line(), tensor=leaf))


def root(leaf: MetaTensor) -> MetaTensor:
    """The leaf that stands for the storage of `leaf`."""
    return leaf if leaf.base is None else leaf.base


def only_leaves(types: Any) -> bool:
    """True if no argument is a wrapper or some other tensor that wants to see the operator first."""
    for kind in types:
        if kind in _LEAF_TYPES:
            continue
        if kind.__torch_dispatch__ is not _DENSE_DISPATCH:
            return False
        _LEAF_TYPES.add(kind)
    return True


def set_spec(leaf: MetaTensor, spec: Spec) -> None:
    """Gives a leaf another spec in place, as `transpose_` and `resize_` do."""
    _torch.set_geometry(leaf, spec.size, spec.stride, spec.offset)
    leaf.spec = spec


def _aliased(effects: Effects, specs: Any, args: Any, kwargs: Any) -> Any:
    """Makes results of which some are arguments, or views of arguments."""
    for place in effects.writes:
        target = argument_at(place, args, kwargs)
        for leaf in target if type(target) in (list, tuple) else (target,):
            if isinstance(leaf, torch.Tensor) and type(leaf) is not MetaTensor and not leaf.is_meta:
                raise MutationError(REAL_WRITTEN.format(name=place[1], line=user_line()))
    if not effects.returns_written:  # as `_foreach_add_`
        return None
    single = type(specs) is not tuple or len(effects.returns_written) != len(specs)
    results = []
    for spec, written, viewed in zip(
        (specs,) if single else specs, effects.returns_written, effects.returns_view_of, strict=True
    ):
        if written is not None:
            argument = argument_at(written, args, kwargs)
            if type(argument) is not MetaTensor:  # one of torch's own on the meta device
                if not Spec.of(argument).equals(spec):
                    raise MutationError(REAL_WRITTEN.format(name=written[1], line=user_line()))
            elif argument.spec is not spec and not argument.spec.equals(spec):
                set_spec(argument, spec)
            results.append(argument)
        elif viewed is not None:
            argument = argument_at(viewed, args, kwargs)
            results.append([_view(s, argument) for s in spec] if type(spec) is list else _view(spec, argument))
        else:
            results.append(_blanks(spec))
    return results[0] if single else tuple(results)


def _blanks(specs: Any) -> Any:
    """New leaves for the specs of results: of one, or of several, which may be lists in turn."""
    kind = type(specs)
    if kind is Spec:
        return new_leaf(specs)
    return kind([_blanks(s) for s in specs]) if kind is tuple or kind is list else specs


def _view(spec: Spec, of: Any) -> MetaTensor:
    leaf = new_leaf(spec)
    if type(of) is MetaTensor:
        leaf.base = of if of.base is None else of.base
    return leaf


def _list_key(values: Any, key: list[Any]) -> None:
    key.append("[")
    for v in values:
        if type(v) is MetaTensor:
            key.append(v.spec)
        elif isinstance(v, torch.Tensor):
            key.append(Spec.of(v))
        else:
            key.append(type(v))
            key.append(v if type(v) not in _SYMBOLIC else [v])
    key.append("]")


def _specs(values: Any) -> Any:
    """The same structure with specs for tensors."""
    kind = type(values)
    if kind is MetaTensor:
        return values.spec
    if kind is tuple or kind is list:
        return kind([_specs(v) for v in values])
    if kind is dict:
        return {k: _specs(v) for k, v in values.items()}
    return Spec.of(values) if isinstance(values, torch.Tensor) else values


def _schema_fixup(func: Any) -> Callable[..., Any] | None:
    """Another operator for the few whose schema does not tell what they do.

    `native_batch_norm` updates its running statistics without saying so; a lazy conjugation or negation is a bit
    that a tensor without data cannot carry; `lift_fresh` gives out a literal that a program may write into. A boolean
    mask whose values are known stands for positions, so that the size of what it selects is known, too.
    """
    return _SCHEMA_FIXUPS.get(func)


def _conj(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return _aten._conj_physical.default(x)
    return _aten.scalar_tensor.default(x.conjugate(), dtype=torch.complex128)  # a number that stands for a tensor


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    x.size(1)  # kernels ask for it first, and so refuse a tensor with one dimension
    if mean is None:
        return _aten._native_batch_norm_legit.no_stats(x, weight, bias, training, momentum, eps)
    if training:
        return _aten._native_batch_norm_legit.default(x, weight, bias, mean, var, training, momentum, eps)
    return _aten._native_batch_norm_legit_no_training.default(x, weight, bias, mean, var, momentum, eps)


def _equal(x: Any, y: Any) -> bool:
    if x.dtype is not y.dtype:
        with _torch.disable_current_modes():  # some kernels refuse
            torch.equal(torch.empty(0, dtype=x.dtype), torch.empty(0, dtype=y.dtype))
    return x.shape == y.shape and bool(x.eq(y).all())


def _allclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    return bool(torch.isclose(x, y, rtol, atol, equal_nan).all())


def _index(x: Any, indices: Any) -> Any:
    if not any(isinstance(i, torch.Tensor) and i.dtype is torch.bool for i in indices):
        return NotImplemented
    positions: list[Any] = []
    try:
        for i in indices:
            positions += i.nonzero().unbind(1) if i is not None and i.dtype is torch.bool else [i]
    except DataDependentError:
        return NotImplemented
    return _aten.index.Tensor(x, positions)


def _masked_select(x: Any, mask: Any) -> Any:
    x, mask = torch.broadcast_tensors(x, mask)
    return _index(x, [mask]) if x.dim() else _index(x.reshape(1), [mask.reshape(1)])


def _padded_to_jagged(dense: Any, offsets: Any, total: Any = None) -> Any:
    if total is not None:
        return NotImplemented
    (ends,) = offsets
    total = getattr(ends, "total", None)  # a trace knows it of the offsets of an input
    total = ends[-1].item() if total is None else total
    return _aten._padded_dense_to_jagged_forward.default(dense, offsets, total)


def _strided_nested(*args: Any, **kwargs: Any) -> Any:
    raise TraceError(f"{STRIDED_NESTED}\n  Your line:  {user_line()}")


def _rebuild(spec: Spec, requires_grad: bool, is_parameter: bool) -> Any:
    leaf = new_leaf(spec)
    return torch.nn.Parameter(leaf, requires_grad) if is_parameter else leaf.requires_grad_(requires_grad)


def _like(tensor: Any, device: torch.device | None) -> Any:
    if _torch.is_traceable_wrapper_subclass(tensor):
        if device is not None and native_device(device) != device:
            raise TraceError(
                f"A {type(tensor).__name__} cannot claim {device}: this build of torch has no such device, and a "
                "wrapper, unlike a MetaTensor, has no device but its own. Leave `device` out, or use a dense tensor."
            )
        names, context = tensor.__tensor_flatten__()
        inner = {}
        for name in names:
            value = getattr(tensor, name)
            inner[name] = _like(value, device) if isinstance(value, torch.Tensor) else value
        fake = type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())
    else:
        fake = new_leaf(Spec.of(tensor.detach(), indexed(device) if device is not None else None))
    return fake.requires_grad_(tensor.requires_grad)


_aten = torch.ops.aten
_PHYSICAL = {_aten._conj.default: _aten._conj_physical.default, _aten._neg_view.default: _aten.neg.default}
_SCHEMA_FIXUPS: dict[Any, Callable[..., Any]] = {
    **_PHYSICAL,
    **FUNCTIONAL_FORMS,
    _aten._conj.default: _conj,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.lift_fresh.default: _aten.lift_fresh_copy.default,
    _aten.allclose.default: _allclose,
    _aten.equal.default: _equal,
    _aten.index.Tensor: _index,
    _aten._padded_dense_to_jagged_forward.default: _padded_to_jagged,
    _aten._nested_tensor_from_tensor_list.default: _strided_nested,
    _aten._nested_tensor_from_mask.default: _strided_nested,
    _aten._nested_tensor_from_mask_left_aligned.default: _strided_nested,
    _aten._nested_from_padded.default: _strided_nested,
    _aten._nested_view_from_buffer.default: _strided_nested,
    _aten.masked_select.default: _masked_select,
    _aten._sparse_coo_tensor_with_dims_and_tensors.default: sparse_of,
    _aten._embedding_bag_backward.default: embedding_bag_backward,
}
_BY_VALUES: dict[Any, Callable[..., Any]] = {PACK: pack, CTC: ctc_loss}
"""Forms of operators whose kernels want values of a tensor: those that a stream knows."""
_profiler = torch.ops.profiler
_OF_PROFILER = frozenset(
    getattr(packet, name)
    for packet in [getattr(_profiler, f"_record_function_{what}") for what in ("enter", "enter_new", "exit")]
    for name in packet.overloads()
)
_make = _torch.make_wrapper_subclass
_DENSE_DISPATCH = torch.Tensor.__torch_dispatch__
_SCALARS = frozenset({int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout})
_SYMBOLIC = frozenset({torch.SymInt, torch.SymFloat, torch.SymBool})
_LEAF_TYPES: set[type] = {MetaTensor, torch.Tensor, torch.nn.Parameter}
_CACHE_LIMIT = 200_000
_cache: dict[tuple[Any, ...], tuple[Effects, Any]] = {}
on_new_rule.append(_cache.clear)

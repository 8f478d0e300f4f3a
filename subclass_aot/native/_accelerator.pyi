from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

class Modes:
    """Reads the modes of torch: gives what `otherwise` gave for the same modes before."""
    def __new__(cls, otherwise: Callable[[], tuple[object, ...]]) -> Modes: ...
    def __call__(self) -> tuple[object, ...]: ...

class Accepted:
    """Checks what a rule returned: gives what `otherwise` gave, and does not ask again where that was "".

    That is, for a result and arguments of the same sizes, strides and dtypes, and the same numbers. It asks each time
    where the result is one of the arguments, and where there are keyword arguments or what numbers do not describe.

    Args:
        otherwise: Takes the result, the arguments and the keyword arguments, and says what is wrong; "" for nothing.
        wrapper: A class. Wrappers of others are asked about each time, dense tensors not.
        is_plain: Takes that class, and says whether Python and C++ see the same metadata of its wrappers; it is called
            again when the class, or a base of it, has changed.
    """
    def __new__(
        cls, otherwise: Callable[..., str], wrapper: type[torch.Tensor] | None, is_plain: Callable[[Any], bool]
    ) -> Accepted: ...
    def __call__(self, out: object, args: tuple[object, ...], kwargs: dict[str, object], /) -> str: ...

class Recipe:
    """Makes wrappers that differ in nothing but their inner tensors.

    Args:
        cls: Their class.
        size: Outside.
        stride: Outside.
        offset: Outside.
        dtype: Outside.
        device: Outside.
        names: What stands in their `__dict__`, in this order.
        constants: Those of these that are no inner tensors, by name.
        otherwise: What makes a wrapper where an inner tensor has an offset or requires grad; None if that is the same.
    """
    def __new__(
        cls,
        wrapper: type[torch.Tensor],
        size: Sequence[int],
        stride: Sequence[int],
        offset: int,
        dtype: torch.dtype,
        device: torch.device,
        names: tuple[str, ...],
        constants: Mapping[str, object],
        otherwise: Callable[..., torch.Tensor] | None,
    ) -> Recipe: ...
    def __call__(self, *inner: Any) -> torch.Tensor: ...

Layout = tuple[tuple[str, ...], tuple[Description, ...], Mapping[str, object], tuple[str, ...]]
"""The names of inner tensors and what these are; constant attributes; attributes that are None."""
Description = tuple[bool | None, Layout | None]
"""Whether a tensor is a leaf of autograd's graph, or None; of a wrapper, what it is made of."""

class Table:
    """Compares tensors with those of another call, and reads their leaves.

    Args:
        values: Tensors of that call.
        descriptions: Of each, what it is made of.
        others: More tensors, which are compared and not taken apart.
        sizes: Their sizes; None may be anything.
        strides: Likewise.
        same: Says whether a constant is the same, where it is another object.
    """
    def __new__(
        cls,
        values: tuple[torch.Tensor, ...],
        descriptions: tuple[Description, ...],
        others: tuple[torch.Tensor, ...],
        sizes: tuple[Sequence[int | None], ...],
        strides: tuple[Sequence[int | None], ...],
        same: Callable[[object, object], bool],
    ) -> Table: ...
    def __call__(self, values: tuple[Any, ...], *others: Any) -> list[Any] | None:
        """The leaves of the values; None where something is not as it was."""

def are_apart(*tensors: torch.Tensor) -> bool:
    """Whether no two of them share memory, by the addresses of their storages."""

def are_leaves(leaves: tuple[bool, ...], /, *tensors: torch.Tensor) -> bool:
    """Whether they are leaves of autograd's graph or not, one by one."""

def next_versions(
    silent: list[torch.Tensor], counted: list[torch.Tensor], /
) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]] | None:
    """All of them with their versions, those of the latter one higher; None where one is a view or has no version."""

def set_versions(tensors: tuple[torch.Tensor, ...], versions: tuple[int, ...], /) -> None:
    """Sets the version of each."""

class Function:
    """Does what `torch.autograd.Function.apply` does, for a forward and a backward that autograd need not look into.

    Args:
        forward: Takes `ctx` and all arguments; gives new tensors without a history, in a tuple.
        backward: Takes `ctx` and a gradient or None for each result; gives one or None for each argument, in a tuple.
        before: How many arguments stand before the tensors that may require grad.
    """
    def __new__(
        cls, forward: Callable[..., tuple[Any, ...]], backward: Callable[..., tuple[Any, ...]], before: int
    ) -> Function: ...
    def __call__(self, *args: Any) -> tuple[Any, ...]: ...

Argument = tuple[str, Any]
"""What an operator is given: ("constant", a value), ("place", a number), ("last", a number) where a place is read for
the last time, or ("list", a tuple of these)."""

class Run:
    """Calls operators of a graph in a row.

    Args:
        inputs: How many values it is given, which are in the first places.
        places: How many values there are in all.
        steps: For each operator its name, its overload, its arguments, the places of its results (-1 for one that
            nobody reads), and what autograd sees of it: "" for all, "below" for nothing, "with grad" as
            `subjects/recurrent/lstm.py` says.
        outputs: The places that are given back.
    """
    def __new__(
        cls,
        inputs: int,
        places: int,
        steps: tuple[tuple[str, str, tuple[Argument, ...], tuple[int, ...], str], ...],
        outputs: tuple[int, ...],
    ) -> Run: ...
    def __call__(self, inputs: list[Any], /) -> Any:
        """Empties the list; gives the one output, or a tuple of all."""

def install_kernels(names: Sequence[str]) -> list[str]:
    """Puts kernels for the Python key into the dispatcher, once for the process.

    Args:
        names: Operators, as the dispatcher has them: `"aten::add.Tensor"`.

    Returns:
        Those that have one now. Left out are operators that this torch does not have, and those that somebody else has
        a kernel for.

    Raises:
        ValueError: An operator whose schema is none that these kernels serve.
    """

def serve(
    name: str,
    cls: type[torch.Tensor],
    names: tuple[str, ...],
    optional: tuple[bool, ...],
    attributes: tuple[str, ...],
    origin: str,
    otherwise: Callable[..., torch.Tensor],
    may_cache: Callable[[Any, bool], bool] | None,
    asks_outer: bool,
    lines_up: bool,
    along: int,
    keeps_metadata: bool,
    heeds_lazy_bits: bool,
) -> None:
    """Has the kernel of an operator serve wrappers of exactly `cls`.

    Args:
        name: The operator.
        cls: The class. It is not kept alive.
        names: Its inner tensors, in order.
        optional: Which of them may be absent.
        attributes: Its context, in order, which has to be the same for all wrappers of a call.
        origin: An attribute with which a wrapper goes to Python.
        otherwise: Makes a wrapper like its first argument of the others, of which None is absent, where they do not
            give its metadata: they are no plain tensors, or the class has a rule for that.
        may_cache: Says of such a wrapper whether the rule will say the same of each of the same metadata inside, and
            has the same context, as long as the class is as it is; None where it may not. It is told whether nothing of
            the class as it is now is cached yet.
        asks_outer: Whether it has such a rule.
        lines_up: Whether the operator is a view that is the same on each field, if all fields have, along each dim, the
            size of the wrapper, or 1.
        along: The position of the argument that names a dim along which each field has the size of the wrapper itself;
            -1 for none.
        keeps_metadata: Whether results have the metadata of the first wrapper; else that of their first inner tensor.
        heeds_lazy_bits: Whether the operators on inner tensors look at conjugate and negative bits.
    """

def forget(cls: type[torch.Tensor]) -> None:
    """Has all operators on wrappers of `cls` go to Python again."""

def switch_kernels(on: bool) -> bool:
    """Lets kernels serve, or none, in all threads; gives what it was."""

def kernel_hits() -> dict[str, int]:
    """By operator, how many calls its kernel has served; without those that have served none."""

def install_leaf_kernels(names: Sequence[str]) -> list[str]:
    """Does what `install_kernels` does, for operators on tensors without data. Composite ones are left out."""

def serve_leaves(
    leaf: type[torch.Tensor],
    storage: type,
    rest: Mapping[str, object],
    shield: type,
    effects: Callable[[Any], tuple[tuple[int, ...], tuple[int, ...], bool] | None],
    in_thread: object,
) -> None:
    """Has operators on tensors of exactly `leaf` served, once for the process.

    Args:
        leaf: The class; its slots are `spec`, `tag` and `_storage`.
        storage: The class of what a tensor shares with its views.
        rest: Its slots but `spec`, with what they begin with.
        shield: A mode that may be on below the one of `serve_stream`.
        effects: Says of an operator, by result, which argument that is (-1 for none), which it is a view of, and
            whether any is written; None where the operator is Python's.
        in_thread: Has `listeners`.
    """

def serve_stream(kind: type, /) -> None:
    """Has operators served in such a mode, too: with `_values`, `_met`, `class_of_next` and `assumptions`."""

def forget_leaves() -> None:
    """Has each operator ask Python again: a rule has changed."""

def listen_to_leaves(number: int, /) -> None:
    """Takes how many listeners there are, in all threads."""

def switch_leaves(on: bool, /) -> bool:
    """Lets operators be served, or none, in all threads; gives what it was."""

def leaf_hits() -> int:
    """How many operators on tensors without data were served."""

def install_products() -> bool:
    """Puts kernels for the operators of `_torch/quantized.py` that have one into the dispatcher.

    Returns:
        Whether this processor has what they need.
    """

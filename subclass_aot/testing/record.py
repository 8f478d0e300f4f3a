"""The calls of torch that a function makes, written down as a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.engine.call import flatten
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.testing.inputs import Capture, Given
from subclass_aot.testing.literals import Names
from subclass_aot.testing.script import Script, Statement


def record(function: Callable[..., Any], tensors: Sequence[Any]) -> Script:
    """Runs `function` on `tensors`, in eager mode, and writes down what it calls.

    Args:
        function: It takes tensors, and returns any structure of them.
        tensors: Its arguments; they change as the function changes them.

    Returns:
        A script that does the same, as far as that can be seen from the calls. If the function raises, the script ends
        with the call that did.
    """
    recorder = _Recorder(tensors)
    results: list[str] = []
    try:
        with recorder:
            returned = function(*tensors)
        results = [recorder.name_of(x) for x in flatten(returned)[0] if isinstance(x, torch.Tensor)]
    except Exception as error:  # the script raises it, too
        pass_on_interruption(error)
        results = []
    return Script(tuple(recorder.inputs), tuple(recorder.statements), tuple(results), recorder.names)


class _Recorder(TorchFunctionMode):
    """Sees every call of torch from Python, above autograd and above wrappers.

    Attributes:
        inputs: Recipes for the tensors that come from outside.
        statements: The calls.
        names: What their text refers to.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__()
        self.inputs: list[Given] = []
        self.statements: list[Statement] = []
        self.names = Names()
        self._capture = Capture()
        self._known: dict[int, str] = {}
        self._alive: list[Any] = []
        self._items: dict[int, str] = {}  # of results that are lists: how to get at an element
        self._count = 0
        self._grad = torch.is_grad_enabled()
        for tensor, given in zip(tensors, self._capture.all(tensors), strict=True):
            self._given(tensor, given.name, "argument")

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "__get__" and not isinstance(read := func(*args), torch.Tensor):
            return read
        text = self._call_text(func, args, kwargs)
        self._append("", text)
        position = len(self.statements) - 1
        result = func(*args, **kwargs)
        tensors = [x for x in flatten(result)[0] if isinstance(x, torch.Tensor)]
        if not tensors and (result is not None or not any(map(_is_tensor, flatten((args, kwargs))[0]))):
            del self.statements[position]  # it reads a size, or a mode
        elif any(id(x) not in self._known for x in tensors):
            name = self._new()
            self.statements[position] = Statement(name, text, self.statements[position].mode)
            self._name_results(result, name)
        return result

    def _name_results(self, result: Any, name: str) -> None:
        if isinstance(result, torch.Tensor):
            self._know(result, name)
            return
        for i, part in enumerate(result):
            if isinstance(part, torch.Tensor) and id(part) not in self._known:
                self._items[id(part)] = f"{name}[{i}]"
                self._alive.append(part)

    def name_of(self, tensor: torch.Tensor) -> str:
        """Returns the name of a tensor; statements that get at it are added."""
        known = self._known.get(id(tensor))
        if known is not None:
            return known
        if id(tensor) in self._items:
            return self._value(tensor, self._items[id(tensor)])
        inner = self._inner_of_known(tensor)
        if inner is not None:
            return self._value(tensor, inner)
        if _torch.wrappers.is_traceable_wrapper_subclass(tensor) and not tensor.requires_grad:
            return self._value(tensor, self._constructed(tensor))
        role = "argument" if tensor.requires_grad else "constant"
        return self._given(tensor, f"{'x' if tensor.requires_grad else 'c'}{len(self.inputs)}", role)

    def _inner_of_known(self, tensor: torch.Tensor) -> str | None:
        """Returns such text as `v1.a` if the tensor is an inner tensor of one that has a name."""
        for holder in reversed(self._alive):
            if id(holder) in self._known and _torch.wrappers.is_traceable_wrapper_subclass(holder):
                for path, inner in _inside(holder):
                    if inner is tensor:
                        return self._known[id(holder)] + path
        return None

    def _constructed(self, tensor: _torch.wrappers.Wrapper) -> str:
        """Returns the function made a wrapper by itself."""
        names, context = tensor.__tensor_flatten__()
        cls = self.names.const(type(tensor), type(tensor).__name__)
        inner = {name: self.name_of(getattr(tensor, name)) for name in names}
        if isinstance(tensor, WrapperTensor) and set(names) == set(tensor.__wrapper_declaration__.fields):
            return f"{cls}({', '.join(f'{name}={part}' for name, part in inner.items())})"
        parts = ", ".join(f"{name!r}: {part}" for name, part in inner.items())
        context = self.names.literal(context)
        return f"{cls}.__tensor_unflatten__({{{parts}}}, {context}, {tuple(tensor.shape)}, {tensor.stride()})"

    def _given(self, tensor: torch.Tensor, name: str, role: str) -> str:
        given = self._capture.given(tensor, name, role)
        if given.base is not None and all(given.base is not g for g in self.inputs):
            self.inputs.append(given.base)
        self.inputs.append(given)
        self._know(tensor, name)
        return name

    def _value(self, tensor: torch.Tensor, text: str) -> str:
        name = self._new()
        self._append(name, text)
        self._know(tensor, name)
        return name

    def _know(self, tensor: torch.Tensor, name: str) -> None:
        self._known[id(tensor)] = name
        self._alive.append(tensor)

    def _new(self) -> str:
        self._count += 1
        return f"v{self._count - 1}"

    def _append(self, target: str, text: str) -> None:
        grad = torch.is_grad_enabled()
        mode = "" if grad == self._grad else "torch.enable_grad()" if grad else "torch.no_grad()"
        self.statements.append(Statement(target, text, mode))

    def _call_text(self, func: Callable[..., Any], args: Iterable[object], kwargs: Mapping[str, object]) -> str:
        texts = [self._argument(a) for a in args]
        path = _path(func)
        owner, _, name = path.removeprefix("torch.Tensor.").partition(".")
        if not path.startswith("torch.Tensor."):
            keywords = [f"{name}={self._argument(a)}" for name, a in kwargs.items()]
            called = path or self.names.const(func, getattr(func, "__name__", "function"))
            return f"{called}({', '.join((*texts, *keywords))})"
        if name == "__get__":
            return f"{texts[0]}.{owner}"
        if name == "__set__":
            return f"{texts[0]}.{owner} = {texts[1]}"
        if owner in ("__getitem__", "__setitem__"):
            item = f"{texts[0]}[{texts[1]}]"
            return item if owner == "__getitem__" else f"{item} = {texts[2]}"
        keywords = [f"{name}={self._argument(a)}" for name, a in kwargs.items()]
        return f"{texts[0]}.{owner}({', '.join((*texts[1:], *keywords))})"

    def _argument(self, value: object) -> str:
        if isinstance(value, torch.Tensor):
            return self.name_of(value)
        if type(value) is list:
            return f"[{', '.join(map(self._argument, value))}]"
        if type(value) is tuple:
            return f"({', '.join(map(self._argument, value))}{',' if len(value) == 1 else ''})"
        if type(value) is slice:
            return f"slice({', '.join(self._argument(x) for x in (value.start, value.stop, value.step))})"
        return self.names.literal(value)


def _path(func: Callable[..., Any]) -> str:
    """Returns the dotted name under which torch has `func`; "" if that is not known."""
    if _torch.operators.is_overload(func) or _torch.operators.is_packet(func):
        return f"torch.ops.{func}"
    found: str | None = resolve_name(func)
    name = getattr(func, "__name__", "")
    if found is None and getattr(torch, name, None) is func:
        found = f"torch.{name}"
    return found or ""


def _inside(wrapper: _torch.wrappers.Wrapper) -> Iterator[tuple[str, Any]]:
    for name in wrapper.__tensor_flatten__()[0]:
        inner = getattr(wrapper, name)
        yield f".{name}", inner
        if _torch.wrappers.is_traceable_wrapper_subclass(inner):
            for path, deeper in _inside(inner):
                yield f".{name}{path}", deeper


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)

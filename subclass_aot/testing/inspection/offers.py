"""Tries what works with a wrapper class, program by program.

Which operators a program consists of is found by running it: on a tensor of the class where there is one, and else on a
stand-in, a class of the same kind with which everything works. What serves them, the declaration of the class says.
"""

from __future__ import annotations

import copy
import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import optree
import torch
from torch import nn
from torch.nn import functional

from subclass_aot.base import _torch
from subclass_aot.base._stack import first_line, pass_on_interruption
from subclass_aot.base._torch.operators import AnyOperator
from subclass_aot.kit.wrapper import Service, WrapperTensor, place_of, plain_tangent, service_of

Program = Callable[[torch.Tensor], object]
"""What is done with a parameter."""

Make = Callable[[], torch.Tensor]
"""Gives a new tensor of a class."""

_WIDTH = 118
_MOST_STUBS = 3
_TRIED = "Tried on a tensor."
_TOLD = "Told from the declaration; MODULE:FUNCTION, which gives a tensor, has it tried."
_HOOKS = ("fsdp_pre_all_gather", "fsdp_post_all_gather")


class Row(NamedTuple):
    """The outcome of one program.

    Attributes:
        group: To which group it belongs.
        name: What it is called.
        services: For each operator that reached the class, in order, what serves it.
        error: What was raised where it was tried; else "".
    """

    group: str
    name: str
    services: dict[AnyOperator, Service]
    error: str = ""

    @property
    def works(self) -> bool:
        """Whether every operator is served, and nothing was raised."""
        return not self.error and not any(service.stub for service in self.services.values())


def _row(length: int, like: torch.Tensor) -> torch.Tensor:
    return torch.ones(2, length, dtype=like.dtype, device=like.device)


def _trained(program: Callable[[torch.Tensor], torch.Tensor]) -> Program:
    return lambda w: program(w).sum().backward()


def _step(make: Callable[..., torch.optim.Optimizer], **options: object) -> Program:
    def program(w: torch.Tensor) -> None:
        w.grad = plain_tangent(w.detach()).clone()
        optimizer = make([w], lr=0.1, **options)
        optimizer.step()
        optimizer.step()
        optimizer.zero_grad()

    return program


def _clipped(clip: Callable[[list[torch.Tensor], float], object]) -> Program:
    def program(w: torch.Tensor) -> None:
        w.grad = plain_tangent(w.detach()).clone()
        clip([w], 0.5)

    return program


def _saved(w: torch.Tensor) -> None:
    file = io.BytesIO()
    torch.save(w, file)
    file.seek(0)
    torch.load(file, weights_only=True)


def _loaded(w: torch.Tensor) -> None:
    module = nn.Module()
    module.weight = w
    module.load_state_dict(copy.deepcopy(module.state_dict()))


def _written(write: Program) -> Program:
    def program(w: torch.Tensor) -> None:
        with torch.no_grad():
            write(w)

    return program


def _sharded(w: torch.Tensor) -> None:
    """Cuts a tensor into the rows of two ranks, as `fully_shard` does, and brings them together."""
    whole: Any = w.detach()
    parts = whole.chunk(2)
    padded = [whole.new_zeros(parts[0].shape) for _ in parts]
    for shard, part in zip(padded, parts, strict=True):
        shard.narrow(0, 0, len(part)).copy_(part)
        shard.view(-1)
    if any(name in vars(base) for base in _bases(type(whole)) for name in _HOOKS):
        return  # what an author's hooks do with a mesh is not known
    mesh, policy, module = SimpleNamespace(size=lambda: 2), SimpleNamespace(param_dtype=None), nn.Module()
    module.weight = nn.Parameter(padded[0], requires_grad=w.requires_grad)
    send: Any = WrapperTensor.fsdp_pre_all_gather
    sent = [send(shard, mesh, whole.shape, whole.stride(), module, policy) for shard in padded]
    outputs = tuple(torch.cat(each) for each in zip(*[inputs for inputs, _ in sent], strict=True))
    WrapperTensor.fsdp_post_all_gather(whole, outputs, sent[0][1], whole.dtype)


_MATRICES = {"forward", "backward"}
_TRAINED = {"backward", "optimizers", "clipping"}

GROUPS: Mapping[str, Mapping[str, Program]] = {
    "forward": {
        "linear": lambda w: functional.linear(_row(w.shape[1], w), w),
        "linear with bias": lambda w: functional.linear(_row(w.shape[1], w), w, _row(w.shape[0], w)[0]),
        "x @ w": lambda w: _row(w.shape[0], w) @ w,
        "w @ x": lambda w: w @ _row(w.shape[1], w).t(),
    },
    "backward": {
        "linear": _trained(lambda w: functional.linear(_row(w.shape[1], w), w)),
        "w @ x": _trained(lambda w: w @ _row(w.shape[1], w).t()),
    },
    "optimizers": {
        f"{kind.__name__}{how}": _step(kind, **options)
        for kind, further in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.AdamW, {}))
        for how, options in (
            ("", {"foreach": False, **further}),
            (" foreach", {"foreach": True, **further}),
            (" fused", {"fused": True, **further}),
        )
    },
    "clipping": {
        "clip_grad_norm_": _clipped(nn.utils.clip_grad_norm_),
        "clip_grad_value_": _clipped(nn.utils.clip_grad_value_),
    },
    "saving": {"deepcopy": copy.deepcopy, "save, load": _saved, "state_dict": _loaded},
    "views": {
        "t": lambda w: w.t(),
        "rows": lambda w: w[:1],
        "a column": lambda w: w[..., 0],
        "view(-1)": lambda w: w.view(-1),
        "chunk": lambda w: w.chunk(2),
    },
    "writes": {
        "mul_": _written(lambda w: w.mul_(2)),
        "copy_": _written(lambda w: w.copy_(torch.ones(w.shape, dtype=w.dtype, device=w.device))),
        "of a row": _written(lambda w: w[0].zero_()),
    },
    "FSDP2": {"trained": _sharded, "frozen": lambda w: _sharded(w.requires_grad_(False))},
}
"""What is done with weights."""


class _Seen(_torch.dispatch.DispatchMode):
    """Notes the operators that reach a class."""

    def __init__(self, cls: type) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cls = cls
        self.operators: list[AnyOperator] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        leaves: list[object] = optree.tree_leaves((args, kwargs))  # type: ignore[arg-type]
        if any(isinstance(leaf, self.cls) for leaf in leaves) and func not in self.operators:
            self.operators.append(func)
        return func(*args, **kwargs or {})


class _OnEach(WrapperTensor, fallback="each"):
    """Stands for classes whose operators run on each inner tensor, or have rules."""

    value: torch.Tensor


class _OnPlain(WrapperTensor, views="broadcast"):
    """Stands for classes whose operators run on what the tensor stands for."""

    value: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.value

    def from_plain(self, plain: torch.Tensor) -> _OnPlain:
        return _OnPlain(plain.clone())


def offers_of(cls: type[WrapperTensor], make: Make | None = None) -> Iterator[Row]:
    """Yields what works with a class, one row for each program.

    Args:
        cls: The wrapper class.
        make: Gives a tensor of it, on which everything is tried; without it nothing is, and what inner tensors of some
            size would not do is not known.
    """
    stand_in = _OnPlain if cls.__wrapper_declaration__.fallback == "plain" else _OnEach
    for group, programs in GROUPS.items():
        for name, program in programs.items():
            tensor = make() if make is not None else stand_in(torch.ones(4, 4))
            if (group in _MATRICES and tensor.dim() != 2) or (group in _TRAINED and not tensor.is_floating_point()):
                continue
            parameter = nn.Parameter(tensor.detach(), requires_grad=tensor.is_floating_point())
            error = ""
            with _Seen(type(tensor)) as seen:
                try:
                    program(parameter)
                except Exception as raised:  # the class raised it
                    pass_on_interruption(raised)
                    error = _in_short(raised)
            services = {func: service_of(cls, func) for func in seen.operators}
            if make is None:
                error = _wanted(cls, group, services)
            yield Row(group, name, services, f"raised: {error}" if error and make is not None else error)


def _wanted(cls: type[WrapperTensor], group: str, services: Mapping[AnyOperator, Service]) -> str:
    """Returns what a program wants of a class beside rules for operators; "" if nothing."""
    declaration = cls.__wrapper_declaration__
    if declaration.fallback == "each":
        return ""
    if group == "FSDP2" and declaration.views is None:
        return "wants views=, which says what a row is made of"
    copies = services.get(torch.ops.aten.copy_.default, Service("rule"))
    if group == "writes" and copies.how.startswith("built in") and not hasattr(cls, "from_plain"):
        return "wants from_plain for dense values"
    return ""


def _bases(cls: type) -> tuple[type, ...]:
    return cls.__mro__[: cls.__mro__.index(WrapperTensor)]


def _in_short(error: Exception) -> str:
    """Returns the line of an error that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    declined = next((line for line in lines if " declined: " in line), "")
    why = next((line.removeprefix("why:").strip() for line in lines if line.startswith("why:")), "")
    return " ".join(part for part in (why, declined) if part) or first_line(error)


def table(cls: type[WrapperTensor], make: Make | None = None) -> list[str]:
    """Returns what works with a class, as lines of text; stubs of the rules that are wanted stand at the end.

    Args:
        cls: The wrapper class.
        make: Gives a tensor of it, on which everything is tried.
    """
    lines: list[str] = []
    missing: dict[AnyOperator, Service] = {}
    group = ""
    for row in offers_of(cls, make):
        if row.group != group:
            group = row.group
            lines.append(group)
        head = f"  {'  ' if row.works else '! '}{row.name:<18}"
        lines += textwrap.wrap(head + _said(row), _WIDTH, subsequent_indent=" " * 22, break_on_hyphens=False)
        missing |= {func: service for func, service in row.services.items() if service.stub}
    hooks = [f"{name} ({place_of(vars(base)[name])})" for base in _bases(cls) for name in _HOOKS if name in vars(base)]
    lines += [f"    hooks of its own  {', '.join(hooks)}"] if hooks else []
    lines.append(_TRIED if make is not None else _TOLD)
    if missing:
        lines += ["", "! wants a rule:"]
        for service in list(missing.values())[:_MOST_STUBS]:
            lines += ["", *service.stub.rstrip().splitlines()]
        rest = [_short(func) for func in list(missing)[_MOST_STUBS:]]
        lines += ["", *textwrap.wrap(f"and for {', '.join(rest)}", _WIDTH)] if rest else []
    return lines


def _said(row: Row) -> str:
    """Returns by what the operators of a program are served, those served alike together."""
    by_service: dict[str, list[str]] = {}
    for func, (how, stub) in row.services.items():
        text = how if not stub else f"no rule: {how}" if how else "no rule"
        by_service.setdefault(text, []).append(_short(func))
    said = [f"{', '.join(names)} ({text})" for text, names in by_service.items()]
    return "; ".join(said + ([row.error] if row.error else [])) or "generated from the fields"


def _short(func: AnyOperator) -> str:
    return str(func).removeprefix("aten.").removesuffix(".default")

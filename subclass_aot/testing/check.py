"""`check_compiled`: does a compiled function do what the function does? If not, what is the smallest program?"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.compile import aot_compile
from subclass_aot.errors import DifferenceError, NondeterministicError, SubclassAotError
from subclass_aot.testing.inputs import Capture
from subclass_aot.testing.literals import Names
from subclass_aot.testing.printer import Maker, maker
from subclass_aot.testing.record import record
from subclass_aot.testing.reduce import reduced
from subclass_aot.testing.runs import Difference, Later, Run, differences, observe
from subclass_aot.testing.script import Script

_DIFFERENT = """The compiled function does not do what the function does.
  Difference: {difference}
  On call:    {call}
"""

_REDUCED = """
The smallest program found that shows it, {count} of {of} calls of torch after {tries} tries:

{text}
"""

_NOT_REDUCED = """
The calls of torch that it makes do not show it when they are run by themselves, so no smaller program was looked for.
What may be missing in them: autocast, an autograd.Function, Python values that change from call to call.
"""

_NONDETERMINISTIC = """The function does not do the same when it is run twice, on equal inputs and with one seed.
  Difference: {difference}
  So nothing can be said of the compiled function.
  Instead: take from it what depends on earlier calls, on time, or on memory that was not filled."""


def check_compiled(  # noqa: PLR0913  # its options
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    training: bool = True,
    calls: int = 2,
    tries: int = 500,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    **options: Any,
) -> None:
    """Checks that a compiled function does what the function does in eager mode, on copies of the arguments.

    Compared are results (class, values, sizes, strides, `requires_grad`), arguments and how they were changed, which
    tensors are the same objects or share storage, version counters, and gradients. The copies share storage and
    objects as the arguments do, and are leaves, parameters, computed tensors or views where those are.

    When there is a difference, the error shows a small program that has it too, as Python to paste into an issue: the
    calls of torch that `fn` makes, fewer and fewer of them, on simpler and smaller inputs.

    Args:
        fn: A function or an `nn.Module`, as for `aot_compile`. It is run many times.
        args: Its arguments; they are not changed.
        kwargs: Its keyword arguments.
        training: Whether to go backward, through everything that requires grad.
        calls: How often to call the compiled function; the first call compiles.
        tries: How many smaller programs to try at the most; 0 for none.
        rtol: The relative error that values may have.
        atol: The absolute one.
        **options: What `aot_compile` is given: `fw_compiler`, `bw_compiler`, `partition_fn`, ...

    Raises:
        DifferenceError: There is a difference.
        NondeterministicError: In eager mode, the function does not do the same twice.
        SubclassAotError: The function is one that `aot_compile` refuses.
        Exception: What `fn` raises in eager mode, if the compiled function raises there too.

    >>> check_compiled(lambda x: (x * 2).sum(), [torch.ones(3, requires_grad=True)])
    """
    check = _Check(Later(backward=training), calls, (rtol, atol), options)
    arguments = Arguments.of(fn, tuple(args), dict(kwargs or {}))
    make = maker(Capture().all(arguments.values))

    def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*tensors: torch.Tensor) -> Any:
            with arguments.replaced(list(tensors)) as (given_args, given_kwargs):
                return function(*given_args, **given_kwargs)

        return call

    eager, found, call = check.first_difference(on_tensors(fn), on_tensors(aot_compile(fn, **options)), make)
    if found is None:
        if eager.error is not None:
            raise eager.error
        return
    if not call:
        raise NondeterministicError(_NONDETERMINISTIC.format(difference=found.text))
    if eager.error is None and isinstance(found.error, SubclassAotError):
        raise found.error
    message, program = _DIFFERENT.format(difference=found.text, call=call), ""
    if tries:
        more, program = check.smaller(record(on_tensors(fn), make()[0]), found, tries)
        message += more
    raise DifferenceError(message, program) from found.error


@dataclass(frozen=True)
class _Check:
    """The options of `check_compiled`: what is compared, and how."""

    later: Later
    calls: int
    tolerances: tuple[float, float]
    options: dict[str, Any]

    def first_difference(
        self, function: Callable[..., Any], compiled: Callable[..., Any], make: Maker
    ) -> tuple[Run, Difference | None, int]:
        """Returns the run in eager mode, the first difference, and the number of its call.

        Call 0 is eager mode again.
        """
        eager = observe(function, make(), later=self.later)
        for call in range(self.calls + 1):
            run = observe(compiled if call else function, make(), later=self.later, like=eager)
            for found in differences(eager, run, self.tolerances):
                return eager, found, call
        return eager, None, 0

    def smaller(self, script: Script, found: Difference, tries: int) -> tuple[str, str]:
        """Returns a small program that shows the same, in the words of the message and by itself."""
        tried = 0

        def shows(candidate: Script) -> bool:
            nonlocal tried
            tried += 1
            try:
                function = candidate.function()
                compiled = aot_compile(function, **self.options)
                _, other, call = self.first_difference(function, compiled, candidate.make)
            except Exception as error:  # it makes no sense
                pass_on_interruption(error)
                return False
            return call > 0 and other is not None and other.like(found)

        if not shows(script):
            return _NOT_REDUCED, ""
        small = reduced(script, shows, tries)
        counts = {"count": len(small.statements), "of": len(script.statements), "tries": tried}
        text = self.text(small)
        return _REDUCED.format(text=textwrap.indent(text, "    "), **counts), text

    def text(self, script: Script) -> str:
        """Returns the whole program."""
        names = Names()
        rtol, atol = self.tolerances
        given = {"training": self.later.backward, "calls": self.calls, "rtol": rtol, "atol": atol, **self.options}
        default = {name: p.default for name, p in inspect.signature(check_compiled).parameters.items()}
        options = [f", {name}={names.literal(x)}" for name, x in given.items() if x != default.get(name)]
        mode = "torch.no_grad()"
        if torch.is_inference_mode_enabled():
            mode = "torch.inference_mode()"
        elif torch.is_grad_enabled():
            mode = ""
        names.const(check_compiled, "check_compiled")
        return script.text(f"check_compiled(program, args{''.join(options)})", names, mode)

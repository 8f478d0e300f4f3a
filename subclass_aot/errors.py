"""Every error this library raises on purpose.

Each one says what was wrong, where, why, and what to write instead. All derive from `SubclassAotError`;
each also derives from the built-in error that fits, so that code which knows nothing of this library can catch it.

Those in `__all__` are for `except`. The others say more exactly what happened, for who reads the traceback; catch them
as the listed one that they derive from.
"""

from __future__ import annotations

__all__ = [
    "CompiledFileError",
    "ContractError",
    "DataDependentError",
    "DefinitionError",
    "DifferenceError",
    "JointGraphError",
    "OperatorRuleError",
    "SubclassAotError",
    "TraceError",
    "UnsupportedTorchError",
]


class SubclassAotError(Exception):
    """The base of every error of this library."""


class UnsupportedTorchError(SubclassAotError, ImportError):
    """The installed torch is outside the supported range."""


class DefinitionError(SubclassAotError, TypeError):
    """A `WrapperTensor` class statement is wrong; raised when the class is defined."""


class InnerTensorError(SubclassAotError, ValueError):
    """A wrapper was given an inner tensor it cannot hold (one that requires grad, a missing one, not a tensor)."""


class UnreadableWrapperError(InnerTensorError):
    """A wrapper cannot be read for a graph: an inner tensor requires grad, is missing, or is no tensor."""


class StateDictError(SubclassAotError, ValueError):
    """A state dict or a file holds what cannot be written, or not be read."""


class CompiledFileError(SubclassAotError, ValueError):
    """Something compiled cannot be put into a file, or a file cannot be read or does not fit what it is read for.

    Attributes:
        path: The file.
        where: The place in it, such as `specialization 1, forward graph, node mul`; "" for the whole file.
        what: What is wrong there.
    """

    def __init__(self, path: str, where: str, what: str) -> None:
        super().__init__(f"{path}{', ' if where else ''}{where}: {what}")
        self.path = path
        self.where = where
        self.what = what


class MissingPackageError(SubclassAotError, ImportError):
    """A function needs a package that is not installed."""


class DeviceError(SubclassAotError, ValueError):
    """There is no such device, its data are wrong or lack something, or a program asks more of it than they say."""


class ProfileError(SubclassAotError, ValueError):
    """A profile has no such part, or what is profiled cannot be run without data or at other sizes."""


class OperatorRuleError(SubclassAotError, NotImplementedError):
    """An operator reached a wrapper class that has no rule for it."""


class RuleResultError(SubclassAotError, RuntimeError):
    """An operator rule returned something other than what the operator's schema promises.

    It is no `TypeError`: of one, `x @ w` would make "unsupported operand type(s)", and hide the text.
    """


class PlanError(SubclassAotError, TypeError):
    """Values or leaves do not fit the flatten plan they were given to."""


class LeafCountError(PlanError, ValueError):
    """A flat list has more or fewer leaves than the plan."""


class TraceError(SubclassAotError, RuntimeError):
    """A program could not be traced."""


class UnknownTensorError(TraceError):
    """A tensor without data is of another thread, or of another trace, and stands for nothing in this one."""


class DataDependentError(TraceError):
    """A traced program reads a value, or makes a shape that depends on values.

    Attributes:
        operator: The operator that asks for values; None if something else does.
    """

    operator: object = None


class DynamicSizeError(TraceError, ValueError):
    """A size is to be symbolic and cannot be."""


class ShapeRuleError(TraceError, NotImplementedError):
    """An operator has no rule for the shape of its result."""


class MutationError(TraceError):
    """A traced program changes something in a way that cannot be carried into a graph."""


class OnlyInEagerModeError(TraceError):
    """A traced program does what only eager mode can do; a function that may read values runs itself instead."""


class LastingChangeError(OnlyInEagerModeError, MutationError):
    """A traced program makes or changes what is so from the next call on, in a way that only eager mode can do."""


class RuntimeAssertError(SubclassAotError, RuntimeError):
    """A `torch._check` on a data-dependent value failed at run time."""


class CompilerResultError(SubclassAotError, RuntimeError):
    """A compiler backend returned something else than it should."""


class JointGraphError(SubclassAotError, ValueError):
    """Passes left a joint graph that cannot be compiled, or it is called in a way that it was not traced for."""


class DoubleBackwardError(SubclassAotError, RuntimeError):
    """The result of a compiled backward was differentiated again."""


class TangentError(SubclassAotError, TypeError):
    """A gradient that arrived in backward is not of the kind the backward graph was traced for."""


class BackwardOutcomeError(SubclassAotError, RuntimeError):
    """Hooks put something into objects while gradients are computed that a compiled backward cannot put there."""


class ShardingError(SubclassAotError, NotImplementedError):
    """A wrapper class does not say what FSDP2 has to know of it."""


class ExportError(SubclassAotError, ValueError):
    """A compiled function does what no exported program of dense tensors can do."""


class UnknownClassError(SubclassAotError, LookupError):
    """A name given on the command line is not that of a `WrapperTensor` class."""


class BlockError(SubclassAotError, ValueError):
    """A model has no blocks of the wanted kind, or one cannot be compiled in place."""


class DifferenceError(SubclassAotError, AssertionError):
    """A compiled function does something else than the function in eager mode; raised by `check_compiled`.

    Attributes:
        program: A small program that shows it, as Python; "" if none was found.
    """

    def __init__(self, message: str, program: str = "") -> None:
        super().__init__(message)
        self.program = program


class NondeterministicError(SubclassAotError, AssertionError):
    """A function does not do the same twice in eager mode, so that nothing can be compared with it."""


class ContractError(SubclassAotError, AssertionError):
    """A tensor subclass does not keep what it owes; raised by `Report.raise_if_broken` of `check_subclass`."""

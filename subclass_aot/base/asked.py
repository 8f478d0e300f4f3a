"""Who asks for the text of a traced tensor: see Note [Texts of tensors]."""

from __future__ import annotations

from types import FrameType

from subclass_aot.base._stack import is_own, is_standard, user_line
from subclass_aot.errors import OnlyInEagerModeError

_OF_TEXTS = frozenset({"__repr__", "__str__", "__format__", "__torch_function__", "handle_torch_function", "as_object"})
"""Functions that make a text for who called them, or are called on the way to one that does."""

_DEBUGGERS = frozenset(
    "pdb bdb code codeop IPython ipdb pudb pydevd _pydevd_bundle _pydev_bundle debugpy _pytest traceback".split()
)
"""Modules that show values to people, in the middle of a program which does not ask for them."""


def asks_for_text(frame: FrameType | None) -> bool:
    """Returns whether a program asks for the text of a tensor, and not this library, torch or a debugger.

    Whoever calls `str` asks, not the `__repr__` or the `logging` that this calls in turn.

    Args:
        frame: What called the method that makes the text.
    """
    asks, above = False, ""
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] in _DEBUGGERS:
            return False
        makes_text = not _OF_TEXTS.isdisjoint(code.co_qualname.split("."))  # or a function inside of one that does
        if is_own(frame) and not makes_text:  # which runs the program, or writes a message of its own
            return asks and above not in _OF_TEXTS
        if not asks and not makes_text and not is_standard(code.co_filename):
            if module.startswith(("torch.", "optree.")) and module != "torch._tensor_str":
                return False
            asks = module != "torch._tensor_str"
        above, frame = code.co_name, frame.f_back
    return asks


_HISTORY = """The text of an input names the operator that has computed it, and calls are not compared by that.
  Your line:  {line}
  Instead: write x.detach() into the text, or make the text outside of the function."""


def refuse_history(node: object) -> None:
    """Refuses the name of an operator that has computed an input.

    Args:
        node: Autograd's node of a traced tensor.

    Raises:
        OnlyInEagerModeError: It stands for that operator.
    """
    if type(node).__name__ == "_NonLeafBackward":  # see `as_non_leaf`
        raise OnlyInEagerModeError(_HISTORY.format(line=user_line()))

"""The door for files of compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # which takes as long to import as all else: see `subclass_aot/__init__.py`
    from subclass_aot.backends import Compiler
    from subclass_aot.compile import CompiledFunction


def load(
    path: str | PathLike[str],
    fn_or_module: Callable[..., Any] | None = None,
    *,
    trust: bool = True,
    fw_compiler: str | Compiler | None = None,
    bw_compiler: str | Compiler | None = None,
) -> CompiledFunction[..., Any]:
    """Reads what `save` of a compiled function has written, in another process say.

    A call that fits one of the signatures in the file is not traced: its graphs are read, and the guard and the code
    around them are generated again. Graphs are compiled again by the compiler that they were compiled by. If the file
    is trusted, inductor finds what it has made of them in it.

    Args:
        path: The file.
        fn_or_module: What was compiled. Calls that fit nothing in the file are traced. Without it, they are an error,
            and so is what needs something that the function holds.
        trust: Whether the modules of classes that the file names may be imported, and functions be taken from them. If
            not, classes must be imported already, only operators of torch run, and each operator is run once on tensors
            without data and compared with what the file says of it.
        fw_compiler: Compiles forward graphs in place of the compiler that the file names.
        bw_compiler: The same for backward graphs.

    Returns:
        A callable like those of `aot_compile`.

    Raises:
        CompiledFileError: The file is damaged, of another version of torch or of this library, or of another function
            or class than is here.

    >>> import tempfile, torch
    >>> from subclass_aot import aot_compile
    >>> step = aot_compile(torch.sin)
    >>> result = step(torch.ones(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     step.save(f"{folder}/step.sa")
    ...     loaded = load(f"{folder}/step.sa")
    >>> loaded(torch.ones(3)).equal(result)
    True
    """
    from subclass_aot.compile import restored
    from subclass_aot.saved import read_file

    file = read_file(path, trust)
    file.refuse_others(fn_or_module, trust)
    options = file.options_with({"fw_compiler": fw_compiler, "bw_compiler": bw_compiler}, trust)
    for backend in (options.forward, options.backward):
        backend.decompositions()  # operators that only they bring into graphs are defined with them
    if trust:
        file.load_artifacts(options)
    return restored(file, fn_or_module, options, trust)

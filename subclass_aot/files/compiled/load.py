"""The door for files of compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from subclass_aot.errors import CompiledFileError

if TYPE_CHECKING:  # which takes as long to import as all else: see `subclass_aot/__init__.py`
    from subclass_aot.engine.compile import CompiledFunction
    from subclass_aot.engine.compilers import Compiler

_NOT_TRUSTED = """a file of compiled functions is a program: loading it imports modules and runs code, as a pickle may.
  Instead: sa.load_compiled(path, trust=True), if you would run a program of whoever wrote it. What is in it, without
  running anything: python -m subclass_aot inspect FILE"""


def load_compiled(
    path: str | PathLike[str],
    fn_or_module: Callable[..., Any] | None = None,
    *,
    trust: bool = False,
    fw_compiler: str | Compiler | None = None,
    bw_compiler: str | Compiler | None = None,
    inference_compiler: str | Compiler | None = None,
) -> CompiledFunction[..., Any]:
    """Reads what `save` of a compiled function has written, in another process say.

    A file of compiled functions is a program, as a pickle is: it names modules that are imported, classes, functions
    and operators that run on what you pass, and machine code of inductor. Load only files that you have written, or
    got from somebody whose programs you would run. `python -m subclass_aot inspect FILE` shows what is in any file.

    A call that fits one of the signatures in the file is not traced: its graphs are read, and the guard and the code
    around them are generated again. Graphs are compiled again by the compiler that they were compiled by; inductor
    finds what it has made of them in the file.

    Args:
        path: The file.
        fn_or_module: What was compiled. Calls that fit nothing in the file are traced. Without it, they are an error,
            and so is what needs something that the function holds.
        trust: True, which says that the file may run code in this process.
        fw_compiler: Compiles forward graphs in place of the compiler that the file names.
        bw_compiler: The same for backward graphs.
        inference_compiler: The same for graphs of calls without gradients.

    Returns:
        A callable like those of `aot_compile`.

    Raises:
        CompiledFileError: `trust` is not True; or the file is damaged, of another version of torch or of this library,
            or of another function or class than is here.

    >>> import tempfile, torch
    >>> from subclass_aot import aot_compile
    >>> step = aot_compile(torch.sin)
    >>> result = step(torch.ones(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     step.save(f"{folder}/step.sa")
    ...     loaded = load_compiled(f"{folder}/step.sa", trust=True)
    >>> loaded(torch.ones(3)).equal(result)
    True
    """
    if trust is not True:
        raise CompiledFileError(fspath(path), "", _NOT_TRUSTED)

    from subclass_aot.files.compiled import read_file
    from subclass_aot.files.compiled.restore import restored

    file = read_file(path)
    file.refuse_others(fn_or_module)
    options = file.options_with(
        {"fw_compiler": fw_compiler, "bw_compiler": bw_compiler, "inference_compiler": inference_compiler}
    )
    for backend in options.backends.values():
        backend.decompositions()  # operators that only they bring into graphs are defined with them
    file.load_artifacts(options)
    return restored(file, fn_or_module, options)

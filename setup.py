"""What pyproject.toml cannot say in a stable way: the extensions. Without them everything works, a little slower.

They are built where torch is there: with `pip install --no-build-isolation`. In an isolated build there is none, and
what comes out is a wheel of pure Python, which any machine takes.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("subclass_aot") / "native"


class BuildNative(build_ext):
    """Builds the extension in C, and the accelerator. Whatever fails is left out."""

    def run(self) -> None:
        super().run()
        self.inplace = bool(self.inplace or getattr(self, "editable_mode", False))
        folder = NATIVE if self.inplace else Path(self.build_lib) / NATIVE
        try:
            made = _builder().build(folder.resolve())
        except Exception as error:  # a compiler that fails in its own way, among others
            warnings.warn(f"the accelerator was not built: {error}", stacklevel=1)
        else:
            print(f"built {made}")


def _builder():
    """`subclass_aot/native/build.py`, without an import of the package."""
    spec = importlib.util.spec_from_file_location("_build_accelerator", NATIVE / "build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if importlib.util.find_spec("torch") is not None:
    exact = Extension("subclass_aot.native._exact", [str(NATIVE / "exact.c")], optional=True)
    setup(ext_modules=[exact], cmdclass={"build_ext": BuildNative})
else:
    setup()

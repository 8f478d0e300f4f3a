"""Files of compiled functions: writing one, and reading one."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.plain_values import Json
from subclass_aot.base.refused import Refused, at
from subclass_aot.base.used_arguments import UsedArguments
from subclass_aot.base.whole_files import write_whole
from subclass_aot.engine import specializations as compiled
from subclass_aot.engine.facts import source_of
from subclass_aot.engine.options import Options, artifacts_of
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.specializations import Specialization
from subclass_aot.errors import CompiledFileError
from subclass_aot.files.compiled.codec import Encoder
from subclass_aot.files.compiled.container import pack, unpack
from subclass_aot.files.compiled.names import find, name_of
from subclass_aot.files.compiled.specializations import SavedSpecialization, encode_specialization
from subclass_aot.kit.flatten import ContainerMeta, InnerMeta, SubclassCreationMeta

NOTHING = "nothing was compiled yet: call it first, once for each signature that the file shall have"
NO_SECOND = "double_backward=True needs the trace at each call that asks for it. Compile without"
NO_DECOMPOSITIONS = "decompositions are functions, which a file does not hold. Compile without, or load with the same"
OTHER_VERSION = "it was written with {name} {before}, and here is {now}. Write it again"
OTHER_FUNCTION = "{name} is another function than the one that was compiled, by its code. Write the file again"
OTHER_CLASS = "the class {name} has other code than when the file was written. Write it again"
NO_PART = "it has other parts than such a file has"
NO_ARTIFACTS = "{name} cannot read what it has compiled: {error}"

_PARTS = (
    "library", "torch", "python", "function", "source", "classes", "options", "used", "specs", "specializations",
    "artifacts",
)  # fmt: skip
_PLAIN_OPTIONS = ("dynamic", "cache_limit", "lazy_backward", "values", "values_limit")
_COMPILERS = ("fw_compiler", "bw_compiler", "inference_compiler", "partition_fn")


@dataclass(frozen=True, slots=True, eq=False)
class SavedFile:
    """The contents of a file: checked as a whole, and decoded when a call needs it.

    Attributes:
        path: The file.
        versions: Of the library, torch and Python, by name.
        function: What was compiled.
        source: The hash of its code.
        classes: The wrapper classes in it, and the hash of the code of each.
        options: What it was compiled with.
        used: What the function reads of its arguments, if not all of them.
        specializations: What it has for each signature.
        artifacts: What compilers have made of the graphs, by their names and names of theirs.
    """

    path: str
    versions: dict[str, str]
    function: str
    source: str
    classes: dict[str, str]
    options: dict[str, Json]
    used: Json
    specializations: tuple[SavedSpecialization, ...]
    artifacts: dict[str, dict[str, bytes]]

    def refuse_others(self, fn: Callable[..., Any] | None) -> None:
        """Compares versions, the function and the classes with those that the file was written with.

        Args:
            fn: The function, if it is there.

        Raises:
            CompiledFileError: One is another.
        """
        for name, now in versions().items():
            if self.versions[name] != now:
                raise CompiledFileError(
                    self.path, "", OTHER_VERSION.format(name=name, before=self.versions[name], now=now)
                )
        if fn is not None and source_of(fn) != self.source:
            raise CompiledFileError(self.path, "", OTHER_FUNCTION.format(name=_name(fn)))
        for name, source in self.classes.items():
            with refusals(self.path):
                cls = find(name)
            if not isinstance(cls, type) or source_of(cls) != source:
                raise CompiledFileError(self.path, "", OTHER_CLASS.format(name=name))

    def options_with(self, given: Mapping[str, Any]) -> Options:
        """Gives the options to go on with.

        Args:
            given: Those that are given now.

        Raises:
            CompiledFileError: The file names a compiler that is not there.
        """
        found: dict[str, Any] = {name: self.options[name] for name in _PLAIN_OPTIONS}
        for name in _COMPILERS:
            written = self.options[name]
            if given.get(name) is not None or type(written) is not list:
                found[name] = written
            else:
                with refusals(self.path, name):
                    found[name] = find(written[0])
        return Options(**{**found, **{name: x for name, x in given.items() if x is not None}})

    def used_by(self, fn: Callable[..., Any] | None) -> UsedArguments | None:
        """Returns what the function reads of its arguments; None if all of them.

        Args:
            fn: The function, if it is there.
        """
        return None if self.used is None else UsedArguments.from_json(self.used, fn)

    def load_artifacts(self, options: Options) -> None:
        """Gives compilers what they have made of the graphs in another process. It is theirs, and may be code.

        Args:
            options: The options to go on with.

        Raises:
            CompiledFileError: A compiler cannot read it.
        """
        for name, artifacts in options.artifacts.items():
            with refusals(self.path, "artifacts"):
                try:
                    artifacts.load(self.artifacts.get(name, {}))
                except Exception as error:  # of any class
                    pass_on_interruption(error)
                    raise Refused(NO_ARTIFACTS.format(name=name, error=error)) from error


def versions() -> dict[str, str]:
    """Returns the versions that a file depends on, by what they are of."""
    from subclass_aot import __version__

    return {"library": __version__, "torch": torch.__version__, "python": platform.python_version()}


@compiled.write_file.put
def write_file(
    path: str | PathLike[str],
    fn: Callable[..., Any],
    options: Options,
    specializations: Sequence[Specialization],
    used: UsedArguments | None = None,
) -> None:
    """Writes what was compiled of a function.

    Args:
        path: The file.
        fn: The function.
        options: What it was compiled with.
        specializations: What was compiled, in the order in which a reader tries it.
        used: What the function reads of its arguments, if not all of them.

    Raises:
        CompiledFileError: There is something that a file cannot hold.
    """
    if not specializations:
        raise CompiledFileError(fspath(path), "", NOTHING)
    encoder, blobs = Encoder(), list[bytes]()
    with refusals(path):
        written_options = _encode_options(options)
        written = []
        for number, each in enumerate(specializations, 1):
            with at(f"specialization {number}"):
                written.append(encode_specialization(each, encoder, blobs))
        classes = {name_of(cls): source_of(cls) for each in specializations for cls in _classes_of(each.signature)}
    artifacts = artifacts_of(options, [(each.signature, each.graphs) for each in specializations])
    document = {
        **versions(),
        "function": _name(fn),
        "source": source_of(fn),
        "classes": classes,
        "options": written_options,
        "used": None if used is None else used.as_json(),
        "specs": encoder.specs,
        "specializations": written,
        "artifacts": {
            name: {part: _added(blobs, data) for part, data in made.items()} for name, made in artifacts.items()
        },
    }
    write_whole(path, pack(document, blobs))


def read_document(path: str | PathLike[str]) -> tuple[dict[str, Json], list[bytes]]:
    """Reads a file as data: nothing of it is run or imported, and no object is made.

    Args:
        path: The file.

    Returns:
        The text in it, and the data beside that.

    Raises:
        CompiledFileError: It is damaged, of another format, or no file of compiled functions.
    """
    with refusals(path):
        document, blobs = unpack(Path(path).read_bytes())
        if type(document) is not dict or tuple(document) != _PARTS:
            raise Refused(NO_PART)
    return document, blobs


def read_file(path: str | PathLike[str]) -> SavedFile:
    """Reads a file that is trusted. What is in it is made when a call needs it.

    Args:
        path: The file.

    Raises:
        CompiledFileError: It is damaged, of another format, or no file of compiled functions.
    """
    document, blobs = read_document(path)
    found = []
    for number, written in enumerate(document["specializations"], 1):
        with refusals(path, f"specialization {number}"):
            found.append(SavedSpecialization(written, document["specs"], blobs))
    artifacts = {
        name: {part: blobs[position] for part, position in made.items()} for name, made in document["artifacts"].items()
    }
    versions = {name: document[name] for name in _PARTS[:3]}
    return SavedFile(
        fspath(path), versions, document["function"], document["source"], document["classes"], document["options"],
        document["used"], tuple(found), artifacts,
    )  # fmt: skip


@contextmanager
def refusals(path: str | PathLike[str], *places: str) -> Iterator[None]:
    """Runs the block so that what is refused is an error that names the file."""
    try:
        yield
    except Refused as refused:
        where = re.sub(r", (?=[.\[:])", "", ", ".join([*places, *refused.where]))
        raise CompiledFileError(fspath(path), where, refused.what) from refused.__cause__


def _encode_options(options: Options) -> dict[str, Json]:
    if options.double_backward:
        raise Refused(NO_SECOND)
    if options.decompositions:
        raise Refused(NO_DECOMPOSITIONS)
    found: dict[str, Json] = {}
    for name in _COMPILERS:
        value = getattr(options, name)
        with at(name):
            found[name] = value if value is None or isinstance(value, str) else [name_of(_function(value))]
    return found | {name: getattr(options, name) for name in _PLAIN_OPTIONS}


def _added(blobs: list[bytes], data: bytes) -> int:
    blobs.append(data)
    return len(blobs) - 1


def _function(value: Any) -> Any:
    if not hasattr(value, "__qualname__"):
        raise Refused(f"it is an object of {type(value).__qualname__}. Give a function of a module")
    return value


def _classes_of(signature: JointSignature) -> Iterator[type]:
    """Yields the wrapper classes in a signature."""
    ahead: list[Any] = [given.meta for given in signature.inputs]
    ahead += [given.gradient.meta for given in signature.gradient_targets if given.gradient is not None]
    ahead += [value.meta for part in signature.parts for _, value, _ in part.gradients]
    ahead += [tangent.meta for tangent in signature.tangents]
    ahead += [output.meta for output in signature.outputs if hasattr(output, "meta")]
    while ahead:
        meta: InnerMeta = ahead.pop()
        if isinstance(meta, SubclassCreationMeta):
            yield meta.cls
            ahead += meta.attrs.values()
        elif isinstance(meta, ContainerMeta):
            ahead += meta.items.values()


def _name(fn: Callable[..., Any]) -> str:
    thing: Any = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{thing.__module__}:{thing.__qualname__}"

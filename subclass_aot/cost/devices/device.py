"""`Device`: the data of one device, from a file of this library or of one's own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import sys
import tomllib
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.whole_files import write_whole
from subclass_aot.cost.devices.amounts import MOST, bytes_of
from subclass_aot.errors import DeviceError

_UNKNOWN = """There is no device {name!r}.
  There are: {known}.
  Instead: write one of these, or the path of a TOML file with a device of your own ({name}.toml)."""

_WRONG = """The device in {place} has {what}.
  Instead: write {instead}."""


@dataclass(frozen=True)
class Device:
    """What a device is and can do at the most: what programs ask of it, and what times are estimated with.

    Attributes:
        name: As people say it: "H100 SXM".
        type: "cuda" or "cpu".
        capability: The compute capability, as torch gives it; None where there is none.
        multiprocessors: How many of them it has; of a CPU, cores.
        memory: What torch can allocate at the most, in bytes.
        flops: By dtype, dense operations in a second: "float32", "tf32", "bfloat16", "float16", "float8", "int8",
            "float64". One that the device has no units for is left out.
        bandwidth: Of its memory, in bytes in a second.
        launch: Seconds from one kernel to the next at least.
        link_bandwidth: From one device to another one of its kind, in one direction, in bytes in a second.
        link_latency: Seconds until the first byte is there.
        rounding: Sizes of allocations are multiples of so many bytes.
        product: What `torch.cuda.get_device_name` says.
        unseen: The names of attributes that were read, and never compared with what the hardware does.
        sources: Where the numbers are from.
    """

    # More than ten attributes: a table of data, one row a fact.

    name: str
    type: str
    multiprocessors: int
    memory: int
    flops: Mapping[str, float] = field(hash=False)
    bandwidth: float
    launch: float
    link_bandwidth: float
    link_latency: float
    rounding: int
    capability: tuple[int, int] | None = None
    product: str = ""
    unseen: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, (instead, is_right) in _FIELDS.items():
            value = given = getattr(self, name)
            if isinstance(value, list):
                value = tuple(value)
            elif name == "flops" and isinstance(value, Mapping):
                value = types.MappingProxyType(dict(value))
            elif name == "memory":
                with contextlib.suppress(DeviceError):  # which is reported below
                    value = bytes_of(value)
            if not is_right(value):
                what = f"{given!r} for `{name}`"
                raise DeviceError(_WRONG.format(place=f"{self.name!r}", what=what, instead=instead))
            object.__setattr__(self, name, value)
        if self.type == "cuda" and self.capability is None:
            what = "no `capability`, and devices of the type cuda have one"
            instead = _FIELDS["capability"][0]
            raise DeviceError(_WRONG.format(place=f"{self.name!r}", what=what, instead=instead))

    def peak(self, dtype: torch.dtype, allow_tf32: bool = False) -> float:
        """Returns how many operations in a second it can do at the most in a dtype.

        Args:
            dtype: What is multiplied. Where the device has no units for it, those for float32 do it.
            allow_tf32: Whether float32 may be rounded to tf32.

        >>> device_of("H100").peak(torch.bfloat16)
        989400000000000.0
        """
        name = str(dtype).removeprefix("torch.").partition("_")[0]  # float8_e4m3fn
        name = "tf32" if name == "float32" and allow_tf32 else {"uint8": "int8", "complex64": "float32"}.get(name, name)
        return self.flops.get(name, self.flops["float32"])

    def to_toml(self) -> str:
        """Returns the text of a file that says the same."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        flops = values.pop("flops")
        lines = [f"{name} = {_as_toml(value)}" for name, value in values.items() if value not in (None, "", ())]
        lines += ["", "[flops]", *(f"{name} = {_as_toml(value)}" for name, value in flops.items())]
        return "\n".join(lines) + "\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a file that `device_of` reads, whose path stands for the device.

        Args:
            path: The file, with the suffix ".toml".
        """
        write_whole(path, self.to_toml())

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __reduce__(self) -> tuple[object, ...]:  # a view of a dict can't be copied
        return _make, ({f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {"flops": dict(self.flops)},)


def _as_toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_as_toml, value))}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _make(fields: dict[str, Any]) -> Device:
    return Device(**fields)


def device_of(device: str | os.PathLike[str] | Device) -> Device:
    """Returns a device.

    Args:
        device: Its name ("H100", "A100", "RTX 4090", "cpu"), or the path of a TOML file, or the device itself.

    Raises:
        DeviceError: There is none of that name, or no such file; or the file lacks something, or has something else.

    >>> device_of("H100").capability, device_of("rtx4090").name
    ((9, 0), 'RTX 4090')
    """
    if isinstance(device, Device):
        return device
    path = Path(device)
    if path.suffix == ".toml":
        return _read(path)
    by_name = _own_devices()
    found = by_name.get(_plain(str(device)))
    if found is None:
        known = ", ".join(dict.fromkeys(each.name for each in by_name.values()))
        raise DeviceError(_UNKNOWN.format(name=str(device), known=known))
    return found


def claim_of(
    device: str | os.PathLike[str] | torch.device | Device | None,
) -> tuple[torch.device | None, Device | None]:
    """Returns the torch device that a claim names, and what it stands for, if it says that.

    Args:
        device: A device of torch's, or what `device_of` takes.

    Raises:
        DeviceError: There is no such device.
    """
    if isinstance(device, os.PathLike) or (isinstance(device, str) and device.endswith(".toml")):
        device = device_of(device)  # each time, since files change
    return _claim_of(device)


@functools.lru_cache(maxsize=256)
def _claim_of(device: str | torch.device | Device | None) -> tuple[torch.device | None, Device | None]:
    if device is None:
        return None, None
    if not isinstance(device, Device):
        try:
            return torch.device(device), None
        except RuntimeError:  # it is no name of torch's
            device = device_of(device)  # type: ignore[arg-type]  # what torch took is returned
    return torch.device(device.type, 0 if device.type == "cuda" else None), device  # type: ignore[arg-type]


@functools.cache
def _own_devices() -> dict[str, Device]:
    """Returns the devices that this library knows, by each name that they go by."""
    found: dict[str, Device] = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        device = _read(path)
        found |= dict.fromkeys(map(_plain, (path.stem, device.name, device.product)), device)
    return found


def _plain(name: str) -> str:
    name = "".join(c for c in name.casefold() if c.isalnum())
    return name.removeprefix("nvidia").removeprefix("geforce")


def _read(path: Path) -> Device:
    """Reads a file."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise DeviceError(
            f"There is no file {path}. Instead: write its path as it is seen from {Path.cwd()}."
        ) from None
    except (ValueError, RecursionError) as error:  # of the text, of its encoding, of digits, of brackets
        pass_on_interruption(error)
        raise DeviceError(_WRONG.format(place=path, what=f"no TOML: {error}", instead="key = value")) from None
    fields = {f.name: f for f in dataclasses.fields(Device)}
    for name in found.keys() - fields.keys():
        what = f"`{name}`, which no device has"
        raise DeviceError(_WRONG.format(place=path, what=what, instead=f"one of {', '.join(fields)}"))
    for name, each in fields.items():
        if name not in found and each.default is dataclasses.MISSING:
            raise DeviceError(_WRONG.format(place=path, what=f"no `{name}`", instead=_FIELDS[name][0]))
    try:
        return Device(**found)
    except DeviceError as error:
        error.add_note(f"  The file:  {path}")
        raise


DTYPES = ("float32", "tf32", "bfloat16", "float16", "float8", "int8", "float64")
"""The names that `flops` may have."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 < value < MOST


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and value is not True and 0 < value <= sys.float_info.max


def _is_capability(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, tuple) and len(value) == 2 and all(type(n) is int and 0 <= n < 1000 for n in value)


def _is_flops(value: object) -> bool:
    if not isinstance(value, Mapping) or "float32" not in value:
        return False
    return value.keys() <= set(DTYPES) and all(map(_is_amount, value.values()))


def _is_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_text, value))


def _is_names(value: object) -> bool:
    return isinstance(value, tuple) and _is_texts(value) and set(value) <= {f.name for f in dataclasses.fields(Device)}


_FIELDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "name": ('name = "My GPU"', lambda value: _is_text(value) and value != ""),
    "type": ('type = "cuda" or type = "cpu"', lambda value: value in ("cuda", "cpu")),
    "multiprocessors": ("multiprocessors = 132", _is_count),
    "memory": ('memory = "80GiB", or a number of bytes', _is_count),
    "flops": (f"a table [flops] with float32 = 67e12 at least, and of the others {', '.join(DTYPES[1:])}", _is_flops),
    "bandwidth": ("bandwidth = 3.35e12, in bytes in a second", _is_amount),
    "launch": ("launch = 4e-6, in seconds", _is_amount),
    "link_bandwidth": ("link_bandwidth = 450e9, in bytes in a second", _is_amount),
    "link_latency": ("link_latency = 1e-5, in seconds", _is_amount),
    "rounding": ("rounding = 512, in bytes", _is_count),
    "capability": ("capability = [9, 0]", _is_capability),
    "product": ('product = "NVIDIA H100 80GB HBM3"', _is_text),
    "unseen": ('unseen = ["launch"], with names of other keys', _is_names),
    "sources": ('sources = ["the datasheet"]', _is_texts),
}
"""For each field, what to write in a file, and what checks it."""

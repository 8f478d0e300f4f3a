"""Data of devices, and their files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from subclass_aot.cost.devices import Device, device_of
from subclass_aot.cost.profiling.words import amount
from subclass_aot.errors import DeviceError

FILES = sorted((Path(__file__).parents[3] / "subclass_aot" / "cost" / "devices").glob("*.toml"))


@pytest.mark.parametrize(
    ("name", "expected", "capability"),
    [
        ("H100", "H100 SXM", (9, 0)),
        ("h100 sxm", "H100 SXM", (9, 0)),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", (9, 0)),
        ("A100", "A100 SXM 80GB", (8, 0)),
        ("RTX 4090", "RTX 4090", (8, 9)),
        ("GeForce RTX 4090", "RTX 4090", (8, 9)),
        ("cpu", "CPU with 32 cores", None),
    ],
)
def test_names(name: str, expected: str, capability: tuple[int, int] | None) -> None:
    device = device_of(name)
    assert device.name == expected and device.capability == capability
    assert device_of(device) is device and hash(device) == hash(device_of(expected))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_say_where_numbers_are_from(path: Path) -> None:
    device = device_of(path)
    assert device == device_of(path.stem)
    assert "flops" in device.unseen and "launch" in device.unseen
    named = " ".join(device.sources)
    assert all(name in named for name in ("flops", "bandwidth", "rounding", "launch", "link_latency"))


def test_peaks_by_dtype() -> None:
    h100, a100 = device_of("H100"), device_of("A100")
    assert h100.peak(torch.float32) < h100.peak(torch.float32, allow_tf32=True) < h100.peak(torch.bfloat16)
    assert h100.peak(torch.float8_e4m3fn) == 2 * h100.peak(torch.float16) + 0.1e12
    assert a100.peak(torch.float8_e4m3fn) == a100.peak(torch.float32)  # it has no units for it
    assert h100.peak(torch.uint8) == h100.peak(torch.int8)


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(DeviceError, match=r"no device 'B9000'(.|\n)*H100 SXM(.|\n)*path of a TOML file.*B9000.toml"):
        device_of("B9000")


MINE = FILES[0].read_text()


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace("A100 SXM 80GB", "Mine").replace('"79.1GiB"', '"12GiB"'))
    device = device_of(path)
    assert device == device_of(str(path)) and device.name == "Mine" and device.memory == 12 << 30


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("bandwidth = 2.039e12\n", "", r"no `bandwidth`.\n  Instead: write bandwidth = 3.35e12"),
        ('"79.1GiB"', '"lots"', r"'lots' for `memory`.\n  Instead: write memory = \"80GiB\""),
        ("[8, 0]", "8.0", r"8.0 for `capability`.\n  Instead: write capability = \[9, 0\]"),
        ("capability = [8, 0]\n", "", r"no `capability`, and devices of the type cuda have one.\n  Instead: write cap"),
        ('"cuda"', '"gpu"', r"'gpu' for `type`.\n  Instead: write type = \"cuda\" or"),
        ("rounding = 512", "rounding = 0", r"0 for `rounding`.\n  Instead: write rounding = 512"),
        ("launch = 4e-6", "launch = true", r"True for `launch`.\n  Instead: write launch = 4e-6"),
        ("float32 =", "fp32 =", r"for `flops`.\n  Instead: write a table \[flops\] with float32"),
        ("rounding", "round", r"`round`, which no device has.\n  Instead: write one of name, type"),
        ("[flops]", "flops", r"no TOML: "),
        ('unseen = ["capability"', 'unseen = ["speed"', r"for `unseen`.\n  Instead: write unseen = "),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    assert before in MINE
    path.write_text(MINE.replace(before, after))
    with pytest.raises(DeviceError, match=message) as caught:
        device_of(path)
    assert str(path) in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="no file nowhere.toml"):
        device_of("nowhere.toml")


def test_a_device_is_made_of_another() -> None:
    bigger = dataclasses.replace(device_of("H100"), memory="141GiB", name="H200")
    assert isinstance(bigger, Device) and bigger.memory == 141 << 30 and bigger.flops == device_of("H100").flops


VALUES = [
    "1", "-1", "0", "1.5", "nan", "inf", "-inf", "1e400", "9" * 400, "9" * 5000, '""', '"x"', '"1e400GiB"', '"1e308PB"',
    '"9.9e18"', "true", "[]", "[[]]", "[{}]", "[1, 2]", "[1, 2.5]", '["x"]', "{}", "{x = 1}", "{float32 = 1}",
    "{float32 = []}", "{float32 = " + "9" * 400 + "}", "1979-05-27", "07:32:00", "[" * 5000, "{a=" * 5000, "'",
    '"\\u0000"',
]  # fmt: skip


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(Device)])
def test_any_value_is_taken_or_refused_by_name(tmp_path: Path, key: str) -> None:
    path = tmp_path / "mine.toml"
    kept = [line for line in MINE.partition("[flops]")[0].splitlines() if not line.startswith(f"{key} =")]
    flops = "" if key == "flops" else "[flops]" + MINE.partition("[flops]")[2]
    for value in VALUES:
        path.write_text("\n".join([*kept, f"{key} = {value}", flops]))
        try:
            device = device_of(path)
        except DeviceError:
            continue
        assert repr(device) and amount(device.memory) and amount(device.bandwidth) and device.to_toml()
        device.write(path)
        assert device_of(path) == device


@pytest.mark.parametrize("text", [b"\xff\xfe", b"name = " + b"9" * 5000, b"a = " + b"[" * 10**5, b"[" * 10**5])
def test_what_is_no_text_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(text)
    with pytest.raises(DeviceError, match="no TOML: "):
        device_of(path)

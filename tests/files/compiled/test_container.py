"""The bytes of a file."""

from __future__ import annotations

import pytest

from subclass_aot.base.refused import Refused
from subclass_aot.files.compiled import container
from subclass_aot.files.compiled.container import pack, unpack

DATA = pack({"a": [1, "x", None]}, [b"", b"12345"])


def test_what_was_packed_is_unpacked() -> None:
    assert unpack(DATA) == ({"a": [1, "x", None]}, [b"", b"12345"])


def test_each_bit_counts() -> None:
    for i in range(len(DATA)):
        for bit in range(8):
            with pytest.raises(Refused):
                unpack(DATA[:i] + bytes([DATA[i] ^ (1 << bit)]) + DATA[i + 1 :])


def test_a_file_that_is_cut_is_refused() -> None:
    for i in range(len(DATA)):
        with pytest.raises(Refused):
            unpack(DATA[:i])
    with pytest.raises(Refused, match="damaged"):
        unpack(DATA + b"x")


def test_another_format_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "FORMAT", 1)
    with pytest.raises(Refused, match="the file has format 9, and this version of the library reads format 1"):
        unpack(DATA)


def test_another_file_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="no file of compiled functions"):
        unpack(b"PK\x03\x04 and so on")


@pytest.mark.parametrize("text", [b"[" * 100_000, b"{", b"1" * 5000, b"\xff\xfe"])
def test_a_text_that_is_no_json_is_refused(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container.json, "dumps", lambda *args, **kwargs: _Text(text))
    packed = pack(None, [])
    monkeypatch.undo()
    with pytest.raises(Refused, match="is not JSON"):
        unpack(packed)


class _Text:
    def __init__(self, text: bytes) -> None:
        self.text = text

    def encode(self) -> bytes:
        return self.text

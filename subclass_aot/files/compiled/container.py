"""The bytes of a file: a mark, the version of the format, a checksum, a text in JSON, and the data of tensors.

Nothing is at a place that another place names: a file is read from its beginning to its end, and every byte is covered
by the mark or by the checksum.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from typing import Any

from subclass_aot.base.refused import Refused

MARK = b"subclass_aot\n"
FORMAT = 9
"""Files of another format are refused."""

_HEAD = struct.Struct("<I32sQ")

NOT_ONE = "this is no file of compiled functions. Write one with compiled.save(path)"
TOO_SHORT = "the file is not whole: it ends after {size} bytes"
OTHER_FORMAT = "the file has format {found}, and this version of the library reads format {wanted}. Write it again"
DAMAGED = "the file is damaged: its checksum is another. Write it again"
NO_TEXT = "the text in the file is not JSON: {error}"


def pack(document: object, blobs: Sequence[bytes]) -> bytes:
    """Returns the bytes of a file.

    Args:
        document: What `json.dumps` takes.
        blobs: Data beside it.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    body = struct.pack("<Q", len(blobs)) + b"".join(struct.pack("<Q", len(blob)) for blob in blobs)
    body += text + b"".join(blobs)
    return MARK + _HEAD.pack(FORMAT, hashlib.sha256(struct.pack("<Q", len(text)) + body).digest(), len(text)) + body


def unpack(data: bytes) -> tuple[Any, list[bytes]]:
    """Returns the inverse of `pack`.

    Raises:
        Refused: These are not the bytes of a file, or some of them are others than were written.
    """
    if not data.startswith(MARK):
        raise Refused(NOT_ONE)
    start = len(MARK) + _HEAD.size
    if len(data) < start + 8:
        raise Refused(TOO_SHORT.format(size=len(data)))
    version, checksum, length = _HEAD.unpack_from(data, len(MARK))
    if version != FORMAT:
        raise Refused(OTHER_FORMAT.format(found=version, wanted=FORMAT))
    body = data[start:]
    if hashlib.sha256(struct.pack("<Q", length) + body).digest() != checksum:
        raise Refused(DAMAGED)
    (count,) = struct.unpack_from("<Q", body)
    if 8 + 8 * count + length > len(body):
        raise Refused(TOO_SHORT.format(size=len(data)))
    sizes = struct.unpack_from(f"<{count}Q", body, 8)
    position = 8 + 8 * count
    if position + length + sum(sizes) != len(body):
        raise Refused(TOO_SHORT.format(size=len(data)))
    try:
        document = json.loads(body[position : position + length].decode())
    except (ValueError, RecursionError) as error:
        raise Refused(NO_TEXT.format(error=error)) from error
    blobs, position = [], position + length
    for size in sizes:
        blobs.append(body[position : position + size])
        position += size
    return document, blobs

"""What models of other libraries need: their libraries say a lot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import transformers


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)

"Every test that asks for `device` runs on each device that works here."
import os
import pstats
from importlib.util import find_spec

import pytest

from tinylit.backend.device import Unavailable
from tinylit.backend.device import device as find_device
from tinylit.random import manual_seed


def works(name: str) -> bool:
    try: find_device(name)
    except Unavailable: return False
    return True


COMPILED = ("c",) if find_spec("tinylit.compiler.realize") else ()      # the chapter that completes them
NAMES = [name for name in ("numpy", *COMPILED) if works(name)]


def our_calls(profile) -> int:
    "Calls of the package's own functions; what Python's collector or a tool calls in between depends on what ran before."
    stats = pstats.Stats(profile).stats
    return sum(counts[1] for (file, *_), counts in stats.items() if f"{os.sep}tinylit{os.sep}" in file)


@pytest.fixture(params=NAMES)
def device(request, monkeypatch):
    "The name of a device, which is the default one while the test runs."
    monkeypatch.setenv("TINYLIT_DEVICE", request.param)
    return request.param


@pytest.fixture(autouse=True)
def seeded():
    "The same noise in every test, whatever ran before."
    manual_seed(0)

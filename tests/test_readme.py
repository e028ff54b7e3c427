"The example on the first page does what it says."
import re
from pathlib import Path
import pytest
from tinylit import Tensor
from tinylit.backend.device import CompilingDevice

README = Path(__file__).resolve().parent.parent / "README.md"


def test_example_learns():
    first, second = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.S)[:2]
    names = {}
    exec(compile(first, "README.md", "exec"), names)
    assert names["right"].float().mean().item() > 0.9


@pytest.mark.skipif(not isinstance(Tensor(0).device, CompilingDevice), reason="the default device does not compile")
def test_every_step_can_be_looked_at():
    first, second = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.S)[:2]
    names = {}
    exec(compile(first.splitlines()[0] + "\n" + second, "README.md", "exec"), names)

"The example on the first page does what it says."
import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_example_learns():
    first, second = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.S)[:2]
    names = {}
    exec(compile(first, "README.md", "exec"), names)
    assert names["right"].float().mean().item() > 0.9

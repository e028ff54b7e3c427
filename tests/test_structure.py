"The structure check finds each kind of fault. (That the repository has none is for `make check`.)"
import json
import shutil
import subprocess
import sys
from pathlib import Path
import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ["nbs", "tinylit", "tools", "settings.ini", "pyproject.toml", "README.md"]


@pytest.fixture
def copy(tmp_path):
    "A copy of the repository to break."
    for part in PARTS:
        source = ROOT / part
        if source.is_dir(): shutil.copytree(source, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
        else: shutil.copy(source, tmp_path / part)
    return tmp_path


def structure(root: Path) -> tuple[int, str]:
    "Exit status and report of the structure check on the repository at `root`."
    r = subprocess.run([sys.executable, root / "tools" / "structure.py"], capture_output=True, text=True)
    return r.returncode, r.stdout + r.stderr


def append(root: Path, notebook: str, source: str):
    "Add an exported cell to a notebook, and export."
    path = root / "nbs" / notebook
    nb = json.loads(path.read_text("utf-8"))
    cell = dict(cell_type="code", id="added000", metadata={}, outputs=[], execution_count=None, source=f"#| export\n{source}")
    nb["cells"].append(cell)
    path.write_text(json.dumps(nb), "utf-8")
    subprocess.run([Path(sys.executable).parent / "nbdev-export"], cwd=root, check=True)


FAULTS = {
    "an upward import": ("from tinylit.cli import main", "a later chapter"),
    "a name exported twice": ("def show(x): return x", "show is exported by"),
    "a name defined twice": ("def once(): pass\ndef once(): pass", "once is defined twice"),
    "a star import": ("from tinylit.graph.op import *", "name what you need"),
    "an import by name": ("from importlib import import_module\nx = import_module('math')", "imports by name"),
    "a package that may be absent": ("import numpy", "may be absent"),
    "a missing module": ("from tinylit.nowhere import x", "which no notebook exports"),
    "golf": ("\n".join(f"a{i} = [b + c * d for b in x for c in y for d in z if b if c if d]" for i in range(400)), "tokens a line"),
    "a budget exceeded": ("\n".join(f"a{i} = {i}" for i in range(3000)), "at most 3,000"),
}

@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(copy, fault):
    source, said = FAULTS[fault]
    append(copy, "05_movement.ipynb", source)
    status, report = structure(copy)
    assert status and said in report, report


def test_edited_module_is_found(copy):
    with open(copy / "tinylit/graph/op.py", "a") as f: f.write("x = 1\n")
    status, report = structure(copy)
    assert status == 1 and "tinylit/graph/op.py differs from its notebook" in report


def test_leftover_module_is_found(copy):
    (copy / "tinylit/old.py").write_text("x = 1\n")
    status, report = structure(copy)
    assert status == 1 and "tinylit/old.py differs from its notebook" in report


def test_two_notebooks_one_module(copy):
    shutil.copy(copy / "nbs/02_op.ipynb", copy / "nbs/03_again.ipynb")
    status, report = structure(copy)
    assert status == 1 and "both export graph.op" in report

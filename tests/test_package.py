"The package: its version, its extras, and that it works without what it does not need."
import os
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
import pytest
import tinylit
from tinylit.backend.device import Unavailable, device

ROOT = Path(__file__).resolve().parent.parent
ABSENT = "numpy", "graphviz", "tqdm", "platformdirs", "matplotlib"
HIDE = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {ABSENT}: raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Hidden())
"""


def without_dependencies(code: str) -> str:
    "What `code` prints in a process where the dependencies are not installed."
    env = {k: v for k, v in os.environ.items() if not k.startswith("TINYLIT_")}
    r = subprocess.run([sys.executable, "-c", HIDE + code], cwd=ROOT, env=env, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return r.stdout


def settings():
    ini = ConfigParser(delimiters=["="], interpolation=None)
    ini.read(ROOT / "settings.ini", encoding="utf-8")
    return ini["DEFAULT"]


def test_version(): assert tinylit.__version__ == settings()["version"]


def test_extras(): assert {k for k in settings() if k.endswith("_requirements")} >= {
    "dev_requirements", "book_requirements", "opencl_requirements", "cuda_requirements"}


def test_the_face_is_whole():
    assert {"Tensor", "nn", "grad", "dtypes"} <= set(tinylit.__all__)
    assert all(hasattr(tinylit, name) for name in tinylit.__all__)


def test_every_module_imports_without_dependencies():
    modules = [".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for p in (ROOT / "tinylit").rglob("*.py")]
    without_dependencies("\n".join(f"import {m}" for m in sorted(modules) if not m.endswith("_modidx")))


def test_importing_it_loads_nothing_heavy():
    text = "import sys, tinylit; print(*{'numpy', 'matplotlib', 'graphviz', 'tqdm', 'ssl', 'http'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "\n"


def test_digits_without_dependencies():
    assert "1437" in without_dependencies("from tinylit.data import digits_raw; print(len(digits_raw()['x_train']))")


def test_sum_without_dependencies():
    try: device("c")
    except Unavailable as e: pytest.skip(f"no C device: {e}")
    assert without_dependencies("import tinylit; print(tinylit.Tensor([1, 2, 3]).sum().tolist())") == "6\n"

"The command line, run as a user would."
import os
import subprocess
import sys
from pathlib import Path
import pytest
from tinylit import cli, lines

ROOT = Path(__file__).resolve().parent.parent


def tinylit(*args, folder, **env) -> subprocess.CompletedProcess:
    "Run the command in `folder`."
    command = [sys.executable, "-c", "import sys; from tinylit.cli import main; sys.exit(main())", *args]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_demo_writes_what_it_says(tmp_path):
    r = tinylit("demo", "--steps", "12", folder=tmp_path)
    assert r.returncode == 0, r.stderr
    assert "mlp: test accuracy" in r.stdout and "cnn: test accuracy" in r.stdout and "bytes moved" in r.stdout
    written = {p.name for p in (tmp_path / "tinylit-demo").iterdir()}
    assert written == {"index.html", "loss.svg", "tests.svg", "filters.svg", "graph.svg"}
    assert (tmp_path / "tinylit-demo" / "index.html").read_text("utf-8").count("<figure>") == 4


def test_commands_that_look(tmp_path):
    for command in ("devices", "doctor"):
        r = tinylit(command, folder=tmp_path)
        assert r.returncode in (0, 1) and "numpy" in r.stdout, r.stderr


def test_lines_are_those_of_the_check(tmp_path):
    table, over = lines.line_table(ROOT / "tinylit")
    r = tinylit("lines", folder=tmp_path)
    assert r.stdout.startswith(table) and r.returncode == bool(over)


@pytest.mark.parametrize("args, env, said", [
    (["demo", "--device", "abacus"], {}, "no device is called 'abacus'"),
    (["demo", "--data", "mnist"], {"TINYLIT_DATA": "/nowhere"}, "TINYLIT_DATA=/nowhere holds no mnist.npz"),
    (["demo", "--steps", "0"], {}, "at least 1"), (["demo", "--folder", "/dev/null/x"], {}, "/dev/null")])
def test_mistakes_are_one_line(tmp_path, args, env, said):
    r = tinylit(*args, folder=tmp_path, **env)
    assert r.returncode == 2 and said in r.stderr and "Traceback" not in r.stderr


@pytest.mark.parametrize("source, count", [
    ("", 0), ("# only a comment\n", 0), ('"A docstring."\n', 0), ("x = 1  # with a comment\n", 1), ("x = (1,\n     2)\n", 2),
    ('def f():\n    """Two\n    lines."""\n    return 1\n', 2), ("x = '''a\nb'''\n", 2), ("class C:\n    'Doc.'\n    x = 1\n\n\n", 2)])
def test_lines_of_code(source, count): assert lines.code_size(source)[0] == count


def test_every_module_has_a_budget():
    assert lines.group_of("graph.draw") == "pictures" and lines.group_of("backend.c") == lines.group_of("compiler.fuse") == "core"
    assert lines.group_of("backend.cuda") == "backends" and lines.group_of("nn.optim") == "core" and lines.group_of("cli") == "around"


def test_rows_of_epochs():
    batches = cli.rows_of_epochs(10, 4)
    first, second, third = next(batches), next(batches), next(batches)
    assert len({*first, *second}) == 8 and len(third) == 4 and third != first
    assert len(next(cli.rows_of_epochs(3, 64))) == 3

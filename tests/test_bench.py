"The benchmark measures what it says: the libraries agree, and every case runs."
import runpy
from pathlib import Path
import pytest

np = pytest.importorskip("numpy")
bench = runpy.run_path(str(Path(__file__).resolve().parent.parent / "bench" / "run.py"))


@pytest.mark.parametrize("case", [lambda: bench["matmul"](20), lambda: bench["softmax"](6, 10)])
def test_libraries_agree(case):
    runs = case()
    np.testing.assert_allclose(runs["tinylit"]().numpy(), runs["numpy"](), rtol=1e-5, atol=1e-5)


def test_a_row_of_the_table():
    result = bench["measure"](bench["cnn_step"](8), rounds=1)
    assert result["tinylit"]["median"] >= result["tinylit"]["least"] > 0
    assert bench["row"]("cnn", result).startswith("cnn ")

"Data: what is loaded is whole, split once, and read without trust."
import io
import threading
import zipfile
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinylit import data
from tinylit.data import Raw, batches, digits_raw, read_npy, read_npz, shuffled

np = pytest.importorskip("numpy")


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_the_plays_come_with_the_package():
    text = data.plays()
    assert len(text) == 119_983 and text.startswith("First Citizen:\n") and text.isascii()


def test_digits_are_whole_and_split_once():
    raw = digits_raw()
    assert [raw[k].shape for k in data.SETS] == [(1437, 1, 8, 8), (1437,), (360, 1, 8, 8), (360,)]
    images = {k: [raw[k][[i]].data for i in range(len(raw[k]))] for k in ("x_train", "x_test")}
    assert not set(images["x_train"]) & set(images["x_test"])
    assert max(raw["x_train"].data) == 16 and set(raw["y_train"].data) == set(range(10))
    assert min(Counter(raw["y_test"].data).values()) > 20


def test_digits_as_tensors():
    x, y, x_test, y_test = data.digits()
    raw = digits_raw()
    assert x.shape == (1437, 1, 8, 8) and str(x.dtype) == "float32" and str(y.dtype) == "int32"
    assert [round(v * 16) for v in x[5].flatten().tolist()] == list(raw["x_train"][[5]].data)
    assert y_test.tolist() == list(raw["y_test"].data)


@given(n=st.integers(1, 200), size=st.integers(1, 50), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_batches_see_everything_once(n, size, seed, epoch):
    x = Raw(bytes(range(n)), (n,))
    seen = [(a.data, b.data) for a, b in batches(x, x, size, seed, epoch)]
    assert all(a == b for a, b in seen) and sorted(b"".join(a for a, _ in seen)) == list(range(n))
    whole = [a for a, _ in batches(x, x, size, seed, epoch, drop_last=True)]
    assert len(whole) == n // size and all(len(a) == size for a in whole)


def test_batches_of_different_lengths():
    with pytest.raises(ValueError, match="3 rows of x and 2 of y"): list(batches(Raw(b"abc", (3,)), Raw(b"ab", (2,)), 1))


def test_shuffles_are_the_same_everywhere():
    assert shuffled(10) == [0, 9, 8, 1, 7, 6, 3, 2, 4, 5]
    assert shuffled(100, 0, 1) != shuffled(100, 0, 2) != shuffled(100, 1, 2)


@pytest.mark.parametrize("array", [np.zeros((2, 3), np.uint8), np.arange(5, dtype=np.float32), np.array(7, np.int64), np.ones((0, 4), bool)])
def test_npy_is_read(array):
    raw = read_npy(npy(array))
    assert raw.data == array.tobytes() and raw.shape == array.shape and raw.dtype == array.dtype.name


@pytest.mark.parametrize("content, said", [
    (b"", "not a .npy"), (npy(np.zeros(2, complex)), "kind '<c16'"), (npy(np.asfortranarray(np.ones((2, 3)))), "columns come first")])
def test_npy_that_cannot_be_read(content, said):
    with pytest.raises(ValueError, match=said): read_npy(content)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_broken_npz_is_a_value_error(noise, cut):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as z: z.writestr("x.npy", npy(np.arange(4)))
    whole = file.getvalue()
    for content in (noise, whole[:cut], whole[:cut] + noise + whole[cut + len(noise):]):
        try: read_npz(io.BytesIO(content))
        except ValueError: pass


def test_mnist_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYLIT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="holds no mnist.npz"): data.mnist_raw()
    np.savez(tmp_path / "mnist.npz", x_train=np.zeros(3))
    with pytest.raises(ValueError, match="checksum; delete it and unset TINYLIT_DATA"): data.mnist_raw()
    (tmp_path / "mnist.npz").write_bytes(b"half a download")
    with pytest.raises(ValueError, match="mnist.npz cannot be read"): data.mnist_raw()


class Answer(BaseHTTPRequestHandler):
    "Serves /whole, breaks off /half, has nothing else."
    def do_GET(self):
        if self.path not in ("/whole", "/half"): return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * (1000 if self.path == "/whole" else 10))
    def log_message(self, *args): pass


@pytest.fixture
def url():
    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_download_is_whole_or_not_there(tmp_path, url):
    data.download(url + "/whole", tmp_path / "new" / "file")
    assert (tmp_path / "new" / "file").read_bytes() == b"x" * 1000
    for path in ("/half", "/nothing"):
        with pytest.raises(ConnectionError, match="set TINYLIT_DATA"): data.download(url + path, tmp_path / "other")
    assert [p.name for p in tmp_path.iterdir()] == ["new"]

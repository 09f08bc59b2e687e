"""The registry of data sets, and fetching from a server that behaves well or badly."""

import dataclasses
import hashlib
import http.server
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from workingpapers import data
from workingpapers.data import cache as cache_module
from workingpapers.data import download, registry

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes: several chunks
HALF = len(CONTENT) // 2


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT in the manner asked for, and notes what it was asked and what it sent."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.manner = "right"
        self.location = "http://example.org/etth1.csv"
        self.ranges, self.sent = [], []
        self.released = threading.Event()

    def handle_error(self, request, client_address):
        """A client that hangs up is part of the game."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.ranges.append(self.headers.get("Range"))
        getattr(self, self.server.manner)()

    def log_message(self, *args):
        pass

    def _offset(self):
        return int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))

    def _answer(self, status, body, length=None, **headers):
        self.server.sent.append(len(body))  # before the client can go on to its next request
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _partial(self, body, start, **headers):
        last = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
        self._answer(206, body, len(CONTENT) - start, Content_Range=last, **headers)

    def right(self):
        self._partial(CONTENT[self._offset() :], self._offset())

    def wrong(self):
        self._partial(CONTENT[self._offset() :][::-1], self._offset())

    def cut_off(self):
        self.server.manner = "right"
        self._partial(CONTENT[self._offset() : HALF], self._offset())

    def cut_off_unannounced(self):
        self._answer(200, CONTENT[:HALF])

    def no_ranges(self):
        self._answer(200, CONTENT, len(CONTENT))

    def no_length(self):
        self._answer(200, CONTENT)

    def endless(self):
        self._answer(200, CONTENT + CONTENT)

    def longer(self):
        self._answer(200, CONTENT, len(CONTENT) + 1)

    def shifted(self):
        self._partial(CONTENT, self._offset() + 1)

    def unsatisfiable(self):
        self._answer(416, b"", 0)

    def empty(self):
        self._answer(204, b"")

    def login_page(self):
        self._answer(200, b"<html>Who are you?</html>")

    def long_login_page(self):
        self._answer(200, b"<html>Who are you?</html>" * len(CONTENT))

    def rangeless(self):
        self._answer(206, CONTENT[self._offset() :])

    def too_short_a_range(self):
        self._answer(206, b"\7" * 9, 9, Content_Range=f"bytes {HALF}-{HALF + 8}/{len(CONTENT)}")

    def too_long_a_range(self):
        self._partial_without_length(b"\7" * len(CONTENT))

    def odd_length(self):
        self._answer(200, CONTENT, "many")

    def trickle(self):
        self._partial_without_length(b"")
        for start in range(self._offset(), len(CONTENT), 1 << 15):
            self.wfile.write(CONTENT[start : start + (1 << 15)])
            time.sleep(0.01)

    def thief(self):
        self.server.part.unlink()
        if self.server.left is not None:
            self.server.part.write_bytes(self.server.left)
        self.right()

    def _partial_without_length(self, body):
        start = self._offset()
        last = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
        self._answer(206, body, Content_Range=last)

    def missing(self):
        self._answer(404, b"no such page", 12)

    def elsewhere(self):
        self._answer(302, b"", 0, Location=self.server.location)

    def round_the_corner(self):
        self.server.manner = "right"
        self._answer(302, b"", 0, Location="/again")

    def slow(self):
        self._partial(b"", 0)
        self.server.released.wait(20)


@pytest.fixture
def server(monkeypatch, tmp_path):
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True, args=(0.01,)).start()
    entry = data.DataSet(
        name="numbers",
        title="All bytes, many times over",
        source="this test",
        licence="CC0",
        url=f"http://127.0.0.1:{server.server_port}/numbers.bin",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        filename="numbers.bin",
    )
    monkeypatch.setattr(registry, "DATASETS", (*registry.DATASETS, entry))
    monkeypatch.setenv("WORKINGPAPERS_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def held(cache):
    return {file.name: file.stat().st_size for file in cache.iterdir()}


def fetch():
    return data.fetch("numbers", progress=False)


def test_a_fetched_file_has_the_right_bytes_and_is_not_fetched_twice(server, cache):
    assert fetch().read_bytes() == CONTENT
    assert held(cache) == {"numbers.bin": len(CONTENT)}
    assert fetch() == data.path("numbers") == cache / "numbers.bin"
    assert len(server.ranges) == 1


@pytest.mark.parametrize("manner", ["no_ranges", "no_length", "round_the_corner"])
def test_servers_that_are_unusual_but_right(server, manner):
    server.manner = manner
    assert fetch().read_bytes() == CONTENT


def test_a_wrong_checksum_is_an_error_and_leaves_nothing(server, cache):
    server.manner = "wrong"
    with pytest.raises(ValueError, match="sha256"):
        fetch()
    assert held(cache) == {}


@pytest.mark.parametrize("manner", ["cut_off", "cut_off_unannounced"])
def test_a_cut_off_transfer_leaves_a_hidden_part_and_the_next_sends_only_the_rest(
    server, cache, manner
):
    server.manner = manner
    with pytest.raises(ConnectionError, match="goes on where this stopped"):
        fetch()
    ((name, have),) = held(cache).items()
    assert name == ".numbers.bin.part" and 0 < have <= HALF
    assert (cache / name).read_bytes() == CONTENT[:have]
    server.manner = "right"
    assert fetch().read_bytes() == CONTENT
    assert server.ranges[-1] == f"bytes={have}-"
    assert server.sent[-1] == len(CONTENT) - have
    assert held(cache) == {"numbers.bin": len(CONTENT)}


@pytest.mark.parametrize("manner", ["no_ranges", "no_length"])
def test_without_ranges_a_part_is_replaced_by_the_whole(server, cache, manner):
    cache.mkdir()
    (cache / ".numbers.bin.part").write_bytes(b"\x07" * HALF)
    server.manner = manner
    assert fetch().read_bytes() == CONTENT


def test_a_complete_part_needs_no_transfer(server, cache):
    cache.mkdir()
    (cache / ".numbers.bin.part").write_bytes(CONTENT)
    assert fetch().read_bytes() == CONTENT
    assert server.ranges == []


def test_a_part_that_is_too_long_is_begun_anew(server, cache):
    cache.mkdir()
    (cache / ".numbers.bin.part").write_bytes(CONTENT + b"!")
    assert fetch().read_bytes() == CONTENT


@pytest.mark.parametrize("length", [1, HALF, len(CONTENT)])
def test_a_part_with_wrong_bytes_is_replaced_at_once(server, cache, length):
    cache.mkdir()
    (cache / ".numbers.bin.part").write_bytes(b"\x07" * length)
    assert fetch().read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=0-"
    assert held(cache) == {"numbers.bin": len(CONTENT)}


def test_a_wrong_part_and_a_wrong_file_leave_nothing(server, cache):
    cache.mkdir()
    (cache / ".numbers.bin.part").write_bytes(b"\x07" * HALF)
    server.manner = "wrong"
    with pytest.raises(ValueError, match="sha256"):
        fetch()
    assert held(cache) == {} and server.ranges == [f"bytes={HALF}-", "bytes=0-"]


@pytest.mark.parametrize(
    "manner",
    [
        "empty",
        "login_page",
        "long_login_page",
        "rangeless",
        "too_short_a_range",
        "too_long_a_range",
        "odd_length",
        "cut_off_unannounced",
        "longer",
        "shifted",
        "unsatisfiable",
        "missing",
        "elsewhere",
    ],
)
def test_no_answer_spoils_a_good_part(server, cache, manner):
    cache.mkdir()
    part = cache / ".numbers.bin.part"
    part.write_bytes(CONTENT[:HALF])
    server.manner = manner
    with pytest.raises((ConnectionError, ValueError)):
        fetch()
    assert held(cache) == {part.name: HALF} and part.read_bytes() == CONTENT[:HALF]
    server.manner = "right"
    assert fetch().read_bytes() == CONTENT
    assert server.ranges[-1] == f"bytes={HALF}-" and server.sent[-1] == len(CONTENT) - HALF


@pytest.mark.parametrize("have", [0, HALF])
@pytest.mark.parametrize("manner", ["trickle", "no_length"])
def test_fetches_at_once_do_not_disturb_each_other(server, cache, have, manner):
    if have:
        cache.mkdir()
        (cache / ".numbers.bin.part").write_bytes(CONTENT[:have])
    server.manner = manner

    def after(delay):
        time.sleep(delay)
        return fetch().read_bytes()

    with ThreadPoolExecutor(4) as pool:
        assert all(got == CONTENT for got in pool.map(after, (0, 0, 0.05, 0.1)))
    assert held(cache) == {"numbers.bin": len(CONTENT)}


@pytest.mark.parametrize("error", [None, FileNotFoundError(), requests.ConnectionError()])
def test_a_fetch_may_be_overtaken(server, cache, monkeypatch, error):
    def overtaken(url, part, size, progress):
        (cache / "numbers.bin").write_bytes(CONTENT)
        if error is not None:
            raise error

    monkeypatch.setattr(cache_module, "download", overtaken)
    assert fetch().read_bytes() == CONTENT


@pytest.mark.parametrize("left", [None, b"", CONTENT[: HALF - 1]])
def test_a_part_that_was_taken_away_is_not_written_with_a_hole(server, cache, left):
    cache.mkdir()
    server.left = left
    server.part = cache / ".numbers.bin.part"
    server.part.write_bytes(CONTENT[:HALF])
    server.manner = "thief"
    with pytest.raises(ConnectionError, match="the transfer failed"):
        fetch()
    assert held(cache) == ({} if left is None else {server.part.name: len(left)})
    server.manner = "right"
    assert fetch().read_bytes() == CONTENT


@pytest.mark.parametrize("target", ["precious.txt", "absent.txt"])
def test_a_link_in_the_place_of_the_part_is_never_written_through(server, cache, tmp_path, target):
    cache.mkdir()
    (tmp_path / "precious.txt").write_text("mine")
    (cache / ".numbers.bin.part").symlink_to(tmp_path / target)
    assert fetch().read_bytes() == CONTENT
    assert (tmp_path / "precious.txt").read_text() == "mine"
    assert not (tmp_path / "absent.txt").exists() and not (cache / "numbers.bin").is_symlink()


@pytest.mark.parametrize("name", ["numbers.bin", ".numbers.bin.part"])
def test_a_folder_in_the_way_is_named_before_any_transfer(server, cache, name):
    (cache / name).mkdir(parents=True)
    with pytest.raises(FileExistsError, match=f"{name} is a folder"):
        fetch()
    assert server.ranges == []


@pytest.mark.parametrize(
    ("manner", "message"),
    [
        ("longer", f"has {len(CONTENT) + 1} bytes after 0, not {len(CONTENT)}"),
        ("endless", "more than"),
        ("shifted", "another range"),
        ("unsatisfiable", "has no byte after"),
        ("odd_length", "has many bytes"),
        ("rangeless", "another range than bytes 0-: ''"),
    ],
)
def test_a_file_of_another_size_is_refused_and_nothing_is_kept(server, cache, manner, message):
    server.manner = manner
    with pytest.raises(ValueError, match=message):
        fetch()
    assert held(cache) == {}


def test_a_page_that_is_not_there(server, cache):
    server.manner = "missing"
    with pytest.raises(ConnectionError, match="404"):
        fetch()
    assert held(cache) == {}


def test_a_server_that_falls_silent_is_given_up(server, monkeypatch, cache):
    monkeypatch.setattr(download, "TIMEOUT_S", (5.0, 0.2))
    server.manner = "slow"
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match=r"[Tt]imed out"):
        fetch()
    assert time.monotonic() - begun < 10
    assert "numbers.bin" not in held(cache)


def test_a_server_that_is_not_there(server, cache, monkeypatch):
    absent = dataclasses.replace(data.get("numbers"), url="http://localhost:1/numbers.bin")
    monkeypatch.setattr(registry, "DATASETS", (absent,))
    monkeypatch.setenv("NO_PROXY", "localhost")
    with pytest.raises(ConnectionError, match="numbers: the transfer failed"):
        fetch()
    assert held(cache) == {}


@pytest.mark.parametrize(
    "location",
    [
        "http://example.org/etth1.csv",
        "ftp://example.org/etth1.csv",
        "file:///etc/hostname",
        "https://[::1/etth1.csv",
        "https://example.org:port/etth1.csv",
        "https://",
    ],
)
def test_a_redirect_to_an_address_that_is_not_https_is_refused(server, cache, location):
    server.manner, server.location = "elsewhere", location
    with pytest.raises(ValueError):
        fetch()
    assert held(cache) == {}


def test_an_address_that_requests_refuses(server, monkeypatch):
    starred = dataclasses.replace(data.get("numbers"), url="https://*.example.org/numbers.bin")
    monkeypatch.setattr(registry, "DATASETS", (starred,))
    with pytest.raises(ValueError, match=r"numbers: .*invalid label"):
        fetch()


def test_only_what_begins_on_this_machine_may_lead_to_it():
    request = requests.Request("GET", "http://127.0.0.1:1/numbers.bin").prepare()
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:1/numbers\.bin is refused"):
        download._Guard("https://example.org/numbers.bin").send(request)
    with pytest.raises(requests.ConnectionError):
        download._Guard("http://localhost:1/numbers.bin").send(request, timeout=5)


def test_an_interrupted_process_leaves_only_the_part(server, cache, tmp_path):
    code = f"""
        import dataclasses
        from workingpapers import data
        from workingpapers.data import registry
        entry = data.DataSet("numbers", "t", "s", "l", {data.get("numbers").url!r},
                             {data.get("numbers").sha256!r}, {len(CONTENT)}, "numbers.bin")
        registry.DATASETS = (entry,)
        data.fetch("numbers")
    """
    server.manner = "slow"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while not (cache / ".numbers.bin.part").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert held(cache) == {".numbers.bin.part": 0}


@pytest.mark.parametrize(("silent", "shown"), [("0", True), ("1", False)])
def test_the_progress_bar_counts_bytes_and_can_be_silenced(
    server, monkeypatch, capfd, silent, shown
):
    code = (
        "from workingpapers import data; from workingpapers.data import registry;"
        f"registry.DATASETS = ({data.get('numbers')!r},);"
        "data.fetch('numbers')"
    ).replace("DataSet(", "data.DataSet(")
    environment = os.environ | {"TQDM_DISABLE": silent} if silent == "1" else dict(os.environ)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert ("500k/500k" in capfd.readouterr().err) is shown


def test_progress_false_shows_nothing(server, capfd):
    fetch()
    assert capfd.readouterr() == ("", "")


def test_path_never_fetches_and_says_how_to(server):
    with pytest.raises(FileNotFoundError, match="workingpapers data fetch numbers"):
        data.path("numbers")
    assert server.ranges == []


def test_path_refuses_a_file_that_was_changed_and_fetch_mends_it(server, cache):
    file = fetch()
    file.write_bytes(CONTENT[:-1] + b"!")
    with pytest.raises(ValueError, match="not the registered file"):
        data.path("numbers")
    assert fetch().read_bytes() == CONTENT


def test_a_local_copy_is_used_where_it_lies(server, tmp_path):
    copy = tmp_path / "mine.bin"
    copy.write_bytes(CONTENT)
    assert data.path("numbers", local=copy) == copy
    assert data.path("numbers", local=str(copy)) == copy
    copy.write_bytes(CONTENT[1:])
    with pytest.raises(ValueError, match=r"mine\.bin is not the registered file"):
        data.path("numbers", local=copy)
    with pytest.raises(FileNotFoundError, match="is not a file"):
        data.path("numbers", local=tmp_path)
    assert server.ranges == []


def test_the_cache_is_the_users_own_without_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("WORKINGPAPERS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="workingpapers data fetch etth1"):
        data.path("etth1")
    monkeypatch.setenv("WORKINGPAPERS_DATA", "~/book")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "book" / "ETTh1.csv")):
        data.path("etth1")


def test_names_and_file_names_are_unique():
    entries = data.list_datasets()
    assert len({entry.name for entry in entries}) == len(entries)
    assert len({entry.filename for entry in entries}) == len(entries)
    assert all(data.get(entry.name) is entry for entry in entries)


def test_the_first_entry_says_where_it_comes_from():
    entry = data.get("etth1")
    assert entry.size == 2_589_657 and entry.licence == "CC BY-ND 4.0"
    assert entry.url.endswith("zhouhaoyi/ETDataset/main/ETT-small/ETTh1.csv")


@pytest.mark.parametrize("name", ["ett", "", "ETTh1", "etth1 "])
def test_an_unknown_name_lists_the_known(name):
    for function in (data.get, data.path, data.fetch):
        with pytest.raises(ValueError, match=r"there is: .*\betth1\b"):
            function(name)


@pytest.mark.parametrize("name", [None, 1, b"etth1", ["etth1"]])
def test_a_name_is_a_string(name):
    with pytest.raises(TypeError, match="name must be a string"):
        data.get(name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Two words"),
        ("name", ""),
        ("title", " "),
        ("source", ""),
        ("licence", ""),
        ("url", "http://example.org/a.csv"),
        ("url", "http://localhost@example.org/a.csv"),
        ("url", "http://localhost.example.org/a.csv"),
        ("url", "ftp://example.org/a.csv"),
        ("url", "file:///a.csv"),
        ("url", "https:///a.csv"),
        ("url", "a.csv"),
        ("url", "http://example.org\\@localhost/a.csv"),
        ("url", "https://example.org/a b.csv"),
        ("url", "https://example.org/a.csv\n"),
        ("url", "https://[example.org/a.csv"),
        ("url", "https://example.org:port/a.csv"),
        ("name", None),
        ("title", 1),
        ("source", None),
        ("licence", b"CC0"),
        ("url", None),
        ("sha256", 64 * [1]),
        ("filename", None),
        ("offline", 1),
        ("offline", " "),
        ("sha256", "f18d"),
        ("sha256", "G" * 64),
        ("sha256", "A" * 64),
        ("size", 0),
        ("size", -1),
        ("size", 1.5),
        ("size", float("nan")),
        ("size", True),
        ("filename", ".hidden"),
        ("filename", "../up.csv"),
        ("filename", "a/b.csv"),
        ("filename", "a\\b.csv"),
        ("filename", ""),
    ],
)
def test_a_bad_entry_is_refused_by_the_field_it_is_bad_in(field, value):
    with pytest.raises(ValueError, match=f"^{field} must be"):
        dataclasses.replace(data.get("etth1"), **{field: value})


@given(st.from_regex(r"[a-z]{1,20}(\.[a-z]{2,5}){1,2}", fullmatch=True))
def test_plain_http_to_a_named_host_is_never_safe(host):
    assert not registry.is_safe(f"http://{host}/file")
    assert not registry.is_safe(f"http://localhost:1@{host}/file")
    assert registry.is_safe(f"https://{host}/file")


def test_importing_the_package_opens_no_connection():
    code = """
        import importlib, pkgutil, socket
        def refuse(*args, **kwargs):
            raise AssertionError(f"network use: {args}")
        socket.socket.connect = socket.socket.connect_ex = refuse
        socket.getaddrinfo = socket.create_connection = refuse
        import workingpapers
        def fail(name):
            raise
        found = [m.name for m in pkgutil.walk_packages(
            workingpapers.__path__, "workingpapers.", onerror=fail)]
        for name in found:
            importlib.import_module(name)
        print(*found)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {"workingpapers.cli", "workingpapers.data.cache"} <= set(done.stdout.split())

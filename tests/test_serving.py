"""A model behind real HTTP: who gets which answer, overload, time limits, broken and hostile clients, kills."""
import http.client
import json
import math
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from copies import PYTHON

from mlinfra.engine.http.server import serve
from mlinfra.engine.http.load_client import ServerError, ask, offer_load

MLINFRA = Path(sys.executable).with_name("mlinfra")
pytest.importorskip("uvicorn", reason='uvicorn is not installed: pip install "mlinfra[serve]"')


def brightest(images):
    "Scores that are the means of ten rows: the class is the row with the most ink."
    return 50 * images[:, 0, :10].mean(-1)


def digit(row):
    image = torch.zeros(1, 28, 28, dtype=torch.uint8)
    image[0, row] = 255
    return image


def wait_until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"never came true in {seconds} s: {what}"
        time.sleep(0.005)


class Gate:
    "A model that waits until it is let go, and says when it has begun."
    def __init__(self): self.begun, self.open, self.sizes = threading.Event(), threading.Event(), []

    def __call__(self, images):
        if images.any():  # the server's own first images are empty
            self.sizes.append(len(images))
            self.begun.set()
            assert self.open.wait(60), "the gate was never opened"
        return brightest(images)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as pool: yield pool


def outcome(url, images):
    "The answer, or the error that the server sent."
    try: return ask(url, images, 60)
    except ServerError as error: return error


def answered(server, row):
    "Whether the server says so in time."
    return getattr(outcome(server.url, digit(row)), "classes", None) == (row,)


def raw(server, *pieces):
    "What comes back when these bytes are sent."
    with socket.create_connection(server.url.removeprefix("http://").split(":"), timeout=60) as connection:
        for piece in pieces: connection.sendall(piece)
        received = b""
        while chunk := connection.recv(65536): received += chunk
    return received.decode()


def post(length, *headers):
    return "\r\n".join(["POST /predict HTTP/1.1", "Host: x", "Content-Type: application/octet-stream",
                        *([] if length is None else [f"Content-Length: {length}"]), *headers, "", ""]).encode()


# ---- answers

def test_each_request_gets_the_answer_to_its_own_images(pool):
    "Requests of one to five images, from 16 threads at once, over connections that stay."
    def client(seed):
        draw, found = np.random.default_rng(seed), []
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
        for _ in range(25):
            rows = draw.integers(0, 10, draw.integers(1, 6)).tolist()
            body = torch.stack([digit(row) for row in rows]).numpy().tobytes()
            connection.request("POST", "/predict", body, {"Content-Type": "application/octet-stream"})
            reply = json.load(connection.getresponse())
            classes = [max(range(10), key=scores.__getitem__) for scores in reply["outputs"]]
            found.append((rows, classes, reply["batch_size"]))
        connection.close()
        return found

    with serve(brightest, max_batch=16, max_wait_seconds=0.01) as server:
        found = [row for rows in pool.map(client, range(16)) for row in rows]
        stats = server.stats()
    assert len(found) == 400 and all(asked == answered for asked, answered, _ in found)
    assert stats.requests == {200: 400} and stats.images == sum(len(asked) for asked, _, _ in found)
    assert max(size for _, _, size in found) <= 16 and any(size > len(asked) for asked, _, size in found)


def test_requests_that_wait_are_answered_together(gate, pool):
    with serve(gate, max_batch=8, max_wait_seconds=0.0, queue_limit=20) as server:
        first = pool.submit(outcome, server.url, digit(1))
        gate.begun.wait(60)
        rest = [pool.submit(outcome, server.url, digit(row)) for row in range(9)]
        wait_until(lambda: server.stats().waiting_images == 9, "all are in line")
        gate.open.set()
        assert first.result().classes == (1,) and sorted(f.result().classes[0] for f in rest) == list(range(9))
    assert gate.sizes == [1, 8, 1]


def test_two_workers_are_at_work_at_the_same_time(gate, pool):
    with serve(gate, max_batch=1, workers=2) as server:
        first = [pool.submit(outcome, server.url, digit(row)) for row in (1, 2)]
        wait_until(lambda: len(gate.sizes) == 2, "both have begun, and neither has ended")
        third = pool.submit(outcome, server.url, digit(3))
        wait_until(lambda: server.stats().waiting_images == 1, "the third waits for a worker")
        gate.open.set()
        assert sorted(future.result().classes[0] for future in (*first, third)) == [1, 2, 3]
        assert server.stats().images == 3


# ---- too much, too long

def test_what_the_queue_cannot_hold_is_turned_away_and_the_rest_is_answered(gate, pool):
    with serve(gate, max_batch=2, queue_limit=4) as server:
        first = pool.submit(outcome, server.url, digit(1))
        gate.begun.wait(60)
        waiting = [pool.submit(outcome, server.url, digit(row)) for row in range(4)]
        wait_until(lambda: server.stats().waiting_images == 4, "the queue is full")
        refused = [outcome(server.url, digit(5)) for _ in range(3)]
        with urllib.request.urlopen(f"{server.url}/health", timeout=30) as reply: assert reply.status == 200
        gate.open.set()
        assert all(f.result().classes for f in (first, *waiting))
        assert ask(server.url, digit(7)).classes == (7,), "there is room again"
        stats = server.stats()
    assert {(e.status, e.words) for e in refused} == {(503, "4 images wait already, and there is room for 4")}
    assert all(error.retry_after_seconds >= 1 and error.retry_after_seconds % 1 == 0 for error in refused)
    assert stats.requests == {200: 6, 503: 3}


def test_who_waits_too_long_is_told_and_leaves_the_queue(gate, pool):
    with serve(gate, max_batch=1, timeout_seconds=0.3) as server:
        late = [pool.submit(outcome, server.url, digit(row)) for row in range(3)]
        errors = [f.result() for f in late]
        assert {(error.status, error.words) for error in errors} == {(504, "no answer within 300 ms: the time limit")}
        assert server.stats().waiting_images == 0
        gate.open.set()
        wait_until(lambda: server.stats().batches == 1, "the model is done with the one that it had begun")
        assert gate.sizes == [1], "it does not work for those who have left"
        wait_until(lambda: answered(server, 4), "it answers again")


def test_overload_is_shed_and_the_answered_stay_quick():
    "Many more requests than a slow model can answer: most are told at once, and none is lost."
    def slow(images):
        time.sleep(0.05)
        return brightest(images)

    with serve(slow, max_batch=4, queue_limit=8, timeout_seconds=30) as server:
        result = offer_load(server.url, rate=2_000, seconds=0.5)
    assert result.failed == 0 == result.timed_out and result.refused > 0 and result.answered >= 8
    assert result.answered + result.refused == 1_000


# ---- clients that are wrong

def test_a_body_that_is_too_long_is_refused_before_it_comes():
    with serve(brightest, max_batch=2) as server:
        declared = raw(server, post(10**12))
        chunked = raw(server, post(None, "Transfer-Encoding: chunked"), *[b"10000\r\n" + bytes(0x10000) + b"\r\n"] * 80)
        assert ask(server.url, digit(3)).classes == (3,)
    for reply in (declared, chunked):
        assert reply.startswith("HTTP/1.1 413 ") and "a body may have" in reply and "connection: close" in reply.lower()


def test_a_body_that_does_not_come_is_given_up():
    with serve(brightest, timeout_seconds=0.3) as server:
        never = raw(server, post(784), bytes(100))
        wait_until(lambda: answered(server, 3), "it answers others")
    assert never.startswith("HTTP/1.1 408 ") and "the body did not arrive within 300 ms" in never


@pytest.mark.parametrize("sent, status", [
    (b"nonsense\r\n\r\n", 400), (b"GET /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
    (b"POST /else HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 404),
    (post(784, "Transfer-Encoding: chunked", "Connection: close") + bytes(784), 400)])
def test_what_is_no_request_is_refused_and_the_server_goes_on(sent, status):
    with serve(brightest) as server:
        reply = raw(server, sent)
        assert ask(server.url, digit(3)).classes == (3,)
    assert reply.startswith(f"HTTP/1.1 {status} ")


@pytest.mark.parametrize("sent, words", [
    ([b"POST /predict HTTP/1.1\r\nHost: x\r\nX-Slow: "], "the headers did not arrive within 0.3 s"),
    ([b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /health HTTP/1.1\r\nX-Slow: "], "did not arrive within 0.3 s"),
    ([], None)])
def test_headers_have_a_deadline(sent, words):
    "Of a first request, of a second one on the same connection, and where none comes at all."
    with serve(brightest, timeout_seconds=0.3) as server:
        reply = raw(server, *sent)
        assert answered(server, 3)
    assert reply == "" if words is None else "HTTP/1.1 408 Request Timeout" in reply and words in reply


def test_headers_that_never_end_are_refused():
    with serve(brightest) as server:
        reply = raw(server, b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"x" * 70_000)
    assert reply.startswith("HTTP/1.1 431 ") and "headers may have 65,536 bytes" in reply


def test_an_address_has_so_many_connections():
    with serve(brightest, connections_per_address=5) as server:
        address = server.url.removeprefix("http://").split(":")
        held = [socket.create_connection(address, timeout=60) for _ in range(5)]
        try:
            wait_until(lambda: len(server._uvicorn.server_state.connections) == 5, "all are there")
            assert "an address may have 5 connections" in raw(server)
        finally:
            for connection in held: connection.close()
        wait_until(lambda: not server._uvicorn.server_state.connections, "they are gone")
        assert answered(server, 3), "there is room again"


def test_bodies_of_all_requests_together_have_a_limit(gate, pool):
    with serve(brightest, max_batch=2, timeout_seconds=30) as server:
        most = server._app.body.body_bytes
        address = server.url.removeprefix("http://").split(":")
        held = [socket.create_connection(address, timeout=60) for _ in range(8)]
        try:
            for connection in held: connection.sendall(post(most) + bytes(most - 1))
            wait_until(lambda: server._app.body_bytes == 8 * (most - 1), "all of it is held")
            found = outcome(server.url, digit(3))
        finally:
            for connection in held: connection.close()
        wait_until(lambda: server._app.body_bytes == 0, "nothing of it is held any more")
        assert found.status == 503 and "bodies of requests on their way" in found.words and answered(server, 3)


def test_clients_that_go_away_leave_nothing_behind(gate, pool):
    with serve(gate, max_batch=1, timeout_seconds=60) as server:
        first = pool.submit(outcome, server.url, digit(1))
        gate.begun.wait(60)
        address = server.url.removeprefix("http://").split(":")
        for sent in (b"", b"POST /predict HT", post(784) + bytes(100), post(784) + bytes(784)):
            with socket.create_connection(address, timeout=60) as connection: connection.sendall(sent)
        gate.open.set()
        assert first.result().classes == (1,) and ask(server.url, digit(2)).classes == (2,)
        wait_until(lambda: server.stats().waiting_images == 0, "nobody waits")
    assert not [t for t in threading.enumerate() if t.name in ("mlinfra-server", "mlinfra-job")]


# ---- models that fail

def test_a_model_that_fails_fails_for_its_batch_alone(caplog):
    def moody(images):
        if images.amax() > 0.99: raise ZeroDivisionError("the secret of the model")
        return brightest(images) / (images.amax() > 0.3)  # 0 / 0 where it is dark

    dark, grey = digit(3) // 4, digit(3) // 2
    with serve(Lenient(moody)) as server:
        replies = [outcome(server.url, image) for image in (digit(3), dark, grey)]
    assert [(r.status, r.words) for r in replies[:2]] == [(500, "the model failed: ZeroDivisionError"),
                                                          (500, "the model failed: ValueError")]
    assert replies[2].classes == (3,), "and the server goes on"
    assert "the secret of the model" in caplog.text, "the log has the whole story"


def test_a_request_that_fails_fails_alone(pool):
    "One token that the table lacks, beside seven requests in the same batch."
    torch.manual_seed(0)
    table = torch.nn.Embedding(10, 3)
    with serve(table, example=torch.zeros(2, 1, dtype=torch.long), max_wait_seconds=0.3) as server:
        replies = list(pool.map(lambda i: outcome(server.url, torch.tensor([[99 if i == 3 else i]])), range(8)))
        assert [getattr(reply, "status", 200) for reply in replies] == [500 if i == 3 else 200 for i in range(8)]
        wanted = table(torch.arange(8)).tolist()
        assert all(np.allclose(reply.outputs[0][0], wanted[i]) for i, reply in enumerate(replies) if i != 3)
        assert server.stats().images == 8


def test_a_worker_that_leaves_begins_again():
    class Leaves(torch.nn.Module):
        def forward(self, x):
            if x.amax() > 5: raise SystemExit(3)
            return x.sum(1)

    with serve(Leaves(), input_shape=(2,)) as server:
        error = outcome(server.url, torch.full((1, 2), 9.0))
        wait_until(lambda: server.stats().workers == 1, "it has begun again")
        assert outcome(server.url, torch.ones(1, 2)).outputs == [2.0] and server.stats().restarts == 1
    assert (error.status, error.words) == (500, "the model failed: WorkerDied")


class Deadly(torch.nn.Module):
    def forward(self, x):
        if x.amax() > 5: raise SystemExit(3)
        return x.sum(1)


@pytest.mark.parametrize("deadly, statuses", [
    ({3}, {200: 7, 500: 1}), ({1, 6}, {200: 6, 500: 2}), ({*range(8)}, {500: 3, 503: 5})])
def test_a_request_that_ends_the_worker_takes_no_other_along(deadly, statuses, pool):
    "The others of its batch are tried again; where each of them is the end, not for ever."
    with serve(Deadly(), input_shape=(2,), max_wait_seconds=0.5) as server:
        send = lambda i: outcome(server.url, torch.full((1, 2), 9.0 if i in deadly else i / 2))
        replies = list(pool.map(send, range(8)))
        assert Counter(getattr(reply, "status", 200) for reply in replies) == statuses
        assert all(reply.outputs == [float(i)] for i, reply in enumerate(replies) if not hasattr(reply, "status"))
        wait_until(lambda: server.stats().workers == 1, "it has begun again")
        assert server.stats().restarts == 1 + min(len(deadly), 3)
        assert outcome(server.url, torch.full((1, 2), 2.0)).outputs == [4.0]
    words = [reply.words for reply in replies if getattr(reply, "status", 200) == 503]
    assert all("ended 4 times at requests of one batch" in one for one in words)


def test_a_server_whose_only_worker_hangs_is_not_ready(gate, pool):
    with serve(gate, timeout_seconds=0.2) as server:
        late = pool.submit(outcome, server.url, digit(3))
        assert late.result().status == 504
        wait_until(lambda: not_ready(server.url), "the worker hangs")
        gate.open.set()
        wait_until(lambda: not not_ready(server.url), "it answers again")


def test_answers_are_not_those_of_the_next_batch(pool):
    class Reuses(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(64, 100))

        def forward(self, x):
            self.kept[:len(x)] = x
            return self.kept[:len(x)]

    with serve(Reuses(), input_shape=(100,), max_wait_seconds=0.0) as server:
        def right(n): return set(np.ravel(ask(server.url, torch.full((1, 100), float(n)), 60).outputs)) == {n}
        assert all(pool.map(right, range(200)))


@pytest.mark.parametrize("head", ["GET /health", "POST /health", "GET /nothing"])
def test_a_body_that_nobody_reads_has_a_deadline(head):
    with serve(brightest, timeout_seconds=0.2) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(f"{head} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1".encode())
            while connection.recv(65_536): pass  # until the server ends it


def test_a_model_that_makes_nan_of_zeros_is_served():
    with serve(lambda x: x / x.norm(dim=1, keepdim=True), input_shape=(3,)) as server:
        assert ask(server.url, torch.tensor([[3.0, 0.0, 4.0]])).outputs == [[np.float32(0.6), 0.0, np.float32(0.8)]]
        assert outcome(server.url, torch.zeros(1, 3)).status == 500


class Lenient:
    "Answers the server's own first images whatever the model thinks of them."
    def __init__(self, model): self.model = model
    def __call__(self, images): return self.model(images) if images.any() else brightest(images)


# ---- what it says of itself

def test_the_metrics_are_prometheus_and_add_up():
    from prometheus_client import parser
    with serve(brightest) as server:
        for count in (1, 3): ask(server.url, torch.stack([digit(1)] * count))
        outcome(server.url, digit(1)[:, 1:])
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as reply: text = reply.read().decode()
    found = {sample.name + str(sample.labels or ""): sample.value
             for family in parser.text_string_to_metric_families(text) for sample in family.samples}
    assert [found[f"mlinfra_requests_total{{'status': '{status}'}}"] for status in (200, 400)] == [2, 1]
    assert found["mlinfra_images_total"] == 4 and found["mlinfra_batches_total"] == 2
    assert found["mlinfra_request_seconds_count"] == 3 == found["mlinfra_request_seconds_bucket{'le': '+Inf'}"]


def test_it_listens_on_this_machine_alone():
    with serve(brightest) as server:
        port = int(server.url.rpartition(":")[2])
        listening = [c.laddr for c in psutil.Process().net_connections() if c.status == "LISTEN"]
    assert {address.ip for address in listening if address.port == port} == {"127.0.0.1"}


def test_an_answer_does_not_wait_for_an_acknowledgement():
    "With Nagle's algorithm every second answer on a connection waits 40 ms."
    with serve(brightest) as server, socket.create_connection(server.url.removeprefix("http://").split(":")) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        (connection,) = server._uvicorn.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# ---- signals and kills, of a server in a process of its own

FACTORY = """
import time
from pathlib import Path
import torch

class Gated(torch.nn.Module):
    def forward(self, images):
        if images.any():
            Path("begun").touch()
            while not Path("open").exists(): time.sleep(0.005)
        return 50 * images[:, 0, :10].mean(-1)

def make(): return Gated(), torch.zeros(1, 1, 28, 28)
"""


@contextmanager
def served(folder, *python):
    "A server that waits for a file before it answers, started as from a shell, or by this Python."
    (folder / "gated.py").write_text(FACTORY)
    command = [*python, MLINFRA, "serve", "gated:make", "--port", "0", "--max-batch", "1", "--timeout", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            said = [process.stdout.readline(), process.stdout.readline()]
            assert re.search(r"http://127.0.0.1:\d+", said[1]), (said, process.poll())
            yield process, re.search(r"http://127.0.0.1:\d+", said[1])[0]
        finally: process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_ends_it_when_those_on_their_way_have_been_answered(tmp_path, pool, number):
    with served(tmp_path, PYTHON) as (process, url):
        waiting = [pool.submit(outcome, url, digit(row)) for row in range(3)]
        wait_until((tmp_path / "begun").exists, "the model has begun")
        wait_until(lambda: _gauge(url, "mlinfra_waiting_images") == 2, "the others are in line")
        process.send_signal(number)
        wait_until(lambda: _refuses(url), "it takes no more connections")
        assert process.poll() is None, "it waits for those on their way"
        (tmp_path / "open").touch()
        assert sorted(f.result().classes[0] for f in waiting) == [0, 1, 2]
        assert process.wait(60) == 0
        assert process.stderr.read() == "mlinfra serve: stopped after 3 images in 3 batches\n"


MODELS = """
import os, signal, time
import torch, torchvision
from pathlib import Path
from torch import nn

class Lines(nn.Linear):
    def forward(self, x):
        if x.amin() < -50:
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)
        return super().forward(x)

class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(50, 8), nn.Linear(8, 4)

    def forward(self, ids, mask):
        found = self.words(ids) * mask[..., None]
        pooled = self.out(found.sum(1) / mask.sum(1, keepdim=True))
        return dict(pooled=nn.functional.normalize(pooled), tokens=found)

def regressor():
    torch.manual_seed(0)
    return Lines(16, 4), torch.zeros(2, 16)

def embedder():
    torch.manual_seed(0)
    return Embedder(), dict(ids=torch.ones(2, 5, dtype=torch.int64), mask=torch.ones(2, 5))

def detector():
    torch.manual_seed(0)
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=4, score_thresh=0.2, detections_per_img=5)
    return model, torch.rand(2, 3, 32, 32)

def boxes(found): return [one | dict(count=len(one["boxes"])) for one in found]
"""


@contextmanager
def process_of(folder, factory, *options, python=(PYTHON,)):
    "A server in a process of its own, begun by this Python, and the factory's model here."
    import importlib.util
    (folder / "served_models.py").write_text(MODELS)
    spec = importlib.util.spec_from_file_location("served_models", folder / "served_models.py")
    here = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(here)
    command = [*python, MLINFRA, "serve", f"served_models:{factory}", "--port", "0", "--timeout", "60", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            said = [process.stdout.readline(), process.stdout.readline()]
            assert "http://" in said[1], (said, process.stderr.read())
            yield re.search(r"http://127.0.0.1:\d+", said[1])[0], getattr(here, factory)()[0].eval(), here, process
        finally:
            process.terminate()
            assert process.wait(60) == 0


def close(found, wanted): torch.testing.assert_close(torch.tensor(found), wanted, rtol=1e-5, atol=1e-6)


def test_a_served_regressor_answers_with_pytorchs_numbers_and_outlives_its_process(tmp_path):
    with process_of(tmp_path, "regressor", python=()) as (url, model, _, server):  # as from a shell
        x = torch.randn(3, 16)
        with torch.no_grad(): wanted = model(x)
        close(ask(url, x, 60).outputs, wanted)
        with urllib.request.urlopen(f"{url}/") as reply: assert json.load(reply)["inputs"] == [
            dict(name="x", shape=[16], dtype="float32")]
        error = outcome(url, -100 * x.abs())
        assert (error.status, error.words) == (500, "the model failed: WorkerDied")
        wait_until(lambda: _gauge(url, "mlinfra_workers") == 1, "a new process is there")
        assert _gauge(url, "mlinfra_worker_restarts_total") == 1
        close(ask(url, x, 60).outputs, wanted)
        with urllib.request.urlopen(f"{url}/ready") as reply: assert reply.status == 200
        worker, = (c for c in psutil.Process(server.pid).children() if "resource_tracker" not in str(c.cmdline()))
        worker.kill()
        wait_until(lambda: not_ready(url), "a worker that was killed while it waited is missed")
        wait_until(lambda: _gauge(url, "mlinfra_workers") == 1, "and another one is there")
        close(ask(url, x, 60).outputs, wanted)


def test_a_request_that_kills_the_process_takes_no_other_along(tmp_path, pool):
    with process_of(tmp_path, "regressor", "--max-wait-ms", "500") as (url, model, *_):
        rows = torch.randn(6, 1, 16)
        with torch.no_grad(): wanted = model(rows[:, 0])
        replies = list(pool.map(lambda i: outcome(url, -100 * rows[i].abs() if i == 2 else rows[i]), range(6)))
        assert [getattr(reply, "status", 200) for reply in replies] == [500 if i == 2 else 200 for i in range(6)]
        for i in (0, 1, 3, 4, 5): close(replies[i].outputs, wanted[i:i + 1])


def not_ready(url):
    try: urllib.request.urlopen(f"{url}/ready", timeout=60).close()
    except urllib.error.HTTPError as error:
        with error: return error.code == 503
    return False


def test_a_served_embedder_takes_several_inputs_of_any_length(tmp_path, pool):
    with process_of(tmp_path, "embedder", "--dynamic", "1") as (url, model, *_):
        inputs = [dict(ids=torch.randint(0, 50, (n, length)), mask=torch.ones(n, length)) for n, length in
                  ((1, 3), (2, 7), (3, 7), (1, 12))]
        for given, found in zip(inputs, pool.map(lambda given: ask(url, given, 60).outputs, inputs)):
            with torch.no_grad(): wanted = model(**given)
            for name in ("pooled", "tokens"): close(found[name], wanted[name])
        wrong = outcome(url, dict(ids=torch.rand(1, 3), mask=torch.ones(1, 3)))
        assert wrong.status == 400 and '"ids" must hold whole numbers (int64)' in wrong.words


def test_a_served_detector_answers_what_it_found_on_each_image(tmp_path):
    with process_of(tmp_path, "detector", "--max-batch", "2", "--dynamic", "2,3", "--postprocess",
                    "served_models:boxes") as (url, model, here, _):
        for size in ((2, 3, 40, 56), (1, 3, 32, 32)):
            images = torch.rand(size)
            with torch.no_grad(): wanted = here.boxes(model(list(images)))
            found = ask(url, images, 60).outputs
            assert len(found) == len(wanted) == size[0] and any(len(each["boxes"]) for each in found)
            for one, expected in zip(found, wanted):
                assert set(one) == set(expected)
                for name in one: close(one[name], torch.as_tensor(expected[name]))


def _gauge(url, name):
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as reply:
        return float(re.search(rf"^{name} (\S+)$", reply.read().decode(), re.M)[1])


def _refuses(url):
    try: urllib.request.urlopen(f"{url}/health", timeout=30).close()
    except (urllib.error.URLError, ConnectionError): return True
    return False


def test_a_second_signal_does_not_wait(tmp_path, pool):
    with served(tmp_path, PYTHON) as (process, url):
        waiting = pool.submit(_outcome_or_cut, url)
        wait_until((tmp_path / "begun").exists, "the model has begun")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: _refuses(url), "it takes no more connections")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM and waiting.result() is None, "the model still works"


def _outcome_or_cut(url):
    try: return outcome(url, digit(1))
    except (urllib.error.URLError, ConnectionError, http.client.HTTPException): return None


def test_a_killed_server_is_told_by_the_client_and_the_port_is_free_again(tmp_path):
    with served(tmp_path) as (process, url):
        (tmp_path / "open").touch()
        assert ask(url, digit(2)).classes == (2,)
        for name in ("open", "begun"): (tmp_path / name).unlink()

        def kill(fraction, words):
            if (tmp_path / "begun").exists(): process.kill()
        result = offer_load(url, rate=50, seconds=1, report=kill, images=digit(2)[None])
        assert process.wait(60) == -signal.SIGKILL
    assert result.failed == 50 == result.statuses.count(0) and all(map(math.isnan, result.latencies))
    assert result.images_per_s == 0
    with serve(brightest, port=int(url.rpartition(":")[2])) as server: assert ask(server.url, digit(6)).classes == (6,)


def test_a_port_that_is_taken_is_an_error_in_a_line(tmp_path):
    from mlinfra import cli
    with serve(brightest) as server:
        port = server.url.rpartition(":")[2]
        done = cli.main(["serve", "gluon", "--port", port])
    assert done == 2

"""Inference where a notebook cannot show it: the simulation against another, a real server held at every point,
learners, a GPU."""
import copy
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from mlinfra.lab import drift
from mlinfra.engine.base import timing
from mlinfra.engine.serve import worker_server as server
from mlinfra.views import inference as inference_views
from mlinfra import inference
from mlinfra.engine.export.variants import answering, compare_variants, scores_of
from mlinfra.engine.serve.request_queue import Policy, ServiceTime, mean_wait, poisson_arrivals, simulate
from mlinfra.engine.serve.worker_server import serve
from mlinfra.inference import Predictor, highest_rate
from mlinfra.models import GluonCNN
from mlinfra.engine.base.jobs import Stopped

IMAGES = torch.randint(0, 256, (50, 1, 28, 28), dtype=torch.uint8)
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")]


def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def threads(): return [t.name for t in threading.enumerate() if t.name == "mlinfra-job"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert threads() == []


# ---- the line

@settings(deadline=None)  # the first fit imports scipy
@given(
    fixed=st.floats(1e-6, 10),
    slope=st.floats(1e-6, 10),
    sizes=st.lists(st.integers(1, 512), min_size=2, max_size=8, unique=True),
)
def test_a_line_is_found_again(fixed, slope, sizes):
    line = ServiceTime(fixed, slope)
    found = ServiceTime.fit(sizes, [line.seconds(b) for b in sizes])
    for b in (1, 64, 512): assert found.seconds(b) == pytest.approx(line.seconds(b), rel=1e-5)


@settings(deadline=None)
@given(seconds=st.lists(st.floats(1e-6, 10), min_size=3, max_size=3))
def test_no_part_is_negative(seconds):
    found = ServiceTime.fit((1, 8, 64), seconds)
    assert found.fixed >= 0 and found.slope >= 0


# ---- the simulation, against one that goes from tick to tick

def ticks(due, service, policy):
    "Starts and ends by whole ticks, None where shed, and how many were blocked."
    inside, outside, starts, ends, free, blocked = [], [], {}, {}, 0, 0
    for now in range(max(due) + policy.max_wait_seconds + sum(service.seconds(1) for _ in due) + 1):
        was_busy = free == now and now > 0

        def leave(late):
            nonlocal free
            if (
                now < free
                or not inside
                or (
                    len(inside) < policy.max_batch_size
                    and not (late and now >= due[inside[0]] + policy.max_wait_seconds)
                )
            ):
                return
            batch = inside[:policy.max_batch_size]
            del inside[:policy.max_batch_size]
            while outside and len(inside) < policy.queue_size: inside.append(outside.pop(0))
            free = now + service.seconds(len(batch))
            for i in batch: starts[i], ends[i] = now, free

        for i in (i for i, t in enumerate(due) if t == now):
            if len(inside) < policy.queue_size: inside.append(i)
            elif policy.when_full == "block":
                outside.append(i)
                blocked += 1
            if not was_busy: leave(late=False)
        leave(late=True)
    return [starts.get(i) for i in range(len(due))], [ends.get(i) for i in range(len(due))], blocked


def or_none(times): return [None if t != t else t for t in times]


@settings(max_examples=300, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 6), min_size=1, max_size=25),
    fixed=st.integers(1, 5),
    slope=st.integers(0, 3),
    max_batch=st.integers(1, 4),
    max_wait=st.integers(0, 7),
    room=st.integers(0, 3),
    when_full=st.sampled_from(["shed", "block"]),
)
def test_the_simulation_agrees_with_one_by_ticks(gaps, fixed, slope, max_batch, max_wait, room, when_full):
    due = [sum(gaps[:i + 1]) for i in range(len(gaps))]
    assume(due[0] > 0)  # at 0 the worker has never been busy
    service, policy = ServiceTime(fixed, slope), Policy(max_batch, max_wait, max_batch + room, when_full)
    stream = simulate(due, service, policy)
    assert (or_none(stream.starts), or_none(stream.ends), stream.blocked) == ticks(due, service, policy)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 99),
    rate=st.floats(10, 2_000),
    max_batch=st.integers(1, 16),
    max_wait=st.floats(0, 0.05),
    when_full=st.sampled_from(["shed", "block"]),
)
def test_every_request_is_answered_once_or_shed(seed, rate, max_batch, max_wait, when_full):
    stream = simulate(
        poisson_arrivals(rate, 300, seed), ServiceTime(0.004, 0.001), Policy(max_batch, max_wait, 20, when_full)
    )
    assert len(stream.latencies) + stream.shed == 300 and sum(size for size, _ in stream.batches) == len(
        stream.latencies
    )
    assert (
        max(size for size, _ in stream.batches) <= max_batch
        and min(stream.waits) >= 0
        and 0 < stream.utilisation <= 1 + 1e-9
    )
    assert when_full == "shed" or stream.shed == 0


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_the_simulation_waits_as_long_as_m_d_1_says(load):
    means = [
        sum(s.waits) / len(s.waits)
        for s in (
            simulate(poisson_arrivals(load / 0.01, 20_000, seed), ServiceTime(0.01, 0.0), Policy(queue_size=10**6))
            for seed in range(5)
        )
    ]
    assert sum(means) / 5 == pytest.approx(mean_wait(load / 0.01, 0.01), rel=0.05)


def test_a_full_server_answers_at_its_saturation():
    service = ServiceTime(0.004, 0.001)
    for batch in (1, 4, 16):
        stream = simulate([0.0] * 1_600, service, Policy(batch, queue_size=1_600))
        assert stream.summary().answers_per_s == pytest.approx(
            service.throughput(batch)
        ) and stream.utilisation == pytest.approx(1)


def test_the_highest_rate_of_a_slow_service():
    steady = ServiceTime(0.008, 0.002)
    assert highest_rate(steady, Policy(), 0.005) == 0, "one answer alone takes 10 ms"
    strict, loose = (highest_rate(steady, Policy(), bound) for bound in (0.015, 0.1))
    assert 0 < strict < loose < steady.throughput(1) < highest_rate(steady, Policy(16), 0.1)


def test_the_highest_rate_grows_with_the_bound_and_keeps_it():
    service, policy = ServiceTime(0.004, 0.001), Policy(8)
    rates = [highest_rate(service, policy, bound) for bound in (0.004, 0.01, 0.02, 0.05)]
    assert rates[0] == 0 and rates == sorted(rates) and rates[-1] <= service.throughput(8)
    unit = poisson_arrivals(1.0, 2_000)

    def share(rate):
        return sum(s <= 0.02 for s in simulate([t / rate for t in unit], service, policy).latencies) / 2_000
    assert share(rates[2]) >= 0.99 > share(1.1 * rates[2])


@pytest.mark.parametrize("rate", [0, -3, float("inf"), float("nan"), None, "10"])
def test_a_rate_that_cannot_be_is_refused(rate):
    with pytest.raises(ValueError, match="rate must be a finite number above 0"): poisson_arrivals(rate, 10)
    with pytest.raises(ValueError, match="must be a finite number above 0"):
        inference.latency_curve(ServiceTime(1, 0), Policy(), [rate])


def test_too_many_requests_are_refused_before_any_is_made():
    with pytest.raises(ValueError, match="at most 1,000,000, got 1,000,000,000,000"): poisson_arrivals(1, 10**12)


# ---- a real server, held where the test wants it

class Held:
    "A model that counts its batches and holds the first real one until it is let go."
    def __init__(self): self.sizes, self.entered, self.go = [], threading.Event(), threading.Event()

    def __call__(self, batch):
        self.sizes.append(len(batch))
        if len(self.sizes) <= 2: return  # warming up
        self.entered.set()
        assert self.go.wait(20)


def submits(monkeypatch, after=lambda number: None, looking=lambda: None):
    "Have `after` called when a request has been submitted, and `looking` whenever the sender is blocked."
    submit, wait = server.Batcher.submit, server.Batcher.wait_for_room
    def submitted(line, images, **more):
        try: return submit(line, images, **more)
        finally: after(int(images))
    monkeypatch.setattr(server.Batcher, "submit", submitted)
    monkeypatch.setattr(server.Batcher, "wait_for_room", lambda line, look: wait(line, lambda: (looking(), look())))


def test_requests_beyond_the_queue_are_shed(monkeypatch):
    model = Held()
    submits(
        monkeypatch, lambda number: model.entered.wait(20) if number == 1 else model.go.set() if number == 6 else None
    )
    stream = serve(model, IMAGES, [0.0] * 7, Policy(2, 60, queue_size=2))
    assert [size for size, _ in stream.batches] == [2, 2] and stream.shed == 3 and stream.blocked == 0
    assert [t == t for t in stream.ends] == [True] * 4 + [False] * 3 and stream.ends[0] == stream.ends[
        1
    ] <= stream.starts[2]


def test_senders_that_block_lose_nothing(monkeypatch):
    model = Held()
    submits(monkeypatch, lambda number: model.entered.wait(20) if number == 1 else None, model.go.set)
    stream = serve(model, IMAGES, [0.0] * 8, Policy(2, 60, queue_size=2, when_full="block"))
    assert (
        [size for size, _ in stream.batches] == [2, 2, 2, 2]
        and stream.shed == 0
        and stream.blocked == 4
        and list(stream.starts) == sorted(stream.starts)
    )


def test_what_is_left_at_the_end_goes_after_its_wait():
    stream = serve(lambda batch: None, IMAGES, [0.0, 0.0, 0.0], Policy(2, 0.2))
    assert [size for size, _ in stream.batches] == [2, 1] and stream.waits[2] >= 0.2


def test_images_repeat():
    seen = []
    serve(lambda batch: seen.extend(batch.flatten().tolist()), torch.arange(3), [0.0] * 7)
    assert seen[2:] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_an_error_of_the_model_is_raised_at_once(calls):
    done = []
    def model(batch):
        if len(done) == calls: raise ZeroDivisionError("in the model")
        done.append(len(batch))
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="in the model"): serve(model, IMAGES, [0.0, 0.1, 600.0])
    assert time.monotonic() - start < 60 and threads() == []


def test_an_error_frees_a_sender_that_blocks(monkeypatch):
    def model(batch, calls=[]):
        calls.append(1)
        if len(calls) > 2:
            assert blocked.wait(20)
            raise ZeroDivisionError
    blocked = threading.Event()
    submits(monkeypatch, looking=blocked.set)
    with pytest.raises(ZeroDivisionError): serve(model, IMAGES, [0.0] * 9, Policy(queue_size=1, when_full="block"))


@pytest.mark.parametrize("due, reports", [([0.0, 600.0], 1), ([600.0], 1), ([0.0] * 5 + [600.0], 2)])
def test_a_stop_ends_the_stream(due, reports):
    said = []
    def report(fraction, words):
        said.append(words)
        if len(said) >= reports: raise Stopped("stopped")
    with pytest.raises(Stopped): serve(lambda batch: None, IMAGES, due, report=report)
    assert f"of {len(due)} request" in said[-1] and threads() == []


def test_a_stop_frees_a_sender_that_blocks(monkeypatch):
    model = Held()
    def looking():
        model.go.set()
        raise Stopped("stopped")
    submits(monkeypatch, looking=looking)
    with pytest.raises(Stopped): serve(model, IMAGES, [0.0] * 9, Policy(queue_size=1, when_full="block"))


@pytest.mark.parametrize(
    "due, says",
    [
        ([], "at least one arrival"),
        ([2.0, 1.0], "in order"),
        ([-1.0], "at least 0, got -1"),
        ([float("inf")], "finite"),
    ],
)
def test_arrivals_that_cannot_be_are_refused(due, says):
    for run in (lambda: simulate(due, ServiceTime(1, 0)), lambda: serve(lambda batch: None, IMAGES, due)):
        with pytest.raises(ValueError, match=says): run()


def test_no_image_is_refused():
    with pytest.raises(ValueError, match="images must hold"): serve(lambda batch: None, IMAGES[:0], [0.0])


# ---- answers and their times

def test_a_predictor_leaves_the_model_alone():
    model = nn.Sequential(GluonCNN(), nn.Dropout(0.5)).train()
    before = copy.deepcopy(model.state_dict())
    for variant in ("eager", "inference_mode", "channels_last", "bf16"):
        outputs = Predictor(model, variant, "cpu")(IMAGES[:4])
        assert outputs.shape == (4, 10) and not outputs.requires_grad and outputs.dtype == torch.float32
    assert model.training and all(p.grad is None and p.requires_grad and p.is_contiguous() for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))


def test_bytes_are_tokens_for_a_model_with_embeddings_as_in_fit():
    class Bytes(nn.Embedding):
        def forward(self, x): return super().forward(x.long()).mean(1)
    model, tokens = Bytes(256, 4), torch.tensor([[7, 200, 255]], dtype=torch.uint8)
    assert torch.equal(Predictor(model, device="cpu")(tokens), model(tokens).detach())
    same = compare_variants(dict(module=model, predictor=Predictor(model, device="cpu")),
                            TensorDataset(tokens, torch.tensor([1])), (1,), rounds=2)
    assert not same.largest_difference.any()
    scores = scores_of(answering(model), tokens)
    assert torch.equal(scores, model(tokens).detach())


def test_pixels_of_a_model_with_embeddings_are_scaled_on_request():
    class Grey(nn.Module):
        def __init__(self): super().__init__(); self.places, self.head = nn.Embedding(4, 4), nn.Linear(16, 2)
        def forward(self, x): return self.head((x + self.places.weight).flatten(1))
    model, pixels = Grey(), torch.randint(0, 256, (5, 4, 4), dtype=torch.uint8)
    asked = Predictor(model, device="cpu", scale_images=True)(pixels)
    torch.testing.assert_close(asked, model(pixels / 255).detach())
    assert torch.equal(Predictor(model, device="cpu")(pixels), model(pixels).detach()), "tokens, as in fit"
    rows = inference.sweep_batches(nn.Linear(4, 2), pixels[0], (2,), repeats=1, device="cpu", scale_images=True)
    assert rows.note.tolist() == [""]
    with pytest.raises(ValueError, match="scale_images must be True or False"): Predictor(model, scale_images="yes")


@pytest.mark.parametrize(
    "variant, records, last", [("eager", True, False), ("inference_mode", False, False), ("channels_last", False, True)]
)
def test_each_way_does_what_it_says(variant, records, last):
    class Look(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3)

        def forward(self, x):
            y = self.conv(x)
            seen.append(
                (
                    y.requires_grad,
                    x.is_contiguous(memory_format=torch.channels_last),
                    self.conv.weight.is_contiguous(memory_format=torch.channels_last),
                )
            )
            return y.flatten(1)
    seen = []
    Predictor(Look(), variant, "cpu")(torch.rand(3, 2, 8, 8))
    assert seen == [(records, last, last)]


def test_ways_of_answering_agree():
    torch.manual_seed(0)
    model = GluonCNN()
    expected = Predictor(model, "inference_mode", "cpu")(IMAGES[:8])
    # fp32: at most 800 products in a sum, each rounded to 6e-8, are 5e-5 of the largest; bf16: 8 bits, 4 layers,
    # outputs near 0.1
    for variant, rtol, atol in (("eager", 1e-4, 1e-5), ("channels_last", 1e-4, 1e-5), ("bf16", 5e-2, 2e-2)):
        torch.testing.assert_close(Predictor(model, variant, "cpu")(IMAGES[:8]), expected, rtol=rtol, atol=atol)


def test_bf16_computes_in_bf16():
    seen = []
    model = linear()
    model[1].register_forward_hook(lambda layer, inputs, output: seen.append(output.dtype))
    assert Predictor(model, "bf16", "cpu")(IMAGES[:2]).dtype == torch.float32 and seen == [torch.bfloat16]


def test_an_answer_is_timed_with_its_copies(monkeypatch):
    clock = iter([10.0, 11.0, 14.0, 14.5])
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert inference.timed_answer(Predictor(linear(), device="cpu"), IMAGES[:2]) == (4.5, 1.5)


def test_a_sweep_measures_in_turn_and_reports(monkeypatch):
    order, said = [], []
    monkeypatch.setattr(
        inference,
        "timed_answer",
        lambda predictor, batch: (order.append((predictor.variant, len(batch))), (float(len(order)), 0.0))[1],
    )
    frame = inference.sweep_batches(
        linear(),
        IMAGES,
        (1, 60),
        ("eager", "inference_mode"),
        repeats=2,
        device="cpu",
        report=lambda f, words: said.append(f),
    )
    assert order == [("eager", 1), ("eager", 60), ("inference_mode", 1), ("inference_mode", 60)] * 2
    assert list(frame.p50_seconds) == [1, 2, 3, 4] and list(frame.p99_seconds) == [5, 6, 7, 8] and said == [0.5, 1]
    assert frame.images_per_s[1] == 30 and (frame.note == "").all()


def test_a_sweep_can_be_stopped():
    def report(fraction, words): raise Stopped("stopped")
    with pytest.raises(Stopped): inference.sweep_batches(linear(), IMAGES, (1,), repeats=10, report=report)


def test_a_way_that_is_lacking_says_why(monkeypatch):
    def no_compiler(model): raise RuntimeError("no C++ compiler\nmore")
    def old(precision, device): raise ValueError("too old for bf16")
    monkeypatch.setattr(torch, "compile", lambda model: lambda x: no_compiler(model))
    monkeypatch.setattr(inference, "check_precision", old)
    frame = inference.sweep_batches(
        linear(), IMAGES, (1, 2), ("inference_mode", "bf16", "compiled"), repeats=2, device="cpu"
    ).set_index("variant")
    assert (
        (frame.note["bf16"] == "too old for bf16").all()
        and frame.p50_seconds["bf16"].isna().all()
        and (frame.repeats["bf16"] == 0).all()
    )
    assert (frame.note["compiled"] == "torch.compile fails here: RuntimeError: no C++ compiler").all()
    assert (frame.note["inference_mode"] == "").all() and (frame.repeats["inference_mode"] == 2).all()


def test_a_broken_model_is_not_a_lacking_way():
    class Broken(nn.Module):
        def forward(self, x): raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError): inference.sweep_batches(Broken(), IMAGES, (1,))
    class Named(nn.Module):
        def forward(self, x): return dict(scores=x)
    with pytest.raises(TypeError, match="the model returns dict"): inference.sweep_batches(Named(), IMAGES, (1,))
    for use in (inference.Predictor, lambda model: inference.sweep_batches(model, IMAGES, (1,))):
        with pytest.raises(ValueError, match="have no values"): use(nn.Linear(2, 2, device="meta"))


# ---- calibration and prediction

KNOWN = ServiceTime(0.003, 0.002, 0.004)


@pytest.fixture
def known_server(monkeypatch):
    "In place of the real one: a server that takes as long as `service` says."

    def use(service, draws=iter(range(1_000))):
        monkeypatch.setattr(
            server, "serve", lambda predictor, images, due, policy: simulate(due, service, policy, next(draws))
        )
    return use


def test_calibration_finds_a_known_server(known_server):
    known_server(KNOWN)
    service = server.calibrate(None, IMAGES)
    assert (service.fixed, service.slope, service.pause) == pytest.approx(
        (0.003, 0.002, 0.004)
    ) and service.variation == pytest.approx(0, abs=1e-9)


def test_calibration_finds_the_spread_of_an_irregular_server(known_server):
    known_server(ServiceTime(0.003, 0.002, 0.004, (0.9, 0.9, 1.0, 1.2)))
    service = server.calibrate(None, IMAGES, stream_seconds=5)
    assert (
        service.seconds(1) == pytest.approx(0.005, rel=0.06)
        and service.seconds(8) == pytest.approx(0.019, rel=0.06)
        and service.variation == pytest.approx(0.122, rel=0.3)
    )


@pytest.mark.parametrize("policy", [Policy(queue_size=2_000), Policy(8, queue_size=2_000)])
def test_an_irregular_server_is_predicted(known_server, policy):
    known_server(ServiceTime(0.003, 0.002, 0.004, (0.8, 0.9, 1.0, 1.3)))
    for trial in server.try_loads(None, IMAGES, (0.3, 0.7), policy, stream_seconds=6):
        assert (
            trial.drift == pytest.approx(1, abs=0.1)
            and abs(trial.error("p50_seconds")) < 0.2
            and abs(trial.error("p95_seconds")) < 0.3
        )


def test_a_real_trial_answers_one_request_after_another():
    for trial in server.try_loads(lambda batch: time.sleep(0.001), IMAGES, (0.3, 0.7), stream_seconds=0.3):
        real = trial.measured
        assert len(real.latencies) == len(real.due) and real.shed == 0 and list(real.starts) == sorted(real.starts)
        assert {size for size, _ in real.batches} == {1} and min(real.late) >= 0


@pytest.mark.parametrize("policy", [Policy(queue_size=16), Policy(8, queue_size=16),
                                    Policy(queue_size=16, when_full="block")])
def test_a_real_stream_accounts_for_every_request(policy):
    due = poisson_arrivals(2_000, 400)
    stream = serve(lambda batch: time.sleep(0.001), IMAGES, due, policy)
    assert len(stream.latencies) + stream.shed == 400 == sum(size for size, _ in stream.batches) + stream.shed
    assert max(size for size, _ in stream.batches) <= policy.max_batch_size
    assert policy.when_full == "shed" or stream.shed == 0


def test_hindsight_takes_the_drift_away():
    slower, policy = ServiceTime(0.0036, 0.0024, 0.0048), Policy(queue_size=2_000)
    due = poisson_arrivals(100, 400)
    trial = server.LoadTrial(0.5, KNOWN, (simulate(due, KNOWN, policy),), simulate(due, slower, policy))
    assert trial.drift == pytest.approx(1.2) and trial.error("p95_seconds") < -0.15
    assert trial.hindsight(policy).drift == pytest.approx(1) and trial.hindsight(policy).error(
        "p95_seconds"
    ) == pytest.approx(0, abs=1e-9)


def test_real_answers_count_from_arrival_or_from_the_answer_before():
    def model(batch): time.sleep(0.02)
    stream = serve(model, IMAGES, [0.0, 0.0, 2.0])  # time enough for a busy machine to answer the first two
    assert [(size, idle) for size, idle, _ in stream.answers] == [(1, True), (1, False), (1, True)]
    assert all(seconds >= 0.02 for _, _, seconds in stream.answers)
    assert (
        sum(seconds for _, _, seconds in stream.answers[:2]) == pytest.approx(stream.ends[1])
        and stream.answers[2][2] == stream.ends[2] - 2.0
    )


def test_a_wait_in_vain_at_the_end_is_left_out_of_the_curve():
    service, policy = ServiceTime(0.001, 0.0), Policy(64, 5.0)
    for point in inference.latency_curve(service, policy, [1_000, 5_000], 600).values(): assert point.p99_seconds < 1


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 99), max_batch=st.integers(1, 8), max_wait=st.floats(0, 0.05), queue=st.integers(8, 20))
def test_without_its_last_batch_a_stream_is_whole(seed, max_batch, max_wait, queue):
    whole = simulate(poisson_arrivals(300, 100, seed), ServiceTime(0.004, 0.001), Policy(max_batch, max_wait, queue))
    part = whole.without_last()
    assert (
        sum(size for size, _ in part.batches) == len(part.latencies) == len(whole.latencies) - whole.batches[-1][0]
        and part.shed == whole.shed
    )


@given(values=st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=9))
def test_limits_hold_the_values(values):
    low, high = inference_views.axis_limits(values)
    assert low < min(values) and max(values) < high and low > min(values) / 3 and high < 3 * max(values)


# ---- learners

def chunks(n, size=8):
    torch.manual_seed(0)
    return [(torch.rand(size, 1, 28, 28), torch.randint(0, 10, (size,))) for _ in range(n)]


def weights(model): return [p.detach().cpu().clone() for p in model.parameters()]
def same(a, b): return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_online_takes_one_step_of_sgd_on_each_mini_batch():
    learner, by_hand = drift.Online(linear(), lr=0.2, batch_size=4), linear()
    data = chunks(3)
    for images, labels in data: learner.learn(images, labels)
    for images, labels in (half for images, labels in data for half in zip(images.split(4), labels.split(4))):
        loss = nn.functional.cross_entropy(by_hand(images), labels)
        for p, g in zip(by_hand.parameters(), torch.autograd.grad(loss, list(by_hand.parameters()))): p.data -= 0.2 * g
    for a, b in zip(weights(learner.model), weights(by_hand)): torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", [drift.Frozen, drift.Online])
def test_learners_leave_the_model_they_are_given_alone(kind):
    model = linear()
    before, learner = weights(model), kind(model)
    for images, labels in chunks(10): learner.learn(images, labels)
    assert same(before, weights(model)) and same(before, weights(learner.model)) == (kind is drift.Frozen)


def test_answers_come_before_labels_and_count_against_the_truth(monkeypatch):
    told = []
    learner = SimpleNamespace(model="model", learn=lambda images, labels: told.append(labels))
    monkeypatch.setattr(drift, "evaluate", lambda model, data: (len(told), data.labels))
    images = torch.zeros(2, 1, 2, 2)
    stream = [drift.Chunk(images, torch.tensor([i, i]), torch.tensor([10 + i, 10 + i])) for i in range(2)]
    results = drift.answer_then_learn(learner, stream)
    assert [(heard, labels.tolist()) for heard, labels in results] == [(0, [0, 0]), (1, [1, 1])] and [
        t.tolist() for t in told
    ] == [[10, 10], [11, 11]]


# ---- on a GPU

@pytest.mark.parametrize("variant", ["eager", "inference_mode", "channels_last", "bf16"])
class TestOnAGpu:
    pytestmark = gpu

    def test_answers_are_those_of_the_cpu(self, variant):
        torch.manual_seed(0)
        model = GluonCNN()
        tolerance = dict(rtol=5e-2, atol=3e-2) if variant == "bf16" else dict(rtol=1e-2, atol=1e-3)
        outputs = Predictor(model, variant, "cuda")(IMAGES)
        assert outputs.device.type == "cpu"
        torch.testing.assert_close(outputs, Predictor(model, device="cpu")(IMAGES), **tolerance)

    def test_copies_are_counted(self, variant):
        seconds, copies = inference.timed_answer(predictor := Predictor(GluonCNN(), variant, "cuda"), IMAGES)
        assert 0 < copies < seconds and next(predictor.model.parameters()).is_cuda


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
def test_a_stream_is_served_on_a_gpu():
    frame = inference.sweep_batches(GluonCNN(), IMAGES, (1, 16), ("inference_mode", "bf16"), repeats=3, device="cuda")
    assert (frame.note == "").all() and (frame.copy_seconds > 0).all()
    stream = serve(Predictor(GluonCNN(), device="cuda"), IMAGES, poisson_arrivals(200, 100), Policy(8))
    assert len(stream.latencies) + stream.shed == 100

"""Precision: formats against torch's dtypes, scaling and autocast against torch.amp, arithmetic of the roofline, and
fit in each precision."""
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from mlinfra import models, precision
from mlinfra.data import BatchLoader, Images
from mlinfra.engine.precision import casting, layer_costs
from mlinfra.engine.base import hardware, sample_statistics
from mlinfra.engine.train.autocast import PRECISIONS, check_precision, supported_precisions
from mlinfra.precision import FORMATS
from mlinfra.training import fit
from mlinfra.views import precision as precision_views

DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8 e4m3": torch.float8_e4m3fn,
    "fp8 e5m2": torch.float8_e5m2,
}
CPU = dict(device="cpu", progress=False)
formats, dtypes = st.sampled_from(list(FORMATS.values())), st.sampled_from(list(DTYPES))
bits = st.tuples(
    st.integers(0, 1), st.integers(0, 255), st.integers(0, 2**23 - 1)
)  # else small codes would be drawn most of the time
patterns = bits.map(lambda fields: FORMATS["fp32"].decode(fields[0] << 31 | fields[1] << 23 | fields[2]))
numbers = patterns.filter(math.isfinite)


def same(a, b): return a == b and math.copysign(1, a) == math.copysign(1, b) or math.isnan(a) and math.isnan(b)


# ---- formats

@settings(max_examples=1_000, deadline=None)
@given(name=dtypes, value=patterns)
def test_rounding_is_torchs(name, value):
    theirs, f = float(torch.tensor(value, dtype=torch.float32).to(DTYPES[name]).float()), FORMATS[name]
    ours = f.round(value)
    assert same(float(precision.quantize(torch.tensor(value), f)), ours)
    if f.finite and abs(value) > 448 and math.isnan(ours):
        assert math.isnan(theirs) or theirs == math.copysign(448, value)  # newer releases of torch saturate
    else: assert same(ours, theirs)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp8 e4m3", "fp8 e5m2"])
def test_every_code_decodes_as_in_torch_and_encodes_to_itself(name):
    f = FORMATS[name]
    codes = torch.arange(2**f.bits).to(torch.int16 if f.bits == 16 else torch.uint8).view(DTYPES[name]).float().tolist()
    for code, theirs in enumerate(codes):
        ours = f.decode(code)
        assert same(ours, theirs)
        assert math.isnan(ours) or f.encode(ours) == code


@given(f=formats, value=numbers)
def test_the_nearest_number_is_chosen_and_ties_go_to_even(f, value):
    largest = f.largest
    if abs(value) > largest: return
    code = f.encode(abs(value))
    around = [f.decode(c) for c in (code - 1, code, code + 1) if 0 <= c <= f.last_code]
    nearest = min(abs(x - abs(value)) for x in around)
    assert abs(f.decode(code) - abs(value)) == nearest
    if sum(abs(x - abs(value)) == nearest for x in around) == 2: assert code % 2 == 0


@given(f=formats, a=numbers, b=numbers)
def test_rounding_keeps_the_order(f, a, b):
    low, high = sorted([a, b])
    stored = f.round(low), f.round(high)
    assert any(map(math.isnan, stored)) or stored[0] <= stored[1]


def _roundoff(f):
    "The largest relative error of rounding to a normal number."
    return 2.0 ** -(f.mantissa_bits + 1)


@given(f=formats, value=numbers)
def test_spacing_is_the_gap_to_the_next_code(f, value):
    stored = abs(f.round(value))
    code = f.encode(stored)
    if not stored < f.largest: return
    assert f.spacing(stored) == f.decode(code + 1) - stored
    assert abs(value) < f.decode(2**f.mantissa_bits) or abs(stored - abs(value)) <= _roundoff(f) * abs(value)


def test_a_float_beyond_fp32_rounds_like_any_other():
    for f in FORMATS.values():
        assert f.round(5e-324) == 0 and not math.isfinite(f.round(1.7e308)) and f.round(0.0) == 0
        assert math.copysign(1, f.round(-0.0)) == -1


@pytest.mark.parametrize(
    "wrong, says",
    [
        (lambda: precision.Format("x", 0, 3), "exponent_bits must be at least 1, got 0"),
        (lambda: precision.Format("x", 8, 52), "mantissa_bits must be at most 24, got 52"),
        (lambda: FORMATS["fp8 e5m2"].decode(256), "a code of fp8 e5m2 lies between 0 and 255, got 256"),
        (lambda: FORMATS["fp16"].decode(-1), "got -1"),
        (lambda: FORMATS["fp16"].spacing(1e5), "within fp16's range of ±65504"),
        (lambda: FORMATS["fp16"].spacing(math.nan), "got nan"),
        (lambda: precision_views.describe_value(FORMATS["fp16"], math.nan), "NaN has no neighbours"),
        (lambda: precision_views.draw_value(FORMATS["fp16"], math.nan), "NaN has no neighbours"),
        (lambda: precision.quantize(torch.tensor([1]), FORMATS["fp16"]), "tensor must hold floats"),
        (lambda: precision.Exponents().underflow(FORMATS["fp16"], 3.0), "scale must be a power of two"),
        (lambda: precision.LossScaler(growth=1.0), "growth must be above 1"),
        (lambda: precision.LossScaler(scale=math.nan), "scale must be a finite number"),
        (lambda: precision.GradientExponents(every=0), "every must be at least 1, got 0"),
        (lambda: precision.MasterWeights(nn.ReLU(), None), "no parameter to train"),
        (lambda: layer_costs.layer_traffic(nn.ReLU(), (1,), 1, "fp64"), "precision must be one of"),
        (lambda: hardware.ROOFLINES["V100 32 GB"].rate("bf16"), "must be one of fp32, fp16 for V100 32 GB, got 'bf16'"),
        (lambda: hardware.Roofline("x", 0, {}, 0, ""), "bytes_per_s must be"),
        (lambda: precision_views.plot_gradients(precision.GradientExponents()), "the run must have had a step"),
        (lambda: layer_costs.layer_traffic(nn.ReLU(), (0,), 1), "each of input_shape must be at least 1, got 0"),
    ],
)
def test_nonsense_is_refused_with_the_value(wrong, says):
    with pytest.raises(ValueError) as raised: wrong()
    assert says in str(raised.value)


# ---- sums

@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.floats(-4, 4, width=16), max_size=40), name=st.sampled_from(["fp16", "bf16"]))
def test_a_running_sum_is_torchs(values, name):
    inputs, total = [FORMATS[name].round(v) for v in values], torch.zeros((), dtype=DTYPES[name])
    for value, ours in zip(inputs, precision.running_sum(inputs, FORMATS[name]), strict=True):
        total = total + torch.tensor(value, dtype=DTYPES[name])
        assert ours == float(total)


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.floats(0.01, 4), min_size=1, max_size=200), f=formats, seed=st.integers(0, 99))
def test_errors_keep_within_the_bound(values, f, seed):
    generator = torch.Generator().manual_seed(seed)
    b = torch.rand(len(values), generator=generator).add(0.1).tolist()
    products = [x * y for x, y in zip(values, b)]
    if math.fsum(products) > f.largest / 4: return
    exact, found = math.fsum(products), precision.running_sum(products, f)[-1]
    bound = len(products) * _roundoff(f) * exact  # Jeannerod and Rump 2013
    assert abs(found - exact) <= bound + len(products) * f.decode(1)
    assert precision.running_sum([], f) == []


@given(f=formats, part=st.floats(0, 1))
def test_halfway_goes_to_the_even_code(f, part):
    code = int(part * (f.last_code - 1))
    halfway = (f.decode(code) + f.decode(code + 1)) / 2
    assert f.encode(halfway) == code + code % 2 and f.encode(-halfway) == f.encode(-0.0) + code + code % 2


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(["fp16", "bf16", "fp8 e4m3", "fp8 e5m2"]),
    power=st.integers(-3, 12),
    zeros=st.integers(0, 3),
    places=st.lists(st.tuples(st.floats(1.01, 1.99), st.integers(-3, 3)), min_size=1, max_size=20),
)
def test_underflow_by_exponents_is_underflow_by_conversion(name, power, zeros, places):
    f = FORMATS[name]
    if name == "bf16": power = 0  # fp32 does not reach further down
    edge = math.frexp(f.decode(1))[1] - 2  # half the smallest number
    values = torch.tensor([m * 2.0 ** (edge + offset - power) for m, offset in places] + [0.0] * zeros)
    kept = precision.Exponents.of(values)
    lost = sum(f.round(v * 2.0**power) == 0 for v in values.tolist() if v)
    assert (kept.total, kept.zeros) == (len(places), zeros) and kept.underflow(f, 2.0**power) == pytest.approx(
        lost / len(places)
    )


def test_exponents_add_up_and_leave_out_what_is_not_a_number():
    a, b = (
        precision.Exponents.of(torch.tensor([1.0, 3.0, 0.0])),
        precision.Exponents.of(torch.tensor([2.5, math.nan, -math.inf])),
    )
    assert a + b == precision.Exponents({0: 1, 1: 2}, 1) and precision.Exponents.of(
        torch.zeros(3)
    ) == precision.Exponents({}, 3)
    assert precision.Exponents({16: 1, 15: 3}).overflow(FORMATS["fp16"]) == 0.25


def tiny(n=64):
    torch.manual_seed(0)
    return Images(torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8), torch.randint(0, 10, (n,)))


def test_the_observer_counts_every_so_many_steps_and_leaves_no_hook():
    model, watch = models.GluonCNN(), precision.GradientExponents(every=2)
    history = fit(model, BatchLoader(tiny(), 16), observers=[watch], **CPU)
    assert not [r for r in history.remarks if "detached" in r] and not any(m._forward_hooks for m in model.modules())
    assert {k for k, _ in watch.found} == {"features.0", "features.3", "classifier.1", "classifier.3"}
    last = watch.found["classifier.3", "output"]
    assert last.total + last.zeros == 2 * 16 * 10, "two of four steps"
    assert list(watch.table().index.get_level_values("kind")) == ["output"] * 4 + ["parameters"] * 4


def test_the_observer_does_not_change_the_run():
    twins = [models.GluonCNN(), models.GluonCNN()]
    twins[1].load_state_dict(twins[0].state_dict())
    for model, observers in zip(twins, ([], [precision.GradientExponents(1)])):
        fit(model, BatchLoader(tiny(), 16), observers=observers, **CPU)
    for a, b in zip(*(m.parameters() for m in twins)): assert torch.equal(a, b)


# ---- loss scaling

@settings(max_examples=50, deadline=None)
@given(
    events=st.lists(st.sampled_from([1.0, 1.0, 1.0, math.inf, math.nan, -math.inf]), max_size=40),
    interval=st.integers(1, 5),
    start=st.integers(-20, 120),
)
def test_scaling_is_torchs_step_by_step(events, interval, start):
    twins = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))]
    mine, theirs = (torch.optim.Adam([p], 0.1) for p in twins)
    scaler, reference = (
        precision.LossScaler(2.0**start, interval=interval),
        torch.amp.GradScaler("cpu", init_scale=2.0**start, growth_interval=interval),
    )
    for event in events:
        for p, scale, optimizer in ((twins[0], scaler.scaled, mine), (twins[1], reference.scale, theirs)):
            optimizer.zero_grad()
            scale((p * torch.tensor([1e-3, -2e-3, 3e-3]) * event).sum()).backward()
        before = twins[0].detach().clone()
        moved = scaler.step(mine)
        reference.step(theirs)
        reference.update()
        assert torch.equal(twins[0], twins[1]) and scaler.scale == reference.get_scale()
        assert moved == (not torch.equal(before, twins[0])) == math.isfinite(event)
    assert scaler.skipped == sum(not math.isfinite(e) for e in events)


def test_a_scale_does_not_grow_beyond_fp32():
    p = nn.Parameter(torch.zeros(1))
    scaler, optimizer = precision.LossScaler(2.0**126, interval=1), torch.optim.SGD([p], 0.1)
    for _ in range(5):
        p.grad = torch.zeros(1)
        assert scaler.step(optimizer)
    assert scaler.scale == 2.0**127


# ---- autocast and master weights

@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_by_hand_is_autocast(dtype):
    def run(context):
        torch.manual_seed(0)
        model, x = models.GluonCNN(channels=(4, 6), hidden=16), torch.rand(8, 1, 28, 28)
        kinds = []
        for layer in model.modules(): layer.register_forward_hook(lambda _l, _i, out: kinds.append(out.dtype))
        with context: loss = F.cross_entropy(model(x), torch.arange(8))
        loss.backward()
        kinds.append(loss.dtype)
        return kinds, [loss.detach().float(), *(p.grad for p in model.parameters())]
    (ours, values), (theirs, expected) = run(precision.CastMode(dtype)), run(torch.autocast("cpu", dtype))
    assert ours == theirs and ours[0] == dtype
    for a, b in zip(values, expected): torch.testing.assert_close(a, b, rtol=2e-2, atol=1e-3)


def test_the_mode_ends_with_its_block():
    x = torch.ones(2, 2)
    with precision.CastMode():
        assert (x @ x).dtype == torch.bfloat16 and (x + x).dtype == torch.float32
        for loss in (F.mse_loss, F.cross_entropy): assert loss(x.bfloat16(), x.bfloat16()).dtype == torch.float32
        assert F.nll_loss(x.bfloat16(), torch.zeros(2, dtype=torch.long)).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_what_autocast_does_is_found_by_running():
    table = casting.autocast_table("cpu", torch.float16)
    assert table.loc["matmul"].tolist() == ["float16", "float16", "short"] and table.loc["relu"].tolist() == [
        "float32",
        "float16",
        "as it comes",
    ]


def test_what_autocast_does_on_cuda_is_found_without_a_gpu():
    cpu = casting.autocast_table("cpu", torch.bfloat16)
    assert cpu.equals(casting.autocast_table("cpu", torch.bfloat16, pretend=True))
    rule = casting.autocast_table("cuda", torch.bfloat16, pretend=True).rule
    assert rule["softmax"] == rule["layer_norm"] == rule["exp"] == rule["sum"] == "fp32" and rule["matmul"] == "short"
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32, "no autocast is left on"


def test_a_master_copy_moves_where_the_short_weight_cannot():
    model = nn.Linear(3, 2).bfloat16()
    model.weight.data.fill_(1.0)
    before, bias = model.weight.detach().clone(), model.bias.detach().clone()
    master = precision.MasterWeights(model, lambda copies: torch.optim.SGD(copies, 1.0))
    update = torch.full_like(model.weight, 2.0**-10)
    for i in range(8):
        model.weight.grad = update.clone()
        master.step()
        assert model.weight.grad is None and master.copies[0].dtype == torch.float32
        assert torch.equal(model.weight, before - (2.0**-8 if i >= 2 else 0) - (2.0**-8 if i >= 5 else 0)), i
    assert torch.equal(model.bias, bias), "no gradient, no update"
    assert torch.equal(master.copies[0], torch.full((2, 3), 1 - 8 * 2.0**-10))


# ---- roofline

rates = st.floats(1e6, 1e15)


@given(memory=rates, arithmetic=rates, intensity=st.floats(1e-3, 1e5), more=st.floats(1, 10))
def test_the_roof_rises_and_then_is_flat(memory, arithmetic, intensity, more):
    roof = hardware.Roofline("x", memory, {"fp32": arithmetic}, 0.0, "")
    low, high = (flops / roof.seconds(flops, 1e6, "fp32") for flops in (intensity * 1e6, intensity * more * 1e6))
    assert low <= high * (1 + 1e-9) and high <= arithmetic * (1 + 1e-9)
    flat = roof.ridge("fp32") * 1e6 * 1.001
    assert flat / roof.seconds(flat, 1e6, "fp32") == pytest.approx(arithmetic)
    assert hardware.Roofline("x", memory, {"fp32": arithmetic}, 1e3, "").seconds(1.0, 1.0, "fp32") == 1e3, (
        "no operation is over before it is launched"
    )


@settings(max_examples=4, deadline=None)
@given(batch=st.integers(1, 64), stem=st.sampled_from(["small", "imagenet"]))
def test_traffic_is_what_goes_through_the_layers(batch, stem):
    side, channels = (28, 1) if stem == "small" else (64, 3)
    with torch.device("meta"): model = models.resnet18(10, stem)
    table, moved = layer_costs.layer_traffic(model, (channels, side, side), batch), []
    for layer in model.modules():
        if not any(layer.children()):
            layer.register_forward_hook(
                lambda layer, x, out: moved.append(
                    4 * (x[0].numel() + out.numel() + sum(p.numel() for p in layer.parameters()))
                )
            )
    model(torch.empty(batch, channels, side, side, device="meta"))
    expected = list(moved)  # later runs append to it
    assert (
        list(table.bytes) == expected
        and table.flops.sum() == models.layer_table(model, (channels, side, side), batch).flops.sum()
    )
    assert list(layer_costs.layer_traffic(model, (channels, side, side), batch, "bf16").bytes * 2) == expected


def test_rooflines_are_measured_here():
    roof = layer_costs.measure_roofline("cpu", ["fp32"], side=64, repeats=1)
    assert roof.bytes_per_s > 0 and roof.rate("fp32") > 0 and roof.launch_seconds > 0


def test_instructions_are_read_as_linux_writes_them(tmp_path):
    (tmp_path / "intel").write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_bf16\n\nprocessor\t: 1\n")
    (tmp_path / "arm").write_text("Features\t: fp asimd asimdhp\n")
    (tmp_path / "none").write_text("flags : avx2\n")
    assert casting.short_instructions(tmp_path / "intel") == ["avx512_bf16", "amx_bf16"] and casting.short_instructions(
        tmp_path / "arm"
    ) == ["asimdhp"]
    assert (
        casting.short_instructions(tmp_path / "none") == [] and casting.short_instructions(tmp_path / "missing") is None
    )


def batch(n=8): return torch.rand(n, 1, 28, 28), torch.arange(n) % 10
def small(): return models.GluonCNN(channels=(2, 3), hidden=8)


# ---- the seconds of a step

@settings(max_examples=30, deadline=None)
@given(
    prices=st.lists(st.one_of(st.just(0.0), st.floats(0.1, 10)), min_size=3, max_size=3).filter(any),
    seed=st.integers(0, 999),
)
def test_prices_are_found_again_and_none_is_negative(prices, seed):
    generator = torch.Generator().manual_seed(seed)
    amounts = torch.rand(8, 3, generator=generator, dtype=torch.float64).add(0.1)
    exact = amounts @ torch.tensor(prices, dtype=torch.float64)
    assert sample_statistics.fit_prices(amounts.tolist(), exact.tolist()) == pytest.approx(prices, abs=1e-6)
    noisy = exact * torch.rand(8, generator=generator).add(0.5)
    assert min(sample_statistics.fit_prices(amounts.tolist(), noisy.tolist())) >= 0


def test_prices_minimise_the_relative_error():
    assert sample_statistics.fit_prices([(1, 0), (1, 0)], [1, 3]) == pytest.approx([(1 + 1 / 3) / (1 + 1 / 9), 0]), (
        "an unused thing has no price"
    )


# ---- fit, in every precision that a CPU has

@pytest.mark.parametrize("name, dtype", [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_fit_computes_in_its_precision_and_keeps_weights_in_fp32(name, dtype):
    kinds, model = [], small()
    model.register_forward_hook(lambda _m, _i, out: kinds.append(out.dtype))
    losses = fit(model, [batch()] * 3, precision=name, **CPU).steps
    assert (
        set(kinds) == {dtype}
        and all(p.dtype == torch.float32 for p in model.parameters())
        and all(math.isfinite(s.loss) for s in losses)
    )


def test_fp16_shows_observers_true_gradients_and_skips_what_overflowed():
    class Look:
        def on_backward(self, run): seen.append(run.model[1].weight.grad.clone())
    seen, model = [], nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    before = model[1].weight.detach().clone()
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    expected = model[1].weight.grad.clone()
    model.zero_grad()
    fit(model, [(x, y)], precision="fp16", observers=[Look()], **CPU)
    torch.testing.assert_close(seen[0], expected, rtol=2e-2, atol=1e-4)
    assert not torch.equal(model[1].weight, before)
    overflow = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    before = overflow[1].weight.detach().clone()
    fit(overflow, [(x * 1e6, y)], precision="fp16", **CPU)
    assert torch.equal(overflow[1].weight, before), "an overflow moves no weight"


def test_a_run_that_overflows_for_ever_keeps_its_history():
    x, y = batch()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    history = fit(model, [(x * math.nan, y)] * 200, precision="fp16", **CPU)
    assert len(history.steps) == 200 and any("updates skipped" in remark for remark in history.remarks), (
        "the scale has halved down to zero"
    )


def test_what_a_device_lacks_is_said():
    assert [p for p in PRECISIONS if p != "tf32"] == [
        check_precision(p, torch.device("cpu")) for p in PRECISIONS if p != "tf32"
    ]
    with pytest.raises(ValueError, match="tf32 needs a CUDA device, this is cpu: use fp32, bf16 or fp16"):
        fit(small(), [batch()], precision="tf32", **CPU)


# ---- on a GPU

@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
class TestGpu:
    def test_a_precision_computes_what_it_should(self):
        losses = {
            name: fit(models.GluonCNN(), BatchLoader(tiny(), 16), precision=name, device="cuda", progress=False)
            .epochs[0]
            .loss
            for name in supported_precisions(torch.device("cuda"))
        }
        assert all(abs(loss - losses["fp32"]) < 0.2 for loss in losses.values())

    def test_rates_are_measured(self):
        roof = layer_costs.measure_roofline("cuda", side=1024, repeats=2)
        assert roof.bytes_per_s > 0 and all(rate > 0 for rate in roof.flops_per_s.values())

    def test_autocast_makes_more_in_fp32_than_on_a_cpu(self):
        rule = casting.autocast_table("cuda", torch.float16).rule
        assert rule["softmax"] == rule["exp"] == rule["sum"] == "fp32" and rule["matmul"] == "short"
        assert rule.equals(casting.autocast_table("cuda", torch.float16, pretend=True).rule)


def test_a_scaler_survives_overflows_without_end_and_takes_sparse_gradients():
    model, scaler = nn.Linear(2, 2), precision.LossScaler()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(1_200):
        model.weight.grad = torch.full((2, 2), torch.nan)
        assert not scaler.step(optimizer)
    assert scaler.scale == 2.0**-126 and scaler.skipped == 1_200
    words, scaler = nn.Embedding(9, 4, sparse=True), precision.LossScaler()
    before = words.weight.detach().clone()
    scaler.scaled(words(torch.tensor([1, 1, 2])).sum()).backward()
    assert scaler.step(torch.optim.SGD(words.parameters(), 1.0))
    assert torch.equal((before - words.weight).sum(1), torch.tensor([0.0, 8, 4, 0, 0, 0, 0, 0, 0]))
    words.zero_grad()
    scaler.scaled(words(torch.tensor([3])).sum() * torch.inf).backward()
    assert not scaler.step(torch.optim.SGD(words.parameters(), 1.0))

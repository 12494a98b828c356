"""parallelize: loops that other users write, against one process: equal, or refused in a sentence that says why."""
import copy
import gc
import weakref
from importlib.util import find_spec
from itertools import islice

import pytest
import torch
from parallel_loops import difference
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.engine.dist.ranks import RankError, call_each, run_ranks
from mlinfra.engine.parallel.parallelize import parallelize

CLASSES, WIDTH, SAMPLES, BATCH = 4, 6, 23, 8  # the last batch is of 7: shares of 4 and 3


def loader():
    made = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, WIDTH, generator=made, dtype=torch.float64)
    data = TensorDataset(x, torch.randint(0, CLASSES, (SAMPLES,), generator=made))
    return DataLoader(data, BATCH, shuffle=True, generator=torch.Generator().manual_seed(3))


def chain(*middle):
    return nn.Sequential(nn.Linear(WIDTH, 8), *middle, nn.Tanh(), nn.Linear(8, CLASSES)).double()


def usual(run, optimizer, x, y, _kept):
    loss = F.cross_entropy(run.model(x), y)
    loss.backward()
    optimizer.step(), optimizer.zero_grad()
    return loss


def train(how, model=chain, step=usual, optimizer=torch.optim.SGD, begin=None, end=None, epochs=2, most=None,
          batches=loader):
    "Losses of all ranks and whole weights of a loop with that step; `begin` makes what the steps keep."
    torch.manual_seed(0)
    made = model()
    own = optimizer(made.parameters(), lr=0.05)
    run, losses = parallelize(made, batches(), how, own, device="cpu"), []
    try:
        kept = None if begin is None else begin(run, own, made)
        for _ in range(epochs):
            for x, y in islice(run.loader, most): losses.append(run.mean(loss := step(run, own, x, y, kept)))
            if end is not None: end(kept, loss)
        return losses, {name: t.clone() for name, t in run.state_dict().items()}
    finally: run.close()


# ---- models

class RunningMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
    def forward(self, x):
        if self.training: self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean


class SampleCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
    def forward(self, x):
        self.seen += len(x)
        return x / (1 + 0.01 * self.seen)


class CallCounter(nn.Module):
    "It counts calls, not samples; and once more in Python."
    calls = 0
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
    def forward(self, x):
        self.seen += 1
        self.calls += 1
        return x / (1 + 0.1 * self.seen + 0.01 * self.calls)


class BatchMean(nn.Module):
    def forward(self, x): return x - x.mean(0)


class OwnNorm(nn.BatchNorm1d): "A class of its own, computed as its base."


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x): return torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False)


class Twice(nn.Module):
    "Outputs in a tuple, options, a norm in another dtype whose weight is also used without a call."
    def __init__(self, scale=0.0):
        super().__init__()
        self.body, self.norm = nn.Linear(WIDTH, 8).double(), nn.LayerNorm(8)
        self.one, self.two, self.scale = nn.Linear(8, CLASSES).double(), nn.Linear(8, CLASSES).double(), scale
    def forward(self, x, both=False, **_more):
        hidden = self.norm(self.body(x).float()).double()
        if self.scale: hidden = hidden + self.scale * self.norm.weight
        return (self.one(hidden), self.two(hidden)) if both else self.one(hidden) + self.two(hidden)


def hooked():
    model = chain()
    for p in model.parameters(): p.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return model


MODELS = {name: (lambda kind=kind: chain(kind())) for name, kind in dict(
    running_mean=RunningMean, samples=SampleCounter, calls=CallCounter, batch_mean=BatchMean,
    own_norm=lambda: OwnNorm(8), sync=lambda: nn.SyncBatchNorm(8), momentum=lambda: nn.BatchNorm1d(8, momentum=None),
    no_memory=lambda: nn.BatchNorm1d(8, track_running_stats=False),
    instance=lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2, track_running_stats=True),
                                   nn.Flatten()),
    spectral=lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), checkpoint=Checkpointed).items()}
MODELS |= dict(options=Twice, direct=lambda: Twice(0.5), hooked=hooked,
               lazy=lambda: nn.Sequential(nn.LazyLinear(8), nn.Linear(8, CLASSES)).double())


# ---- steps

class Temperature(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.ones((), dtype=torch.float64))


def with_loss_module(how):
    def begin(_run, _own, _model):
        loss = Temperature()
        return loss, torch.optim.SGD(loss.parameters(), 0.5)
    def step(run, optimizer, x, y, kept):
        loss = F.cross_entropy(run.model(x) * kept[0].value, y)
        loss.backward()
        for one in (optimizer, kept[1]): one.step(), one.zero_grad()
        return loss
    return train(how, step=step, begin=begin)


def adversaries(how, shared=True, first=True):
    "A generator and a discriminator on one loader, or on two of which one is iterated."
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, out)).double()
              for out in (WIDTH, 1)]
    made, one = [torch.optim.SGD(model.parameters(), 0.05) for model in models], loader()
    runs = [parallelize(model, one if shared else loader(), how, own, device="cpu") for model, own in zip(models, made)]
    (make, judge), losses = (run.model for run in runs), []
    try:
        for _ in range(2):
            for x, _y in runs[0 if first else 1].loader:
                fake = make(x.flip(1))
                judged = F.softplus(-judge(x)).mean() + F.softplus(judge(fake.detach())).mean()
                judged.backward()
                made[1].step(), made[1].zero_grad()
                fooled = F.softplus(-judge(fake)).mean()
                fooled.backward()
                made[0].step(), [own.zero_grad() for own in made]
                losses += [run.mean(loss) for run, loss in zip(runs, (fooled, judged))]
        return losses, {f"{i}.{name}": t.clone() for i, run in enumerate(runs) for name, t in run.state_dict().items()}
    finally: [run.close() for run in runs]


def again_and_again(how):
    "A model that is called on its own output."
    def step(run, optimizer, x, y, _kept):
        x = run.model(run.model(x).tanh())
        loss = F.cross_entropy(x, y % WIDTH)
        loss.backward()
        optimizer.step(), optimizer.zero_grad()
        return loss
    return train(how, lambda: nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, WIDTH)).double(), step)


def closure(how, optimizer):
    def step(run, own, x, y, _kept):
        def again():
            own.zero_grad()
            loss = F.cross_entropy(run.model(x), y)
            loss.backward()
            return loss
        return own.step(again)
    return train(how, step=step, optimizer=optimizer)


def lbfgs(parameters, lr): return torch.optim.LBFGS(parameters, lr, max_iter=4, line_search_fn="strong_wolfe")


def plateau(how, of_all):
    def begin(run, own, _model):
        return run, torch.optim.lr_scheduler.ReduceLROnPlateau(own, patience=0, threshold=0.05)
    def end(kept, loss): kept[1].step(kept[0].mean(loss) if of_all else loss.detach())
    return train(how, begin=begin, end=end, epochs=6, optimizer=lambda p, lr: torch.optim.SGD(p, 10 * lr))


def gradients_by_hand(how):
    def step(run, own, x, y, _kept):
        loss, parameters = F.cross_entropy(run.model(x), y), list(run.model.parameters())
        for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters)): p.grad = gradient
        own.step()
        return loss
    return train(how, step=step)


def noise_on_gradients(how):
    def step(run, own, x, y, _kept):
        loss = F.cross_entropy(run.model(x), y)
        loss.backward()
        for p in run.model.parameters(): p.grad += torch.randn(p.grad.shape)
        own.step(), own.zero_grad()
        return loss
    return train(how, step=step)


def skips(how):
    "It leaves out batches by what this rank has of them."
    torch.manual_seed(0)
    model = chain()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    run = parallelize(model, loader(), how, optimizer, device="cpu")
    try:
        for x, y in run.loader:
            if x[0, 0] > 0: continue
            (run.model(x) - F.one_hot(y, CLASSES)).square().mean().backward()
            optimizer.step(), optimizer.zero_grad()
        return [], {name: t.clone() for name, t in run.state_dict().items()}
    finally: run.close()


def slope(model, x, y):
    x = x.clone().requires_grad_()
    out = model(x)
    (found,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return F.cross_entropy(out, y) + (found.square().sum(1) + 1e-3).sqrt().sub(1).square().mean()


def clip_by_hand(how):
    "What it reads of each gradient is a number."
    def step(run, own, x, y, _kept):
        loss = F.cross_entropy(run.model(x), y)
        loss.backward()
        total = sum(p.grad.square().sum().item() for p in run.model.parameters()) ** 0.5
        assert f"{run.model[0].weight.grad.norm():.6f}" != "0.000000" and len(run.model[0].weight.detach().numpy()) == 8
        for p in run.model.parameters(): p.grad.mul_(min(1.0, 0.1 / total))
        own.step(), own.zero_grad()
        with torch.no_grad(): run.model[0].weight[6] = run.model[0].weight[1] * 0.5
        return loss
    return train(how, step=step)


def average_by_hand(how):
    def step(run, own, x, y, kept):
        loss = usual(run, own, x, y, None)
        with torch.no_grad():
            for mean, p in zip(kept.parameters(), run.model.parameters()): mean.lerp_(p, 0.1)
        return loss
    return train(how, step=step, begin=lambda *_run: chain())


class RowMeans(torch.optim.Optimizer):
    "It remembers a mean of each row, and makes room for it by the row's number."
    def __init__(self, parameters, lr): super().__init__(parameters, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p.dim() == 2):
            size = self.state[p].setdefault("size", torch.zeros(len(p), 1, dtype=p.dtype))
            size.mul_(0.9).add_(p.grad.square().mean(1, keepdim=True), alpha=0.1)
            p.sub_(self.param_groups[0]["lr"] * p.grad / (size.sqrt() + 1))


def row_means(how): return train(how, optimizer=RowMeans)


def mean_called_a_sum(how):
    torch.manual_seed(0)
    model = chain()
    run = parallelize(model, loader(), how, torch.optim.SGD(model.parameters(), 0.05), reduction="sum", device="cpu")
    try:
        for x, y in run.loader:
            F.cross_entropy(run.model(x), y).backward()
            run.optimizer.step(), run.optimizer.zero_grad()
        return [], {name: t.clone() for name, t in run.state_dict().items()}
    finally: run.close()


class WithLoss(nn.Module):
    "It makes its loss itself, and returns it beside the outputs."
    def __init__(self, loss):
        super().__init__()
        self.net, self.loss = chain(), loss
    def forward(self, x, y):
        scores = self.net(x)
        return dict(loss=self.loss(scores, y), scores=scores)


def mean_over_classes_above_0(scores, y):
    return (F.cross_entropy(scores, y, reduction="none") * (y > 0)).sum() / (y > 0).sum()


def loss_of_the_model(how, loss):
    def step(run, own, x, y, _kept):
        (found := run.model(x, y)["loss"]).backward()
        own.step(), own.zero_grad()
        return found
    return train(how, lambda: WithLoss(loss), step=step)


def sum_of_losses(scores, y): return F.cross_entropy(scores, y, reduction="sum")


def penalty_with_another_batch(how):
    "The loss of one batch waits for the next one, which has a gradient penalty."
    def step(run, own, x, y, kept):
        kept["number"] = number = kept.get("number", 0) + 1
        loss = slope(run.model, x, y) if number % 3 == 0 else F.cross_entropy(run.model(x), y)
        if number % 3 == 2: kept["waits"] = loss
        else:
            (loss + kept.pop("waits", 0)).backward()
            own.step(), own.zero_grad()
        return loss
    return train(how, step=step, begin=lambda *_all: {})


def left_early(how): return train(how, epochs=3, most=2)  # the next epochs have the order of one process


def third_of_three(how):
    "A step for three batches, of which parallelize is not told; the last of them is of two samples."
    def step(run, own, x, y, kept):
        loss = F.cross_entropy(run.model(x), y)
        (loss / 3).backward()
        kept.append(0)
        if len(kept) % 3 == 0: own.step(), own.zero_grad()
        return loss
    return train(how, step=step, begin=lambda *_all: [], batches=lambda: DataLoader(loader().dataset, 4))


def padded(how, masked):
    "Sequences of which the first batches are equally long, padded to the longest of a batch."
    def batches():
        rows = [loader().dataset[i % SAMPLES][0].repeat(4 if i < 32 else 1 + i % 6, 1) for i in range(64)]
        def padded(row): return nn.utils.rnn.pad_sequence(row, True), torch.tensor([len(one) for one in row])
        return DataLoader(rows, BATCH, collate_fn=padded)
    def step(run, own, x, lengths, _kept):
        out, mask = run.model(x), torch.arange(x.size(1)) < lengths[:, None]
        loss = F.mse_loss(out[mask], x[mask][:, :CLASSES]) if masked else F.mse_loss(out, x[..., :CLASSES])
        loss.backward()
        own.step(), own.zero_grad()
        return loss
    return train(how, step=step, batches=batches, epochs=1)


def healthy(how, loss, size):
    "Losses that ranks can compute from their parts, in batches of which a rank may have one sample."
    def step(run, own, x, y, _kept):
        value = HEALTHY[loss](run.model(x), y)
        value.backward()
        own.step(), own.zero_grad()
        return value
    return train(how, step=step, batches=lambda: DataLoader(loader().dataset, size))


HEALTHY = dict(
    mean=F.cross_entropy, own_mean=lambda out, y: F.cross_entropy(out, y, reduction="none").sum() / len(y),
    thirds=lambda out, y: F.cross_entropy(out, y, reduction="none").sum() / len(y) / 3,
    summed=lambda out, y: F.cross_entropy(out, y, reduction="sum") / len(y),
    two=lambda out, y: F.cross_entropy(out, y) + 0.1 * out.square().sum(1).mean(),
    picked=lambda out, y: -out.log_softmax(1).gather(1, y[:, None]).mean())


def now_and_then(how, kind):
    "Terms that a batch has or not, from the third one on, and a loss that is computed again in backward."
    def step(run, own, x, y, kept):
        out, kept[0] = run.model(x), kept[0] + 1
        each = F.cross_entropy(out, y, reduction="none")
        if kind == "checkpointed":
            loss = checkpoint(lambda out, y: 0.5 * F.cross_entropy(out, y), out, y, use_reentrant=False)
        elif kind == "nothing": loss = (each * (y > 2)).sum() / len(x) if bool((y > 2).any()) else 0 * out.sum()
        else: loss = each.sum() / len(x)
        if kind == "boxes" and kept[0] > 2 and bool((y > 2).any()): loss = loss + 5 * out[y > 2].square().sum() / len(x)
        loss.backward()
        own.step(), own.zero_grad()
        return loss
    return train(how, step=step, begin=lambda *_all: [0], epochs=1, batches=lambda: DataLoader(loader().dataset, 2))


def average(how, first):
    "An average of the weights, of a copy that is made before parallelize, of what it gives, or of what it got: None."
    copies = []
    def model():
        copies.append(copy.deepcopy(made := chain()))
        return made
    def begin(run, _own, got):
        mean = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        of = got if first is None else copies[0] if first else run.model
        copies.append(torch.optim.swa_utils.AveragedModel(of, multi_avg_fn=mean))
        return copies[-1]
    def step(run, own, x, y, kept):
        loss = usual(run, own, x, y, None)
        kept.update_parameters(run.model)
        return loss
    losses, weights = train(how, model, step, begin=begin)
    return losses, weights | {f"mean.{name}": t.clone() for name, t in copies[-1].state_dict().items()}


def overflow(how):
    "Gradients of the first layer that are not finite in every other batch."
    def begin(_run, _own, model):
        kept = dict(scaler=torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2), number=0)
        def broken(_module, _inputs, out):
            if out.requires_grad and kept["number"] % 2: out.register_hook(lambda gradient: gradient * torch.inf)
        model[0].register_forward_hook(broken)
        return kept
    def step(run, own, x, y, kept):
        loss, kept["number"] = F.cross_entropy(run.model(x), y), kept["number"] + 1
        kept["scaler"].scale(loss).backward()
        kept["scaler"].step(own), kept["scaler"].update(), own.zero_grad()
        return loss
    return train(how, step=step, begin=begin)


def call_with(how, **options):
    def step(run, own, x, y, _kept):
        out = run.model(x, **options)
        loss = sum(F.cross_entropy(one, y) for one in (out if isinstance(out, tuple) else (out,)))
        loss.backward()
        own.step(), own.zero_grad()
        return loss
    return train(how, Twice, step)


def of_model(how, name): return train(how, MODELS[name])
def both_outputs(how): return call_with(how, both=True)


def gpt2(how, labels):
    "Somebody else's model, with its own loss (in float32) or without."
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=17, n_positions=12, n_embd=8, n_layer=2, n_head=2, attn_pdrop=0.0,
                                       resid_pdrop=0.0, embd_pdrop=0.0, bos_token_id=0, eos_token_id=0)).double()
    tokens = torch.randint(0, 17, (SAMPLES, 10), generator=torch.Generator().manual_seed(1))
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.05), []
    run = parallelize(model, DataLoader(TensorDataset(tokens), BATCH), how, optimizer, device="cpu")
    try:
        for words, in run.loader:
            if labels: loss = run.model(words, labels=words).loss
            else: loss = F.cross_entropy(run.model(words).logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())
            loss.backward()
            optimizer.step(), optimizer.zero_grad()
            losses.append(run.mean(loss))
        return losses, {name: t.clone() for name, t in run.state_dict().items()}
    finally: run.close()


APART, HOOK = "does not treat each sample by itself", "has a hook on its gradient"
STRANGE, WHOLE = "that parallelize was not given", "looks at more than one element of the parameters"
OF_ONE, PART = "of the parameters of .* is of one rank", "a rank has a part of"
UNEVEN = "in batch 5, for each sample, by (24|18) on rank 0 and by (16|10) on rank 1"
CASES = {  # (loop, arguments): how -> the words by which it is refused; "" where it is equal
    **{(of_model, name): dict(ddp=APART, fsdp=APART, pipeline="")
       for name in ("running_mean", "samples", "batch_mean", "instance")},
    **{(of_model, name): dict(ddp="", fsdp="", pipeline="")
       for name in ("calls", "own_norm", "sync", "momentum", "no_memory", "spectral", "checkpoint", "options")},
    (of_model, "direct"): dict(ddp="", fsdp="", pipeline="outside of a layer"),
    (of_model, "hooked"): dict(ddp=HOOK, fsdp=HOOK, pipeline=HOOK, tensor=HOOK),
    (of_model, "lazy"): dict.fromkeys(("ddp", "fsdp", "pipeline", "tensor"), "has no shape before the model is called"),
    (with_loss_module,): dict(ddp=STRANGE, fsdp=STRANGE, pipeline="", tensor=""),
    (adversaries,): dict(ddp="", fsdp="", pipeline="no gradient of its input", tensor=""),
    (adversaries, True, False): dict(ddp="", fsdp=""),
    (adversaries, False): dict(ddp="another loader than it was given", fsdp="another loader than it was given"),
    (again_and_again,): dict(ddp="", fsdp=""),
    (closure, torch.optim.SGD): dict(ddp="", fsdp="", pipeline="", tensor=""),
    (closure, lbfgs): dict(ddp="", fsdp=WHOLE, pipeline=WHOLE, tensor=WHOLE),
    (closure, torch.optim.Adafactor): dict(ddp="", fsdp=WHOLE, pipeline="", tensor=WHOLE),
    (plateau, False): dict(ddp="lr of group 0 of the optimizer", fsdp="lr of group 0 of the optimizer", pipeline=""),
    (plateau, True): dict(ddp="", fsdp=""),
    (gradients_by_hand,): dict(ddp=OF_ONE, fsdp=OF_ONE, pipeline=OF_ONE),
    (noise_on_gradients,): dict(ddp="a rank has changed it by itself"),
    (clip_by_hand,): dict(ddp="", fsdp=""),
    (average_by_hand,): dict(ddp="", fsdp="are shards .*run.state_dict"),
    (row_means,): dict(ddp="", fsdp="remembers by zeros_like"),
    (mean_called_a_sum,): dict(ddp="a mean over the samples", fsdp="a mean over the samples"),
    (loss_of_the_model, F.cross_entropy): dict(ddp="", fsdp=""),
    (loss_of_the_model, sum_of_losses): dict(ddp="a sum over the samples", fsdp="a sum over the samples"),
    (loss_of_the_model, mean_over_classes_above_0): dict(ddp="does not follow the samples of a rank"),
    (skips,): dict(ddp="the ranks do not do the same with a batch"),
    (penalty_with_another_batch,): dict(ddp="together with the loss of another batch", tensor=""),
    (left_early,): dict(ddp="", fsdp="", pipeline="", tensor=""),
    (third_of_three,): dict(ddp="", fsdp=""),
    **{(padded, masked): dict(ddp=UNEVEN, fsdp=UNEVEN) for masked in (False, True)},
    **{(healthy, loss, size): dict(ddp="", **(dict(fsdp="") if loss == "own_mean" else {}))
       for loss in HEALTHY for size in (3, 4)},
    **{(now_and_then, kind): dict(ddp="") for kind in ("boxes", "nothing", "checkpointed")},
    (average, True): dict(ddp="", fsdp=PART, pipeline=PART, tensor=PART),
    (average, False): dict(ddp="", fsdp=PART, pipeline=PART, tensor=PART),
    (average, None): dict(pipeline=PART),
    (overflow,): dict(ddp="", fsdp="gives to a hook: use ddp", pipeline=""),
    (both_outputs,): dict(ddp="", fsdp="", pipeline="is called with one tensor, as it was cut, got .Tensor, both=")}

if find_spec("transformers"):
    CASES |= {(gpt2, labels): dict(ddp="", fsdp="", pipeline="GPT2LMHeadModel cannot be traced .its forward takes")
              for labels in (True, False)}


def outcome(loop, how, *arguments):
    "The result, or the words by which the loop was refused."
    try: return loop(how, *arguments)
    except ValueError as error: return str(error)
    except Exception as error: return f"FAULT {type(error).__name__}: {error}"


TRIED = [(case, how) for case, hows in CASES.items() for how in hows]


@pytest.fixture(scope="module")
def found():
    "(case, how) -> what rank 0 and rank 1 found."
    calls = [(outcome, case[0], how, *case[1:]) for case, how in TRIED]
    ranks = run_ranks(call_each, 2, calls, share_cores=True, timeout_seconds=120)
    return {one: (ranks[0][i], ranks[1][i]) for i, one in enumerate(TRIED)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(getattr(x, "__name__", str(x)) for x in case))
def test_a_loop_is_that_of_one_process_or_refused(case, found):
    one = case[0]("auto", *case[1:])
    for how, words in CASES[case].items():
        for other in found[case, how]:
            if words:
                assert isinstance(other, str), f"{how}: not refused"
                with pytest.raises(ValueError, match=words): raise ValueError(other)
            else:
                assert not isinstance(other, str), f"{how}: {other}"
                # a norm in float32 rounds at 1e-7 of numbers near 1, in six steps; all else is in float64
                assert difference(one, other) < 1e-6, how


# ---- ranks that do not do the same with a batch

def lone(how, kind, first=0):
    "Only rank 0 has positives, from batch `first` on; before it, both have."
    torch.manual_seed(0)
    made, x = chain(), torch.randn(48, WIDTH, dtype=torch.float64)
    y = torch.zeros(48, dtype=torch.long)
    y[::4], y[8 * first + 4::8] = 1, 0
    own = torch.optim.SGD(made.parameters(), 0.1)
    run = parallelize(made, DataLoader(TensorDataset(x, y), 8), how, own, device="cpu")
    try:
        for x, y in run.loader:
            own.zero_grad()
            out, some = run.model(x), bool((y > 0).any())
            if kind == "continue" and not some: continue
            if kind == "zero" and not some: torch.zeros((), requires_grad=True).backward()
            elif kind == "square" and some: out[y > 0].square().mean().backward()
            elif kind != "square" and (some or kind == "plain"): F.cross_entropy(out[y > 0], y[y > 0]).backward()
            own.step()
        return {name: t.clone() for name, t in run.state_dict().items()}
    finally: run.close()


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind, first", [("if", 0), ("continue", 0), ("zero", 0), ("square", 0), ("if", 3),
                                         ("continue", 3)])
def test_a_rank_that_skips_a_backward_is_named_before_the_others_wait_for_it(how, kind, first):
    with pytest.raises(RankError, match="do not do the same with a batch: rank 0 has .*rank 1 has|different batches"):
        run_ranks(lone, 2, how, kind, first, share_cores=True, timeout_seconds=40)


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_a_rank_without_positives_that_computes_the_loss_learns_as_one_process(how):
    found, one = run_ranks(lone, 2, how, "plain", share_cores=True, timeout_seconds=40), lone("auto", "plain")
    assert all(torch.allclose(found[0][name], one[name], atol=1e-9) for name in one)


# ---- nothing is left

def left_behind(how):
    "Whether a run that nobody has any more is gone, and with it what it has changed in PyTorch."
    grad, made = torch.autograd.grad, chain()
    run = parallelize(made, loader(), how, torch.optim.SGD(made.parameters(), 0.1), device="cpu")
    for x, y in run.loader: F.cross_entropy(run.model(x), y).backward()
    changed = torch.autograd.grad is not grad
    gone = [weakref.ref(one) for one in (run.loop, run.strategy, made)]
    del run, made, x, y
    gc.collect()
    return changed, [one() is None for one in gone], torch.autograd.grad is grad


def test_a_run_that_nobody_has_is_gone():
    calls = [(left_behind, how) for how in ("ddp", "tensor", "pipeline")]
    assert run_ranks(call_each, 2, calls, share_cores=True)[0] == [(True, [True, True, True], True)] * 3

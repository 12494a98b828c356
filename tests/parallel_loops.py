"""Small loops made of parts: models, losses, clipping, accumulation, optimizers; for one process or many ranks."""
import itertools
import math
import random
from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from mlinfra.engine.parallel.parallelize import parallelize

CLASSES, WIDTH, SAMPLES, LENGTH = 4, 6, 22, 5


# ---- models

class Method(nn.Module):
    "A model whose loss is a method."
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
    def forward(self, x): return self.head(self.body(x).tanh())
    def training_step(self, x, y): return F.cross_entropy(self(x), y)


class Unused(nn.Module):
    "A model with a layer that no batch uses, and one that every other batch does."
    def __init__(self):
        super().__init__()
        self.body, self.extra, self.never = nn.Linear(WIDTH, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head, self.calls = nn.Linear(8, CLASSES), 0
    def forward(self, x):
        self.calls += 1
        hidden = self.body(x).tanh()
        return self.head(hidden + self.extra(hidden) if self.calls % 2 else hidden)


class Heads(nn.Module):
    "Two outputs."
    def __init__(self):
        super().__init__()
        self.body, self.one, self.two = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), nn.Linear(8, CLASSES)
    def forward(self, x):
        hidden = self.body(x).tanh()
        return self.one(hidden), self.two(hidden)


class Norms(nn.Module):
    "Batch norms, in two dimensions of data."
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))
    def forward(self, x): return self.net(x)


def chain(): return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, CLASSES))
def normed_chain(): return nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, CLASSES))
def tokens(): return nn.Sequential(nn.Embedding(CLASSES, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES))
def sparse(): return nn.Sequential(nn.Embedding(CLASSES, 8, sparse=True), nn.Linear(8, 8), nn.Linear(8, CLASSES))


MODELS = dict(chain=chain, normed=normed_chain, method=Method, unused=Unused, heads=Heads, norms=Norms, tokens=tokens,
              sparse=sparse)
WORDS = {"tokens", "sparse"}


# ---- losses, of (model as the loop has it, x, y)

def output(model, x):
    found = model(x)
    return found[0] if isinstance(found, tuple) else found


def mean(model, x, y): return F.cross_entropy(output(model, x), y)
def squares(model, x, y): return (output(model, x) - F.one_hot(y, CLASSES)).square().mean()
def weighted(model, x, y):
    return F.cross_entropy(output(model, x), y, torch.arange(1.0, CLASSES + 1, dtype=torch.float64))
def smooth(model, x, y): return nn.CrossEntropyLoss(label_smoothing=0.1)(output(model, x), y)
def decay(model, x, y): return mean(model, x, y) + 0.01 * sum(p.square().sum() for p in model.parameters())
def method(model, x, y): return model.training_step(x, y)
def both(model, x, y): return sum(F.cross_entropy(out, y) for out in model(x))
def parts(model, x, y): return F.cross_entropy(model.head(model.body(x).tanh()), y)
def slope(model, x, y):
    x = x.clone().requires_grad_()
    out = output(model, x)
    (found,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return F.cross_entropy(out, y) + (found.square().sum(1) + 1e-3).sqrt().sub(1).square().mean()
def padded(model, x, y): return F.cross_entropy(output(model, x).flatten(0, 1), y.flatten())
def padded_nll(model, x, y): return F.nll_loss(F.log_softmax(output(model, x), -1).movedim(-1, 1), y)
def total(model, x, y): return F.cross_entropy(output(model, x), y, reduction="sum")


LOSSES = dict(mean=mean, squares=squares, weighted=weighted, smooth=smooth, decay=decay, method=method, both=both,
              parts=parts, slope=slope, padded=padded, padded_nll=padded_nll, total=total)
ONLY = dict(method={"method"}, both={"heads"}, parts={"method"})  # losses that need a model


def fits(model, loss):
    if (loss in ("padded", "padded_nll")) != (model in WORDS): return False
    return loss not in ONLY or model in ONLY[loss]


@dataclass(frozen=True)
class Loop:
    "What a loop is made of."
    how: str
    model: str
    loss: str
    clip: str = ""          # "norm", "value", "largest", or not
    accumulation: int = 1
    told: bool = True       # whether parallelize is told of it
    twice: bool = False     # backward in two passes
    frozen: bool = False    # the first layer
    optimizer: str = "sgd"  # "adam", "adagrad", "two"
    batch: int = 8

    def __str__(self): return " ".join(f"{k}={v}" for k, v in asdict(self).items())


def data(model):
    made = torch.Generator().manual_seed(1)
    if model in WORDS:
        x, long = (torch.randint(0, top, (SAMPLES, n), generator=made) for top, n in ((CLASSES, LENGTH), (LENGTH, 1)))
        return TensorDataset(x, torch.where(torch.arange(LENGTH) <= long, (x * 3 + 1) % CLASSES, -100))
    x = torch.randn(SAMPLES, WIDTH, generator=made, dtype=torch.float64)
    return TensorDataset(x, torch.randint(0, CLASSES, (SAMPLES,), generator=made))


def optimizers(kind, model):
    every = list(model.parameters())
    if kind == "two": return [torch.optim.SGD(every[:2], 0.1), torch.optim.SGD(every[2:], 0.05, momentum=0.9)]
    kinds = dict(sgd=torch.optim.SGD, adam=torch.optim.Adam, adagrad=torch.optim.Adagrad)
    return [kinds[kind](every, 0.05)]


def train(loop: Loop):
    "Losses of all ranks and whole weights after two epochs."
    torch.manual_seed(0)
    model = MODELS[loop.model]().double()
    if loop.frozen: next(model.children()).requires_grad_(False)
    made = optimizers(loop.optimizer, model)
    loader = DataLoader(data(loop.model), loop.batch, shuffle=True, generator=torch.Generator().manual_seed(3))
    run = parallelize(model, loader, loop.how, made[0] if len(made) == 1 else None, device="cpu",
                      accumulation=loop.accumulation if loop.told else 1,
                      reduction="sum" if loop.loss == "total" else "mean")
    try: return _train(loop, run, made)
    finally: run.close()


def _train(loop, run, made):
    model, loader, losses = run.model, run.loader, []
    for _ in range(2):
        for i, (x, y) in enumerate(loader):
            loss = LOSSES[loop.loss](model, x, y)
            scaled = loss / loop.accumulation
            if loop.twice:
                (0.3 * scaled).backward(retain_graph=True)
                (0.7 * scaled).backward()
            else: scaled.backward()
            losses.append(run.mean(loss))
            if (i + 1) % loop.accumulation and i + 1 < len(loader): continue
            if loop.clip == "norm": nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            if loop.clip == "largest": nn.utils.clip_grad_norm_(model.parameters(), 0.05, torch.inf)
            if loop.clip == "value": nn.utils.clip_grad_value_(model.parameters(), 0.01)
            for one in made: one.step()
            for one in made: one.zero_grad()
    return losses, {name: tensor.clone() for name, tensor in run.state_dict().items()}


def loops(seed, many):
    "Loops drawn from all, each how and model and loss often enough."
    drawn, found = random.Random(seed), {}
    hows = "ddp", "fsdp", "pipeline", "tensor"
    pairs = [pair for pair in itertools.product(hows, MODELS, LOSSES) if fits(*pair[1:])]
    while len(found) < many:
        drawn.shuffle(pairs)
        for how, model, loss in pairs:
            plain = drawn.random() < 0.3
            loop = Loop(how, model, loss) if plain else Loop(
                how, model, loss, drawn.choice(["", "norm", "value", "largest"]), drawn.choice([1, 1, 3]),
                drawn.random() < 0.7, drawn.random() < 0.25, drawn.random() < 0.25,
                drawn.choice(["sgd", "adam", "adagrad", "two"]), drawn.choice([8, 7, 2]))
            found[loop] = None
    return list(found)[:many]


def difference(one, other):
    "The largest difference of two results, in losses or weights."
    (a, weights), (b, others) = one, other
    if list(weights) != list(others): return math.inf
    return max([abs(p - q) for p, q in zip(a, b, strict=True)]
               + [float((weights[name] - others[name]).abs().max()) for name in weights])


def outcome(loop: Loop):
    "The result, or the words by which the loop was refused."
    try: return train(loop)
    except (ValueError, TypeError) as error: return str(error)
    except Exception as error: return f"FAULT {type(error).__name__}: {error}"

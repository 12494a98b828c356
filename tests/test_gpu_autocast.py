"""A step planned without a GPU keeps the types that a GPU's autocast keeps."""
import re
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mlinfra import memory
from mlinfra.engine.base.fake_tensors import fake_mode
from mlinfra.engine.memory.gpu_autocast import gpu_autocast, rule_of
from mlinfra.engine.train.saved_tensors import SavedTensors


def _kept(function, kind, dtype):
    "Types and shapes that autograd keeps, in forward; without a driver, autocast is switched on for CUDA by hand."
    kept = []
    with fake_mode(), gpu_autocast():
        x = torch.ones(8, 64, dtype=dtype, device=kind, requires_grad=True)
        before = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        torch.set_autocast_enabled(kind, True)
        torch.set_autocast_dtype(kind, dtype)
        try:
            with SavedTensors(on_save=lambda t: kept.append((t.dtype, tuple(t.shape)))): out = function(x)
        finally:
            torch.set_autocast_enabled(kind, before[0])
            torch.set_autocast_dtype(kind, before[1])
            torch.clear_autocast_cache()
    return out.dtype, kept


def _hand_made_softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


FUNCTIONS = {
    "gelu": lambda x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * torch.pow(x, 3)))),
    "root mean square": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "softmax by hand": _hand_made_softmax, "softmax": lambda x: x.softmax(-1), "sum": torch.sum,
    "layer_norm": lambda x: F.layer_norm(x, (64,)), "group_norm": lambda x: F.group_norm(x, 4),
    "cross entropy": lambda x: F.cross_entropy(x, torch.zeros(8, dtype=torch.long, device=x.device)),
    "square error": lambda x: F.mse_loss(x, torch.zeros_like(x)), "norm": lambda x: x.norm(dim=-1),
    "cosine": lambda x: F.cosine_similarity(x, x + 1), "kl": lambda x: F.kl_div(x.log_softmax(-1), x.softmax(-1)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x), "cumsum": lambda x: x.cumsum(-1).tanh(), "mish": F.mish,
    "cat": lambda x: torch.cat([x, x.float()]).tanh(), "addcmul": lambda x: torch.addcmul(x.float(), x, x).tanh(),
    "pool": lambda x: F.max_pool3d(x.view(1, 8, 4, 4, 4), 2), "pad": lambda x: F.pad(x[None], (1, 1), "reflect").tanh()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_fake_tensors_of_the_cpu_keep_what_those_of_a_gpu_keep(function, dtype):
    if not torch.backends.cuda.is_built(): pytest.skip("PyTorch is built without CUDA")
    assert _kept(function, "cpu", dtype) == _kept(function, "cuda", dtype)


def test_every_function_of_pytorchs_lists_has_its_rule():
    source = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    lists = dict(LOWER_PRECISION_FP="lower", FP32="float32", FP32_SET_OPT_DTYPE="result", PROMOTE="widest")
    seen = 0
    for name, rule in lists.items():
        body = re.search(rf"#define AT_FORALL_{name}\(_\)((?:.*\\\n)*.*\n)", source)[1]
        for function, overload in re.findall(r"_\((\w+)(?:, (\w+))?\)", body):
            full = f"aten::{function}" + (f".{overload}" if overload else "")
            assert rule_of(full) == rule, full
            seen += 1
    assert seen > 80


def test_a_decoder_is_planned_as_a_gpu_measured_it():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=8_192, n_embd=512, n_layer=6, n_head=8, n_positions=512, attn_pdrop=0.1)
    with torch.device("meta"): model = transformers.GPT2LMHeadModel(config)
    ids = torch.zeros(8, 512, dtype=torch.long)
    def planned(**how):
        sample = dict(input_ids=ids, labels=ids)
        return memory.estimate(model, 8, sample=sample, optimizer="adamw", plan="cuda", **how).activations
    measured = 1_328_746_596  # by an H200, PyTorch 2.11
    assert abs(planned(precision="bf16") / measured - 1) < 0.01
    assert planned(precision="fp16") == planned(precision="bf16")
    blocks = [f"transformer.h.{i}" for i in range(6)]
    assert planned(precision="bf16", checkpointing=blocks) < 0.2 * measured


def test_another_thread_computes_as_ever_meanwhile():
    found = []
    def other():
        x = torch.ones(4, 4, dtype=torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16): found.extend([x.exp(), torch.stack([x.float(), x]), x.softmax(-1)])
    with gpu_autocast():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(60)
    assert [t.dtype for t in found] == [torch.bfloat16, torch.float32, torch.bfloat16]
    assert found[0].flatten()[0] == torch.ones(1, dtype=torch.bfloat16).exp()


def test_a_loss_that_a_gpu_refuses_is_refused():
    class Scores(nn.Module):
        def __init__(self): super().__init__(); self.layer = nn.Linear(4, 1)
        def forward(self, x): return F.binary_cross_entropy(self.layer(x).sigmoid(), torch.ones(x.shape[0], 1))
    with pytest.raises(ValueError, match="unsafe to autocast on a GPU"):
        memory.estimate(Scores(), 2, (4,), precision="bf16", plan="cuda")
    assert memory.estimate(Scores(), 2, (4,), precision="bf16", plan="cpu").total > 0
    assert memory.estimate(Scores(), 2, (4,), plan="cuda").total > 0

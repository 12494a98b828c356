"""`mlinfra check` on scripts of its users: child processes, each with an empty folder; as a shell would start them, or
where nothing depends on it forked with PyTorch in memory, like the script that they start (see copies.py)."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from copies import PYTHON

from mlinfra.engine.preflight.file_journal import files_in

LOADER = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(640, 8)
y = (x[:, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), 32, shuffle=True, num_workers=2)
"""
PLAIN = LOADER + """
import atexit, copy
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 2)
        self.body.requires_grad_(False)
    def forward(self, x): return self.head(torch.relu(self.body(x)))
def main():
    model = Net()
    ema, _ = copy.deepcopy(model), model.load_state_dict(dict(list(model.state_dict().items())[:3]), strict=False)
    optimizer = torch.optim.SGD(model.head.parameters(), float(sys.argv[1]))
    with torch.no_grad(): model(x)
    for epoch in range(10):
        for a, b in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(a), b)
            loss.backward()
            optimizer.step()
            torch.save(model.state_dict(), "model.pt")
            open("log.txt", "a").write("step")
atexit.register(print, "atexit")
print(sys.stdin.readline().strip(), __name__)
try: main()
finally: print("finally")
"""
LIGHTNING = LOADER + """
import lightning
class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 2)
    def training_step(self, batch, i): return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def validation_step(self, batch, i): self.log("valid", self.training_step(batch, i))
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters(), 1e-2)
if __name__ == "__main__":
    lightning.Trainer(max_epochs=5, accelerator="cpu").fit(Lit(), loader, DataLoader(TensorDataset(x, y), 64))
"""
TRANSFORMERS = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
data = [dict(input_ids=torch.arange(5, 12), labels=i % 2) for i in range(200)]
model = BertForSequenceClassification(BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1,
                                                 num_attention_heads=2, intermediate_size=16))
args = TrainingArguments("out", per_device_train_batch_size=8, gradient_accumulation_steps=2, save_steps=2,
                         use_cpu=True, disable_tqdm=True)
Trainer(model, args, train_dataset=data).train()
"""
RANKS = LOADER.replace("num_workers=2", "num_workers=0") + """
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for n, (a, b) in enumerate(loader):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(a), b)
    loss.backward()
    if dist.get_rank() == 1: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
dist.destroy_process_group()
"""


FORKED = f"""import sys
sys.executable = {PYTHON!r}
from mlinfra.cli import main
sys.exit(main())"""


def check(folder, *arguments, script="", ranks=0, forked=False, **how):
    "Status, what was printed as one line, and errors; the folder is as it was."
    if script: (folder / "train.py").write_text(script)
    before = files_in(folder)
    launcher = ["torch.distributed.run", "--nproc-per-node", str(ranks), "-m"] if ranks else []
    own = [PYTHON, "-c", FORKED] if forked else [sys.executable, "-m", *launcher, "mlinfra"]
    with tempfile.TemporaryDirectory() as scratch:
        command = [*own, "check", *arguments]
        done = subprocess.run(command, cwd=folder, timeout=300, capture_output=True, text=True,
                              env=os.environ | dict(TMPDIR=scratch), **how)
        assert not list(Path(scratch).glob("mlinfra*")), done.stderr
    assert files_in(folder) == before, done.stdout
    return done.returncode, " ".join(done.stdout.split()), done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def test_a_plain_script_runs_as_it_is_up_to_an_update_and_leaves_its_folder_as_it_was(folder):
    (folder / "model.pt").write_text("of last night")
    status, said, errors = check(folder, "--steps", "6", "train.py", "0.1", script=PLAIN, input="a line\n")
    assert status == 0, said + errors
    for words in ("a line __main__", "finally", "atexit", "up to its update 6; 6 steps", "19.1% of them trained",
                  "not trained ema, Net", "34 parameters, lr 0.1", "batches of 32, RandomSampler, 2 workers",
                  "wrote 1 new file (20 B), which is removed: log.txt",
                  "changed or removed 1 file, which is as before: model.pt",
                  "train.py:18: LoadedInPart at head.bias", "left 1 of the model's 4 tensors (25%) as they were"):
        assert words in said, (words, said)
    held = said.partition("What holds")[2].partition("What was not judged")[0]
    assert "StaleOptimizer" in held and "SameOrderEachEpoch" not in held, "the script has begun one epoch"
    assert "train.py:27: torch.save saves a file" in errors and (folder / "model.pt").read_text() == "of last night"


def test_a_fault_is_told_with_its_line_and_a_script_that_swallows_the_end_is_ended(folder):
    swallowing = PLAIN.replace("optimizer.step()", """
            try: optimizer.step()
            except BaseException: pass""")
    status, said, errors = check(folder, "train.py", "1e35", script=swallowing, input="\n")
    assert status == 1 and "train.py:25: ExplodingLoss, step 2" in said, said + errors
    assert "caught the exception that ends it, and was ended from outside" in said


@pytest.mark.parametrize("script, words", [
    (LIGHTNING, ("Lit (train.py:10): 18 parameters, all trained", "with Lightning", "lightning_logs")),
    (TRANSFORMERS, ("BertForSequenceClassification", "Transformers' Trainer", "batches of 8",
                    "8 backward passes for 4 updates", "checkpoint-2"))])
def test_a_framework_runs_as_it_is(folder, script, words):
    status, said, errors = check(folder, "--steps", "4", "train.py", script=script, forked=True)
    assert status == 0 and "What does not hold" not in said, said + errors
    for part in words: assert part in said, (part, said)


def test_the_ranks_of_torchrun_share_a_page_and_are_compared(folder):
    status, said, errors = check(folder, "--steps", "5", "train.py", script=RANKS, ranks=2)
    assert status == 1 and said.count("mlinfra check train.py") == 1, said + errors
    assert "ranks 2, each with 5 updates" in said and "train.py:18: RanksDiffer" in said, said
    assert "in both trained tensors: at the update the gradients of rank 1 are" in said, said


def test_a_module_without_a_loop_keeps_its_status_and_is_told_so(folder):
    (folder / "package").mkdir()
    (folder / "package/train.py").write_text("import sys\nprint(__name__, __package__)\nsys.exit(int(sys.argv[1]))\n")
    assert check(folder, "-m", "package.train", "7")[0] == 7
    status, said, _ = check(folder, "-m", "package.train", "0", forked=True)
    assert status == 2 and "__main__ package" in said and "no training loop to check" in said
    assert "an option of the script follows its name" in check(folder, "--resume", forked=True)[2]

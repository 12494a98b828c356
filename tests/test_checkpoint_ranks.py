"""Checkpoints of several ranks: resumed to the bit, with fewer and more ranks, and with ranks killed in a save."""
import errno
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from copies import PYTHON
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils.data import TensorDataset

from mlinfra.data_parallel import train_ddp
from mlinfra.engine.checkpoint import checkpoint_files as files
from mlinfra.engine.checkpoint.checkpointer import Checkpointer
from mlinfra.engine.checkpoint.checkpoint_files import latest, verify
from mlinfra.engine.checkpoint.checkpoint_folder import CheckpointFolder
from mlinfra.engine.checkpoint.state_trees import HostCopies, State, shard_cut
from mlinfra.engine.dist.rank_data import epoch_losses, whole_weights
from mlinfra.engine.dist.process_group import process_group, rank_and_world_size
from mlinfra.engine.dist.ranks import RankError, call_each, run_ranks

SAMPLES, BATCH = 78, 4   # of each rank: an epoch of two ranks has 10 steps, the last with 6 samples


class Net(nn.Module):
    "Dropout draws from each rank's own random state, and batch norm has buffers; a plain one has neither."
    def __init__(self, plain: bool):
        super().__init__()
        more = [] if plain else [nn.BatchNorm1d(15), nn.Dropout(0.2)]
        self.body = nn.Sequential(nn.Linear(6, 15), *more, nn.ReLU(), nn.Linear(15, 3))
        self.seen = io.BytesIO()  # samples of this process, which say their number: a checkpoint would keep a list

    def forward(self, x):
        self.seen.write(bytes(x[:, 0].mul(SAMPLES).round().int().tolist()))
        return self.body(x)


class Noted:
    "Notes the losses, ends the run after an iteration, or kills a rank there."
    guard = True

    def __init__(self, stop: int | None, kill: int | None): self.stop, self.kill, self.losses = stop, kill, {}

    def on_step(self, run, step):
        self.losses[step.iteration] = step.loss.hex()
        if step.iteration + 1 == self.stop and self.kill is None: run.stop()

    def on_boundary(self, run):
        if run.iteration == self.stop and self.kill == rank_and_world_size()[0]: os.kill(os.getpid(), signal.SIGKILL)


class Moody:
    "Does not tell its state in one save, and has another checkpoint asked for, each on one rank."
    guard = True

    def __init__(self, own: Checkpointer): self.own, self.iteration, self.rank = own, 0, rank_and_world_size()[0]

    def on_backward(self, run):
        self.iteration = run.iteration + 1
        if (self.iteration, self.rank) == (4, 0): self.own.save_soon()

    def state_dict(self):
        if (self.iteration, self.rank) == (9, 1): raise RuntimeError("not now")
        return {}

    def load_state_dict(self, kept): "Nothing to do."


def data() -> TensorDataset:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(SAMPLES, 6, generator=draw)
    x[:, 0] = torch.arange(SAMPLES) / SAMPLES
    return TensorDataset(x, torch.randint(3, (SAMPLES,), generator=draw))


def trainer(how: str):
    "Imported where it is used: torchrun's ranks need DDP alone."
    if how == "ddp": return train_ddp
    from mlinfra.sharding import train_sharded
    return train_sharded


def train(how: str, root: Path | None, stop: int | None = None, kill: int | None = None, fault: str = "",
          batch: int = BATCH, plain: bool = False, moody: bool = False) -> dict[str, Any]:
    "Train as one of the ranks; what it saw."
    torch.manual_seed(0)
    model, rank = Net(plain), rank_and_world_size()[0]
    torch.manual_seed(100 + rank)  # dropout is another one on each rank
    noted, beside = Noted(stop, kill), not fault and kill is None
    own = None if root is None else Checkpointer(root, every=3, background=beside)
    watchers = [*([own] if own else []), *([Moody(own)] if moody else []), noted]
    plan = dict(epochs=2, batch_size=batch, momentum=0.9, device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        if fault: spoil(fault, patch)
        history, _ = trainer(how)(model, data(), observers=watchers, **plan)
    return dict(losses=noted.losses, resumed_from=own and own.resumed_from, remarks=history.remarks,
                seen=[*model.seen.getvalue()], samples=[step.samples for step in history.steps],
                epochs=epoch_losses(history),
                weights={name: tensor.tolist() for name, tensor in whole_weights(model).items()})


def spoil(fault: str, patch: pytest.MonkeyPatch) -> None:
    "Break what a rank calls in its second save: `function rank what`."
    name, rank, what = fault.split()
    if int(rank) != rank_and_world_size()[0]: return
    real = getattr(files, name)

    def broken(folder, *args, **more):
        if "step-00000006" not in str(folder): return real(folder, *args, **more)
        if what == "killed": os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, "the disk is full")

    patch.setattr(files, name, broken)


def ranks(world_size: int, *trainings: tuple) -> list[dict[int, dict]]:
    "What each rank saw of each training, one after the other."
    calls = [(partial(train, **(more[0] if more else {})), how, root) for how, root, *more in trainings]
    found = run_ranks(call_each, world_size, calls, share_cores=True)
    return [{rank: said[number] for rank, said in found.items()} for number in range(len(calls))]


def seen_by_all(*trainings: dict[int, dict]) -> Counter:
    return Counter(sample for one in trainings for said in one.values() for sample in said["seen"])


def same(found: dict, wanted: dict) -> None:
    "Every later loss is equal to the bit, and so are the record and the weights in the end."
    assert found["losses"] and all(wanted["losses"][step] == loss for step, loss in found["losses"].items())
    for part in ("weights", "epochs", "samples"): assert found[part] == wanted[part]


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_resumed_to_the_bit(how, tmp_path):
    "Killed inside the first epoch, stopped inside the second, and run to the end: as if nothing had been."
    with pytest.raises(RankError, match="rank 1 was killed"): ranks(2, (how, tmp_path, dict(stop=5, kill=1)))
    assert latest(tmp_path).step == 3
    wanted, stopped, again = ranks(2, (how, None), (how, tmp_path, dict(stop=14)), (how, tmp_path))
    for rank in (0, 1):
        assert (stopped[rank]["resumed_from"], again[rank]["resumed_from"]) == (3, 14)
        assert stopped[rank]["losses"].items() <= wanted[rank]["losses"].items()
        same(again[rank], wanted[rank])
    assert verify(tmp_path)["good"].all() and not list(tmp_path.rglob("*.part"))


def test_another_number_of_ranks(tmp_path):
    "2 -> 1 with the same batch in all is the same training but for rounding; 1 -> 2: each sample once in an epoch."
    how, plain, (two, one) = "fsdp", dict(plain=True), (tmp_path / "two", tmp_path / "one")
    wanted, first = ranks(2, (how, None, plain), (how, two, plain | dict(stop=5)))
    (rest, begun) = ranks(1, (how, two, plain | dict(batch=2 * BATCH)), (how, one, dict(stop=4)))
    (more,) = ranks(2, (how, one))
    assert rest[0]["resumed_from"] == 5 and "saved by 2 ranks, and goes on with 1" in rest[0]["remarks"]
    assert rest[0]["epochs"] == pytest.approx(wanted[0]["epochs"], rel=1e-4)
    for name, weight in rest[0]["weights"].items():
        torch.testing.assert_close(torch.tensor(weight), torch.tensor(wanted[0]["weights"][name]), rtol=1e-3, atol=1e-5)
    assert more[1]["resumed_from"] == 4 and "saved by 1 rank, and goes on with 2" in more[1]["remarks"]
    for trainings in ((first, rest), (begun, more)):
        assert set(seen_by_all(*trainings).values()) == {2} and len(seen_by_all(*trainings)) == SAMPLES


def test_one_two_four_and_one_rank_again(tmp_path):
    "Replicas, shards, smaller shards and a plain process go on with one training: it is the same but for rounding."
    plain = dict(plain=True)
    for world_size, how, stop in ((1, "ddp", 2), (2, "fsdp", 7), (4, "fsdp", 11)):
        ranks(world_size, (how, tmp_path, plain | dict(stop=stop, batch=8 // world_size)))
        assert latest(tmp_path).step == stop
    wanted, found = ranks(1, ("ddp", None, plain | dict(batch=8)), ("ddp", tmp_path, plain | dict(batch=8)))
    assert found[0]["resumed_from"] == 11 and "saved by 4 ranks, and goes on with 1" in found[0]["remarks"]
    for name, weight in found[0]["weights"].items():
        torch.testing.assert_close(torch.tensor(weight), torch.tensor(wanted[0]["weights"][name]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("fault", ["write_piece 1 killed", "write_piece 0 killed", "sync_folder 0 killed"])
def test_rank_killed_in_a_save(fault, tmp_path):
    "The checkpoint before it is used, and nothing is lost."
    with pytest.raises(RankError, match=f"rank {fault.split()[1]} was killed"):
        ranks(2, ("ddp", tmp_path, dict(fault=fault)))
    assert verify(tmp_path)["step"].tolist() == [3] and latest(tmp_path).step == 3
    if not fault.startswith("write_piece 1"): return
    wanted, again = ranks(2, ("ddp", None), ("ddp", tmp_path))
    for rank in (0, 1): same(again[rank], wanted[rank])
    assert again[0]["resumed_from"] == 3 and not list(tmp_path.rglob("*.part"))


def divided(root: Path) -> None:
    "Tensors divided in many ways are written by four ranks, and read whole, as they were, anew, and by PyTorch."
    rank, world_size = rank_and_world_size()
    square, line = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")), init_device_mesh("cpu", (4,))
    torch.manual_seed(0)
    whole = dict(hybrid=torch.randn(7, 5), both=torch.randn(6, 9), twice=torch.randn(5, 3), few=torch.randn(1, 4),
                 wave=torch.randn(5, 2, dtype=torch.complex128), none=torch.randn(0, 3), same=torch.randn(3))
    places = dict(hybrid=(square, [Replicate(), Shard(0)]), both=(square, [Shard(1), Shard(0)]),
                  twice=(square, [Shard(0), Shard(0)]), few=(line, [Shard(0)]), wave=(line, [Shard(0)]),
                  none=(line, [Shard(0)]), same=(line, [Replicate()]))
    live = {name: distribute_tensor(whole[name], *place) for name, place in places.items()}
    stage = torch.arange(6.0) + 100 * (rank // 2)
    live["stage"] = distribute_tensor(stage, square["b"], [Shard(0)])  # another tensor of this name on two ranks
    cuts = {f"model.weights.{name}": shard_cut(tensor) for name, tensor in live.items()}
    parts = dict(model=dict(weights={name: tensor.to_local() for name, tensor in live.items()}),
                 pieces=dict(kind="shards", rank=rank, ranks=world_size, cuts=cuts), identity=dict(best=None))
    folder = CheckpointFolder(root)
    folder.open()
    folder.save(State(5, 0, parts), HostCopies(), background=False)
    assert folder.failure is None and folder.saves[0].step == 5, folder.failure
    lacking = parts | dict(model=dict(weights={name: tensor for name, tensor in parts["model"]["weights"].items()
                                               if rank < 3 or name != "both"}))
    folder.save(State(6, 0, lacking), HostCopies(), background=False)
    assert "of the 54 values of both" in str(folder.failure), "what a rank has left out is missed"
    saved = files.RankStates(root / "step-00000005")
    def found(live: dict) -> dict:
        return saved.of(rank, live=lambda path: live.get(path.split(".")[-1])).parts["model"]["weights"]
    assert all(map(torch.equal, found({}).values(), [*whole.values(), stage]))
    for name, tensor in found(live).items(): assert torch.equal(tensor.to_local(), live[name].to_local()), name
    anew = {name: distribute_tensor(whole[name], line, [Shard(1)]) for name in ("hybrid", "both", "twice", "wave")}
    for name, tensor in anew.items(): assert torch.equal(found(anew)[name].to_local(), tensor.to_local()), name
    others = {name: torch.zeros_like(live[name]) for name in ("hybrid", "both", "few", "same")}
    dcp.load(others, storage_reader=dcp.HuggingFaceStorageReader(str(root / "step-00000005")))
    for name, tensor in others.items(): assert torch.equal(tensor.to_local(), live[name].to_local()), name


def test_any_division_is_read_into_any_other(tmp_path):
    run_ranks(divided, 4, tmp_path, share_cores=True)
    assert latest(tmp_path).step == 5


def newest(roots: list[Path]) -> tuple[int, list[str]]:
    "The step that ranks agree on, and what they say of newer ones."
    folder = CheckpointFolder(roots[rank_and_world_size()[0]])
    folder.open()
    try: return folder.newest().of(0).step, folder.remarks
    finally: folder.release()


def test_damage_and_a_full_disk(tmp_path):
    "A rank whose disk is full lets all go on without that checkpoint; ranks agree on the newest that all have whole."
    (told,) = ranks(2, ("ddp", tmp_path / "a", dict(fault="write_piece 1 full", stop=9)))
    assert verify(tmp_path / "a")["step"].tolist() == [3, 9]
    words = "the checkpoint of step 6 was not saved"
    assert [sum(words in line for line in told[rank]["remarks"]) for rank in (0, 1)] == [1, 1]
    assert any("rank 1: cannot write" in line and "the disk is full" in line for line in told[0]["remarks"])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "step-00000009")
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    harmed = tmp_path / "c" / "step-00000009" / "training-rank-1.safetensors"
    raw = bytearray(harmed.read_bytes())
    raw[-1] ^= 1
    harmed.write_bytes(raw)
    paths = [tmp_path / name for name in "abc"]
    calls = [(newest, [paths[0], paths[1]]), (newest, [paths[2], paths[2]]), (newest, [paths[0], paths[0]])]
    found = run_ranks(call_each, 2, calls, share_cores=True)
    assert found[0] == found[1]
    (apart, says), (flipped, why), (whole, none) = found[0]
    assert apart == 3 and says == ["passed over step-00000009: rank 1 does not see it"]
    assert flipped == 3 and "training-rank-1.safetensors was altered" in why[0]
    assert whole == 9 and none == []


def test_what_one_rank_alone_does_costs_one_checkpoint_each(tmp_path):
    "Step 4 is asked for on rank 0, and the state of step 9 is not told on rank 1."
    (told,) = ranks(2, ("ddp", tmp_path, dict(moody=True)))
    assert verify(tmp_path)["step"].tolist() == [15, 18, 20] and verify(tmp_path)["good"].all()
    lost = [[line for line in told[rank]["remarks"] if "was not saved" in line] for rank in (0, 1)]
    assert "step 4 was not saved" in lost[0][0] and "not all ranks saved it" in lost[0][0]
    assert all("step 9 was not saved" in each[-1] and "RuntimeError: not now" in each[-1] for each in lost)
    assert [len(each) for each in lost] == [2, 1]


# ---- torchrun: a machine goes, and the others go on

class Lost:
    "Takes this machine away, as far as torchrun can see: its agent and its rank are killed."
    guard = True

    def __init__(self, agent: Path): self.agent = agent  # the file that holds its pid

    def on_boundary(self, run):
        if run.iteration != 5 or "IS_LOST" not in os.environ: return
        os.kill(int(self.agent.read_text()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def elastic_rank(root: Path) -> None:
    "What each rank runs under torchrun."
    torch.manual_seed(0)
    own = Checkpointer(root, every=3, background=False)
    with process_group("cpu"):
        history, _ = train_ddp(Net(False), data(), epochs=2, batch_size=BATCH, observers=[own, Lost(root / "agent")],
                               device="cpu")
        world_size = rank_and_world_size()[1]
    said = dict(world_size=world_size, resumed_from=own.resumed_from, remarks=history.remarks,
                samples=[epoch.samples for epoch in history.epochs])
    (root / "said.json").write_text(json.dumps(said))


def test_torchrun_goes_on_with_fewer_ranks(tmp_path):
    "Of two machines with one rank each, one is gone at once; the other's torchrun starts again, with one rank."
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        port = here.getsockname()[1]
    how = ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "5", "--monitor-interval", "0.1",
           "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "elastic", "--rdzv-conf",
           "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=2"]
    run = [PYTHON, "-m", "torch.distributed.run", *how[:-1]]
    own = os.environ | {"PYTHON_EXEC": PYTHON} | ({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {})
    with (tmp_path / "log").open("w") as log:
        agents = []
        for more in ({}, {"IS_LOST": "1"}):
            command = [*run, f"{how[-1]},is_host={int(not more)}", __file__, str(tmp_path)]
            agents.append(subprocess.Popen(command, env=own | more, stdout=log, stderr=log))
        (tmp_path / "agent").write_text(str(agents[1].pid))
        try:
            assert agents[0].wait(100) == 0, (tmp_path / "log").read_text()[-3000:]
            assert agents[1].wait(10) == -signal.SIGKILL
        finally:
            for agent in agents:
                if agent.poll() is None: agent.terminate()
                agent.wait(30)
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["world_size"] == 1 and said["resumed_from"] == 3
    assert "saved by 2 ranks, and goes on with 1" in said["remarks"] and said["samples"] == [SAMPLES, SAMPLES]


if __name__ == "__main__": elastic_rank(Path(sys.argv[1]))

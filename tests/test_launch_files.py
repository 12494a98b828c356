"""The files that a job is written into: what arrives is what was meant, each says what the job says, and each
system's own schema, model or linter takes it.

The scripts are really run, with stand-ins for the programs that only a cluster has. The systems themselves stand in
tests/test_launch.py.
"""
import ast
import importlib.util
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mlinfra.engine.launch.dockerfile import render_dockerfile, render_dockerignore
from mlinfra.engine.launch.job_spec import SYSTEMS, JobSpec, job_from_toml, job_to_toml, render_for
from mlinfra.engine.launch.kubernetes_manifests import render_job, render_trainjob
from mlinfra.engine.launch.sbatch_options import SBATCH_OPTIONS
from mlinfra.engine.launch.slurm_scripts import EXPORTED

ROOT = Path(__file__).resolve().parent.parent
few = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])

# ---- any job

HARD = st.sampled_from(
    [
        "$HOME",
        "`id`",
        "$(id)",
        "a b",
        "it's",
        '"',
        "\\",
        "\\n",
        "-n",
        "--",
        "--help",
        "$$",
        "#x",
        "{}",
        "%j",
        "!!",
        "*",
        "'\\''",
        "=",
        "1e3",
        "no",
        "é 訓練",
        "\u2028",
        "[0]=x",
        ")",
        "${x}",
        "~",
        "&&",
        "\t",
        "\x7f",
        "\x1b[0m",
    ]
)
LINE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).map(lambda name: f"V{name}")
TIDY = LINE.map(str.strip).filter(lambda text: text and text[0] not in "~$")


def optional(strategy): return st.none() | strategy

SETUP = st.sampled_from(["module() { :; }; module load x", "export V='a b' W=$HOME", "if true; then :; fi",
                         "cd .", "# $x '"])
DIRECTIVES = ["--exclusive", "--mail-type=END,FAIL", '--comment="two words"', "--gres=tmpdisk:1", "--reservation=x"]


@st.composite
def jobs(draw, system="local"):
    "A job that the system does not refuse."
    lines = system == "sagemaker"  # its words are lines
    word, pods = (LINE | HARD if lines else TEXT | HARD), system in ("kubernetes", "trainjob")
    grace, environment = draw(st.floats(0.5, 60)), draw(st.dictionaries(NAMES, TEXT | HARD, max_size=4))
    folder = TIDY.map(lambda text: "/" + text) if pods else TIDY.filter(lambda text: text != ".")
    data = (
        st.just("pvc://claim")
        | st.just("/the data/$x")
        | st.just("s3://bucket/a b")
        | (TIDY if not pods else st.nothing())
    )
    image = st.sampled_from(["a", "registry.example.org:5000/a/b:1.0", "a/b@sha256:" + "0" * 64])
    device, constraint = draw(st.sampled_from(["gpu", "cpu"])), "zone=a" if pods else "[rack1*2&rack2*4]|nvlink"
    asked = [] if lines else draw(st.lists(SETUP, max_size=3))
    return JobSpec(
        ("python", *draw(st.lists(word, max_size=5))),
        account=draw(optional(st.sampled_from(["abc", "abc@h100", "p_1.x"]))),
        qos=draw(optional(st.just("qos_gpu-dev"))),
        constraint=draw(optional(st.just(constraint))),
        gpu_type=draw(optional(st.just("a100"))) if device == "gpu" else None,
        directives=draw(st.lists(st.sampled_from(DIRECTIVES), max_size=3, unique=True)),
        setup=asked,
        name=draw(TIDY),
        nodes=draw(st.integers(1, 40)),
        devices_per_node=draw(st.integers(1, 8)),
        device=device,
        cpus=draw(st.integers(1, 12)),
        memory_gb=draw(optional(st.floats(0.01, 300))),
        time_seconds=draw(optional(st.floats(61, 2e6))),
        environment=environment,
        secrets=draw(st.lists(NAMES.filter(lambda name: name not in environment), max_size=3, unique=True)),
        data=draw(optional(data)),
        folder=draw(optional(folder)),
        image=draw(image if pods or lines else optional(image)),
        partition=draw(optional(st.sampled_from(["long", "a.b-c_9"]))),
        retries=draw(st.integers(0, 30)),
        resume=draw(st.lists(TEXT | HARD, max_size=3)),
        grace_seconds=grace,
        array=0 if lines or system == "trainjob" else draw(st.integers(0, 5)),
    )


def rendered(job, system):
    return job.sagemaker(instance_type=instance(job)) if system == "sagemaker" else render_for(job, system)



def instance(job): return "ml.p4d.24xlarge" if job.device == "gpu" else "ml.c5.18xlarge"


def in_script(text, *names):
    "The variables job_NAME that a script sets before its common part, as bash reads them; a tuple is a list of words."
    head = text.partition("# ----")[0]
    show = "\n".join(f'printf "%s\\0" {name} "${{#job_{name}[@]}}" "${{job_{name}[@]}}"' for name in names)
    out = subprocess.run(["bash", "-c", head + show], capture_output=True, check=True, timeout=60).stdout.decode()
    words, found = iter(out.split("\0")[:-1]), {}
    for name in words: found[name] = tuple(next(words) for _ in range(int(next(words))))
    return found


def variables(job): return tuple(f"{name}={value}" for name, value in job.environment.items())
def whole(seconds): return math.ceil(seconds or 0)


OF_A_CENTRE = ("account", "qos", "constraint", "directives")


def says_not_used(job, text, *names):
    for name in names:
        if getattr(job, name): assert f"{name}={getattr(job, name)!r}" in text


def shell_says(job, text):
    want = {name: (str(getattr(job, name) or ""),) for name in ("name", "device", "folder", "data")}
    want |= {name: (str(getattr(job, name)),) for name in ("nodes", "devices_per_node", "cpus", "retries", "array")}
    want |= {name: (str(whole(getattr(job, name))),) for name in ("time_seconds", "grace_seconds")}
    want |= dict(command=job.command, resume=job.resume, secrets=job.secrets, environment=variables(job))
    want |= dict(setup=job.setup)
    assert in_script(text, *want) == want
    says_not_used(job, text, "memory_gb", "image", "partition", *OF_A_CENTRE, "gpu_type")


def slurm_says(job, text):
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text.partition("# ----")[0], re.MULTILINE))
    assert set(options) <= set(SBATCH_OPTIONS), "where no sbatch is installed nothing else would see a wrong one"
    want = {"nodes": str(job.nodes), "ntasks-per-node": "1", "cpus-per-task": str(job.cpus * job.devices_per_node)}
    want |= {"signal": f"B:USR1@{whole(job.grace_seconds)}", "open-mode": "append"}
    want |= {"requeue" if job.retries else "no-requeue": ""}
    for one in job.directives:
        name, _, value = one.removeprefix("--").partition("=")
        want[name] = value
    if job.device == "gpu":
        gpus = f"gpu:{job.gpu_type}:{job.devices_per_node}" if job.gpu_type else f"gpu:{job.devices_per_node}"
        want["gres"] = f"{gpus},{want['gres']}" if "gres" in want else gpus
    want |= {name: getattr(job, name) for name in ("account", "qos", "constraint") if getattr(job, name)}
    if job.memory_gb is not None: want["mem"] = f"{math.ceil(job.memory_gb * 1e9 / 2**20)}M"
    if job.partition is not None: want["partition"] = job.partition
    if job.array: want["array"] = f"0-{job.array - 1}"
    if job.time_seconds is not None:
        days, hours, minutes, seconds = map(int, re.split("[-:]", options.pop("time")))
        assert ((days * 24 + hours) * 60 + minutes) * 60 + seconds == whole(job.time_seconds)
    assert set(options.pop("export").split(",")) == {*EXPORTED, *job.secrets}
    assert re.fullmatch(r"[A-Za-z0-9._-]+", options.pop("job-name")) and options == want
    given = {name: (str(getattr(job, name) or ""),) for name in ("folder", "data", "image")}
    given |= dict(device=(job.device,), devices_per_node=(str(job.devices_per_node),))
    given |= dict(retries=(str(job.retries),), setup=job.setup, command=job.command, resume=job.resume)
    given |= dict(secrets=job.secrets, environment=variables(job))
    assert in_script(text, *given) == given


def ray_says(job, text):
    values = {line.targets[0].id.lower(): ast.literal_eval(line.value)
              for line in ast.parse(text.partition("# ----")[0]).body if isinstance(line, ast.Assign)}
    assert JobSpec(**values, **{name: getattr(job, name) for name in ("partition", *OF_A_CENTRE)}) == job
    says_not_used(job, text, "partition", *OF_A_CENTRE)


def container_says(job, container, resources):
    assert [word.replace("$$", "$") for word in container["args"]] == list(job.command)
    want = {"cpu": str(job.cpus * job.devices_per_node)}
    if job.device == "gpu": want["nvidia.com/gpu"] = str(job.devices_per_node)
    limits = dict(resources["limits"])
    memory = limits.pop("memory", None)
    assert limits == want and resources["requests"] == resources["limits"] and container.get("image") == job.image
    if memory is None: assert job.memory_gb is None
    else: assert int(memory.replace("G", "0" * 9)) == math.ceil(job.memory_gb * 1e9)
    keys = [one["valueFrom"]["secretKeyRef"]["key"] for one in container["env"] if "secretKeyRef" in str(one)]
    assert keys == list(job.secrets)
    given = {one["name"]: one["value"].replace("$$", "$") for one in container["env"] if "value" in one}
    assert given | dict(job.environment) == given
    assert given.get("MLINFRA_DATA") == ("/data" if job.data == "pvc://claim" else job.data)


def pod_says(job, document, pod):
    want = dict([job.constraint.split("=")] if job.constraint else [])
    assert pod.get("nodeSelector", {}) == want | ({"nvidia.com/gpu.product": job.gpu_type} if job.gpu_type else {})
    rest = document["metadata"].get("annotations", {}).get("mlinfra/not-used", "")
    says_not_used(job, rest, "account", "directives")
    assert document["metadata"]["labels"].get("kueue.x-k8s.io/priority-class") == job.qos
    assert pod["terminationGracePeriodSeconds"] == whole(job.grace_seconds)
    assert document["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == job.partition
    sources = {"pvc://claim": {"persistentVolumeClaim": {"claimName": "claim", "readOnly": True}}}
    if job.data and job.data.startswith("/"): sources[job.data] = {"hostPath": {"path": job.data}}
    assert [v for v in pod["volumes"] if v["name"] == "data"] == [
        {"name": "data", **sources[data]} for data in [job.data] if data in sources]


def kubernetes_job_says(job, text):
    *services, document = yaml.safe_load_all(text)
    spec, pods = document["spec"], job.nodes * max(job.array, 1)
    pod = spec["template"]["spec"]
    container, = pod["containers"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimitPerIndex"]) == (pods, pods, job.retries)
    assert spec.get("activeDeadlineSeconds", 0) == whole(job.time_seconds) and len(services) == (job.nodes > 1)
    assert container.get("workingDir") == job.folder
    shell = container["command"][2]
    assert ("MLINFRA_COPY" in shell) == (job.array > 0) and f"--nnodes={job.nodes} " in shell
    assert f"--nproc-per-node={'gpu' if job.device == 'gpu' else job.devices_per_node} " in shell
    if job.retries: assert shlex.join(job.resume) in shell.replace("$$", "$")
    container_says(job, container, container["resources"])
    pod_says(job, document, pod)


def trainjob_says(job, text):
    document, = yaml.safe_load_all(text)
    spec, trainer = document["spec"], document["spec"]["trainer"]
    patch = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (job.nodes, job.devices_per_node)
    assert spec.get("activeDeadlineSeconds", 0) == whole(job.time_seconds)
    folders = [one["value"].replace("$$", "$") for one in trainer["env"] if one["name"] == "MLINFRA_JOB_FOLDER"]
    assert folders == ([job.folder] if job.folder else [])
    container_says(job, trainer, trainer["resourcesPerNode"])
    pod_says(job, document, patch["template"]["spec"]["template"]["spec"])
    rest = document["metadata"].get("annotations", {}).get("mlinfra/not-used", "")
    assert not job.retries or f"retries={job.retries}" in rest
    assert job.resume == ("--resume",) or f"resume={job.resume!r}" in rest


def sagemaker_says(job, text):
    request = json.loads(text)
    algorithm, machines = request["AlgorithmSpecification"], request["ResourceConfig"]
    assert (machines["InstanceType"], machines["InstanceCount"]) == (instance(job), job.nodes)
    assert algorithm["TrainingImage"] == job.image
    assert algorithm["ContainerArguments"] == [
        job.folder or ".", f"--nnodes={job.nodes}", f"--nproc-per-node={job.devices_per_node}", "--master-port=29500",
        "--no-python", *job.command]
    given, remote = request["Environment"], (job.data or "").startswith("s3://")
    assert given | dict(job.environment) == given
    assert given.get("OMP_NUM_THREADS") == job.environment.get("OMP_NUM_THREADS", str(job.cpus))
    assert given.get("MLINFRA_JOB_SECRETS", "").split() == list(job.secrets)
    assert given.get("MLINFRA_DATA") == ("/opt/ml/input/data/training" if remote else job.data)
    channels = [one["DataSource"]["S3DataSource"]["S3Uri"] for one in request.get("InputDataConfig", [])]
    assert channels == ([job.data] if remote else [])
    assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == (whole(job.time_seconds) or 86_400)
    rest = [name for name in ("partition", *OF_A_CENTRE) if getattr(job, name)]
    assert request.get("Tags", []) == [{"Key": "mlinfra:not-used", "Value": " ".join(rest)}] * bool(rest)
    assert request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0) == job.retries


SAYS = dict(local=shell_says, torchrun=shell_says, slurm=slurm_says, ray=ray_says, kubernetes=kubernetes_job_says,
            trainjob=trainjob_says, sagemaker=sagemaker_says)


@pytest.mark.parametrize("system", SYSTEMS)
@given(data=st.data())
@few
def test_the_file_says_what_the_job_says(system, data):
    job = data.draw(jobs(system))
    text = rendered(job, system)
    if shutil.which("bash") or system not in ("local", "torchrun", "slurm"): SAYS[system](job, text)


@given(job=jobs())
@few
def test_toml_gives_the_same_job(job): assert job_from_toml(job_to_toml(job)) == job


@given(text=TEXT)
@settings(deadline=None, max_examples=200)
@example("name = 'x'")
@example("command = 'a'\nnodes = 1e400")
def test_nonsense_is_refused_in_a_sentence(text):
    "Whatever stands in a file: a job or a ValueError."
    try: job_from_toml(text)
    except ValueError as error: assert str(error)


@pytest.mark.parametrize("path", ["~/runs", "$SCRATCH/runs", "${SCRATCH}/runs"])
@pytest.mark.parametrize("field", ["folder", "data"])
def test_a_path_that_a_shell_would_fill_in_is_refused(field, path):
    with pytest.raises(ValueError, match=f"{field} must be a whole path"): JobSpec("train.py", **{field: path}).local()


@pytest.mark.parametrize("system", SYSTEMS)
@given(value=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=30), data=st.data())
@few
def test_a_secret_is_named_and_not_written(system, value, data):
    job = replace(data.draw(jobs(system)), secrets=("VERY_SECRET_1", "OTHER"))
    with patch.dict(os.environ, VERY_SECRET_1=value, OTHER=value[::-1]):
        if any(
            value in text or value[::-1] in text for text in (rendered(replace(job, secrets=()), system), repr(job))
        ):
            return  # it stands there by chance
        text = rendered(job, system)
        assert "VERY_SECRET_1" in text and value not in text and value[::-1] not in text and value not in repr(job)
        with pytest.raises(ValueError, match="holds the value of the secret VERY_SECRET_1") as caught:
            replace(job, command=("python", f"--key={value}"))
        assert value not in str(caught.value)


# ---- what arrives

SHOWS = """
import json, os, sys
print(json.dumps([sys.argv[1:], {k: v for k, v in os.environ.items()}]))
sys.exit(int(os.environ.get("STATUS", 0)))
"""
SHOW = (sys.executable, "-S", "-c", SHOWS)
STANDS_IN = {
    "torchrun": 'printf "%s\\0" "$@" > "$STANDINS/torchrun.said"\n'
    'while [[ $1 != --no-python ]]; do shift; done; shift; exec "$@"',
    "srun": '[[ $1 != --help ]] || { echo " --container-image=image"; exit; }\n'
    'printf "%s\\0" "$@" > "$STANDINS/srun.said"; while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "apptainer": 'printf "%s\\0" "$@" > "$STANDINS/apptainer.said"\n'
    'shift; until [[ $1 == env ]]; do shift; done; exec "$@"',
    "scontrol": 'case "$1 $2" in "show hostnames") echo node7; echo node8;;\n'
    '"show node") echo "NodeName=$4 NodeAddr=10.0.0.7 Port=1";; '
    '*) echo "$*" >> "$STANDINS/scontrol.said";; esac',
    "squeue": "echo RUNNING",
    "scancel": 'echo "$*" >> "$STANDINS/scancel.said"; kill -TERM "$(cat "$STANDINS/pid")"',
    "nvidia-smi": "for i in {1..64}; do echo GPU; done",
}


@pytest.fixture(scope="session")
def stands_in(tmp_path_factory):
    "A folder with programs of the names that only a cluster has; they note how they were called."
    if not shutil.which("bash"): pytest.skip("there is no bash")
    folder = tmp_path_factory.mktemp("standins")
    for name, body in STANDS_IN.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


def said(folder, name):
    path = folder / f"{name}.said"
    return path.read_bytes().decode().split("\0")[:-1] if path.exists() else None


def around(folder, **more):
    return {"PATH": f"{folder}:{os.environ['PATH']}", "STANDINS": str(folder), "LC_ALL": "C.UTF-8", "HOME": "/", **more}


@contextmanager
def started(text, variables):
    "A script, running; it and its children are gone after the block."
    with subprocess.Popen(
        ["bash", "-c", text], env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as script:
        try:
            yield script
        finally:
            if script.poll() is None:
                os.killpg(script.pid, signal.SIGKILL)


SLURM = dict(SLURM_JOB_ID="12", SLURM_JOB_NAME="training", SLURM_NODEID="1", SLURM_JOB_NODELIST="node[7-8]")


def of_slurm(job):
    gpus = {"SLURM_GPUS_ON_NODE": "8"} if job.device == "gpu" else {}  # of the node, where it is the job's alone
    cpus = str(job.cpus * job.devices_per_node)
    return {**SLURM, "SLURM_NNODES": str(job.nodes), "SLURM_CPUS_PER_TASK": cpus, **gpus}


def expanded(text, variables):
    "What Kubernetes makes of a word: $(NAME) becomes the variable where there is one, $$ one $."
    known = lambda m: "$" if m[0] == "$$" else variables.get(m[1], m[0])
    return re.sub(r"\$\$|\$\(([^)]*)\)", known, text)


def in_pod(text, variables, index):
    "Run the container of a manifest as Kubernetes would."
    document = list(yaml.safe_load_all(text))[-1]
    if document["kind"] == "TrainJob": container = document["spec"]["trainer"]
    else: container = document["spec"]["template"]["spec"]["containers"][0]
    own = {one["name"]: expanded(one["value"], {}) for one in container["env"] if "value" in one}
    own |= {one["name"]: "" for one in container["env"] if "fieldRef" in one.get("valueFrom", {})}
    environment = {**variables, "JOB_COMPLETION_INDEX": str(index), **own}
    words = [expanded(word, environment) for word in [*container["command"], *container["args"]]]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)


def on_sagemaker(text, variables, folder):
    request = json.loads(text)
    algorithm = request["AlgorithmSpecification"]
    place = folder / "resourceconfig.json"
    place.write_text(json.dumps(dict(current_host="algo-2", hosts=["algo-2", "algo-1"])))
    words = [
        word.replace("/opt/ml/input/config/resourceconfig.json", str(place))
        for word in algorithm["ContainerEntrypoint"]
    ]
    return subprocess.run([*words, *algorithm["ContainerArguments"]], env={**variables, **request["Environment"]},
                          capture_output=True, text=True, timeout=60)


def run(job, system, folder, **variables):
    "What the command of the job was given when the file was run: (words, environment)."
    home = around(folder, **{name: "hush" for name in job.secrets}, **variables)
    text = rendered(job, system)
    if system in ("kubernetes", "trainjob"): done = in_pod(text, home, index=3)
    elif system == "sagemaker": done = on_sagemaker(text, home, folder)
    else:
        if system == "slurm": home |= of_slurm(job)
        if system == "torchrun": home |= dict(NODE_RANK="1", MASTER_ADDR="10.0.0.7")
        done = subprocess.run(["bash", "-c", text], env=home, capture_output=True, text=True, timeout=60)
    assert done.stdout, (done.returncode, done.stderr, text)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("system", [system for system in SYSTEMS if system != "ray"])  # Ray's is run by Ray itself
@given(data=st.data())
@settings(few, max_examples=15)
def test_what_arrives_is_what_was_meant(system, data, stands_in):
    drawn = data.draw(jobs(system))
    small = dict(
        folder=None,
        image="a" if drawn.image else None,
        time_seconds=None,
        nodes=min(drawn.nodes, 3),
        array=min(drawn.array, 2),
    )
    job = replace(drawn, command=("show", *drawn.command[1:]), **small)
    (stands_in / "show").write_text(f"#!{sys.executable} -S\n{SHOWS}")
    (stands_in / "show").chmod(0o755)
    for words, environment in run(job, system, stands_in):
        assert tuple(words) == job.command[1:]
        assert {name: environment.get(name) for name in job.environment} == dict(job.environment)
        if system not in ("kubernetes", "trainjob", "sagemaker"):
            assert all(environment[name] == "hush" for name in job.secrets)
        if job.data: assert environment["MLINFRA_DATA"] in (job.data, "/data", "/opt/ml/input/data/training")
        assert environment["OMP_NUM_THREADS"] == str(job.cpus)
        if system != "ray": assert environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == str(whole(job.grace_seconds))


@given(words=st.lists(TEXT | HARD, max_size=5))
@few
def test_torchrun_reads_the_command_as_it_is(words, stands_in):
    "Its own parser, and the options that it is called with."
    from torch.distributed.run import parse_args
    job = JobSpec((*SHOW, *words), nodes=2, devices_per_node=2, device="cpu")
    run(job, "torchrun", stands_in)
    options = parse_args(said(stands_in, "torchrun"))
    assert (options.training_script, *options.training_script_args) == job.command
    assert (options.nnodes, options.nproc_per_node, options.node_rank, options.master_addr) == ("2", "2", 1, "10.0.0.7")
    assert options.no_python


SPECIAL = (
    "UID",
    "EUID",
    "PPID",
    "_",
    "RANDOM",
    "SECONDS",
    "IFS",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "OPTIND",
    "LINENO",
    "words",
    "left",
    "attempt",
    "copy",
    "BASH_ENV",
    "ENV",
    "CDPATH",
    "GLOBIGNORE",
    "POSIXLY_CORRECT",
    "TERM",
    "PWD",
)


def test_names_that_mean_something_to_a_shell_arrive(stands_in):
    job = JobSpec(SHOW, device="cpu", environment={name: "a b" for name in SPECIAL})
    (words, environment), = run(job, "local", stands_in)
    assert {name: environment.get(name) for name in SPECIAL} == dict(job.environment)


def test_each_pod_knows_its_node_and_its_copy(stands_in):
    job = JobSpec(SHOW, name="My run", nodes=2, devices_per_node=2, device="cpu", array=3, image="a", retries=1)
    text = job.kubernetes()
    for index, copy, node in ((0, 0, 0), (3, 1, 1), (5, 2, 1)):
        shown = json.loads(in_pod(text, around(stands_in), index).stdout)
        assert shown[1]["MLINFRA_COPY"] == str(copy) and shown[0] == []
        options = said(stands_in, "torchrun")
        assert f"--node-rank={node}" in options and f"--master-addr=my-run-{index - node}.my-run" in options
    again = in_pod(text, around(stands_in) | dict(MLINFRA_JOB_FAILED="0"), 0)
    assert json.loads(again.stdout)[0] == []


@pytest.mark.parametrize(
    "failed, ignored, words", [("", "", []), ("0", "0", []), ("1", "0", ["--resume"]), ("0", "2", ["--resume"])])
def test_a_replaced_pod_resumes(failed, ignored, words, stands_in):
    job = JobSpec(SHOW, device="cpu", image="a", retries=2)
    container = list(yaml.safe_load_all(job.kubernetes()))[-1]["spec"]["template"]["spec"]["containers"][0]
    command = [expanded(word, {}) for word in [*container["command"], *container["args"]]]
    home = around(stands_in, MLINFRA_JOB_FAILED=failed, MLINFRA_JOB_IGNORED=ignored)
    done = subprocess.run(command, env=home, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)[0] == words


# ---- what linters say of the scripts

MEANT = "SC2016,SC2329,SC1091"  # words in single quotes stay as they are; traps call functions; a venv is not here


def shellcheck(text, shell="bash"):
    tool = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if not tool: pytest.skip("shellcheck is not installed: pip install '.[launch]'")
    command = [tool, f"--shell={shell}", f"--exclude={MEANT}", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.parametrize("system", ["local", "torchrun", "slurm", "kubernetes", "trainjob"])
@given(data=st.data())
@settings(few, max_examples=5)
def test_shellcheck_finds_nothing(system, data):
    tame = dict(command="python train.py", resume="--resume", environment={"LR": "0.1"}, name="training", secrets=["A"])
    tame |= dict(setup=("module load cuda", 'source "$HOME/venv/bin/activate"'), data="/data", folder="/work")
    job = replace(data.draw(jobs(system)), **tame)  # a word that looks like a fault of the script is none
    text, shell = rendered(job, system), "bash"
    if system in ("kubernetes", "trainjob"):
        document = list(yaml.safe_load_all(text))[-1]["spec"]
        container = document.get("trainer") or document["template"]["spec"]["containers"][0]
        shell, _, text, _ = container["command"]
        text = expanded(text, {})
    assert shellcheck(text, shell) == ""


@pytest.mark.parametrize("before, after", [('"$job_child"', "$job_child"), ("job_status=$?", "job_status=$?; if"),
                                           ('"${job_command[@]}"', "${job_command}")])
def test_shellcheck_finds_a_fault(before, after):
    text = JobSpec("python train.py", device="cpu").local()
    assert before in text and shellcheck(text.replace(before, after)) != ""


# ---- SLURM's script, with stand-ins for its programs

@pytest.fixture
def slurm(stands_in):
    for path in stands_in.glob("*.said"): path.unlink()

    def go(job, **variables):
        home = around(stands_in) | of_slurm(job) | variables
        done = subprocess.run(["bash", "-c", job.slurm()], env=home, capture_output=True, text=True, timeout=60)
        calls = stands_in / "scontrol.said"
        return (
            done.returncode,
            [json.loads(line) for line in done.stdout.splitlines()],
            calls.read_text() if calls.exists() else "",
        )
    return go


SMALL = JobSpec(SHOW, device="cpu", retries=2)


@pytest.mark.parametrize("restarts, status, words, calls", [
    ("0", "0", [], ""), ("0", "3", [], "requeue 12\n"),
    ("1", "3", ["--resume"], "requeue 12\n"), ("2", "3", ["--resume"], "")])
def test_slurm_requeues_a_failure_and_resumes(restarts, status, words, calls, slurm):
    done = slurm(SMALL, STATUS=status, SLURM_RESTART_COUNT=restarts)
    assert (done[0], done[2]) == (int(status), calls) and [shown[0] for shown in done[1]] == [words]


def test_each_agent_has_the_processors_of_its_ranks(slurm, stands_in):
    "srun must be told since SLURM 22.05; what the nodes have beside is another job's."
    _, shown, _ = slurm(replace(SMALL, device="gpu", devices_per_node=2, cpus=3))
    assert "--cpus-per-task=6" in said(stands_in, "srun") and shown[0][1]["OMP_NUM_THREADS"] == "3"
    assert "--nproc-per-node=2" in said(stands_in, "torchrun")


@pytest.mark.parametrize("retries, status, calls", [(2, 143, "requeue 12\n"), (0, 143, "")])
def test_who_saves_and_leaves_with_0_after_a_notice_is_not_done(retries, status, calls, slurm, stands_in):
    leaves = (sys.executable, "-S", "-c", SAVES.replace("sys.exit(75)", "sys.exit(0)"))
    job, home = replace(SMALL, retries=retries, command=leaves), around(stands_in)
    with started(job.slurm(), home | of_slurm(job)) as script:
        assert script.stdout.readline() == "ready\n"
        script.send_signal(signal.SIGUSR1)
        assert script.communicate(timeout=60)[0] == "saved\n" and script.returncode == status
    path = stands_in / "scontrol.said"
    assert (path.read_text() if path.exists() else "") == calls
    for local in (job, replace(job, array=3)):  # the copies that were not begun are not done, either
        with started(local.local(), home) as script:
            assert script.stdout.readline() == "ready\n"
            script.send_signal(signal.SIGTERM)
            assert script.communicate(timeout=60)[0] == "saved\n" and script.returncode == status


def test_a_copy_requeues_itself_and_not_the_array(slurm):
    _, shown, calls = slurm(replace(SMALL, array=4), STATUS="1", SLURM_ARRAY_JOB_ID="12", SLURM_ARRAY_TASK_ID="3")
    assert calls == "requeue 12_3\n" and shown[0][1]["MLINFRA_COPY"] == "3"


def test_no_requeue_without_retries_or_of_a_cancelled_job(slurm, stands_in):
    assert slurm(replace(SMALL, retries=0), STATUS="1")[2] == ""
    (stands_in / "squeue").write_text("#!/bin/sh\necho COMPLETING\n")
    try: assert slurm(SMALL, STATUS="1")[2] == ""
    finally: (stands_in / "squeue").write_text("#!/bin/bash\necho RUNNING\n")


SAVES = """
import os, signal, sys, time
open(os.environ["STANDINS"] + "/pid", "w").write(str(os.getpid()))
def stop(*_):
    os.write(1, b"saved\\n")  # the notice may come while a print is on its way, and print may not enter itself
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
os.write(1, b"ready\\n")
while True: time.sleep(0.05)
"""


@pytest.mark.parametrize("notice, state, calls", [(signal.SIGUSR1, "RUNNING", "requeue 12\n"),
                                                  (signal.SIGTERM, "RUNNING", "requeue 12\n"),
                                                  (signal.SIGTERM, "COMPLETING", "")])
def test_slurm_passes_a_notice_on(notice, state, calls, slurm, stands_in):
    "SIGUSR1 before the limit, SIGTERM at a preemption: the ranks save, the job is queued again. Not if cancelled."
    (stands_in / "squeue").write_text(f"#!/bin/bash\necho {state}\n")
    try: passes_a_notice_on(notice, calls, stands_in)
    finally: (stands_in / "squeue").write_text("#!/bin/bash\necho RUNNING\n")


def passes_a_notice_on(notice, calls, stands_in):
    job = replace(SMALL, command=(sys.executable, "-S", "-c", SAVES))
    home = around(stands_in) | of_slurm(job)
    with started(job.slurm(), home) as script:
        assert script.stdout.readline() == "ready\n"
        script.send_signal(notice)
        assert script.communicate(timeout=60)[0] == "saved\n" and script.returncode == 75
    path = stands_in / "scontrol.said"
    assert (path.read_text() if path.exists() else "") == calls
    assert (stands_in / "scancel.said").read_text() == "--signal=TERM 12\n"


@pytest.mark.parametrize("image, here, wanted", [
    ("a.example.org/b:1", True, "docker://a.example.org/b:1"), ("docker://b", True, "docker://b"),
    ("/a/b.sif", True, "/a/b.sif"),
    ("a.example.org/b:1", False, "--container-image=a.example.org#b:1"), ("b:1", False, "--container-image=b:1"),
    ("/a/b.sqsh", False, "--container-image=/a/b.sqsh")])
def test_slurm_starts_a_container(image, here, wanted, slurm, stands_in):
    if not here and shutil.which("apptainer"): pytest.skip("apptainer is installed here, so pyxis is not asked")
    job = replace(SMALL, image=image, device="gpu", data="/the data")
    if not here: (stands_in / "apptainer").rename(stands_in / "away")
    try: status, shown, _ = slurm(job)
    finally:
        if not here: (stands_in / "away").rename(stands_in / "apptainer")
    words = said(stands_in, "apptainer" if here else "srun")
    assert status == 0 and wanted in words and shown[0][0] == []
    if here: assert "--nv" in words and words[words.index("/the data") - 1] == "--bind"
    else: assert f"--container-mounts={os.getcwd()}:{os.getcwd()},/the data:/the data" in words


# ---- the script on this machine, and signals

def test_a_stop_reaches_the_command_and_its_status_comes_back(stands_in):
    job = JobSpec((sys.executable, "-S", "-c", SAVES), device="cpu", retries=3, time_seconds=900)
    with started(job.local(), around(stands_in)) as script:
        assert script.stdout.readline() == "ready\n"
        script.send_signal(signal.SIGTERM)
        assert script.communicate(timeout=60)[0] == "saved\n"
    assert script.returncode in (75, 124)  # timeout passes the signal on, and some versions tell it by 124


STUBBORN = SAVES.replace("sys.exit(75)", "pass")


def test_a_second_stop_kills(stands_in):
    job = JobSpec((sys.executable, "-S", "-c", STUBBORN), device="cpu")
    with started(job.local(), around(stands_in)) as script:
        assert script.stdout.readline() == "ready\n"
        script.send_signal(signal.SIGTERM)
        assert script.stdout.readline() == "saved\n"
        for _ in range(60):  # one that comes while the shell still hears the first is the first
            script.send_signal(signal.SIGTERM)
            try: script.wait(1)
            except subprocess.TimeoutExpired: continue
            break
    assert script.returncode == 128 + signal.SIGKILL


def test_a_job_ends_at_its_limit(stands_in):
    job = JobSpec((sys.executable, "-S", "-c", SAVES), device="cpu", time_seconds=2, grace_seconds=1)
    done = subprocess.run(
        ["bash", "-c", job.local()], env=around(stands_in), capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "ready\nsaved\n" and done.returncode == 124


# ---- what each system's own checks say

def needed(name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install '.[launch]'")
    return importlib.import_module(name)


def lost(given, kept, place=""):
    "What of `given` is not in `kept`: the fields that a model does not know."
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key not in kept: yield f"{place}.{key}: unknown field"
            else: yield from lost(value, kept[key], f"{place}.{key}")
    elif isinstance(given, list) and isinstance(kept, list):
        if len(given) != len(kept): yield f"{place}: {len(given)} items became {len(kept)}"
        for i, (one, other) in enumerate(zip(given, kept)): yield from lost(one, other, f"{place}[{i}]")
    elif given != kept: yield f"{place}: {given!r} became {kept!r}"


def model_says(document):
    "What is wrong with a document by Kubeflow's models of Kubernetes' and its own objects."
    models = needed("kubeflow_trainer_api.models")
    kinds = {("batch/v1", "Job"): models.IoK8sApiBatchV1Job, ("v1", "Service"): models.IoK8sApiCoreV1Service,
             ("trainer.kubeflow.org/v1alpha1", "TrainJob"): models.TrainerV1alpha1TrainJob}
    model = kinds[document["apiVersion"], document["kind"]]
    try: return list(lost(document, model.from_dict(document).to_dict()))
    except ValueError as error: return [str(error)]


def kubernetes_says(document):
    validate = needed("kubernetes_validate")
    try: validate.validate(document, "1.33", strict=True)
    except validate.ValidationError as error: return [error.message]
    return []


@given(job=jobs("kubernetes"))
@settings(few, max_examples=25)
def test_kubernetes_takes_the_manifests(job):
    for document in yaml.safe_load_all(render_job(job)): assert kubernetes_says(document) == [] == model_says(document)


@given(job=jobs("trainjob"))
@settings(few, max_examples=25)
def test_kubeflow_takes_the_trainjob(job):
    for document in yaml.safe_load_all(render_trainjob(job)): assert model_says(document) == []


FULL = JobSpec(
    "python train.py",
    nodes=2,
    devices_per_node=8,
    image="a",
    secrets=["HF_TOKEN"],
    data="/data",
    time_seconds=3600,
    retries=2,
    environment={"A": "1e3"},
    memory_gb=64,
)


@pytest.mark.parametrize("kind, field", [("job", name) for name in (
    "completionMode", "backoffLimitPerIndex", "subdomain", "terminationGracePeriodSeconds", "secretKeyRef",
    "fieldPath", "hostPath",
    "limits", "clusterIP", "onPodConditions")] + [("trainjob", name) for name in (
        "numNodes", "numProcPerNode", "resourcesPerNode", "runtimeRef", "trainingRuntimeSpec",
        "terminationGracePeriodSeconds", "secretKeyRef",
        "mountPath", "activeDeadlineSeconds")])
def test_a_misspelt_field_is_found(kind, field):
    text = FULL.kubernetes(kind)
    assert f"{field}:" in text
    check = kubernetes_says if kind == "job" else model_says
    assert any(check(document) for document in yaml.safe_load_all(text.replace(f"{field}:", f"{field}x:")))


def test_pods_keep_kubernetes_own_rules():
    "What neither the schema nor the models know: fields that go together, and lengths of names."
    long = replace(FULL, name="Ein sehr langer Name, der in keinen Rechnernamen passt, so lang ist er", nodes=9_999)
    for job in (FULL, long, replace(FULL, nodes=1, array=7)):
        *services, document = yaml.safe_load_all(job.kubernetes())
        spec, name = document["spec"], document["metadata"]["name"]
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name) and len(f"{name}-{spec['completions'] - 1}") <= 63
        assert spec["completionMode"] == "Indexed" and spec["template"]["spec"]["restartPolicy"] == "Never"
        assert spec["podReplacementPolicy"] == "Failed"  # with a podFailurePolicy the only one
        for service in services:
            assert service["metadata"]["name"] == spec["template"]["spec"]["subdomain"] == name
            assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
        assert bool(services) == (job.nodes > 1)


@pytest.fixture(scope="session")
def botocore(tmp_path_factory):
    "A folder with AWS's own model and validator, which want an older dateutil than the rest of what is installed."
    if not (uv := shutil.which("uv")):
        pytest.skip("botocore wants an older python-dateutil than ours, and there is no uv to fetch it")
    target = tmp_path_factory.mktemp("botocore")
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(target), "botocore>=1.40"]
    try: made = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired: pytest.skip("botocore could not be fetched in 90 seconds")
    if made.returncode: pytest.skip(f"botocore cannot be had: {made.stderr.strip().splitlines()[-1]}")
    return target


ASKS_AWS = textwrap.dedent("""
    import json, re, sys
    import botocore.loaders
    from botocore.model import ServiceModel
    from botocore.validate import ParamValidator
    model = ServiceModel(botocore.loaders.Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
    shape = model.operation_model("CreateTrainingJob").input_shape

    def more(value, shape, at=""):
        "What the validator leaves to the server: words of a list, patterns, upper bounds."
        said = shape.metadata
        if shape.type_name == "structure":
            for key, one in value.items():
                if key in shape.members: yield from more(one, shape.members[key], f"{at}.{key}")
        if shape.type_name == "list":
            for i, one in enumerate(value): yield from more(one, shape.member, f"{at}[{i}]")
        if shape.type_name == "map":
            for key, one in value.items():
                yield from [*more(key, shape.key, f"{at} key"), *more(one, shape.value, f"{at}[{key}]")]
        size = value if shape.type_name in ("integer", "long") else len(value) if hasattr(value, "__len__") else 0
        if said.get("max") is not None and size > said["max"]: yield f"{at}: {size} is above {said['max']}"
        if shape.type_name == "string":
            if getattr(shape, "enum", None) and value not in shape.enum: yield f"{at}: {value} is none of the words"
            try: fits = not said.get("pattern") or re.fullmatch(said["pattern"], value)
            except re.error: fits = True  # of a kind that Python does not know
            if not fits: yield f"{at}: {value!r} does not match {said['pattern']}"

    def says(request):
        report = ParamValidator().validate(request, shape)
        return [report.generate_report()] if report.has_errors() else list(more(request, shape))
    print(json.dumps([says(request) for request in json.load(sys.stdin)]))
""")


def aws_says(folder, requests):
    done = subprocess.run(
        [sys.executable, "-c", ASKS_AWS],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sagemaker_takes_the_request(botocore):
    "Many drawn jobs in one process, and requests with one fault each."
    requests = []

    @given(job=jobs("sagemaker"))
    @settings(deadline=None, max_examples=100, database=None)
    def draw(job): requests.append(json.loads(rendered(job, "sagemaker")))
    draw()
    assert [said for said in aws_says(botocore, requests) if said] == []
    good = json.loads(FULL.sagemaker())
    bad = [{**good, "TrainingJobNme": "x"}, {**good, "TrainingJobName": "a_b"}, {**good, "Environment": {"A": 1}},
           {**good, "ResourceConfig": {**good["ResourceConfig"], "InstanceType": "ml.p4d.24xlrge"}},
           {**good, "Environment": {"A": "x" * 513}}, {**good, "RetryStrategy": {"MaximumRetryAttempts": 31}}]
    assert all(aws_says(botocore, bad)) and aws_says(botocore, [good]) == [[]]


# ---- the image

IMAGES = [dict(device="gpu"), dict(device="cpu"), dict(device="cpu", offline=True)]


def lint(text):
    tool = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if not tool: pytest.skip("hadolint is not installed: pip install '.[launch]'")
    done = subprocess.run([tool, "-"], input=text, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.parametrize("options", IMAGES, ids=str)
def test_hadolint_finds_nothing(options): assert lint(render_dockerfile(**options)) == ""


@pytest.mark.parametrize("before, after, says", [
    ("HEALTHCHECK", "HEALTCHECK", "unexpected"), ("USER 1000:1000", "USER root", "DL3002"),
    ("slim-bookworm", "latest", ""),
    ("--no-cache-dir ", "", "DL3042")])
def test_hadolint_finds_a_fault(before, after, says):
    text = render_dockerfile()
    assert before in text and (found := lint(text.replace(before, after))) != "" or not says
    assert says in found if says else True


def builder():
    "A builder and a base image for it, or why there is none."
    base = os.environ.get("MLINFRA_TEST_BASE")
    if not base: pytest.skip("it takes minutes and a base image with Python and venv: MLINFRA_TEST_BASE names one")
    if not (tool := shutil.which("buildah")): pytest.skip("there is no buildah")
    return [tool, *os.environ.get("MLINFRA_TEST_BUILDAH", "").split()], base


def test_the_image_is_built_and_works_without_network(tmp_path):
    "With few packages from a folder of wheels, so that neither PyTorch nor a network is needed to try the layers."
    (tool, base), alone = builder(), ["unshare", "--net"]  # a namespace in which there is no network
    for name in ("data", "mlinfra"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "constraints.txt", "settings.ini"):
        shutil.copy(ROOT / name, tmp_path)
    little = re.sub(r"(?m)^requirements = .*", "requirements = tqdm>=4.66", (tmp_path / "settings.ini").read_text())
    (tmp_path / "settings.ini").write_text(little)
    (tmp_path / ".dockerignore").write_text(render_dockerignore())
    (tmp_path / "Dockerfile").write_text(render_dockerfile("cpu", base=base, offline=True))
    wheels = [sys.executable, "-m", "pip", "download", "--quiet", "-d", tmp_path / "wheels", "-c", "constraints.txt"]
    subprocess.run([*wheels, "tqdm", "setuptools"], cwd=tmp_path, check=True, timeout=300)

    def call(*words):
        return subprocess.run([*alone, *tool, *words], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    built = call("bud", "--isolation", "chroot", "--format", "docker", "--pull-never", "-t", "localhost/mlinfra-test",
                 "-f", "Dockerfile", ".")
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    container = call("from", "--pull-never", "localhost/mlinfra-test").stdout.strip()
    def inside(*words): return call("run", "--isolation", "chroot", container, "--", *words)
    asks = "import os, mlinfra, tqdm, mlinfra.engine.base.checks; print(os.getuid(), mlinfra.__file__, os.getcwd())"
    try:
        shown = inside("python", "-c", asks)
        assert shown.stdout.split() == ["1000", "/app/mlinfra/__init__.py", "/work"], shown.stderr
        there = inside("python", "-c", "import mlinfra, os; print(os.path.exists(mlinfra.__cached__))")
        assert there.stdout.strip() == "True", "our modules are translated in the image"
        kept = json.loads(call("inspect", "--type", "image", "localhost/mlinfra-test").stdout)["Docker"]["config"]
        health = kept["Healthcheck"]["Test"]
        assert health[0] == "CMD" and inside(*health[1:]).returncode == 0
    finally:
        call("rm", container)
        call("rmi", "localhost/mlinfra-test")

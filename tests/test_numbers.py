"""Every public function that takes a number refuses nonsense in a sentence and takes numpy's and torch's integers.

The functions are found by walking the package and reading signatures, so that new ones are covered. Each call gets
valid arguments, built from defaults, from `NUMBERS` by a parameter's name and from `Objects` by its annotation; then
one number after the other is replaced by each nonsense value. What is meaningful although it looks like nonsense
stands in `MEANINGFUL`, with the reason.
"""
import ast
import dataclasses
import importlib
import inspect
import math
import multiprocessing.process
import pkgutil
import re
import signal
import sys
import threading
import warnings
from collections import defaultdict
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from enum import Enum
from fnmatch import fnmatch, translate
from functools import cache, cached_property
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.launcher.api
from torch import nn

import mlinfra

# ---- the functions


class Number(NamedTuple):
    "A parameter that is a number, or holds some."
    name: str
    kind: type         # int or float
    many: bool         # a sequence of numbers
    default: Any


class Target(NamedTuple):
    "A public function, class or method, and its numbers."
    name: str          # "arithmetic.Schedule", "arithmetic.Schedule.duration"
    function: Any
    owner: Any         # the class of a method, or None
    numbers: tuple[Number, ...]

    def __str__(self): return self.name


MANY = {"Sequence", "Iterable", "Collection", "list", "tuple"}


def members_of(annotation):
    "The syntax trees of an annotation's alternatives."
    text = getattr(annotation, "__forward_arg__", annotation)
    if inspect.isclass(text): text = text.__name__
    try: members = [ast.parse(str(text), mode="eval").body]
    except SyntaxError: return []
    while any(isinstance(m, ast.BinOp) for m in members):
        members = [side for m in members for side in ((m.left, m.right) if isinstance(m, ast.BinOp) else (m,))]
    return members


def number_of(annotation):
    "(int or float, whether many) of an annotation; None where it is not a number."
    return number_in(annotation) if isinstance(annotation, str) else number_in.__wrapped__(annotation)


@cache
def number_in(annotation):
    scalars = {m.id for m in members_of(annotation) if isinstance(m, ast.Name)}
    for kind in (float, int):
        if kind.__name__ in scalars: return kind, False
    for member in members_of(annotation):
        if not isinstance(member, ast.Subscript) or ast.unparse(member.value).split(".")[-1] not in MANY: continue
        inner = member.slice.elts[0] if isinstance(member.slice, ast.Tuple) and member.slice.elts else member.slice
        for kind in (int, float):
            if isinstance(inner, ast.Name) and inner.id == kind.__name__: return kind, True
    return None


def numbers_in(function):
    try: parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError): return ()
    found = [(p, number_of(p.annotation)) for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return tuple(Number(p.name, *kind, p.default) for p, kind in found if kind)


@cache
def modules():
    names = [info.name for info in pkgutil.walk_packages(mlinfra.__path__, "mlinfra.")]
    return [importlib.import_module(name) for name in names if name.split(".")[-1][0] != "_"]


@cache
def targets(): return tuple(each_target())


def each_target():
    for module in modules():
        for name, thing in vars(module).items():  # also what a lesson only shows and leaves out of __all__
            if name[0] == "_" or getattr(thing, "__module__", "") != module.__name__ or not callable(thing): continue
            if inspect.isclass(thing) and (name in RESULTS or issubclass(thing, tuple)):
                continue  # a NamedTuple has no door
            place = f"{module.__name__.removeprefix('mlinfra.')}.{name}"
            if numbers := numbers_in(thing): yield Target(place, thing, None, numbers)
            if not inspect.isclass(thing): continue
            for method, function in vars(thing).items():
                if method[0] == "_" or not inspect.isfunction(function): continue
                if numbers := numbers_in(function): yield Target(f"{place}.{method}", function, thing, numbers)


# ---- what is meaningful although it looks like nonsense

# made by the package and handed to its user: their numbers are measured or computed, not brought
RESULTS = set("""
ActivationStats Advice BatchPlan NonFiniteOrigin BlockEvent Collective DeviceBytes Diagnosis DigitsRun Epoch
Estimate Exponents Fault Finding Footprint GpuSample Guess Held Hop HostPath LatencyRow LayerCost Lesson Line
LoadTrial Look LoopCount Machine MemoryCost MicroBatchCost Partition PipelineRun
SearchDomain
PlaceShare ProcessMemory RankError RankPart RankTrialResult Reading Reads Recorder Reveal Run RunEvent Sample
TrainingRun
Scores SendingStep SentBucket
Shard ShardTrialResult Span StateBytes Step StepSeconds Stream StreamSummary SweepRow TimedOperation 
TensorStats ParameterStats Verification WorkerCurve Bar Waterfall Pace Comparison MeasuredGain StepModel PredictedGain
Attempt Best Checkpoint SaveCosts Instance
DataSum Expected Explanation FileSum FinalTest Judgement IntervalResult KillStudy Notice PricedMachine StageSpan
Booking QueuedRow QueueRun ProcessResult PublishedHours PublishedRun
PublishedTrace TraceOrigin
Race RangeTest Repeats Saved SpotPrice State Surface Trial TrialRecord Written
StrategyChoice RankCosts Share StepReport JobState RankFailure
Preset Standing TimedRun Energy Grid Need Quote RecordedRun RunCosts RunPrice WorkSeconds
HeldCurve SentCollective StepTimes TensorLife Scene Visit Round MemoryTrace
Answer BatchCounts DigitAnswer Paired LoadResult ServerStats Ticket
OnnxFile ProgramFile OpenedModel
GpuFigures WorkerSteps SteadyEpoch
""".split())

ANY = "zero negative nan infinite half absurd"
VIEWS = "panels pass what their controls allow, pictures show what was checked where it was made"
CHECKED = "called by functions that have checked their numbers"
INNER = """
base.cores base.jobs base.operations.LayerCall base.operations.OperationCount base.step_folders base.store base.text
checkpoint.checkpoint_files memory.optimizers.UpdateMemory trace.trace_advice.TraceAdvice train.counted_means
checkpoint.checkpointer.BestMetric checkpoint.checkpoint_folder.checkpoints_to_delete
checkpoint.resumable_loader checkpoint.state_trees.TreeEncoder
dist.collectives.Group dist.gradient_average.GradientBucket.pack dist.sync_batch_norm.WholeBatchNorm
dist.processes dist.rank_step dist.zero_blocks doctor.ablation doctor.batch_source
doctor.diagnosis.busy_words doctor.predictions doctor.remedies doctor.step_timer export.quantize.QuantizedConv2d
export.quantize.QuantizedLinear export.quantize.pack export.quantize.unpack http.metrics
http.request_parsing.BodyError http.request_parsing.BodyRules.too_long http.server_process.bound_socket lab.faults
lab.patients lab.pipeline_runs lab.rank_step_times lab.shard_steps lab.silent_errors lab.step_examples
lab.metadata_service lab.tensor_costs.LayerWork
lab.thread_group.ThreadGroup launch.job_logs.shell_status launch.supervisor.signal_name loading.batch_tensors
loading.crops.random_box loading.dataset_callables loading.loader_surgery loading.loading_times
loading.raw_cache.RawCache.load loading.reads.block_starts loading.reads.read_block loading.shards.Shard
loading.shards.mixed loading.shards.read_shard memory.batch_search memory.out_of_memory memory.process_memory
memory.step_sample memory.tracker parallel.parallelize.ParallelRun parallel.rank_loop parallel.rank_model
parallel.gradient_norm parallel.sample_weights parallel.pipeline_strategy parallel.rank_loader
parallel.batch_statistics parallel.part_watch pipeline.staged_model
parallel.batch_share parallel.loss_terms parallel.rank_agreement parallel.rank_random parallel.rank_stream
parallel.strategies checkpoint.checkpoint_folder.CheckpointFolder.save checkpoint.training_state
parallel.strategy_choice parallel.tensor_strategy pipeline.layer_costs pipeline.pipeline_step
pipeline.sequential_split pipeline.stages pipeline.timeline record.callbacks record.recorder.Recorder
record.run_folder.active_writer record.run_folder.pack_header record.run_folder.process_born
record.attempt_files record.run_timeline report.waterfall.began report.waterfall.last_sign
report.waterfall.later_records report.waterfall.step_parts report.waterfall.step_weights rules.loss_rules
preflight.check_page preflight.checked_rank preflight.file_journal preflight.script_run preflight.script_watch
preflight.source_writes preflight.trained_models record.loss_methods record.ready_batches rules.batch_fingerprint
record.rank_records record.run_folder.earlier_losses rules.curve_rules rules.parameter_rules rules.precision_rules
rules.rank_history rules.rank_looks rules.rank_rules rules.rank_waits rules.rate_rules
rules.batch_rules rules.head_rules rules.look_schedule rules.loop_looks rules.loop_probe rules.loop_rules
rules.loss_graph rules.repeated_passes rules.worker_generators train.optimizer_setup.hooked_optimizers
rules.device_rules rules.findings rules.input_rules rules.inspection rules.memory_rules rules.nonfinite_origin
rules.stall_rules rules.step_window rules.tensor_probe rules.tensor_rules rules.tensor_stats
serve.request_queue.ServiceTime.seconds serve.batcher serve.worker_server.rows_of
tensor.split_checks train.batches train.step_executor train.threads tuning.lr_range.smoothed
tuning.optuna_plan.OptunaPlan tuning.search_space.Space.draw
tuning.study_journal.cut_half_line tuning.trial_pool.Plan
workers.worker_sweep.SweepTask
""".split()

MEANINGFUL = [  # (function.parameter, what is taken, why)
    ("*.seed", ANY, "torch and numpy refuse what is no seed in words of their own"),
    ("*.workers", "zero", "the loader's own process"),
    ("*.begin_ms", "zero", "when the step begins"),
    ("*.batch_dim", "zero absurd", "dimensions are counted from 0, and the first batch says how many there are"),
    ("*.rank", "zero", "ranks are counted from 0"),
    ("*.*stage", "zero", "a ZeRO stage, or the first stage of a pipeline"),
    ("*.slot", "zero", "slots are counted from 0"),
    ("*.submitted_s", "zero", "when the queue is opened"),
    ("*.now_s", "zero", "when the queue is opened"),
    ("*.overhead_seconds", "zero", "none"),
    ("*.delays_seconds", "zero", "at once"),
    ("*.mark.at_s", "zero negative", "a moment, before or after any other"),
    ("*.lr", "zero", "a step of nothing, which torch takes"),
    ("*.momentum", "zero", "none"),
    ("*.dropout", "zero", "none"),
    ("*.padding", "zero", "none"),
    ("*.warm_up", "zero", "none"),
    ("*.skip", "zero", "none"),
    ("*.min_change", "zero", "any change is one"),
    ("*.latency*", "zero", "an ideal link"),
    ("*.launch_seconds", "zero", "an ideal device"),
    ("*.transfer", "zero", "an ideal link"),
    ("*.memory_passes", "zero", "an ideal device"),
    ("*.budget_seconds", "infinite", "no limit"),
    ("*.max_wait_seconds", "zero", "a batch starts at once"),
    ("*.due", "zero", "a request at the start"),
    ("*.extra_seconds", "zero", "nothing more"),
    ("engine.launch.sbatch_options.check_resources.gpus", "zero", "a job on processors"),
    ("engine.loading.jpegs.photo.*", "zero", "counted from 0"),
    ("engine.base.timing.rounds.stretch", "infinite", "no limit"),
    ("engine.memory.footprint.fits_text.*", "zero", "nothing needed, nothing there"),
    ("lab.lifetimes.Film.alive.moment", "zero", "before the first operation"),
    ("lab.lifetimes.replay.limit", "infinite", "a device that is never full"),
    ("engine.memory.footprint.BatchFootprints.largest.*", "zero", "no memory, no margin"),
    ("engine.dist.sync_batch_norm.SyncedBatchNorm*", ANY, "the constructor is torch's own"),
    ("lab.shard_trials.Strategy.*", ANY, "an entry of our own table"),
    ("engine.pipeline.schedules.interleave_operations.*", ANY, "rows of operations are needed, so it cannot be tried"),
    ("tensor_parallel.SharedHeads.head_width", ANY, "a layer is needed, so it cannot be tried"),
    *((f"engine.cost.figure_kinds.{kind}.value", "zero negative", "a difference of two figures may be either")
      for kind in ("SourcedFigure", "Measured", "Published", "Assumed", "Computed")),
    ("lab.few_labels.paired.*", "zero negative", "a method may read nothing"),
    ("lab.tensor_training.SeededDropout.share", ANY, "an experiment of the lesson"),
    ("lab.tensor_training.train_with_dropout.*", ANY, "an experiment of the lesson, with seeds"),
    ("*.read_share.w*", "zero", "no waiting, no work"),
    ("*.check_all_reduce.length", "zero", "an empty tensor"),
    ("*.dim", ANY, "a tensor's dimension, which torch checks"),
    ("lab.rank_workload.Workload.gradient_bytes", "zero", "nothing to send"),
    ("lab.rank_workload.Workload.fixed_seconds", "zero", "all of the step grows with the batch"),
    ("lab.rank_workload.Workload.cores", "zero", "as many as ranks"),
    ("data_parallel.warm_up.iteration*", "zero", "the first; no warm-up"),
    ("engine.pipeline.schedules.bubble.*", "zero", "passes that take no time"),
    ("engine.pipeline.stage_partition.least_maximum.*", ANY, "the search behind `partition`, which has checked"),
    ("lab.drift.drifting_stream.at", "zero", "from the start"),
    ("*.GradientExponents.table.scale", ANY, "nothing is recorded here, so it cannot be tried"),
    ("storage.ShardDataset.set_epoch.epoch", ANY, "there are no shards here, so it cannot be tried"),
    ("*.RandomCropFlip.flip", "zero", "never turned"),
    ("doctor.*.read.i", ANY, "every picture is random, whatever its index"),
    ("engine.loading.jpegs.JpegFolder.load_or_skip.i", ANY, "a list's index, which says so itself"),
    ("arithmetic.Stages.*", "zero", "a stage that costs nothing"),
    ("engine.serve.request_queue.ServiceTime.*", "zero", "a server that costs nothing"),
    ("engine.serve.request_queue.mean_wait.spread_seconds", "zero", "every batch takes as long"),
    ("lab.cpu_noise.busy_neighbour.rest_seconds", "zero", "it never rests"),
    ("lab.patients.slow_*.*", "zero", "not slowed"),
    ("engine.workers.worker_sweep.Blur.times", "zero", "not slowed"),
    ("engine.workers.overlap.overlapped_step_seconds.cpu_share", "zero", "loading that only waits"),
    ("engine.planner.model_specs.ModelSpec.*", "zero", "a model that costs nothing"),
    ("engine.base.hardware.*bytes", "zero", "an empty message"),
    ("engine.base.hardware.StorageModel.*.bytes", "half", "a mean of sizes"),
    ("engine.base.hardware.Roofline.seconds.flops", "zero", "a copy"),
    ("*.wire_bytes.*", "zero", "an empty message"),
    ("engine.memory.footprint.zero_bytes_per_rank.*", "zero", "a model without, such as an optimizer without state"),
    ("engine.precision.formats.Format.decode.code", "zero", "the code of 0"),
    ("engine.precision.formats.*value", ANY, "what the reader wants to see rounded, NaN and infinity included"),
    ("engine.precision.formats.running_sum.values", ANY, "what is added up, NaN and infinity included"),
    ("engine.base.sample_statistics.median.values", ANY, "any numbers have a median"),
    ("engine.base.sample_statistics.percentile.values", ANY, "any numbers have percentiles"),
    ("engine.base.sample_statistics.percentile.percent", "zero", "the smallest"),
    ("engine.dist.process_group.sum_over_ranks.values", ANY, "any numbers have a sum"),
    ("engine.dist.shared_memory.SharedMemory.sizes", "absurd", "numpy refuses a buffer of that many bytes"),
    *((f"engine.record.run_writer.RunWriter.{name}", ANY, "a second writer is refused: its own tests have them")
      for name in ("rank", "world_size", "limit_bytes")),
    ("engine.record.watch.[Ww]atch.loss.value", ANY, "any loss"),
    ("engine.record.watch.[Ww]atch.first_step", "zero", "a loop that was not resumed"),
    ("engine.record.callbacks.LoopWatch.*", ANY, "told by a framework's loop"),
    ("monitor.Pausing.seconds", "zero", "no pause"),
    ("monitor.compute.seconds", ANY, "called by `Pausing`, which has checked"),
    ("monitor.look.*", "zero", "from the start; nothing seen"),
    ("monitor.slowest_moment.rank", "zero", "the first rank"),
    ("engine.record.recorder.Monitor.on_between.*", ANY, "told by fit"),
    *((f"engine.record.recorder.{name}", ANY, "a moment, from the clock")
      for name in ("next_turn.now", "Recorder.*.at", "Recorder.loader.*", "Recorder.end.*", "Recorder.*.first",
                   "Recorder.*.last")),
    ("debugger.Debugger.on_between.*", ANY, "told by fit"),
    ("engine.train.observers.Observer.on_between.*", ANY, "told by fit"),
    ("engine.record.run_writer.RunWriter.*.at", ANY, "a moment, from the clock"),
    ("views.*", ANY, VIEWS),
    ("engine.ui.*", ANY, "sizes and places in a picture, numbers to be written"),
    ("engine.report.pictures.*", ANY, "sizes and places in a picture"),
    ("*.fail_if_slower", "zero", "any slowdown is too much"),
    ("engine.trace.profile_steps.TraceSteps.first", "zero", "the first step"),
    ("engine.trace.profile_steps.TraceSteps.rank", "zero", "the first rank"),
    ("engine.trace.profile_steps.TraceSteps.reach.done", ANY, "told by a loop"),
    ("engine.trace.trace_file.TraceEvents.of_gpu.number", ANY, "a GPU that did nothing has no events"),
    ("engine.record.live_trace.LiveTrace.*", ANY, "told by a recorder"),
    *((f"engine.record.{name}.steps", ANY, "a run that goes on is needed, so it cannot be tried")
      for name in ("watch.[Ww]atch.trace", "recorder.Monitor.trace")),
    ("engine.record.live_trace.request_trace.steps", ANY, "a run that goes on is needed, so it cannot be tried"),
    ("engine.planner.clusters.Cluster.micro_batch_seconds", "zero", "a program that needs nothing besides"),
    ("engine.planner.clusters.Cluster.call_seconds", "zero", "messages that cost their bytes alone"),
    ("engine.planner.clusters.Cluster.tensor_seconds.bytes", "zero", "an empty message"),
    ("lab.sweep_comparison.rank_correlation.*", ANY, "any numbers have an order"),
    ("engine.http.server.serve.port", "zero", "any port that is free"),
    ("engine.http.load_client.ServerError.*", ANY, "what a server has said"),
    ("engine.export.onnx_comparison.OutputDifference.*", ANY, "what a comparison has measured"),
    ("engine.http.request_parsing.InputSpec.fits.*", ANY, "the shape of what a stranger has sent"),
    ("engine.http.model_outputs.OutputRows.samples", "zero", "a slice may hold none"),
    ("cost.price_run.seconds", "zero", "a run that takes no time"),
    ("cost.Purchase.*", "zero", "no power, free electricity, no upkeep"),
    ("cost.quote.*", "zero", "a machine for nothing, electricity without CO2"),
    ("engine.cost.energy.*", "zero", "no energy, no time, electricity without CO2"),
    ("engine.cost.prices.Offer.gbit_per_s", "zero", "no network is promised"),
    ("engine.cost.training_work.Work.*", "zero", "a training that computes nothing, or keeps nothing"),
    ("engine.cost.run_cost.*", "zero", "no time, electricity without CO2"),
    ("engine.cost.save_interval.*_seconds", "zero", "a save, a restart or a write that costs nothing"),
    ("engine.cost.save_interval.spot_price.spot_price_per_hour", "zero", "a machine for nothing"),
    ("engine.launch.preemption.read_notice.timeout_seconds", ANY, "an address is needed, so it cannot be tried"),
    ("engine.launch.supervisor.supervise.*", "zero", "no restart, no pause"),
    ("engine.launch.supervisor.marked_processes.since", "zero", "it is not known when they began"),
    ("engine.tuning.trial_pool.Live.prune.number", "zero", "trials are counted from 0"),
    ("engine.export.prune.*.share", "zero", "nothing goes"),
    ("engine.tuning.search_space.uniform.low", "zero negative", "any range"),
    ("engine.tuning.search_space.whole.low", "zero negative", "any range"),
    ("lab.few_labels.trained_on_all.rate", "zero", "only the last part learns"),
    ("lab.search_race.race.draws", ANY, "a surface of many points is needed, so it cannot be tried"),
    ("checkpoint.first_difference.*", ANY, "any losses"),
    *((f"experiments.{name}.*", ANY, "the lesson's own training, which hands its settings to torch and to fit")
      for name in ("digits", "part_of_rate", "prepare", "train_digits", "by_epoch")),
    ("engine.ui.guesses.*", ANY, "a reader's guess"),
    ("engine.ui.reveals.*", ANY, "a measurement, and what a rule said of it"),
    ("engine.base.checks.*", ANY, "checks of numbers, tested in their notebook"),
    *((f"engine.{place}.{name}", "zero", "no second start, no copies")
      for place in ("launch.job_spec.JobSpec", "launch.job_fields.JobFields") for name in ("retries", "array")),
    ("engine.launch.job_texts.*", ANY, CHECKED),
    *((f"lab.search_race.{name}.*", ANY, CHECKED) for name in ("grid_cells", "random_cells", "train_many")),
    ("engine.launch.sagemaker_requests.Instance.*", ANY, "rows of a table"),
    *((f"{'' if room.startswith('lab.') else 'engine.'}{room}{end}", ANY, CHECKED)
      for room in INNER for end in ("", ".*")),
]


PATTERNS = [(re.compile(translate(pattern)).match, words.split()) for pattern, words, _ in MEANINGFUL]


def taken(target, number): return taken_at(f"{target.name}.{number.name}")


@cache
def taken_at(place):
    "What of the nonsense is meaningful for this parameter."
    return {word for matches, words in PATTERNS if matches(place) for word in words}


NONSENSE = {int: {"zero": 0, "negative": -1, "nan": math.nan, "infinite": math.inf, "half": 1.5, "absurd": 10**31},
            float: {"zero": 0.0, "negative": -1.0, "nan": math.nan, "infinite": math.inf}}


# ---- valid arguments

NUMBERS = {"world_size": 2, "batch_size": 4, "heads": 2, "widths": 16, "width": 8, "hidden": 8, "stage": 1, "stages": 2,
           "sharding_stage": 1, "side": 8, "kernel": 3, "dim": 0, "batch_dim": 1, "tokens": 4096,
           "parameters": 10**6}
SUPPLIED = {"input_shape": (1, 28, 28), "depths": (1, 1, 1, 1), "estimate.batch_size": 4}  # default or not


def valid_number(number, owner=""):
    if number.default not in (inspect.Parameter.empty, None) and not number.many:
        if isinstance(number.default, (int, float)) and not isinstance(number.default, bool): return number.default
    one = NUMBERS.get(number.name, 4 if number.kind is int else 0.5)
    return [one, one] if number.many else one


def one(*_, **__): return 1.0


def classifier():
    "The same weights each time: what two calls return is compared."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


class Objects:
    "Small valid objects, by annotation."
    def __init__(self, folder): self.folder, self.strings = folder, {}

    @cached_property
    def images(self):
        data = importlib.import_module("mlinfra.data")
        return data.Images(torch.randint(0, 256, (8, 1, 28, 28), dtype=torch.uint8), torch.arange(8) % 10)

    @cached_property
    def profile(self):
        memory = importlib.import_module("mlinfra.memory")
        return memory.profile(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), (1, 28, 28))

    @cached_property
    def jpegs(self):
        data = importlib.import_module("mlinfra.data")
        return data.JpegFolder(data.make_jpegs(self.folder / "jpegs", 2, size=(16, 16), classes=2, progress=False))

    def of(self, annotation, name, module):
        "An object for a parameter; a mock where there is none: who checks the numbers first does not look at it."
        if annotation == "tuple[str, ...]": return ("x",)
        for member in members_of(annotation):
            subscript = isinstance(member, ast.Subscript)
            word = ast.unparse(member.value if subscript else member).split(".")[-1]
            if word in MANY and subscript and word != "tuple": return [self.of(ast.unparse(member.slice), name, module)]
            if (made := self.named(word, name, module)) is not None: return made
        return self.images if name in ("train", "valid", "test", "data", "dataset") else MagicMock(name=name)

    def named(self, word, name, module):
        if word == "str":
            is_place = name in ("path", "root", "folder", "uri", "storage")
            return str(self.folder / "x") if is_place else self.strings.get(name, "x")
        makers = {
            "Path": lambda: self.folder / "x",
            "bool": lambda: False,
            "int": lambda: 4,
            "float": lambda: 0.5,
            "dict": lambda: defaultdict(lambda: 0.5),
            "Module": classifier,
            "Tensor": lambda: torch.rand(4, 1, 28, 28),
            "Images": lambda: self.images,
            "Dataset": lambda: self.images,
            "device": lambda: torch.device("cpu"),
            "dtype": lambda: torch.float32,
            "Callable": lambda: one,
        }
        if word in makers: return makers[word]()
        thing = vars(module).get(word)
        return self.instance(thing) if inspect.isclass(thing) and thing.__module__.startswith("mlinfra") else None

    def instance(self, thing):
        "An object of a class of ours; an empty one where its arguments are hard to have."
        if issubclass(thing, Enum): return next(iter(thing))
        if thing.__name__ in ("Profile", "BatchFootprints"): return self.profile
        if thing.__name__ == "JpegFolder": return self.jpegs
        if thing.__name__ == "PublishedSweep": return sys.modules[thing.__module__].published_sweeps()[1]
        if thing.__name__ == "ServedProcess": return lambda *_: None  # it would start
        if thing.__name__ == "Space":
            return thing(lr=importlib.import_module("mlinfra.engine.tuning.search_space").uniform(0, 1))
        try: return self.make(thing, {})
        except Exception: return thing.__new__(thing)

    def make(self, function, changes, before=()):
        "Call it; the strings it takes are learnt from what it says."
        arguments = self.arguments(function, len(before)) | changes
        for _ in range(3):
            try: return function(*before, **arguments)
            except ValueError as error:
                found = re.search(r"must be one of ([^,]+), .*got '([^']*)'$", str(error))
                wrong = [name for name, value in arguments.items() if found and value == found[2]]
                if not found or not wrong: raise
                self.strings[wrong[0]] = arguments[wrong[0]] = found[1]
        return function(*before, **arguments)

    def arguments(self, function, skip=0):
        "The required arguments of a function."
        found = {}
        for p in list(inspect.signature(function).parameters.values())[skip:]:
            for name in (p.name, f"{getattr(function, '__name__', '')}.{p.name}"):
                if name in SUPPLIED: found[p.name] = SUPPLIED[name]
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.default is not p.empty or p.name in found: continue
            number = number_of(p.annotation)
            found[p.name] = (valid_number(Number(p.name, *number, None)) if number
                             else self.of(p.annotation, p.name, sys.modules[function.__module__]))
        return found


# ---- calls

class TooLong(BaseException):
    "The call has begun to work."


def begins(*_, **__): raise TooLong


@contextmanager
def held_back():
    "No ranks, workers or threads: whoever starts one has let the nonsense in."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing.process.BaseProcess, "start", begins)
        patch.setattr(torch.distributed.launcher.api.elastic_launch, "__call__", begins)
        patch.setattr(threading.Thread, "start", begins)
        for name in ("send", "recv", "isend", "irecv"):
            patch.setattr(dist, name, begins)  # to a rank that is none: a crash
        yield


@contextmanager
def limit(seconds):
    def stop(*_): raise TooLong
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 4)  # again: some code swallows an exception
    try: yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call(target, objects, changes=(), seconds=5):
    instance = () if target.owner is None else (objects.instance(target.owner),)
    with limit(seconds), held_back(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = objects.make(target.function, dict(changes), instance)
        if isinstance(made, AbstractContextManager) and inspect.isgeneratorfunction(inspect.unwrap(target.function)):
            with made: pass  # it checks when it is entered
        return made


def outcome(target, objects, number, word):
    "'' where nonsense is refused as it should be; else what happened."
    value = NONSENSE[number.kind][word]
    try:
        call(target, objects, {number.name: [value] if number.many else value})
    except TooLong:
        return "begins to work"
    except TypeError as error:
        return "" if number.kind is int and isinstance(value, float) else f"TypeError: {first_line(error)}"
    except ValueError as error:
        return "" if number.many or re.search(rf"\b{number.name}\b", str(error)) else f"ValueError: {first_line(error)}"
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return "accepted"


def first_line(error): return str(error).partition("\n")[0][:100]


def taken_nonsense(target, objects):
    "Each nonsense that this function does not refuse, a line for each number."
    for number in target.numbers:
        found = {}
        for word in NONSENSE[number.kind]:
            if word not in taken(target, number) and (what := outcome(target, objects, number, word)):
                found.setdefault(what, []).append(word)
        if found:
            yield f"{target.name}({number.name}): " + "; ".join(
                f"{', '.join(words)} -> {what}" for what, words in found.items()
            )


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    for name in ("matplotlib.pyplot", "pandas", "torch._dynamo"):
        importlib.import_module(name)  # else the time limit of a call may cut its first import in two
    folder = tmp_path_factory.mktemp("numbers")
    dist.init_process_group(
        "gloo", init_method=(folder / "group").as_uri(), rank=0, world_size=1, timeout=timedelta(seconds=1)
    )
    made = Objects(folder)
    assert made.images and made.profile and made.jpegs
    yield made
    dist.destroy_process_group()


@pytest.mark.parametrize("target", targets(), ids=str)
def test_nonsense_is_refused(target, objects, capfd):
    assert not (found := list(taken_nonsense(target, objects))), "\n".join(["", *found])


def others(number):
    "The same whole number as numpy and torch write it."
    value = valid_number(number)
    if number.many or not 0 < value < 128 or value != int(value): return
    yield from (np.int8(value), np.int64(value), torch.tensor(value))


STARTS = "starts ranks, workers or threads, which are held back here"
LONG = "works for seconds"
GPU = "measures on a GPU"
FITS = "needs arguments that fit each other, or files: its own tests have them"
UNCALLED = [  # (function.parameter, why it is not called with these arguments)
    ("training.evaluate.batch_dim", "a channel taken for the samples: the result depends on the order of the batches"),
    ("engine.loading.raw_cache.make_raw_cache.shorter", "makes a folder, once"),
    *((name, STARTS) for name in """
        arithmetic.run_pipeline.* engine.dist.network.lay_cables.* engine.dist.ranks.run_ranks.*
        lab.thread_group.run_threads.* lab.notebook_ranks.RankPool.*
        engine.workers.worker_sweep.measure_workers.* workers.sweep_workers.*
        engine.record.stack_sampler.StackSamples.*
        engine.preflight.script_check.check_script.*
        lab.interval_study.KillableTraining.life.* lab.resumed_ranks.train_until.*
        engine.http.server.serve.*
    """.split()),
    ("lab.gpu_*", GPU),
    *((name, LONG) for name in """
        lab.rank_workload.measure_compute.* data_parallel.time_ways.* data_parallel.watch_step.*
        lab.digits_step.memory_cost.*
        memory.find_batch_size.* engine.tuning.ray_tune.ray_tune.* lab.batch_size_rates.rates_and_batches.*
        engine.record.tracker_writers.to_mlflow.every engine.precision.layer_costs.measure_roofline.* lab.local_slurm.*
    """.split()),
    *((name, FITS) for name in """
        lab.lifetimes.Film.peak.step lab.lifetimes.Film.end.step lab.lifetimes.film_steps.steps
        engine.http.load_client.offer_load.* engine.http.load_client.saturation.*
        engine.memory.footprint.rank_footprint.*
        lab.job_queue.queue_run.* engine.cost.prices.Offer.devices
        cost.quote.devices doctor.diagnose.batch_dim
        engine.export.export_model.export_model.* engine.export.onnx_files.OnnxModel.threads
        engine.http.served_model.open_served.*
        engine.export.onnx_files.load_onnx.*
        engine.export.onnx_files.operator_seconds.*
        engine.export.pretrained.pretrained.* engine.export.fine_tuning.LoRA.* engine.export.fine_tuning.add_lora.*
        engine.export.quantize.quantize_*ic.* engine.export.variants.compare_variants.*
        engine.pipeline.stage_partition.least_limit.*
        engine.loading.crops.resized_image.* lab.drift.drifting_stream.*
        engine.base.hardware.StorageModel.in_flight_needed.bytes engine.base.hardware.Device.between_nodes.links
        engine.loading.jpegs.clouds.* engine.base.timing.rounds.least
        engine.loading.reads.measure_reads.* engine.memory.recompute.segments.count engine.loading.shards.shard_share.*
        engine.planner.model_specs.TransformerSpec.kv_heads engine.workers.worker_sweep.sweep_rows.repeats
        lab.tensor_costs.TensorParallelCost.* lab.tensor_costs.fit_device.* lab.tensor_timing.block_seconds.*
        engine.train.transformer.*.kv_heads models.ResNet.in_channels engine.dist.fsdp.fsdp.shard_size
        engine.dist.zero.Sharded.shard_size sharding.wire_bytes.shard_size
        storage.sweep_*.* storage.ShardDataset.world_size
        engine.train.history.phase_medians.skip lab.watched_epoch.*
        engine.parallel.parallelize.parallelize.*
        engine.workers.worker_curve.fit_curve.cores engine.report.compare.run_alternately.repeats report.verify.repeats
        engine.cost.figure_kinds.figures_table.digits lab.few_labels.DigitSplit.few.n
        lab.few_labels.trained_on_all.steps lab.few_labels.trained_on_all.batch_size
        lab.published_speedups.GpuPair.devices
        engine.report.tables.slowest_steps.count engine.report.waterfall.waterfall.rank
        lab.search_race.race.trials
        engine.tuning.search_space.whole.*
        engine.launch.supervisor.supervise.* engine.record.tracker_writers.to_[tw]*.every
    """.split()),
]


def why_not_called(target, number): return why_at(f"{target.name}.{number.name}")


@cache
def why_at(place): return next((why for pattern, why in UNCALLED if fnmatch(place, pattern)), None)


def whole_numbers(target):
    "Those of its numbers that are tried as numpy's and torch's integers."
    return [n for n in target.numbers if n.kind is int and not n.many and len(taken(target, n)) < 6 and list(others(n))]


WHOLE = [(t, n) for t in targets() for n in whole_numbers(t)]


@pytest.mark.parametrize("target, number", [(t, n) for t, n in WHOLE if not why_not_called(t, n)],
                         ids=lambda value: getattr(value, "name", ""))
def test_integers_of_numpy_and_torch_are_numbers(target, number, objects, capfd):
    def called(value): return call(target, objects, {number.name: value}, 60)
    plain, again = called(valid_number(number)), called(valid_number(number))
    comparable = isinstance(plain, (int, float, str)) or dataclasses.is_dataclass(plain)
    for value in others(number):
        found = called(value)
        if comparable and repr(plain) == repr(again):  # what is measured differs
            assert repr(found) == repr(plain), f"{number.name}={value!r}"


@pytest.mark.parametrize("target, number", [(t, n) for t, n in WHOLE if why_not_called(t, n) in (STARTS, FITS)],
                         ids=lambda value: getattr(value, "name", ""))
def test_what_is_not_called_cannot_be(target, number, objects, capfd):
    "The list holds nothing that the test above could call."
    with pytest.raises((Exception, TooLong)):
        call(target, objects, {number.name: valid_number(number)}, 60)


def test_the_list_holds_what_there_is():
    places = [f"{t.name}.{n.name}" for t, n in WHOLE]
    unknown = [pattern for pattern, _ in UNCALLED if not any(fnmatch(place, pattern) for place in places)]
    assert not unknown, f"no number in the package: {unknown}"

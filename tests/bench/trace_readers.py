"""One reader on one trace, in a process of its own: python trace_readers.py READER FILE prints what it says as JSON.

The clock starts when the reader and pandas are imported; the peak of memory includes the import.
"""
import json
import logging
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]


def ours(path):
    import pandas  # noqa: F401  the peers import it with themselves, before the clock starts

    from mlinfra.engine.trace.trace import read
    start = time.perf_counter()
    trace = read(path)
    steps, said = trace.steps, [trace.summary, *(str(one) for one in trace.advice)]
    seconds = time.perf_counter() - start
    spent = {name: float((steps[name] * steps["seconds"]).sum()) for name in (
        "gpu_busy", "communication", "communication_exposed")}
    sends = spent["communication"]
    return dict(seconds=seconds, busy=spent["gpu_busy"] / steps["seconds"].sum(),
                overlap=1 - spent["communication_exposed"] / sends if sends else None, says=" ".join(said))


def hta(path):
    from hta.trace_analysis import TraceAnalysis
    start = time.perf_counter()
    analysis = TraceAnalysis(trace_files={0: path}, include_last_profiler_step=True)
    busy = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    overlap = float(analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])
    idle = analysis.get_idle_time_breakdown(visualize=False)[0]
    spent = idle.groupby("idle_category")["idle_time"].sum()
    said = ", ".join(f"{name} {share:.0%}" for name, share in (spent / max(spent.sum(), 1)).items())
    return dict(seconds=time.perf_counter() - start, busy=1 - float(busy["idle_time_pctg"]) / 100,
                overlap=None if overlap != overlap else overlap / 100, says=f"idle time of the streams: {said}")


def tensorboard(path):
    from torch_tb_profiler.profiler.data import RunProfileData
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache: found = RunProfileData.parse("worker", None, path, cache)
    seconds = time.perf_counter() - start
    kernel, copies, sets, sends, *_, total = found.avg_costs.costs
    over = sum(one.overlap for one in found.comm_overlap_costs or ())
    sent = sum(one.communication for one in found.comm_overlap_costs or ())
    return dict(seconds=seconds, busy=(kernel + copies + sets + sends) / total, overlap=over / sent if sent else None,
                says=" ".join(re.sub("<[^>]*>", "", words) for words in found.recommendations))


READERS = {"mlinfra": ours, "HolisticTraceAnalysis": hta, "torch-tb-profiler": tensorboard}


def main(reader, path):
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    found = READERS[reader](path)
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())  # a maxrss would be the parent's
    print(json.dumps(found | dict(peak_mib=int(peak[1]) / 1024)))


if __name__ == "__main__": main(*sys.argv[1:])

"""Runs the tests and notebooks of one pytest session in several forked processes, the longest first.

The session collects everything once and then forks: a file of tests, a notebook or all that share a browser is a unit,
and has a process of its own until it is done, so nothing that one unit leaves behind reaches the next. Many units wait
(for a kernel, a rank, a browser), so more of them run than there are cores: a unit starts when those that run load less
than the cores, by the seconds and processor seconds in durations.json, which each run measures anew (see
CONTRIBUTING.md). Near the end idle processes take over the second half of a long unit. A test marked `alone` runs when
nothing else does.

A test that fails beside others is tried once more, alone, if at most three failed and second_tries.txt does not hold
it; one that passes then is written into that file, so the next run that needs a second try for it fails.
"""
import contextlib
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import SimpleNamespace
from weakref import finalize

import psutil
import pytest
from _pytest.runner import CallInfo

HERE = Path(__file__).parent
DURATIONS, SECOND_TRIES = HERE / "durations.json", HERE / "second_tries.txt"
MEASURED = HERE.parent / "test-output" / "durations.json"
UNKNOWN = (0.02, 0.02)  # seconds and processor seconds of a test that is not in the file
KEPT_SECONDS = 0.5      # shorter ones are not written into it
LONGEST_SECONDS = 900   # a test that takes longer is killed
LEAVE_SECONDS = 60      # the same of a process whose tests are done
TRIES = 3               # this many tests get a second try


@dataclass(eq=False)
class Unit:
    "Tests that share a process, in order."
    name: str
    tests: deque
    alone: bool = False
    together: bool = False  # is never divided

    def seconds(self, known) -> float: return sum(known(test)[0] for test in self.tests)

    def load(self, known) -> float:
        "How many cores it keeps busy."
        seconds, cpu = map(sum, zip(*(known(test) for test in self.tests)))
        return min(1.0, cpu / seconds)


@dataclass
class Warned:
    "A warning as it travels to the first process."
    category: str
    text: str
    file: str
    line: int
    when: str
    nodeid: str


@dataclass(eq=False)
class Worker:
    "A forked process and what it does."
    pid: int
    channel: Connection
    unit: Unit
    load: float
    running: object = None   # the test that runs
    since: float = 0.0
    ended: bool = False      # it said that it is done
    killed: bool = False     # it took too long
    reports: list = field(default_factory=list)  # of the test that runs


def units_of(items, place) -> list[Unit]:
    "The units of these tests; `place` names the unit of a test."
    found: dict = {}
    for item in items:
        alone = item.get_closest_marker("alone") is not None
        name, together = place(item)
        unit = found.setdefault((name, alone), Unit(name, deque(), alone, together))
        unit.tests.append(item)
    return list(found.values())


class SideBySide:
    "The plugin; registered where --processes asks for more than one."
    def __init__(self, config, processes, cores, place, spent_elsewhere=lambda: 0.0,
                 begins=lambda unit: None):
        self.config, self.processes, self.cores, self.place = config, processes, cores, place
        self.spent_elsewhere = spent_elsewhere  # processor seconds of processes that a test did not start itself
        self.begins = begins  # called in the process of a unit, with its name
        known = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
        self.known = lambda item: known.get(item.nodeid, UNKNOWN)
        self.measured, self.again, self.passed_again = {}, [], []
        lines = SECOND_TRIES.read_text().splitlines() if SECOND_TRIES.exists() else []
        self.needed_before = {line for line in lines if line[:1] != "#"}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if session.config.option.collectonly or not session.items: return None
        if session.testsfailed and not session.config.option.continue_on_collection_errors: return None
        if threading.active_count() > 1: print(f"warning: forks lose these threads: {threading.enumerate()}")
        self.session, self.workers = session, []
        self.numbers = {item: number for number, item in enumerate(session.items)} | {None: None}
        units = sorted(units_of(session.items, self.place), key=lambda unit: -unit.seconds(self.known))
        self.queue, self.last = deque(u for u in units if not u.alone), deque(u for u in units if u.alone)
        try:
            while self.queue or self.last or self.workers or self.again:
                self.start()
                self.listen()
                if session.shouldfail: raise session.Failed(session.shouldfail)
                if session.shouldstop: raise session.Interrupted(session.shouldstop)
        finally:
            self.end_workers()
        self.write_durations()
        return True

    # ---- who runs

    def start(self):
        "Start what there is room for."
        while self.queue and self.room():
            self.fork(self.queue.popleft())
        while not self.queue and self.workers and self.room() and (half := self.divided()): self.fork(half)
        if self.workers or self.queue: return
        if self.last: return self.fork(self.last.popleft())
        if self.again:
            again, self.again = self.again, []
            if len(again) > TRIES:
                for item, reports in again: self.tell(item, reports)
            else:
                self.tried = {item.nodeid: reports for item, reports in again}
                self.last.extend(Unit(item.nodeid, deque([item]), alone=True) for item, _ in again)

    def room(self) -> bool:
        if len(self.workers) >= self.processes: return False
        if any(worker.unit.alone for worker in self.workers): return False
        return sum(worker.load for worker in self.workers) < self.cores - 0.3

    def divided(self) -> Unit | None:
        "The second half of what the longest unit still has to do, if that is worth a process."
        able = [w.unit for w in self.workers if len(w.unit.tests) >= 4 and not w.unit.together and not w.ended]
        unit = max(able, key=lambda unit: unit.seconds(self.known), default=None)
        if unit is None or unit.seconds(self.known) < 6: return None
        half, total, taken = unit.seconds(self.known) / 2, 0.0, deque()
        while len(unit.tests) > 2 and total < half:
            taken.appendleft(unit.tests.pop())
            total += self.known(taken[0])[0]
        return Unit(unit.name, taken)

    def fork(self, unit):
        "Start a process for this unit."
        here, there = Pipe()
        sys.stdout.flush(), sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python 3.12, for threads of OpenBLAS, which knows forks
            pid = os.fork()
        if pid == 0:
            here.close()
            for worker in self.workers: worker.channel.close()
            self.begins(unit.name)
            run_unit(self.session, there, self.spent_elsewhere)
        there.close()
        worker = Worker(pid, here, unit, unit.load(self.known))
        self.workers.append(worker)
        self.next_test(worker)

    def next_test(self, worker):
        "Tell a worker which test comes now and which after it, or that there is none."
        tests = worker.unit.tests
        worker.running, worker.since, worker.reports = tests.popleft() if tests else None, time.monotonic(), []
        following = tests[0] if tests else None
        try: worker.channel.send((self.numbers[worker.running], self.numbers[following]))
        except OSError: pass  # it died, which `listen` finds out

    # ---- what they say

    def listen(self):
        "Hear what workers say, and find those that ended."
        ending = any(worker.ended for worker in self.workers)
        for channel in wait([w.channel for w in self.workers if not w.ended], 0.02 if ending else 0.5):
            worker = next(w for w in self.workers if w.channel is channel)
            try: self.hear(worker, pickle.loads(worker.channel.recv_bytes()))
            except (EOFError, OSError): worker.ended = True
        for worker in list(self.workers):
            if time.monotonic() - worker.since > (LEAVE_SECONDS if worker.ended else LONGEST_SECONDS): self.kill(worker)
            pid, status, _ = os.wait4(worker.pid, os.WNOHANG)
            if pid: self.buried(worker, status)

    def kill(self, worker):
        if not worker.killed:
            what = worker.running.nodeid if worker.running else f"a process that was done with {worker.unit.name}"
            print(f"\nkilled after {time.monotonic() - worker.since:.0f} s: {what}", flush=True)
        worker.killed = True
        os.kill(worker.pid, signal.SIGKILL)

    def hear(self, worker, said):
        if isinstance(said, dict): worker.reports.append(said)  # of a phase of the test
        elif isinstance(said, Warned): self.warn(said)
        elif isinstance(said, tuple):                           # what the whole test took
            self.measured[worker.running.nodeid] = said
            self.finish(worker)
            self.next_test(worker)
        else: worker.ended, worker.since = True, time.monotonic()

    def warn(self, said):
        "Tell pytest of a warning, for its summary."
        category = type(said.category, (Warning,), {})
        message = warnings.WarningMessage(category(said.text), category, said.file, said.line)
        self.config.hook.pytest_warning_recorded.call_historic(kwargs=dict(
            warning_message=message, when=said.when, nodeid=said.nodeid, location=None))

    def buried(self, worker, status):
        "A process is gone; if it was not done its test failed."
        while worker.channel.poll(0):
            try: self.hear(worker, pickle.loads(worker.channel.recv_bytes()))
            except (EOFError, OSError): break
        self.workers.remove(worker)
        worker.channel.close()
        if worker.running is not None:
            code = os.waitstatus_to_exitcode(status)
            why = f"the process of this test ended with {signal.Signals(-code).name if code < 0 else code}"
            if worker.killed: why += f": it took longer than {LONGEST_SECONDS} s"
            failed = SimpleNamespace(when="call", error=why)
            worker.reports.append(self.report(worker.running, failed))
            self.finish(worker)
            if worker.unit.tests: self.queue.appendleft(worker.unit)

    def report(self, item, failed):
        def fail(): pytest.fail(failed.error, pytrace=False)
        made = pytest.TestReport.from_item_and_call(item, CallInfo.from_call(fail, failed.when))
        return self.config.hook.pytest_report_to_serializable(config=self.config, report=made)

    def finish(self, worker):
        "A test is done: it counts, or is tried once more."
        item, reports, worker.running = worker.running, worker.reports, None
        failed = any(report["outcome"] == "failed" for report in reports)
        if (before := getattr(self, "tried", {}).get(item.nodeid)) is not None:
            if not failed: self.passed_again.append((item.nodeid, before))
            return self.tell(item, reports)
        no_more = worker.unit.alone or worker.killed or item.nodeid in self.needed_before or self.config.option.maxfail
        if failed: self.say(f"failed: {item.nodeid}{'' if no_more else ' (it may be tried again at the end)'}")
        if failed and not no_more: self.again.append((item, reports))
        else: self.tell(item, reports)

    def say(self, words):
        "A line for whoever watches the run."
        if (reporter := self.config.pluginmanager.getplugin("terminalreporter")) is None: return
        reporter.ensure_newline()
        reporter.write_line(words)

    def tell(self, item, reports):
        "Hand the reports of a test to pytest."
        hook = self.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports: hook.pytest_runtest_logreport(report=self.loaded(data))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def loaded(self, data):
        return self.config.hook.pytest_report_from_serializable(config=self.config, data=data)

    # ---- the end

    def end_workers(self):
        "Interrupt those that run, as Ctrl-C does, and kill them if they do not end."
        for sign, seconds in ((signal.SIGINT, 20), (signal.SIGKILL, 5)):
            for worker in self.workers: os.kill(worker.pid, sign)
            end = time.monotonic() + seconds
            while self.workers and time.monotonic() < end:
                self.workers = [w for w in self.workers if not os.wait4(w.pid, os.WNOHANG)[0]]
                time.sleep(0.02)

    def write_durations(self):
        "What each test took, for the next run; to be committed as tests/durations.json."
        kept = {nodeid: [round(value, 1) for value in taken] for nodeid, taken in sorted(self.measured.items())
                if taken[0] >= KEPT_SECONDS}
        MEASURED.parent.mkdir(exist_ok=True)
        MEASURED.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {v}" for k, v in kept.items()) + "\n}\n")

    def pytest_terminal_summary(self, terminalreporter):
        if not self.passed_again: return
        terminalreporter.section("passed only in a second try, alone")
        with SECOND_TRIES.open("a") as file:
            for nodeid, reports in self.passed_again:
                file.write(f"{nodeid}\n")
                terminalreporter.line(nodeid)
                for data in reports:
                    if data["outcome"] == "failed": terminalreporter.line(self.loaded(data).longreprtext)
        terminalreporter.line("Written into tests/second_tries.txt: commit it, and such a test fails the next time.")


# ---- in the forked process

class Reporter:
    "Hands reports to the process that forked this one."
    def __init__(self, config, channel):
        self.config, self.channel, self.listens = config, channel, False
        config.pluginmanager.register(self)  # pytest tells a new plugin of all warnings until now
        self.listens = True

    def send(self, what):
        if self.listens: self.channel.send_bytes(pickle.dumps(what))

    def pytest_runtest_logreport(self, report):
        self.send(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_warning_recorded(self, warning_message, when, nodeid):
        of = warning_message
        self.send(Warned(of.category.__name__, str(of.message), of.filename, of.lineno, when, nodeid))


class Spent:
    "Processor seconds of this process and all that it started."
    def __init__(self, elsewhere): self.process, self.elsewhere, self.last = psutil.Process(), elsewhere, 0.0

    def since_last(self) -> float:
        now = self.elsewhere() + sum(sum(times[:4]) for times in self.times())
        found, self.last = max(0.0, now - self.last), now
        return found

    def times(self):
        yield os.times()
        for child in self.process.children(recursive=True):
            with contextlib.suppress(psutil.Error): yield child.cpu_times()


def run_unit(session, channel, spent_elsewhere):
    "Run the tests that the channel names, and end the process."
    config, status = session.config, 1
    for old in list(finalize._registry): old.atexit = False  # what the first process made is not removed by this one
    plugins = config.pluginmanager
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are shared with the other processes
    capture.start_global_capturing()
    capture.suspend_global_capture()
    plugins.unregister(name="terminalreporter")
    reporter, spent = Reporter(config, channel), Spent(spent_elsewhere)
    try:
        while (numbers := channel.recv())[0] is not None:
            item, following = (None if number is None else session.items[number] for number in numbers)
            start = time.monotonic()
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds = time.monotonic() - start
            reporter.send((seconds, spent.since_last() if seconds >= KEPT_SECONDS else 0.0))
        session._setupstate.teardown_exact(None)  # where its last tests were taken over by another process
        reporter.send("done")
        status = 0
    except BaseException as error:
        if not isinstance(error, (KeyboardInterrupt, EOFError, OSError)): traceback.print_exc(file=sys.__stderr__)
        try: session._setupstate.teardown_exact(None)
        except BaseException: pass
    finally:
        import atexit
        try:
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush(), sys.stderr.flush()
        finally: os._exit(status)

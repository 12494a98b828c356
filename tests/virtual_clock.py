"""A clock that injected faults move, and nothing else but a microsecond for each reading: no program beside a test
changes what it shows."""
import sys
import threading
import time
from types import SimpleNamespace

import torch.nn.functional as F
import speed_cases

from mlinfra.engine.record import recorder, run_writer, sampler, stack_sampler, watch
from mlinfra.engine.rules import inspection

LOOK, STEP = 0.003, 0.0005  # seconds from one look at the stack to the next, and of a step without its fault


class VirtualClock:
    "In place of the module `time`, in the trainings of speed_cases and in what watches them."
    def __init__(self, patch):
        self.now, self.cpu, self.stacks, self.next_look = 100.0, 0.0, [], 0.0
        self.home = threading.get_ident()
        for module in (speed_cases, watch, run_writer, sampler, stack_sampler, inspection, recorder):
            if hasattr(module, "time"): patch.setattr(module, "time", self)
        patch.setattr(stack_sampler, "sys", SimpleNamespace(_current_frames=lambda: {self.home: self.frame}))
        patch.setattr(stack_sampler, "_waited", lambda path: 0.0)
        patch.setattr(speed_cases, "F", SimpleNamespace(cross_entropy=self.cross_entropy))
        begin = stack_sampler.StackSamples.__init__
        def joined(stacks, *args, **how):
            begin(stacks, *args, **how)
            self.stacks.append(stacks)
        patch.setattr(stack_sampler.StackSamples, "__init__", joined)
        patch.setattr(stack_sampler.StackSamples, "_work", lambda stacks: None)

    def __getattr__(self, name): return getattr(time, name)

    def perf_counter(self):
        if threading.get_ident() == self.home: self.now += 1e-6
        return self.now

    def clock_gettime(self, which): return self.cpu

    def thread_time(self):
        "A loop that waits for this clock computes."
        self.elapse(5e-4, sys._getframe(1))
        self.cpu += 5e-4
        return self.cpu

    def sleep(self, seconds): self.elapse(seconds, sys._getframe(1))

    def elapse(self, seconds, frame):
        "Time passes in this frame, and the stack is looked at now and then."
        end, self.frame = self.now + seconds, frame
        while self.next_look <= end:
            self.now = max(self.now, self.next_look)
            self.next_look = self.now + LOOK
            for stacks in self.stacks:
                if not stacks._over.is_set(): stacks._look()
        self.now = max(self.now, end)

    def cross_entropy(self, *args):
        self.now += STEP
        self.cpu += STEP
        return F.cross_entropy(*args)

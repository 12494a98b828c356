import math
from statistics import median

from mlinfra.debugger import Rule


def dead(output): return float((output == 0).all(0).float().mean())


def every(step_ms, look_ms, share): return max(1, math.ceil(look_ms / (share * step_ms)))


class Spikes(Rule):
    "The loss is more than 3 times the median of the 20 losses before."
    def begin(self, facts):
        super().begin(facts)
        self.losses = []

    def on_step(self, step):
        if len(self.losses) >= 20 and step.loss > 3 * median(self.losses[-20:]): self.found(step, "the loss jumps")
        self.losses.append(step.loss)

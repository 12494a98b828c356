import math

from mlinfra.debugger import Rule


def dead(output): return float((output == 0).all(0).float().mean())


def every(step_ms, look_ms, share): return max(1, math.ceil(look_ms / (share * step_ms)))


class LearnsInEvalMode(Rule):
    "The model learns in eval mode, three passes in a row."
    def begin(self, facts):
        super().begin(facts)
        self.times = 0

    def on_forward(self, look):
        if not look.learns: return
        self.times = 0 if look.training else self.times + 1
        if self.times == 3: self.found(look.step, "the model learns in eval mode")

import copy

from mlinfra.engine.serve.request_queue import mean_wait
from mlinfra.training import evaluate


def batch_for(fixed, slope, share):
    batch = 1
    while batch * slope < share * (fixed + slope * batch): batch += 1
    return batch


def queue_waits(due, service):
    waits, free = [], 0.0
    for time in due:
        waits.append(max(0.0, free - time))
        free = max(free, time) + service
    return waits


def servers_needed(rate, service, bound):
    servers = 1
    while mean_wait(rate / servers, service) > bound: servers += 1
    return servers


class Guarded:
    def __init__(self, learner, trusted): self.learner, self.trusted = learner, trusted

    @property
    def model(self): return self.learner.model

    def learn(self, images, labels):
        kept, before = copy.deepcopy(self.model.state_dict()), evaluate(self.model, self.trusted)
        self.learner.learn(images, labels)
        if evaluate(self.model, self.trusted) < before - 0.05: self.model.load_state_dict(kept)

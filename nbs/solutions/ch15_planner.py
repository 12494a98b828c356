from mlinfra.planner import TransformerSpec, cluster, recommend


def bubble_share(stages, micro_batches, chunks):
    lost = (stages - 1) / chunks
    return lost / (micro_batches + lost)


def least_devices(parameters, memory, stage):
    weights, grads, optimizer = 2 * parameters, 2 * parameters, 12 * parameters
    shares = [(weights, 3), (grads, 2), (optimizer, 1)]
    if sum(size for size, first in shares if stage < first) >= memory: return None
    devices = 1
    while sum(size / devices if stage >= first else size for size, first in shares) > memory: devices *= 2
    return devices


def message_ratio(hidden, tensor, flops_per_s, bytes_per_s):
    messages = 4 * 2 * (tensor - 1) / tensor * 2 * hidden / bytes_per_s
    products = 6 * 12 * hidden**2 / tensor / flops_per_s
    return messages / products


def plan_34b(seconds):
    job = TransformerSpec(name="34B", layers=60, hidden=7168, heads=56, kv_heads=8, feed_forward=20_480, gated=True,
                          tied=False, dropout=False, fused_attention=True, vocabulary=64_000, sequence_length=4096,
                          global_batch=1024)
    for nodes in (1, 2, 4, 8, 16, 32):
        best = recommend(job, cluster("H100 80 GB", num_nodes=nodes)).best
        if best and best.seconds <= seconds: return best
    return None

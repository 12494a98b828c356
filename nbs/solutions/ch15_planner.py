from dataclasses import replace

from mlinfra.planner import TransformerSpec, cluster, recommend


def waits(message, backward, micro_batches, sharding_stage):
    gradients = micro_batches if sharding_stage == 2 else 1
    return gradients * max(message - backward, 0)


def plans_to_time(plans, memory_gb):
    may_run = plans[plans.gb <= 0.9 * memory_gb]
    ordered = may_run.sort_values(["tensor", "pipeline", "zero", "micro_batch"], ascending=[True, True, False, True])
    first_is_near = (ordered.gb.head(1) > 0.8 * memory_gb).any()
    return list(ordered.plan.head(4 if first_is_near else 3))


def plan_34b(seconds):
    job = TransformerSpec(name="34B", layers=60, hidden=7168, heads=56, kv_heads=8, feed_forward=20_480, gated=True,
                          tied=False, dropout=False, fused_attention=True, vocabulary=64_000, sequence_length=4096,
                          global_batch=1024)
    for nodes in (1, 2, 4, 8, 16, 32):
        machines = replace(cluster("H100 80 GB", num_nodes=nodes), memory_factor=1.4)
        plans = recommend(job, machines).shortlist
        if any(one.seconds <= seconds for one in plans): return plans
    return None

"Figures for each sentence that lesson 16 may conclude with."

TOLD = dict(same="equal in all six decimals", gap=0.0, hand_gap=0.01, rank_gap=0.0002, order_gap=0.02)
SLIP = dict(slip_gap=0.45, large_gap=0.46, faster_gap=0.01, order_gap=0.02)

CASES = {
    "la16f001": [
        (TOLD, "reach the plain script's loss: equal in all six decimals. By hand the loss is 1.0% off, and other"),
        (TOLD | dict(rank_gap=0.01), "By hand the loss is 1.0% off, and on one rank it differs by 1.00% from that."),
        (TOLD | dict(gap=0.02), "end 2.0e-02 from the plain script's loss"),
    ],
    "la16f003": [
        (SLIP, "ends 1.0% from the plain script, within the 2.0% of the other orders. So"),
        (SLIP | dict(faster_gap=0.2), "128 changes it by +46%, and with the learning rate doubled by +20.0%"),
        (SLIP | dict(large_gap=0.1), "a batch of 128 changes it by +10%"),
        (SLIP | dict(slip_gap=0.03), "the loss changes by +3.0%, and other orders change it by up to 2.0%"),
    ],
    "la16f002": [
        (dict(started_ranks=4), "Four and not three"),
        (dict(started_ranks=3), "rank 1 failed before rank 0 had come so far"),
        (dict(started_ranks=2), "2 were started"),
    ],
}

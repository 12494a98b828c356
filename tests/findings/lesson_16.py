"Figures for each sentence that lesson 16 may conclude with."

TOLD = dict(same="equal in all six decimals", by_hand="By hand the loss is 0.6% off.", slipped="64 left: 45% too high.",
            gap=0.0, hand_gap=0.01, rank_gap=0.0002, order_gap=0.02, slip_gap=0.45)

CASES = {
    "la16f001": [
        (TOLD, "reach the plain script's loss: equal in all six decimals. By hand the loss is 0.6% off. 64 left"),
        (TOLD | dict(rank_gap=0.01), "By hand the loss is 1.0% off, and on one rank it differs by 1.00% from that."),
        (TOLD | dict(gap=0.02), "end 2.0e-02 from the plain script's loss"),
        (TOLD | dict(slip_gap=0.03), "the slip is 3% off, where other orders are up to 2.0% off"),
    ],
    "la16f002": [
        (dict(started_ranks=4), "Four and not three"),
        (dict(started_ranks=3), "rank 1 failed before rank 0 had come so far"),
        (dict(started_ranks=2), "2 were started"),
    ],
}

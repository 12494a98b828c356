"Figures for each sentence that lesson 04 may conclude with."
import pandas as pd

POOLS = dict(pools=pd.Series([2.4, 0.5]), counted=pd.Series([2.5, 5.6]), all_f=5.0, all_b=6.2, said="")
POOLED = "2.4 ms forward and 0.5 backward"
BATCH = dict(extra=40.0, for_pages=30.0, best=256, last=1024, few=0.0, many=60_248.0, said="", gained="Little left. ")
BUDGETS = dict(errors=pd.Series({4: 0.10, 1024: 0.42}), by_steps="256 (10.9%) and 1,024 (10.5%) tie", said="Bars. ",
               timed="At equal seconds 64 makes the fewest errors, 13.1%.")

CASES = {
    "f4b00003": [
        (POOLS | dict(share=49.0, pooled=POOLED), "0.5 backward, and 49% of the step"),
        (POOLS | dict(share=64.0, pooled=POOLED, pools=pd.Series([0.2, 0.1])), "take 2.5 ms forward and 0.6 backward"),
    ],
    "f4b00005": [
        (dict(gain=1.8, device="", rest=11.7, said=""), "the other phases still take 11.7 ms"),
        (dict(gain=1.04, device="", rest=11.7, said=""), "only 1.04 times as fast here"),
    ],
    "f4b00009": [
        (BATCH | dict(most=1.05, slower=0.69), "pages by themselves takes 30 ms"),
        (BATCH | dict(most=1.05, slower=0.69, many=0.0), "new pages of memory are not the reason"),
        (BATCH | dict(most=1.17, slower=1.08), "from the operating system, and still trains 1.08"),
        (BATCH | dict(most=1.17, slower=1.08, many=0.0), "Little left"),
        (BATCH | dict(most=1.8, slower=1.2), "trains 1.8 times as many images a second as 64"),
    ],
    "f4b0000d": [
        (BUDGETS | dict(fixed=pd.Series({4: 0.3, 1024: 0.1})), "the order turns: 256 (10.9%) and 1,024 (10.5%) tie"),
        (BUDGETS | dict(fixed=pd.Series({4: 0.1, 1024: 0.1})), "small batches are no worse"),
    ],
    "gpu04002": [
        (dict(one_ms=19.0, most_ms=23.2, clock_sum=19.7, event_sum=19.6, said=""), "single picture takes 19 ms"),
        (dict(one_ms=5.0, most_ms=23.2, clock_sum=10.0, event_sum=24.0, said=""), "10.0 ms by the clock and 24.0 by"),
    ],
    "gpu04005": [
        (dict(once_ms=0.5, spread=3.6, copies="", said=""), "adds 0.5 ms, nothing that we can measure"),
        (dict(once_ms=4.2, spread=3.6, copies="", said=""), "adds 4.2 ms, because the GPU has nothing to do"),
    ],
    "f4b00012": [
        (dict(memory_parts=[1.0, 96.0, 3.0], fed_parts=[49.0, 49.0, 2.0], said="", batch=""), "most 49% in the second"),
        (dict(memory_parts=[1.0, 96.0, 3.0], fed_parts=[2.0, 95.0, 3.0], said="", batch=""), "can gain most in both"),
    ],
}

"Figures that choose each sentence of lesson 07's conclusions."
S = dict(said="")
CASES = {
    "st070001": [(dict(S, inside=101.5), "take the rest"), (dict(S, inside=131), "did not look into why")],
    "st070005": [(dict(S, crowd_rate=980, crowd_ms=48.4), "48.4 ms = 47.4"),
                 (dict(S, crowd_rate=600, crowd_ms=83), "too late")],
    "st070007": [
        (dict(dropped=0.9, times=1.0, half="4.00 KiB"), "does not forget"),
        (dict(dropped=0.0, times=20.0, half="64.00 KiB"), "at 64.00 KiB they reach half"),
        (dict(dropped=0.0, times=1.3, half="4.00 KiB"), "only 1.3 times as fast"),
    ],
    "st070009": [
        (dict(S, usual=0.0, told=0.0, unit=""), "does not count"),
        (dict(S, usual=33_554.0, told=24.0, unit=""), "it fetches 24: whole pages"),
        (dict(S, usual=24.0, told=24.0, unit=""), "hardly any read-ahead"),
    ],
    "st070014": [
        (dict(S, rest="", apart=0, inside=True), "The bounds agree"),
        (dict(S, rest="", apart=3, inside=True), "In the 3 rows where the bounds differ"),
        (dict(S, rest="", apart=3, inside=False), "Not every step lies between"),
    ],
    "st070015": [
        (dict(S, copy_wait=0.3, copy_step=10.4), "waits for 0.3 of 10.4 ms: a faster"),
        (dict(S, copy_wait=4.0, copy_step=14.0), "what is left is decoding"),
    ],
    "st070016": [
        (dict(icon_times=9.7, photo_times=2.9, icon_ms=0.3, photo_ms=0.4), "9.7 times as fast for icons"),
        (dict(icon_times=1.1, photo_times=1.0, icon_ms=0.1, photo_ms=0.2), "costs little beside its bytes"),
    ],
    "st070020": [
        (dict(S, gb=2.4, real="."), "1.25 of the 2.4 GB/s"), (dict(S, gb=1.0, real="."), "that is enough for 1.0"),
    ],
    "st070022": [
        (dict(saved=80.0, copying=113.0, epochs=1.41), "pays after 1.4 epochs"),
        (dict(saved=0.0, copying=113.0, epochs=0.0), "a copy saves no time, only the money"),
    ],
    "st070025": [
        (dict(S, slow_ms=5.8, step_ms=54.7), "a small part of this step"),
        (dict(S, slow_ms=20.0, step_ms=54.7), "pin it"),
    ],
}

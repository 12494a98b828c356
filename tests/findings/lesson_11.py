"Figures on each side of the conditions of lesson 11's conclusions."
_SPEED = dict(said="Two ranks average. ")
_BUCKETS = dict(said="So 41 ms are calls", gain=0.8, fewer=16.0, more=57.0)
_CABLE = dict(said="Less waiting. ", no_cable="", wait_before=70.0, wait_after=12.0, send_ms=69.7,
              calls_ms=6.4, number=8, last_ms=10.7, last_mb=1.34, step_before=250.0, step_after=200.0)

CASES = {
    "c1100006": [(dict(cores=1, side=1.0), "This machine has one core"),
                 (dict(cores=2, side=2.4), "something slowed the single run"),
                 (dict(cores=2, side=2.01), "train 2.01 times as many images"),
                 (dict(cores=2, side=1.2), "train only 1.20 times")],
    "c1100008": [(_SPEED | dict(gain=0.34), "makes this training slower"),
                 (_SPEED | dict(gain=1.4), "70% of two devices")],
    "c110000d": [(_BUCKETS | dict(fewer=-20.0), "which is impossible"),
                 (_BUCKETS | dict(fewer=50.0), "fewer calls help little"),
                 (_BUCKETS, "still slower"),
                 (_BUCKETS | dict(gain=1.4), "70% of two devices")],
    "l1100004": [(_CABLE | dict(no_cable="one must be root"), "one must be root"),
                 (_CABLE | dict(wait_after=60.0), "hides little"),
                 (_CABLE | dict(step_after=260.0), "costs more than overlap hides"),
                 (_CABLE | dict(wait_before=174.0), "Run the cell again"),
                 (_CABLE, "its 1.3 MB alone take 11 ms")],
}

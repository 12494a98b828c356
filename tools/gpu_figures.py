"""Measure on this machine's GPU what lessons say of one: `python tools/gpu_figures.py --out FILE [NAME ...]`."""
import argparse
from pathlib import Path

from mlinfra.engine.base.checks import one_of
from mlinfra.lab.gpu_figures import MEASUREMENTS, write_gpu_figures


FIGURES = Path(__file__).parents[1] / "mlinfra/lab/gpu_figures.json"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; all if none is named")
    options.add_argument("--out", type=Path, default=FIGURES, help="what it holds stays")
    chosen = options.parse_args()
    for name in chosen.names: one_of("NAME", name, MEASUREMENTS)
    return 1 if write_gpu_figures(chosen.out, chosen.names or list(MEASUREMENTS)) else 0


if __name__ == "__main__": raise SystemExit(main())

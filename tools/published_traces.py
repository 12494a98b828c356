"""Writes mlinfra/lab/published_traces.json anew: python tools/published_traces.py FOLDER

FOLDER holds the published traces under the names of `ORIGINS`, each with the ending .json.gz.
"""
import json
import sys
from pathlib import Path

from mlinfra.lab.published_traces import ORIGINS, trace_figures

FIGURES = Path(__file__).parents[1] / "mlinfra/lab/published_traces.json"


def text(figures):
    "One line for each table, so that a change of one figure is a small difference."
    def line(key, value): return f"  {json.dumps(key)}: {json.dumps(value, separators=(',', ':'), ensure_ascii=False)}"
    return "{\n" + ",\n".join(
        f" {json.dumps(name)}: {{\n" + ",\n".join(line(*pair) for pair in own.items()) + "\n }"
        for name, own in figures.items()) + "\n}\n"


def main(folder):
    figures = {name: trace_figures(Path(folder) / f"{name}.json.gz") for name in ORIGINS}
    FIGURES.write_text(text(figures), encoding="utf-8")
    print(f"{FIGURES}: {FIGURES.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__": main(*sys.argv[1:])

"""Before every measurement that is revealed, the reader is asked for a prediction."""
import json
import re
from pathlib import Path

import pytest

NBS = Path(__file__).parents[1] / "nbs"
LESSONS = [path for path in sorted(NBS.glob("[0-9][0-9]_*.ipynb")) if path.name[:2] not in ("98", "99")]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_each_reveal_follows_its_question(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    source = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    asked = {m[1]: m.start() for m in re.finditer(r'predict\(\s*"([\w.]+)"', source)}
    revealed = {m[1]: m.start() for m in re.finditer(r'reveal\(\s*"([\w.]+)"', source)}
    assert asked and asked.keys() == revealed.keys()
    assert all(asked[key] < revealed[key] for key in asked)

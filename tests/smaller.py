"""What a lesson does fewer times in `make test` than for a reader, as smaller.toml says."""
from pathlib import Path

try: import tomllib
except ImportError: import tomli as tomllib  # Python 3.10

PLACE = Path(__file__).with_suffix(".toml")
SMALLER = tomllib.loads(PLACE.read_text(encoding="utf-8"))  # notebook -> what it says -> what runs instead


def make_smaller(book, name):
    "Put what smaller.toml says of the notebook `name` into its code; each of its texts stands there once."
    for written, smaller in SMALLER.get(name, {}).items():
        holding = [cell for cell in book.cells if cell.cell_type == "code" and written in cell.source]
        found = sum(cell.source.count(written) for cell in holding)
        assert found == 1, f"{PLACE.name}: {written!r} stands {found} times in {name}, not once"
        holding[0].source = holding[0].source.replace(written, smaller)

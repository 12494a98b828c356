"""The runner of `make test`: what it must never lose."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CONFTEST = """
from pathlib import Path
import pytest, side_by_side
HERE = Path(__file__).parent
side_by_side.DURATIONS, side_by_side.SECOND_TRIES = HERE / "durations.json", HERE / "second_tries.txt"
side_by_side.MEASURED = HERE / "measured" / "durations.json"
def pytest_configure(config):
    config.addinivalue_line("markers", "alone: runs while nothing else does")
    place = lambda item: (str(item.path), False)
    config.pluginmanager.register(side_by_side.SideBySide(config, 3, 2, place))
"""


@pytest.fixture
def run(tmp_path):
    "Run tests with these sources in three processes: (exit status, what was said)."
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run_(*sources, options=()):
        for number, source in enumerate(sources): (tmp_path / f"test_{number}.py").write_text(source)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        env = dict(PYTHONPATH=str(TESTS), PATH="", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run_


def test_every_kind_of_outcome_arrives(run):
    code, said = run("""
import pytest, warnings
def test_passes(capfd): print("heard"); assert capfd.readouterr().out == "heard\\n"
def test_warns(): warnings.warn("look here")
@pytest.mark.skip(reason="elsewhere")
def test_is_skipped(): pass
@pytest.mark.xfail
def test_is_expected_to_fail(): assert 0
""", "def test_fails():\n print('printed before')\n assert [1, 2] == [1, 3]\n", """
import pytest
@pytest.fixture
def broken():
    yield
    raise OSError("the disk is full")
def test_whose_fixture_breaks(broken): pass
""", options=["-rA"])
    assert code == 1 and "1 failed, 3 passed, 1 skipped, 1 xfailed, 1 warning, 1 error" in said
    for words in ("At index 1 diff: 2 != 3", "printed before", "the disk is full", "look here", "elsewhere"):
        assert words in said, said


def test_a_process_that_dies_fails_its_test_and_no_other(run):
    code, said = run("""
import os, signal
def test_before(): pass
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_after(): pass
def test_leaves(): os._exit(0)
def test_last(): pass
""")
    assert code == 1 and "2 failed, 3 passed" in said
    assert "ended with SIGKILL" in said and "ended with 0" in said


UNSTEADY = """
from pathlib import Path
def test_unsteady():
    flag = Path(__file__).with_name("flag")
    if not flag.exists():
        flag.touch()
        assert 0, "the first time"
"""


def test_a_second_try_is_told_once_and_fails_the_next_time(run, tmp_path):
    code, said = run(UNSTEADY, "def test_steady(): pass")
    assert code == 0 and "passed only in a second try" in said and "the first time" in said and "2 passed" in said
    assert (tmp_path / "second_tries.txt").read_text() == "test_0.py::test_unsteady\n"
    (tmp_path / "flag").unlink()
    code, said = run(UNSTEADY, "def test_steady(): pass")
    assert code == 1 and "1 failed, 1 passed" in said


def test_what_fails_twice_or_among_many_fails(run, tmp_path):
    code, said = run("def test_wrong(): assert 0", "def test_right(): pass")
    assert code == 1 and "1 failed, 1 passed" in said
    code, said = run(*(UNSTEADY.replace("flag", f"flag{n}") for n in range(4)))
    assert code == 1 and "4 failed" in said and not (tmp_path / "second_tries.txt").exists()


def test_one_that_is_alone_has_nothing_beside_it(run, tmp_path):
    (tmp_path / "durations.json").write_text(json.dumps({f"test_{n}.py::test_busy": [1, 0.1] for n in range(2)}))
    waits = """
import time
from pathlib import Path
HERE = Path(__file__).parent
def seen(pattern):
    until = time.monotonic() + 60  # a limit for a broken runner, no measurement
    while not list(HERE.glob(pattern)) and time.monotonic() < until: time.sleep(0.01)
    return list(HERE.glob(pattern))
"""
    busy = waits + """
def test_busy():
    mark = Path(__file__).with_suffix(".busy")
    mark.touch()
    assert seen("beside")
    mark.unlink()
"""
    code, said = run(busy, busy, waits + """
import pytest
@pytest.mark.alone
def test_alone(): assert not list(HERE.glob("*.busy"))
def test_beside():
    assert seen("*.busy")
    (HERE / "beside").touch()
""")
    assert code == 0, said


def test_idle_processes_take_over_a_half_with_the_fixtures_of_its_file(run, tmp_path):
    (tmp_path / "durations.json").write_text(json.dumps({f"test_0.py::test_n[{n}]": [5, 1] for n in range(8)}))
    code, said = run("""
import os, time, pytest
from pathlib import Path
@pytest.fixture(scope="module")
def place():
    made = Path(__file__).with_suffix(f".{os.getpid()}")
    made.touch()
    yield made
    made.rename(f"{made}-ended")
@pytest.mark.parametrize("n", range(8))
def test_n(place, n): time.sleep(0.1); assert place.exists()
""")
    assert code == 0 and "8 passed" in said
    assert len(list(tmp_path.glob("test_0.*-ended"))) > 1, "each process ends its fixture"


def test_durations_are_measured(run, tmp_path):
    run("import time\ndef test_slow(): time.sleep(0.6)\ndef test_quick(): pass")
    (name, (seconds, cpu)), = json.loads((tmp_path / "measured" / "durations.json").read_text()).items()
    assert name == "test_0.py::test_slow" and seconds >= 0.6 > cpu


@pytest.mark.parametrize("options, words", [(["-x"], "stopping after 1 failures"), (["--collect-only"], "1 test coll")])
def test_pytest_s_own_options_hold(run, options, words):
    assert words in run("def test_wrong(): assert 0", options=options)[1]


def test_ctrl_c_ends_fixtures_and_processes(run, tmp_path):
    code, said = run("""
import os, signal, time, pytest
from pathlib import Path
@pytest.fixture
def place():
    yield
    Path(__file__).with_name("ended").touch()
def test_interrupts(place):
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(30)
""")
    assert code == 2 and "KeyboardInterrupt" in said and (tmp_path / "ended").exists()

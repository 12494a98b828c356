#!/usr/bin/env bash
# tools/test.sh [PYTEST ARGUMENTS]: the checks, each notebook once (--everything: all checks, at full size); with
# arguments only the notebooks and tests that they choose, as in tools/test.sh -k schedule. With --quick first: the house, the notebooks' form, the quickest tests.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# Several processes share the cores, each with as many threads as a reader has. Passive waiting lets a thread that has
# nothing to do give its core away; it changes no arithmetic.
export PATH="$PWD/.venv/bin:$PATH" PYTHONUNBUFFERED=1 OMP_WAIT_POLICY=passive
# Python keeps what it has compiled: many processes import the same packages, and compiling them takes as long again
unset PYTHONDONTWRITEBYTECODE
# what each process of Ray and of Jupyter would import for nothing is not found (tests/lean)
export PYTHONPATH="$PWD/tests/lean${PYTHONPATH:+:$PYTHONPATH}"
# PyTorch asks the driver whether there is a GPU, and does not start it: the tests are forked (tests/side_by_side.py)
export PYTORCH_NVML_BASED_CUDA_CHECK=1

where=(nbs tests --ignore=tests/bench)
if [[ ${1:-} == --quick ]]; then
  shift
  where=(tests/test_{house,lesson_shape,elsewhere,exercises,glossary,predictions,book_pages,cost,planner,widgets}.py
         tests/test_bench.py::test_what_is_imported_from_the_package_is_there)
fi

ruff check nbs tests tools || names=failed
# three times as many processes as cores, for many wait; not so many that they run out of memory
cores=$(nproc 2>/dev/null || sysctl -n hw.ncpu); processes=$((3 * cores < 8 ? 3 * cores : 8))
pytest --processes "$processes" --continue-on-collection-errors --durations=10 --durations-min=1 \
  "$@" "${where[@]}" </dev/null
status=$?
[[ -z ${names:-} ]] || echo "failed: names and long lines, see above" >&2
(( status == 5 )) && echo "no notebook or test has such a name" >&2
[[ -z ${names:-} || $status != 0 ]] || status=1
exit $status

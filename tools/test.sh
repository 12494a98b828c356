#!/usr/bin/env bash
# tools/test.sh [PYTEST ARGUMENTS]: every check, one after the other. A stage that fails does not stop the later ones,
# so that one run tells all. Arguments go to pytest, which then runs what they choose one at a time: tools/test.sh -k schedule
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export PATH="$PWD/.venv/bin:$PATH" PYTHONUNBUFFERED=1

failed=()
stage() {
  local name=$1 start=$SECONDS; shift
  printf '\n== %s\n' "$name"
  "$@" </dev/null || failed+=("$name")
  # no line after the last stage: pytest's own is to be the last
  [[ $name == tests ]] || printf -- '-- %s: %d s%s\n' "$name" $((SECONDS - start)) "${failed[*]:+, failed so far: ${failed[*]}}"
}

stage "clean, exported, rendered" python tools/notebooks.py check
# Two processes with one thread each: with more, torch's threads wait for each other on a small machine.
stage "cells (nbdev_test)" env OMP_NUM_THREADS=1 nbdev_test --n_workers 2
stage "chapters in a kernel (nbmake)" env OMP_NUM_THREADS=1 pytest -n 2 --nbmake --nbmake-timeout=600 nbs/[!_.]*.ipynb
if (( $# )); then stage tests pytest tests --ignore=tests/bench "$@"
else
  stage "tests, two at a time" env OMP_NUM_THREADS=1 pytest -n 2 --dist loadfile tests --ignore=tests/bench -m "not alone"
  stage tests pytest tests --ignore=tests/bench -m alone
fi

(( ${#failed[@]} == 0 )) && exit
(IFS=,; echo "failed: ${failed[*]}" >&2)
exit 1

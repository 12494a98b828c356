#!/usr/bin/env bash
# tools/test.sh [PYTEST ARGUMENTS]: every check, each notebook once. A stage that fails does not stop the later ones, so
# that one run tells all. With arguments only the tests and lessons run that they choose: tools/test.sh -k schedule
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# Two processes share two cores, each with as many threads as a reader has. Passive waiting lets a thread that has
# nothing to do give its core away; it changes no arithmetic.
export PATH="$PWD/.venv/bin:$PATH" PYTHONUNBUFFERED=1 OMP_WAIT_POLICY=passive
# Python keeps what it has compiled: many processes import the same packages, and compiling them takes as long again
unset PYTHONDONTWRITEBYTECODE
# what each process of Ray and of Jupyter would import for nothing is not found (tests/lean)
export PYTHONPATH="$PWD/tests/lean${PYTHONPATH:+:$PYTHONPATH}"

failed=()
stage() {
  local name=$1 start=$SECONDS; shift
  printf '\n== %s\n' "$name"
  "$@" </dev/null || failed+=("$name")
  # no line after the last stage: pytest's own is to be the last
  [[ $name == tests ]] || printf -- '-- %s: %d s%s\n' "$name" $((SECONDS - start)) "${failed[*]:+, failed so far: ${failed[*]}}"
}

# Lessons run in a real kernel, as a reader runs them; some of them in the browser (tests/browser), if there is one.
lessons=$(python tests/browser/lab.py nbs/[!_.]*.ipynb nbs/more/[!_.]*.ipynb) || exit
mapfile -t lessons <<<"$lessons"

stage "clean, exported, rendered" python tools/notebooks.py check
stage "names and long lines" ruff check nbs tests tools

# Making the book keeps one core busy, so book and views run beside the engine room; what they say comes after it. They
# have a process group of their own, which is ended with this script.
book_and_views() {
  failed=()
  # every page of the book, from the committed outputs; the browser's tests read it (they build it where it is missing)
  if python -c 'import myst_nb' 2>/dev/null; then
    stage "book" python tools/book.py build $(command -v npm >/dev/null && echo --require-live)
  fi
  stage "views" nbdev_test --path nbs/views --n_workers 1 --timing
  (( ${#failed[@]} == 0 ))
}
if (( ! $# )); then
  said=$(mktemp)
  set -m; (book_and_views) >"$said" 2>&1 & beside=$!; set +m
  trap 'kill -- -$beside 2>/dev/null; rm -f "$said"' EXIT
  stage "engine and lab" nbdev_test --path nbs --n_workers 2 \
    --skip_folder_re "^([_.]|views|solutions|more)" --skip_file_re "^([_.0-9]|index|glossary)" --timing
  wait "$beside" || failed+=("book or views")
  cat "$said"; rm -f "$said"
  trap - EXIT
fi

run_tests() {
  pytest "$@" --nbmake --nbmake-timeout=600 --durations=10 --durations-min=1 "${lessons[@]}" tests --ignore=tests/bench
}
(( $# )) || rm -f .pytest_cache/v/cache/lastfailed  # of other runs
stage tests run_tests -n 2 --dist loadfile --no-loadscope-reorder "$@"

# Two tests at a time share two cores, and the machine is shared with others. At most three tests that failed so are run
# once more, each alone; all are named. One that needs its second try is a defect: see CONTRIBUTING.
if (( ! $# )) && [[ ${failed[*]: -1} == tests ]]; then
  mapfile -t unsteady < <(python -c 'import json; print("\n".join(json.load(open(".pytest_cache/v/cache/lastfailed"))))')
  if (( ${#unsteady[@]} <= 3 )); then
    printf '\nfailed beside other tests: %s\n' "${unsteady[@]}"
    unset 'failed[-1]'
    stage tests run_tests --last-failed --last-failed-no-failures none
  fi
fi

(( ${#failed[@]} == 0 )) && exit
(IFS=,; echo "failed: ${failed[*]}" >&2)
exit 1

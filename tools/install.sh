#!/usr/bin/env bash
# tools/install.sh lab|book|test: make .venv hold what settings.ini asks for, at the versions of constraints.txt.
# `lab` is what a reader needs, `book` adds what makes pages of the lessons, `test` adds what building and testing need, and Chromium.
# When nothing has changed since the last time it returns at once. PYTHON=python3.12 chooses the interpreter.
# `lab` gets along with what macOS brings: bash 3, and the tools of BSD.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

want=${1:-}
case $want in
  lab)  extras=lab ;;
  book) extras=lab,book ;;
  test) extras=lab,dev,callbacks,tracking,ray,launch,book ;;
  *)    echo "usage: tools/install.sh lab|book|test" >&2; exit 2 ;;
esac
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1 DEBIAN_FRONTEND=noninteractive

say() { echo "mlinfra: $*"; }
die() { echo "mlinfra: $*" >&2; exit 1; }

# What an installation depends on. The folder is part of it because an editable install and every script name it.
state() {
  { pwd; .venv/bin/python -V; cat settings.ini setup.py pyproject.toml constraints.txt tools/install.sh
    find tools/jupyter -type f | sort | xargs cat; } 2>&1 | cksum
}
is_current() {
  [[ ! -e .venv/.installing ]] || return 1
  local now; now=$(state)
  for stamp in "$@"; do [[ "$(cat ".venv/.$stamp-stamp" 2>/dev/null)" == "$now" ]] && return 0; done
  return 1
}

as_root() { if [[ $EUID == 0 ]]; then "$@"; else sudo -n "$@"; fi; }
can_apt() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }
apt_install() {  # what apt says matters only when it fails
  local said
  said=$({ as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends "$@"; } 2>&1 </dev/null) ||
    { tail -n 3 <<<"$said" >&2; return 1; }
}

# A venv serves if it was made in this folder and its pip starts; not if an install into it was cut off half way
# (the .installing mark stayed), for pip then takes a half-copied package for an installed one.
venv_serves() {
  [[ ! -e .venv/.installing ]] && grep -qsF "$PWD/.venv/bin/" .venv/bin/pip && .venv/bin/python -m pip --version &>/dev/null
}
has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
can_make_venv() { has_venv || command -v virtualenv >/dev/null || command -v uv >/dev/null; }
make_venv() {
  command -v "$python" >/dev/null || die "there is no $python: install Python 3.10 or later (Debian, Ubuntu: apt-get install python3; macOS: brew install python)"
  local version; version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "Python 3.10 or later is needed, and $python is $version: choose another with PYTHON=python3.12 make $want"
  # Debian and Ubuntu keep a part of venv in a package of its own
  can_make_venv || ! can_apt || { say "installing python$version-venv"; apt_install "python$version-venv"; } || true
  can_make_venv ||
    die "$python cannot make a virtual environment: install python$version-venv (as root: apt-get install python$version-venv), virtualenv or uv"
  say "making .venv with Python $version"
  # out of the way in one step, so that half a .venv is never taken for a whole one
  if [[ -e .venv ]]; then mv .venv ".venv-old-$$" && rm -rf ".venv-old-$$" || true; fi
  if has_venv; then "$python" -m venv .venv
  elif command -v virtualenv >/dev/null; then virtualenv -q -p "$python" .venv
  else uv venv -q --seed --python "$python" .venv
  fi
}

# uv and pip say much; what shows that they get on are the big downloads and the last step.
big_steps() {
  local line big='(Downloading|Using cached) .*\(([0-9]{2,}(\.[0-9]+)? ?Mi?B|[0-9.]+ ?Gi?B)\)' packages
  while IFS= read -r line; do
    if [[ $line =~ $big ]]; then echo "  ${line#"${line%%[! ]*}"}"
    elif [[ $line == "Installing collected packages: "* ]]; then
      packages=${line//[^,]/}
      (( ${#packages} < 20 )) || echo "  unpacking $(( ${#packages} + 1 )) packages (a minute or two)"
    fi
  done
}
# uv does what pip does in a third of the time. Where it is not at hand pip fetches it; where it cannot be had, or finds
# no packages, pip does the work. UV= names another uv.
find_uv() {
  command -v "${UV:-uv}" && return
  [[ -x .venv/bin/uv ]] || .venv/bin/python -m pip install -q uv &>.venv/uv.log || return
  echo .venv/bin/uv
}
# what pip has been told of indexes, which uv does not read
pip_setting() {
  .venv/bin/python -m pip config list 2>/dev/null | sed -nE "s/^(global|install|:env:)\.$1='(.*)'$/\2/p" | tail -n 1 | sed 's/\\n/ /g'
}
indexes() {
  local url
  for url in $(pip_setting index-url); do echo "--default-index=$url"; done
  for url in $(pip_setting extra-index-url); do echo "--index=$url"; done
  for url in $(pip_setting find-links); do echo "--find-links=$url"; done
}
installer() {
  local uv line where=(--index-strategy unsafe-best-match)  # never empty: bash 3 takes an empty array for an unset one
  if uv=$(find_uv); then
    while IFS= read -r line; do where+=("$line"); done < <(indexes)
    "$uv" pip install --python .venv/bin/python "${where[@]}" "$@" && return
  fi
  PYTHONUNBUFFERED=1 .venv/bin/python -m pip install --progress-bar off "$@"
}
pip_install() {
  say "installing .[$extras] into .venv (all that is said meanwhile: .venv/pip.log)"
  .venv/bin/python -c 'import importlib.util as u; exit(u.find_spec("torch") is None)' ||
    say "the first time takes 1 to 5 minutes with a fast connection; on Linux several GB, nearly all of it PyTorch with CUDA"
  trap 'exit 130' INT TERM  # leaves .installing behind, so that the next run starts afresh
  touch .venv/.installing
  local rc=0
  installer -e ".[$extras]" -c constraints.txt </dev/null 2>&1 | tee .venv/pip.log | big_steps || rc=$?
  (( rc > 128 )) || rm .venv/.installing  # done, or given up in good order: then the next run goes on from here
  (( rc == 0 )) || { tail -n 5 .venv/pip.log >&2; die "could not install .[$extras]: the reason is above, more in .venv/pip.log"; }
  trap - INT TERM
}

# For Jupyter started from .venv: how lessons are shown and saved.
jupyter_config() {
  mkdir -p .venv/etc/jupyter .venv/share/jupyter/lab/settings
  # JupyterLab does not ask whether it may fetch news, nor look for updates
  cat > .venv/share/jupyter/lab/settings/overrides.json <<END
{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}
END
  cat > .venv/etc/jupyter/jupyter_server_config.py <<END
# Written by tools/install.sh.
load_subconfig("jupyter_server_config.py", path="$PWD/tools/jupyter")
END
}
# nbdev's merge driver, which .gitattributes names and .gitconfig defines: conflicts in notebooks stay readable notebooks.
# (nbdev_install_hooks would also write into the user's ~/.jupyter, for all projects, and into .git/hooks.)
git_hook() {
  [[ "$(git rev-parse --show-toplevel 2>/dev/null)" == "$(pwd -P)" ]] || return 0
  git config --local --get-all include.path 2>/dev/null | grep -qxF ../.gitconfig ||
    git config --local --add include.path ../.gitconfig || say "git takes no configuration here: notebooks merge as text"
}

chromium_on_path() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
# Debian's package brings the libraries along that a browser needs; Ubuntu's only points to a snap.
is_debian() { grep -qsx 'ID=debian' /etc/os-release; }
apt_chromium() { is_debian && can_apt && apt_install chromium && chromium_on_path; }
playwright_chromium() {
  local what=(chromium); if can_apt; then what=(--with-deps chromium); fi
  timeout 600 .venv/bin/python -m playwright install "${what[@]}"
}
browser() {
  chromium_on_path >/dev/null && return
  say "installing Chromium for the browser tests (about 200 MB)"
  { apt_chromium || playwright_chromium; } >>.venv/chromium.log 2>&1 </dev/null ||
    say "Chromium could not be installed (see .venv/chromium.log): the browser tests will be skipped, with that reason"
}

# For the tests that run a SLURM cluster of their own on this machine; elsewhere they are skipped, and say what to install.
# Only root's on a machine without systemd, such as a container: these packages bring services along, which nobody here
# needs and which policy-rc.d keeps from starting.
slurm_missing() { local p; for p in slurmctld slurmd munged sbatch; do command -v $p >/dev/null || return 0; done; return 1; }
slurm() (
  slurm_missing && is_debian && [[ $EUID == 0 && ! -d /run/systemd/system ]] && can_apt || exit 0
  say "installing SLURM for the tests that run a cluster (13 MB)"
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
  fi
  apt_install slurmctld slurmd slurm-client munge || say "SLURM could not be installed: its tests will be skipped"
)

# For the tests and the chapter that lay cables between network namespaces; who cannot install it skips these.
cables() { command -v tc >/dev/null || ! can_apt || { say "installing iproute2"; apt_install iproute2; } || true; }

case $want in
  lab)  is_current lab book test && exit ;;
  book) is_current book test && exit ;;
  test) is_current test && exit ;;
esac
venv_serves || make_venv
pip_install
jupyter_config
git_hook
if [[ $want == test ]]; then browser; cables; slurm; fi
state > ".venv/.$want-stamp"  # last: what was interrupted is done again
say "ready"

#!/usr/bin/env bash
# Opens a notebook in Jupyter: tools/notebook.sh docs/quickstart.ipynb; its cells run in .venv.
# Jupyter has an environment of its own, .venv-notebook, from requirements-notebook.lock: what it needs clashes with
# the versions that TensorFlow Federated needs. Flags of Jupyter, such as --no-browser, go after the name.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-notebook
stamp=$venv/.installed
wanted=$({ cat requirements-notebook.lock tools/notebook.sh; pwd -P; } | sha256sum | cut -d ' ' -f 1)

fail() {
  printf 'notebook: %s\n' "$1" >&2
  exit 1
}

[ $# -gt 0 ] || fail "which notebook? tools/notebook.sh NOTEBOOK [FLAGS OF JUPYTER]"
notebook=$1
shift
[ -f "$notebook" ] || fail "there is no notebook $notebook in $PWD"
[ -x .venv/bin/python ] || fail ".venv is not there; run make venv first"

# Two at a time would write over each other.
exec 9<requirements-notebook.lock
flock 9
if [ "$(cat $stamp 2>/dev/null)" != "$wanted" ]; then
  echo "notebook: putting Jupyter into $venv, which takes about a minute the first time" >&2
  rm -rf $venv
  .venv/bin/python -m venv $venv
  $venv/bin/python -Im pip install --disable-pip-version-check --no-input --progress-bar off --no-deps --only-binary :all: \
    --require-hashes -r requirements-notebook.lock >$venv/install.log 2>&1 || fail "pip failed; see $venv/install.log"
  # The kernel of this name is that of the notebook: in its place .venv's, which sees this checkout's packages.
  kernel=$venv/share/jupyter/kernels/python3
  mkdir -p $kernel
  cat >$kernel/kernel.json <<JSON
{
  "argv": ["$PWD/.venv/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
  "display_name": "tff-fen (.venv)",
  "language": "python",
  "env": {"PYTHONPATH": "$PWD", "TF_CPP_MIN_LOG_LEVEL": "3"}
}
JSON
  printf '%s\n' "$wanted" >$stamp
fi
exec 9<&-
# -I: the user's PYTHONPATH is for other packages. --ip: whatever the user's configuration says; a flag says more.
exec $venv/bin/python -Im notebook --ip=127.0.0.1 "$notebook" "$@"

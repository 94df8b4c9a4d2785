#!/usr/bin/env bash
# Puts what TensorFlow needs for NVIDIA GPUs into .venv, from requirements-gpu.lock, and checks that it is found.
# `make venv GPU=1` calls it. About 2 GB; does nothing where it is complete.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.installed-gpu
log=$venv/install-gpu.log
wanted=$(sha256sum requirements-gpu.lock tools/gpu_libraries.py | sha256sum | cut -d ' ' -f 1)

fail() {
  printf 'gpu: %s\n' "$1" >&2
  exit 1
}

[ -x $venv/bin/python ] || fail ".venv is not there; run make venv GPU=1"
exec 9<requirements-gpu.lock
flock 9
[ "$(cat $stamp 2>/dev/null)" != "$wanted" ] || exit 0
echo "gpu: putting NVIDIA's libraries into $venv, about 2 GB, which takes some minutes the first time" >&2
$venv/bin/python -Im pip install --disable-pip-version-check --no-input --progress-bar off --no-deps --only-binary :all: \
  --require-hashes -r requirements-gpu.lock >$log 2>&1 || fail "pip failed; see $log"
$venv/bin/python tools/gpu_libraries.py || fail "TensorFlow would not find all libraries; see above"
printf '%s\n' "$wanted" >$stamp
echo "gpu: done; make gpu-check tries the GPUs" >&2

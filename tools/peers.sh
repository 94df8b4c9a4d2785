#!/usr/bin/env bash
# Builds the environment of a peer of `make bench-peers`, if it is not there: tools/peers.sh torch|fedjax|pfl|flower.
# It is .venv-peers/NAME, from benchmarks/peers/requirements-NAME.txt: what peers need clashes with what TensorFlow
# Federated needs, and with one another.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'peers: %s\n' "$1" >&2
  exit 1
}

name=${1:?which environment? tools/peers.sh NAME}
requirements=benchmarks/peers/requirements-$name.txt
[ -f "$requirements" ] || fail "there is no $requirements"
[ -x .venv/bin/python ] || fail ".venv is not there; run make venv first"

venv=.venv-peers/$name
stamp=$venv/.installed
wanted=$({ cat "$requirements" tools/peers.sh; pwd -P; } | sha256sum | cut -d ' ' -f 1)

# Two at a time would write over each other.
exec 9<"$requirements"
flock 9
[ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || exit 0
echo "peers: building $venv" >&2
rm -rf "$venv"
.venv/bin/python -m venv "$venv"
# Everything is pinned, yet pip resolves: a build of PyTorch for GPUs has requirements that one for CPUs has not.
$venv/bin/python -Im pip install --disable-pip-version-check --no-input --progress-bar off -r "$requirements" \
  >"$venv/install.log" 2>&1 ||
  fail "$(grep -E '^ERROR' "$venv/install.log" | tail -n 1 || true) (see $venv/install.log)"
printf '%s\n' "$wanted" >"$stamp"

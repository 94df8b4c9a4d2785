#!/usr/bin/env bash
# Builds .venv from requirements.lock, or completes it; does nothing where it is complete.
# PYTHON names the interpreter to build it with; otherwise python3.11 or python3, whichever is Python 3.11.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
site=$venv/lib/python3.11/site-packages
log=$venv/install.log
# Written last, so that an interrupted install is not taken for a complete one.
stamp=$venv/.installed
# The folder counts too: the environment refers to the project by its path.
wanted=$({ cat requirements.txt requirements.lock pyproject.toml; pwd -P; } | sha256sum | cut -d ' ' -f 1)

fail() {
  printf 'install: %s\n' "$1" >&2
  exit 1
}

version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

is_complete() {
  [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && [ "$(version_of $venv/bin/python)" = 3.11 ]
}

# pip's own RECORD is complete only if the making of the environment was not interrupted.
is_usable() {
  [ "$(version_of $venv/bin/python)" = 3.11 ] && grep -qs '/INSTALLER,' "$site"/pip-*.dist-info/RECORD
}

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    [ "$(version_of "$PYTHON")" = 3.11 ] ||
      fail "$PYTHON is not a working Python 3.11; name one: make venv PYTHON=/path/to/python3.11"
    python=$PYTHON
    return
  fi
  for candidate in python3.11 python3; do
    if [ "$(version_of $candidate)" = 3.11 ]; then
      python=$candidate
      return
    fi
  done
  fail "Python 3.11 was not found; install it, or name it: make venv PYTHON=/path/to/python3.11"
}

make_venv() {
  local python
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    fail "TensorFlow Federated is published for Linux x86_64 alone; this is $(uname -sm)"
  find_python
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python has no complete venv module; install it (Debian, Ubuntu: apt install python3.11-venv)"
  { rm -rf $venv && mkdir $venv; } 2>/dev/null || fail "$PWD/$venv cannot be written; check permissions and disk space"
  "$python" -m venv $venv >$log 2>&1 || fail "$python -m venv failed; see $log"
}

# -I: no PYTHONPATH and no user packages, which pip would take for installed. Build isolation would fetch the newest
# setuptools for packages that come as source; the pinned one has to do.
pip_install=($venv/bin/python -Iu -m pip install --disable-pip-version-check --no-input --progress-bar off --retries 3
  --no-deps --no-build-isolation)

# An interrupted install can leave a package whose metadata is there but whose files are not; pip would believe it.
# The line that names INSTALLER is the last thing that pip adds. '~...' is what an interrupted upgrade leaves.
remove_half_installed() {
  local info
  for info in "$site"/*.dist-info; do
    grep -qs '/INSTALLER,' "$info/RECORD" || rm -rf "$info"
  done
  rm -rf "$site"/~*
}

progress() {
  printf 'install: %d found, %d downloaded, %d installed, of %d packages' \
    "$(grep -cE '^(Collecting|Processing|Requirement already satisfied).*from -r' $log || true)" \
    "$(grep -cE '^ *(Downloading|Using cached|Processing) .*\.(whl|tar\.gz)( |$)' $log || true)" \
    "$(find "$site" -maxdepth 1 -name '*.dist-info' ! -name 'pip-*' ! -name 'tff_fen-*' | wc -l)" "$total"
}

# Runs pip in the background to show progress meanwhile. Its output goes to the log alone: the harmless warnings of
# some set-ups run to hundreds of lines.
run_pip() {
  local pid seconds=0
  "${pip_install[@]}" "$@" >>$log 2>&1 &
  pid=$!
  # A background process does not see Ctrl-C.
  # shellcheck disable=SC2064
  trap "kill $pid 2>/dev/null" EXIT
  while kill -0 $pid 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    if [ -t 2 ]; then
      printf '\r\033[K%s' "$(progress)" >&2
    elif [ $((seconds % 20)) = 0 ]; then
      printf '%s\n' "$(progress)" >&2
    fi
  done
  trap - EXIT
  [ ! -t 2 ] || printf '\r\033[K' >&2
  wait $pid
}

# pip stops at the first pin that it cannot find: leave that one out and look again, so that all are named at once
# (five at most: with more of them it is not the pins that are at fault).
missing_pins() {
  local look=$log rest=$TMPDIR/rest.txt pin
  sed -n 's/^\([A-Za-z0-9][^ ]*\).*/\1/p' requirements.txt >"$rest"
  for _ in 1 2 3 4 5; do
    pin=$(sed -n 's/^ERROR: No matching distribution found for \([^ ]*\).*/\1/p' "$look" | tail -n 1)
    [ -n "$pin" ] || break
    printf ' %s' "$pin"
    sed -i "/^$pin\$/d" "$rest"
    look=$TMPDIR/look.log
    "${pip_install[@]}" --dry-run -r "$rest" >"$look" 2>&1 && break
  done
}

explain_failure() {
  local reason
  if grep -q 'DO NOT MATCH THE HASHES' $log; then
    fail "the package registry gave another file than the one that is locked:$(sed -n \
      's/^ *\([A-Za-z0-9._-]*==[^ ]*\) from .*:$/ \1/p' $log | sort -u | tr -d '\n'); nothing of it was installed ($log)"
  elif grep -qE 'Retry\(total=0|Could not fetch URL|Max retries exceeded|Read timed out|trusted or secure host' $log; then
    fail "no package registry can be reached; check the network, the proxy and pip's settings, then try again ($log)"
  elif grep -q 'No matching distribution found' $log; then
    fail "not found on the package registry:$(missing_pins); correct the pins, or the registry that pip uses ($log)"
  else
    reason=$(grep -E '^(ERROR|[A-Za-z]*Error):' $log | tail -n 1 || true)
    fail "pip failed: ${reason:-it was ended from outside} ($log)"
  fi
}

trap 'exit 130' INT
trap 'exit 143' TERM HUP
! is_complete || exit 0

# One install at a time: `make run` and `make test` in two terminals would write over each other. pip inherits the
# lock, so that one left over from a killed install is waited for, too.
exec 9<requirements.txt
flock --nonblock 9 || { echo 'install: another install is under way, waiting for it' >&2 && flock 9; }
! is_complete || exit 0

is_usable || make_venv
rm -f $stamp
: >$log
remove_half_installed
# A gigabyte of downloads would stay in /tmp whenever an install is interrupted; here the next one clears it away.
export TMPDIR=$PWD/$venv/tmp
rm -rf "$TMPDIR"
mkdir "$TMPDIR"
total=$(grep -c '^[A-Za-z0-9]' requirements.txt)
echo "install: putting $total packages into $venv, which takes about two minutes the first time" >&2
# Every file is held to the hash it was locked with; those that build the packages that come as source go first.
awk '/^[^ ]/ {wanted = /^(setuptools|wheel)==/} wanted' requirements.lock >"$TMPDIR/builders.txt"
{ run_pip --require-hashes -r "$TMPDIR/builders.txt" && run_pip --require-hashes -r requirements.lock; } || explain_failure
# Makes tff_fen and tasks importable from any folder.
"${pip_install[@]}" --no-index -e . >>$log 2>&1 || fail "the project itself could not be installed; see $log"
rm -rf "$TMPDIR"
printf '%s\n' "$wanted" >$stamp
echo "install: done" >&2

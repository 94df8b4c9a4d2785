#!/usr/bin/env bash
# Checks the versions in requirements.lock against the public database of known vulnerabilities, by pip-audit.
# Exits with 0 if there are none, 1 if there are some, 2 if the check could not be made.
# PYTHON names the interpreter for pip-audit's own environment; nothing of it comes into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-audit
log=$venv/audit.log

cannot() {
  printf 'audit: not checked: %s\n' "$1" >&2
  exit 2
}

if ! $venv/bin/python -c 'import pip_audit' 2>/dev/null; then
  rm -rf $venv
  "${PYTHON:-python3}" -m venv $venv || cannot "${PYTHON:-python3} -m venv failed"
  timeout 300 $venv/bin/python -Im pip install --quiet --disable-pip-version-check pip-audit==2.9.0 >$log 2>&1 ||
    cannot "pip-audit 2.9.0 cannot be installed; is the package registry reachable? ($log)"
fi
status=0
# Without a network pip-audit tries on for long. --disable-pip: the lock is complete, nothing is to be resolved or downloaded.
timeout 300 $venv/bin/pip-audit --requirement requirements.lock --require-hashes --disable-pip --progress-spinner off \
  >$venv/found.txt 2>$log || status=$?
# A registry without the database answers "not found" for each package, which pip-audit takes for no finding.
unknown=$(grep -c 'could not be audited' $venv/found.txt || true)
[ "$unknown" = 0 ] ||
  cannot "the database of vulnerabilities does not know $unknown of $(grep -c '^[a-z0-9]' requirements.lock) packages; the \
package registry that answers here has none ($venv/found.txt)"
cat $venv/found.txt
case $status in
  0) echo "audit: no known vulnerability in $(grep -c '^[a-z0-9]' requirements.lock) packages" ;;
  *)
    # pip-audit has one exit code for both.
    grep -qE 'Found [0-9]+ known vulnerabilit' $log || cannot "the database of vulnerabilities cannot be reached ($log)"
    tail -n 1 $log
    exit 1
    ;;
esac

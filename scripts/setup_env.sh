#!/usr/bin/env bash
# Makes .venv in the repository and installs Workings into it, with the versions it was tested with.
#
#   scripts/setup_env.sh [--flash-attn] [--extras wandb,demo] [--python python3.11] [--dry-run]
#
# FlashAttention is optional: without it attention goes through torch's SDPA. With --flash-attn it is
# installed last, because its build needs the torch that is there by then. Where the build fails, the
# environment is whole without it, and the script says what to try and exits with 3.
set -euo pipefail

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }
fail() { echo "setup_env.sh: $1" >&2; exit 2; }
value_of() { case "${2:--}" in -*) fail "$1 has no value" ;; *) echo "$2" ;; esac; }

flash_attn=0 dry_run=0 extras="" python="${PYTHON:-}"
while [ $# -gt 0 ]; do
  case "$1" in
    --flash-attn) flash_attn=1 ;;
    --dry-run) dry_run=1 ;;
    --extras) extras="$(value_of "$@")"; shift ;;
    --python) python="$(value_of "$@")"; shift ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option '$1'; known: --flash-attn --extras --python --dry-run --help" ;;
  esac
  shift
done

run() {
  if [ "$dry_run" = 1 ]; then echo "+ $*"; else "$@"; fi
}

is_tested() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }

if [ -z "$python" ]; then
  for candidate in python3.12 python3.11 python3; do
    if is_tested "$candidate"; then python="$candidate"; break; fi
  done
  [ -n "$python" ] || fail "no Python 3.11 or 3.12 was found; give one with --python"
fi
is_tested "$python" || fail "'$python' is not Python 3.11 or 3.12; give one with --python"

cd "$(dirname "$0")/.."
package="."
[ -z "$extras" ] || package=".[$extras]"

if [ ! -x .venv/bin/python ]; then run "$python" -m venv .venv; fi
run .venv/bin/python -m pip install --quiet --upgrade -c constraints.txt pip
run .venv/bin/python -m pip install --quiet -c constraints.txt -e "$package"

if [ "$flash_attn" = 1 ]; then
  run .venv/bin/python -m pip install --quiet packaging ninja wheel
  if ! run .venv/bin/python -m pip install --no-build-isolation "flash-attn>=2.8.3"; then
    cat >&2 <<'TEXT'

setup_env.sh: flash-attn did not build. The environment is ready without it: model.attention=auto
uses torch's SDPA. To have it after all, take the wheel from
https://github.com/Dao-AILab/flash-attention/releases whose name fits the four values of

    .venv/bin/python -c 'import sys, torch; print("cp%d%d" % sys.version_info[:2],
        "torch" + torch.__version__, "cu" + str(torch.version.cuda),
        "cxx11abi" + str(torch.compiled_with_cxx11_abi()).upper())'

and install it with .venv/bin/python -m pip install WHEEL
TEXT
    exit 3
  fi
fi

echo "ready: source .venv/bin/activate, then workings doctor"

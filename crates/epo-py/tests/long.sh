#!/usr/bin/env bash
# The tests of the Python package with clients that bring gigabytes (torch): Stable-Baselines3, a training in one file,
# and OmniSafe 0.5.0 (Python 3.10). The virtual environments are kept in target/python. Called by `./check long`.
#
# wheel.sh builds the wheel and tests it first. WHEEL names a wheel that is built already.
set -euo pipefail
cd "$(dirname "$0")/../../.."

skipped() { printf '\n!!! SKIPPED: %s\n\n' "$*" >&2; }

quiet=(--quiet --disable-pip-version-check --no-cache-dir)
WHEEL=$(crates/epo-py/tests/wheel.sh)

# name, interpreter, what is installed, the tests
client() {
    local venv=$PWD/target/python/$1 python=$2 tests=$4
    read -ra packages <<<"$3"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || { skipped "$1: no virtual environment"; return; }
    if [ ! -f "$venv/complete" ]; then
        "$venv/bin/python" -m pip install "${quiet[@]}" pytest "${packages[@]}" || { skipped "$1 cannot be installed"; return; }
        touch "$venv/complete"
    fi
    "$venv/bin/python" -m pip install "${quiet[@]}" --no-deps --force-reinstall "$WHEEL"
    read -ra files <<<"$tests"
    "$venv/bin/python" -m pytest --quiet -p no:cacheprovider -rs "${files[@]}"
}

here=crates/epo-py/tests/clients
client sb3 "${PYTHON:-python3}" stable-baselines3 "$here/test_sb3.py $here/test_single_file.py"

# pyenv first: its command of that name works for the active version only
ten=$(ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10.*/bin/python3.10 2>/dev/null | tail -1 || true)
ten=${ten:-$(command -v python3.10 || true)}
if [ -n "$ten" ]; then
    client omnisafe "$ten" "omnisafe==0.5.0 numpy<2" "$here/test_omnisafe.py"
else
    skipped "omnisafe needs Python 3.10, which is not here"
fi

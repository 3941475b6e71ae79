#!/usr/bin/env python3
"""A sweep of 10,000 runs with fake runs: planning and status take less than 5 s and 300 MB, and no folder is large.

    scale.py EPO [--runs 10000]

9,900 runs are done, 50 have failed, 50 are open; the test writes their folders. A script that makes a run instantly then
finishes the open ones. Bounds are on processor time, because other work on the machine delays the clock.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS, MEGABYTES, ENTRIES = 5.0, 300.0, 2000
FILE = """[base]
run.task = "SafetyPointGoal1-v0"
run.steps = 1e6
[grid]
run.seed = [{seeds}]
"""
FAKE = """#!/bin/sh
shift
while [ $# -gt 0 ]; do
    case $1 in --config) config=$2;; --runs) runs=$2;; --name) name=$2;; esac
    shift
done
dir="$runs/EPO-{{SafetyPointGoal1-v0}}/$name"
mkdir -p "$dir"; cp "$config" "$dir/config.toml"
printf 'Train/Epoch,TotalEnvSteps\\n31,1000000\\n' > "$dir/progress.csv"
"""


def measured(name, *command, env=None, codes=(0,)):
    """Runs a command and returns its output; fails if it takes too long or too much memory."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, env=env)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    wall, cpu, memory = time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    print(f"{name}: {wall:.2f} s ({cpu:.2f} s of processor time), {memory:.0f} MB", flush=True)
    assert child.returncode in codes, f"{name}: exit code {child.returncode}"
    assert cpu < SECONDS and memory < MEGABYTES, f"{name}: more than {SECONDS} s or {MEGABYTES} MB"
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epo")
    parser.add_argument("--runs", type=int, default=10_000)
    args = parser.parse_args()
    epo, root = str(Path(args.epo).resolve()), Path(tempfile.mkdtemp(prefix="epo-scale-"))
    try:
        file, out = root / "large.toml", root / "out"
        file.write_text(FILE.format(seeds=", ".join(map(str, range(args.runs)))))
        plan = measured("planning", epo, "sweep", str(file), "--dry-run", "--json")
        ids = [run["id"] for run in json.loads(plan)["runs"]]
        assert len(set(ids)) == args.runs

        failed, left = ids[-100:-50], ids[-50:]
        out.mkdir()
        (out / "layout").write_text("sharded\n")
        for run in ids[:-50]:
            part = hashlib.sha256(run.encode()).hexdigest()[:2]
            journal = out / "journal" / part / run
            journal.mkdir(parents=True)
            end = {"code": 1 if run in failed else 0, "seconds": 1.0, "message": "it broke" if run in failed else ""}
            (journal / ("failed.json" if run in failed else "done.json")).write_text(json.dumps(end))
            (journal / "lease-0001").write_text("{}")
            folder = out / "runs" / part / "EPO-{SafetyPointGoal1-v0}" / run
            folder.mkdir(parents=True)
            (folder / "progress.csv").write_text("Train/Epoch,TotalEnvSteps\n31,1000000\n")

        command = [epo, "sweep", str(file), "--out", str(out)]
        want = {"planned": args.runs, "done": args.runs - 100, "failed": 50, "pending": 50, "running": 0, "queued": 0}
        for name in ["status", "status with the index"]:
            status = json.loads(measured(name, *command, "--status", "--json"))
            assert {key: status[key] for key in want} == want, {key: status[key] for key in want}

        # a queue of thousands of tasks: 40 arrays' worth of lines from a command that stands in for squeue
        bin, tasks = root / "bin", out / "slurm" / "0001"
        bin.mkdir()
        tasks.mkdir(parents=True)
        line = lambda run: json.dumps([{"id": run, "config": "", "task": "T", "algo": "epo", "seed": 0, "steps": 1000000,  # noqa: E731
                                        "epochs": 32, "variant": "", "until": None}]) + "\n"
        for part in range(0, args.runs, 100):
            (tasks / f"tasks-{part // 100:03}.jsonl").write_text("".join(line(run) for run in ids[part : part + 100]))
        queue = "".join(f"7|7|{i}|PD|Priority|{tasks}/script.sh\n" for i in range(args.runs))
        (bin / "lines").write_text(queue)
        (bin / "squeue").write_text(f"#!/bin/sh\nexec cat {bin}/lines\n")
        (bin / "squeue").chmod(0o755)
        env = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}
        status = json.loads(measured("status with a full queue", *command, "--on", "slurm", "--status", "--json", env=env))
        assert (status["done"], status["queued"]) == (args.runs - 100, 100), status["queued"]
        shutil.rmtree(out / "slurm")

        fake = root / "fake.sh"
        fake.write_text(FAKE.replace("{{", "{").replace("}}", "}"))
        fake.chmod(0o755)
        text = measured("the last 50 runs", *command, "--command", str(fake), "--quiet", "--json", codes=(1,))
        summary = json.loads(text)
        assert (summary["done"], summary["failed"]) == (args.runs - 50, 50), summary["done"]
        largest = max((len(entries[1]) + len(entries[2]), entries[0]) for entries in os.walk(out))
        print(f"largest folder: {largest[0]} entries", flush=True)
        assert largest[0] <= ENTRIES, largest
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Sweeps on a real Slurm: a controller and three node daemons on this machine. `./check long` runs this.

    slurm.py EPO [--runs 60] [--quick]

EPO is the program to test. The test installs Slurm from Debian's packages if it is missing and it may (root). It makes the
same sweep with `--on local` and `--on slurm` and compares the hash of every run. While the second Slurm sweep runs, it
takes a node down, kills the daemon and all processes of a node, cancels tasks, and kills and restarts the controller. A
third sweep has a time limit that every run reaches. --quick makes a few runs without the trouble, in under a minute, and
installs nothing.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BASE = """[base]
run.task = "SafetyPointGoal1-v0"
run.steps = {steps}
run.physics = "fast"
train.steps_per_epoch = 400
train.final_eval_episodes = 0
train.envs = 4
train.minibatch = 100
train.passes = 2
train.hidden = [16]
[grid]
run.algo = ["epo", "ppo-lag"]
run.seed = {seeds}
"""


def sh(*command, check=True):
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def install(allowed):
    """Returns whether Slurm is there and may be started; installs it if that is allowed."""
    needed = ["slurmctld", "slurmd", "sbatch", "munged"]
    if os.geteuid() != 0:
        return False
    if all(shutil.which(name) for name in needed):
        return True
    if not allowed or not shutil.which("apt-get"):
        return False
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    packages = ["slurmctld", "slurmd", "slurm-client", "munge"]
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]):
        if subprocess.run(command, env=env, stdout=subprocess.DEVNULL).returncode != 0:
            return False
    return all(shutil.which(name) for name in needed)


def hashes(sweep):
    """Returns the hash of the newest checkpoint of every run, and fails if a row of a run was written twice."""
    found = {}
    for run in sweep.glob("runs/*/*"):
        newest = max(path for path in (run / "checkpoint").iterdir() if path.name.isdigit())
        found[run.name] = json.loads((newest / "manifest.json").read_text())["hash"]
        epochs = [line.split(",")[0] for line in (run / "progress.csv").read_text().splitlines()[1:]]
        assert len(epochs) == int(newest.name), f"{run}: {len(epochs)} rows in {newest.name} epochs"
    return found


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        self.call("start")
        self.stopping = threading.Event()
        threading.Thread(target=self.hurry, daemon=True).start()

    def call(self, what, *more):
        sh(str(HERE / "slurm-cluster.sh"), what, str(self.folder), *more)

    def hurry(self):
        """A task that was put back waits for two minutes; the test does not."""
        while not self.stopping.wait(1):
            for line in sh("squeue", "-h", "-r", "-t", "PD", "-o", "%i|%r", check=False).splitlines():
                job, reason = line.split("|", 1)
                if reason.startswith("BeginTime"):
                    sh("scontrol", "update", f"jobid={job}", "StartTime=now", check=False)

    def pid(self, name):
        return int((self.folder / "run" / f"{name}.pid").read_text())

    def running(self):
        return sh("squeue", "-h", "-r", "-t", "R", "-o", "%i %N", check=False).split("\n")[:-1]

    def wait_for_running(self, count=1):
        for _ in range(600):
            if len(self.running()) >= count:
                return
            time.sleep(0.1)

    def kill_node(self, node):
        """Kills the daemon of a node and every process of its jobs, as a power failure would."""
        victims = [self.pid(f"slurmd-{node}")]
        for proc in Path("/proc").iterdir():
            if proc.name.isdigit():
                try:
                    env = (proc / "environ").read_bytes()
                    line = (proc / "cmdline").read_bytes()
                except OSError:
                    continue
                ours = str(self.folder).encode()
                if (f"SLURMD_NODENAME={node}".encode() in env.split(b"\0") and ours in env) or (
                    b"slurmstepd" in line and ours in env and f"spool/{node}".encode() in line
                ):
                    victims.append(int(proc.name))
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return len(victims)

    def stop(self):
        self.stopping.set()
        self.call("stop")


def sweep(epo, file, out, *more):
    begun = time.monotonic()
    command = [epo, "sweep", str(file), "--out", str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    return done, time.monotonic() - begun


def expect(done, name):
    if done.returncode != 0:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def trouble(cluster, log):
    """Disturbs the cluster while a sweep runs."""

    def say(text):
        log.append(text)
        print(f"  trouble: {text}", flush=True)

    cluster.wait_for_running(3)
    sh("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    say("node n1 was set down")
    time.sleep(2)
    sh("scontrol", "update", "nodename=n1", "state=resume", check=False)
    cluster.wait_for_running(2)
    tasks = [line.split()[0] for line in cluster.running()]
    if tasks:
        sh("scancel", tasks[0], check=False)
        say(f"the running task {tasks[0]} was cancelled")
    waiting = sh("squeue", "-h", "-r", "-t", "PD", "-o", "%i", check=False).split()
    if waiting:
        sh("scancel", waiting[-1], check=False)
        say(f"the waiting task {waiting[-1]} was cancelled")
    time.sleep(1)
    os.kill(cluster.pid("slurmctld"), signal.SIGKILL)
    say("the controller was killed")
    time.sleep(4)
    cluster.call("controller")
    say("the controller was started again")
    cluster.wait_for_running(2)
    say(f"node n2 died ({cluster.kill_node('n2')} processes)")
    time.sleep(20)
    cluster.call("node", "n2")
    say("the daemon of n2 was started again")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epo")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    epo = str(Path(args.epo).resolve())
    if not install(allowed=not args.quick):
        print("\n!!! SKIPPED: sweeps on a real Slurm: it is not installed, or this is not root; `./check long` installs it\n",
              file=sys.stderr)
        return
    runs = 4 if args.quick else args.runs
    root = Path(tempfile.mkdtemp(prefix="epo-slurm-"))
    root.chmod(0o755)  # munge wants its socket to be reachable
    cluster = Cluster(root / "cluster")
    results = {"runs": runs}
    try:
        file = root / "small.toml"
        file.write_text(BASE.format(steps=4000, seeds=list(range(runs // 2))))
        done, results["local_s"] = sweep(epo, file, root / "local", "--jobs", "6")
        expect(done, "local")
        want = hashes(root / "local")
        assert len(want) == runs, f"{len(want)} runs"

        done, results["slurm_s"] = sweep(epo, file, root / "slurm", "--on", "slurm")
        expect(done, "slurm")
        assert hashes(root / "slurm") == want, "a hash differs from that of the local sweep"
        results["overhead_per_run_s"] = round((results["slurm_s"] - results["local_s"]) / runs, 3)
        print(f"{runs} runs: local {results['local_s']:.1f} s, Slurm {results['slurm_s']:.1f} s, "
              f"overhead {results['overhead_per_run_s']:.2f} s per run (bound 3 s)", flush=True)
        assert results["overhead_per_run_s"] <= 3, "Slurm costs more than 3 s per run"

        status = json.loads(sh(epo, "sweep", str(file), "--out", str(root / "slurm"), "--on", "slurm", "--status", "--json"))
        assert (status["planned"], status["done"], len(status["runs"])) == (runs, runs, runs), status
        if args.quick:
            return

        # longer runs, so that the trouble finds them at work
        file.write_text(BASE.format(steps=16000, seeds=list(range(runs // 2))))
        done, _ = sweep(epo, file, root / "local-long", "--jobs", "2")
        expect(done, "local, longer runs")
        want, log = hashes(root / "local-long"), []
        disturbing = threading.Thread(target=trouble, args=(cluster, log), daemon=True)
        disturbing.start()
        done, results["trouble_s"] = sweep(epo, file, root / "trouble", "--on", "slurm", "--pack", "2")
        disturbing.join(timeout=120)
        expect(done, "slurm with trouble")
        assert len(log) >= 6, f"the sweep ended before the trouble did: {log}"
        got = hashes(root / "trouble")
        assert got == want, f"{sum(got.get(run) != hash for run, hash in want.items())} hashes differ"
        print(f"{runs} runs with trouble: every hash equals that of the local sweep, 0 lost", flush=True)

        # a time limit that every run reaches: Slurm's smallest limit is a minute, and its warning comes early
        file.write_text(BASE.format(steps=400000, seeds=[0]) + '[slurm]\ngrace = 30\ntime = "00:01:00"\n')
        done, _ = sweep(epo, file, root / "local-limit", "--jobs", "2")
        expect(done, "local, time limit")
        done, results["limit_s"] = sweep(epo, file, root / "limit", "--on", "slurm")
        expect(done, "slurm, time limit")
        assert hashes(root / "limit") == hashes(root / "local-limit"), "a hash differs after a time limit"
        # a task that was put back appends to its log, and each start names the node
        logs = "".join(path.read_text() for path in (root / "limit").glob("slurm/*/log/*.txt"))
        results["starts_after_limit"] = logs.count("of 1 done")
        assert results["starts_after_limit"] > 2, f"no time limit hit:\n{logs}"
        print(f"time limit: 2 runs in {results['starts_after_limit']} starts, same hashes", flush=True)

        # cancel: the runs save, the same command continues them
        command = [epo, "sweep", str(file), "--out", str(root / "cancel"), "--on", "slurm", "--detach", "--time", "1:00:00"]
        expect(subprocess.run(command, capture_output=True, text=True), "detach")
        cluster.wait_for_running(2)
        time.sleep(3)
        cancelled = sh(epo, "sweep", str(file), "--out", str(root / "cancel"), "--on", "slurm", "--cancel")
        assert cancelled.startswith("2 runs cancelled"), cancelled
        for _ in range(300):
            if not sh("squeue", "-h"):
                break
            time.sleep(0.2)
        assert not sh("squeue", "-h"), "a cancelled task is still there"
        done, _ = sweep(epo, file, root / "cancel", "--on", "slurm", "--time", "1:00:00")
        expect(done, "slurm, after a cancel")
        assert hashes(root / "cancel") == hashes(root / "local-limit"), "a hash differs after a cancel"
        print("cancel: saved and continued, same hashes", flush=True)
        print(json.dumps(results))
    finally:
        cluster.stop()
        if sys.exc_info()[0] is None:
            shutil.rmtree(root, ignore_errors=True)
        else:
            print(f"the files of the failed test are in {root}", file=sys.stderr)


if __name__ == "__main__":
    main()

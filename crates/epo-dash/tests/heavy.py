"""Burdens the dashboard: 10,000 runs, files of 1 GB, replays of hostile folders, 1,000 clients that do not read. Also
`epo runs` and `epo report`.

    python3 crates/epo-dash/tests/heavy.py target/release/epo [--only NAME]

Each test fails if the server takes more than 500 MB of memory, or is slow to answer. `./check long` calls it. The files
are written to a temporary folder (TMPDIR), which needs 3 GB.
"""

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import make_runs

MOST_MEMORY = 500e6
#: Seconds that an answer may take, also on a busy machine.
PATIENCE = 5.0


class Server:
    """A dashboard on a folder; `with` ends it."""

    def __init__(self, program, folder):
        command = [program, "dash", folder, "--port", "0", "--quiet"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.slowest = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def get(self, path):
        """Returns an answer and notes the time that it took."""
        begun = time.monotonic()
        with urllib.request.urlopen(self.url + path, timeout=120) as answer:
            text = answer.read()
        self.slowest = max(self.slowest, time.monotonic() - begun)
        return text

    def loaded(self, runs):
        """Waits until all rows are read, and returns the overview and the seconds."""
        begun = time.monotonic()
        while True:
            overview = json.loads(self.get("api/overview"))
            if overview["all"] == runs and overview["loading"] == 0:
                return overview, time.monotonic() - begun
            assert time.monotonic() - begun < 300, f"{overview['loading']} of {overview['all']} runs are not read"
            time.sleep(0.2)

    def memory(self):
        """Returns the largest resident memory so far, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])

    def check(self, name, more):
        print(f"{name}: {self.memory() / 1e6:.0f} MB; slowest answer {self.slowest:.2f} s; {more}", flush=True)
        assert self.memory() < MOST_MEMORY, f"{self.memory() / 1e6:.0f} MB"
        assert self.slowest < PATIENCE, f"{self.slowest:.1f} s"


def look(server, overview):
    """Asks for everything that the page shows."""
    for entry in overview["tasks"][:4]:
        for y in ("ret,cost", "excess,f,alpha,mu,psi,weight"):
            server.get(f"api/curves?task={entry['task']}&y={y}&band=ci95&seeds=true")
        server.get(f"api/settings?task={entry['task']}")
    server.get("api/runs.csv")
    server.get("api/overview")


def command(program, args, most_seconds):
    """Runs a command that must take less than `most_seconds` of processor time, and little memory."""
    process = subprocess.Popen([program, *map(str, args)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = used.ru_utime + used.ru_stime
    print(f"epo {args[0]}: {seconds:.1f} s of processor time, {used.ru_maxrss / 1e3:.0f} MB", flush=True)
    assert process.returncode == 0, process.returncode
    assert seconds < most_seconds and 1e3 * used.ru_maxrss < MOST_MEMORY, f"the limit is {most_seconds} s"


def ten_thousand_runs(program, folder):
    """10,000 runs of 300 epochs."""
    pairs = [(task, algo) for task in make_runs.TASKS for algo in make_runs.ALGOS]
    sources = [make_runs.write_run(folder / "runs", task, algo, 0, 300)[0] for task, algo in pairs]
    for i in range(len(pairs), 10_000):
        (task, algo), seed = pairs[i % len(pairs)], i // len(pairs)
        run = sources[i % len(pairs)].with_name(f"seed-{seed:03d}-2026-11-17-05-00-00")
        run.mkdir()
        (run / "config.toml").write_text(make_runs.config(task, algo, seed, 300), encoding="utf-8")
        os.link(sources[i % len(pairs)] / "progress.csv", run / "progress.csv")
        checkpoint = run / "checkpoint" / "000300"
        checkpoint.mkdir(parents=True)
        (checkpoint / "manifest.json").write_text(json.dumps({"hash": f"{i:064x}"}), encoding="utf-8")
    command(program, ["runs", folder / "runs"], 2.0)
    command(program, ["report", folder / "runs", "--out", folder / "report", "--quiet"], 60.0)
    with Server(program, folder) as server:
        overview, seconds = server.loaded(10_000)
        look(server, overview)
        server.check("10,000 runs", f"read in {seconds:.1f} s")


def a_gigabyte(program, folder):
    """One run with files of 1 GB, beside a small one."""
    make_runs.write_run(folder, make_runs.TASKS[0], "epo", 1, 10)
    run, curve = make_runs.write_run(folder, make_runs.TASKS[0], "epo", 0, 0, planned=10**7)
    rows = [curve.row().split(",") for _ in range(1000)]
    steps = make_runs.header("epo").split(",").index("TotalEnvSteps")
    with open(run / "progress.csv", "a", encoding="utf-8") as file:
        block = 0
        while file.tell() < 1e9:
            for k, row in enumerate(rows):
                row[steps] = str((block * 1000 + k + 1) * make_runs.STEPS)
            file.write("\n".join(map(",".join, rows)) + "\n")
            block += 1
    with open(run / "episodes.csv", "a", encoding="utf-8") as file:
        step = 0
        while file.tell() < 1e9:
            block = []
            for _ in range(10_000):
                step += 1000
                block.append(f"{step},{step % 32},12.3456,{step % 97},1000\n")
            file.write("".join(block))
    with Server(program, folder) as server:
        overview, seconds = server.loaded(2)
        entry = next(r for r in overview["runs"] if r["seed"] == 0)
        look(server, overview)
        begun = time.monotonic()
        found = json.loads(server.get(f"api/episodes?run={entry['id']}&steps={step // 2}"))
        assert found["episodes"], found
        server.slowest = 0.0  # the first question reads the whole file once
        index = time.monotonic() - begun
        server.get(f"api/episodes?run={entry['id']}&steps={step // 3}")
        server.check("files of 1 GB", f"{entry['epochs']:,} epochs read in {seconds:.1f} s, episodes in {index:.1f} s")


def hostile_replays(program, folder):
    """Replays of a run with an episodes.csv of 1 GB, of one with a row of 1 GB, and of one that asks for huge networks."""
    settings = ["train.envs=2", "train.steps_per_epoch=2000", "train.passes=1", "train.hidden=[8]", "train.final_eval_episodes=0"]
    command = [program, "train", "SafetyPointGoal1-v0", "--physics", "fast", "--steps", "4000", "--quiet", "--runs", folder]
    subprocess.run([*command, *(part for setting in settings for part in ("--set", setting))], check=True)
    long = next(folder.glob("*/*/episodes.csv")).parent
    others = {"hidden": long.with_name("hidden"), "row": long.with_name("row")}
    for other in others.values():
        shutil.copytree(long, other)
    config = (others["hidden"] / "config.toml").read_text(encoding="utf-8")
    hostile = config.replace("hidden = [8]", "hidden = [8, 65536, 65536, 65536]")
    assert config != hostile
    (others["hidden"] / "config.toml").write_text(hostile, encoding="utf-8")
    rows = 4
    with open(long / "episodes.csv", "a", encoding="utf-8") as file:
        while file.tell() < 1e9:
            block = [f"{4000 + 500 * (rows + i)},{i % 2},12.3456,{i % 97},1000\n" for i in range(10_000)]
            file.write("".join(block))
            rows += len(block)
    with open(others["row"] / "episodes.csv", "a", encoding="utf-8") as file:
        for _ in range(1000):
            file.write("9" * 1_000_000)
    with Server(program, folder) as server:
        overview, _ = server.loaded(3)
        ids = {Path(run["name"]).name: run["id"] for run in overview["runs"]}
        begun = time.monotonic()
        page = server.get(f"replay?run={ids[long.name]}&episode={rows}")
        seconds = time.monotonic() - begun
        assert b"This is not exactly" in page and b"epo-replay" in page, page[:500]
        for name, episode, word in [("hidden", 1, "policy.1.weight has the shape"), ("row", 3, "too long")]:
            try:
                page = server.get(f"replay?run={ids[name]}&episode={episode}").decode()
            except urllib.error.HTTPError as error:
                page = error.read().decode()
            assert word in page, (name, page[:500])
        server.slowest = 0.0
        server.get("api/overview")
        server.check("hostile replays", f"row {rows:,} of a file of 1 GB in {seconds:.1f} s")


def a_thousand_clients(program, folder):
    """1,000 clients that ask for large answers and do not read them, and others that ask and read."""
    pairs = [(task, algo) for task in make_runs.TASKS for algo in make_runs.ALGOS]
    for i in range(200):
        make_runs.write_run(folder, *pairs[i % len(pairs)], i // len(pairs), 300)
    with Server(program, folder) as server:
        overview, seconds = server.loaded(200)
        host, port = server.url.split("/")[2].rsplit(":", 1)
        paths = ["api/overview", "echarts/index-DlVyZyb_.js", f"api/curves?task={make_runs.TASKS[0]}&y=ret&seeds=true", "?"]
        clients = []
        for i in range(1000):
            client = socket.create_connection((host, int(port)))
            client.sendall(f"GET /{paths[i % 4]} HTTP/1.1\r\nHost: {host}:{port}\r\n".encode())
            if i % 5:
                client.sendall(b"\r\n")  # every fifth never ends its request
            clients.append(client)
        server.slowest = 0.0
        for _ in range(5):
            look(server, overview)
            time.sleep(1)
        server.check("1,000 clients", "all connected")
        [client.close() for client in clients]


def main():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    program = str(Path(sys.argv[1]).resolve())
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    for test in (ten_thousand_runs, a_gigabyte, hostile_replays, a_thousand_clients):
        if only in ("", test.__name__):
            with tempfile.TemporaryDirectory() as folder:
                test(program, Path(folder))


if __name__ == "__main__":
    sys.exit(__doc__) if len(sys.argv) < 2 else main()

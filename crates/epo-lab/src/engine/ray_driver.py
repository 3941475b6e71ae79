"""Executes the tasks of a folder on a Ray cluster. `epo sweep --on ray` starts this program; it is part of the binary.

    python driver.py DIR/ray/0001

The folder has tasks-*.jsonl (one task per line, each a list of runs) and ray.json (settings). Events go to stdout, one
JSON document per line:

    {"event": "ready", "nodes": 3, "cpus": 6}
    {"event": "progress", "runs": {"<run>": ["<node>", <steps>]}, "running": ["<run>"]}
    {"event": "ended", "task": 0}
    {"event": "lost", "task": 0, "message": "…"}                the retries of the task are used up
    {"event": "news", "message": "…"}                           shown once; a "warning" is shown until the next one
    {"event": "error", "kind": "unavailable", "message": "…"}   then the program ends

Without a storage the nodes work in the folder of the sweep, which they share. With a storage a node works in a folder
of its own. It puts the run folder into the storage after each checkpoint, and the next node continues from there. The
driver takes finished runs out of the storage.
"""

import collections
import glob
import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

LATE = 75  # exit code: saved and not finished
NOT_HERE = 69  # exit code: this machine cannot make the runs
FULL = 74  # exit code: a file cannot be written
# exceptions of Ray if a task was lost with its worker or its node
LOST = ("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError")
MOST_CHECKS = 3  # maximum number of nodes that are checked before the first run


class Path:
    """A storage that is a folder on a file system that all nodes share."""

    def __init__(self, root):
        self.root = root

    def put(self, name, data):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.{socket.gethostname()}.{os.getpid()}.part"
        try:
            with open(part, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            if os.path.exists(part):
                os.remove(part)
            raise

    def get(self, name):
        with open(os.path.join(self.root, name), "rb") as file:
            return file.read()

    def names(self, folder):
        try:
            return sorted(name for name in os.listdir(os.path.join(self.root, folder)) if name.endswith(".tar"))
        except FileNotFoundError:
            return []

    def runs(self):
        """Returns the runs that the storage has a folder of."""
        try:
            return set(os.listdir(self.root))
        except FileNotFoundError:
            return set()

    def clear(self, folder):
        """Removes a folder with everything in it, such as an incomplete file of a killed process."""
        shutil.rmtree(os.path.join(self.root, folder), ignore_errors=True)

    def remove(self, name):
        try:
            os.remove(os.path.join(self.root, name))
        except FileNotFoundError:
            pass


class Fsspec:
    """A storage that fsspec opens, such as s3://bucket/folder."""

    def __init__(self, url):
        import fsspec

        self.fs, self.root = fsspec.core.url_to_fs(url)
        self.fs.makedirs(self.root, exist_ok=True)

    def put(self, name, data):
        path = f"{self.root}/{name}"
        self.fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        part = f"{path}.{socket.gethostname()}.{os.getpid()}.part"
        try:
            self.fs.pipe_file(part, data)
            self.fs.mv(part, path)
        except BaseException:
            if self.fs.exists(part):
                self.fs.rm_file(part)
            raise

    def get(self, name):
        return self.fs.cat_file(f"{self.root}/{name}")

    def names(self, folder):
        self.fs.invalidate_cache()
        try:
            found = self.fs.ls(f"{self.root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rsplit("/", 1)[-1] for name in found if name.endswith(".tar"))

    def runs(self):
        self.fs.invalidate_cache()
        return {name.rstrip("/").rsplit("/", 1)[-1] for name in self.fs.ls(self.root, detail=False)}

    def clear(self, folder):
        try:
            self.fs.rm(f"{self.root}/{folder}", recursive=True)
        except FileNotFoundError:
            pass

    def remove(self, name):
        try:
            self.fs.rm_file(f"{self.root}/{name}")
        except FileNotFoundError:
            pass


def open_storage(address):
    return Fsspec(address) if "://" in address else Path(address)


def pack(sweep, run, part="", ended=False):
    """Returns number of epochs and tar archive of a run, or None before its first checkpoint.

    A run that has ended is archived even without a checkpoint: it has failed before the first one. `part` is the
    subfolder of the run in a sharded sweep; the archive does not have it. The checkpoint is read first: the records that
    are read after it are at least as long as it states.
    """
    runs, journals = os.path.join(sweep, "runs", part), os.path.join(sweep, "journal", part)
    for _ in range(20):
        folders = glob.glob(os.path.join(glob.escape(runs), "*", run))
        saved = []
        for folder in folders:
            checkpoints = os.path.join(folder, "checkpoint")
            if os.path.isdir(checkpoints):
                saved = sorted(name for name in os.listdir(checkpoints) if re.fullmatch(r"\d+", name))
        if not saved and not ended:
            return None
        newest = saved[-1] if saved else None
        first = [os.path.join(folders[0], "checkpoint", newest)] if newest else []
        out = io.BytesIO()
        try:
            with tarfile.open(fileobj=out, mode="w") as archive:
                for path in first + folders[:1]:
                    add(archive, path, "runs", runs, checkpoint=newest)
                add(archive, os.path.join(journals, run), "journal", journals)
        except FileNotFoundError:  # a checkpoint was replaced meanwhile
            time.sleep(0.05)
            continue
        return int(newest or 0), out.getvalue()
    return None


def add(archive, path, name, root, checkpoint=None):
    """Adds the regular files below a folder, each once. `root` is called `name` in the archive."""
    have = set(archive.getnames())
    for at, folders, files in os.walk(path):
        if os.path.basename(at) == "checkpoint":
            folders[:] = [folder for folder in folders if folder == checkpoint]
        for file_name in sorted(files):
            file = os.path.join(at, file_name)
            short = os.path.join(name, os.path.relpath(file, root))
            if short in have or file_name == "lock" or file_name.startswith((".", "lease-")):
                continue
            with open(file, "rb") as content:
                data = content.read()  # read whole: the file may grow meanwhile
            info = tarfile.TarInfo(short)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def unpack(data, sweep):
    """Writes the files of an archive below a folder. Nothing but regular files inside it is accepted."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            parts = member.name.split("/")
            if not member.isreg() or member.name.startswith("/") or ".." in parts or parts[0] not in ("runs", "journal"):
                raise ValueError(f"the archive has an entry that does not belong to a run: {member.name!r}")
            path = os.path.join(sweep, member.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                shutil.copyfileobj(archive.extractfile(member), file)


def steps_of(sweep, run):
    """Returns the number of environment steps in the last whole row of progress.csv."""
    for path in glob.glob(os.path.join(glob.escape(sweep), "runs", "*", run, "progress.csv")) + glob.glob(
        os.path.join(glob.escape(sweep), "runs", "*", "*", run, "progress.csv")
    ):
        try:
            with open(path, "rb") as file:
                header = file.readline().decode().rstrip("\n").split(",")
                file.seek(max(0, os.path.getsize(path) - 8192))
                rows = file.read().decode(errors="replace").split("\n")[:-1]
            return int(float(rows[-1].split(",")[header.index("TotalEnvSteps")]))
        except (OSError, ValueError, IndexError):
            pass
    return 0


class NotStored(Exception):
    """The storage does not accept the run. The run is not started again, because its results could not be stored."""


def end_with_parent():
    """Asks Linux to send SIGTERM to this process when its parent ends: the run of a killed worker saves and ends."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    except (AttributeError, OSError):
        pass


def execute(task, number, settings, board):
    """Runs on a node: makes the runs of one task. Returns the exit code of `epo work`, its last output and the node."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    try:
        return (*work(task, number, settings, board, node[:8]), node)
    except NotStored as error:
        return FULL, str(error), node
    except OSError as error:  # such as a full disk
        return FULL, f"node {node[:8]}: {error}", node


def work(task, number, settings, board, node):
    """Makes the runs of one task. Returns the exit code of `epo work` and its last output."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # a Ray that was started in the background of a shell ignores SIGINT, and then a task cannot be cancelled
        signal.signal(signal.SIGINT, signal.default_int_handler)
    storage = open_storage(settings["storage"]) if settings["storage"] else None
    scratch = None
    try:
        tasks, sweep = settings["tasks"], settings["dir"]
        if storage:
            scratch = tempfile.mkdtemp(prefix="epo-ray-")
            sweep, tasks = os.path.join(scratch, "sweep"), os.path.join(scratch, "task")
            for run in task:
                archives = storage.names(run["id"])
                if archives:  # `ended.tar` sorts before `epoch-…`
                    unpack(storage.get(f"{run['id']}/{archives[0 if archives[0] == 'ended.tar' else -1]}"), sweep)
            os.makedirs(tasks)
            with open(os.path.join(tasks, "tasks-000.jsonl"), "w") as file:
                file.write(json.dumps(task) + "\n")
            with open(os.path.join(tasks, "sweep.json"), "w") as file:
                json.dump({"dir": sweep, "version": settings["version"]}, file)
        wanted = "check" if number is None else str(0 if storage else number)
        program = settings["program"] or [sys.executable, "-m", "epo"]
        command = [*program, "work", tasks, "--task", wanted, "--cpus", str(settings["cpus"])]
        env = {**os.environ, "EPO_SWEEP_CHILD": "patient", "EPO_NODE": node}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        try:
            child = subprocess.Popen(command, env=env, preexec_fn=end_with_parent, **pipes)
        except OSError as error:
            return NOT_HERE, f"node {node} cannot start `{program[0]}`: {error}"
        said = []
        reader = threading.Thread(target=lambda: said.extend(child.stdout), daemon=True)
        reader.start()
        try:
            watch(child, task, sweep, storage, settings, board, node)
        except BaseException:  # cancelled: let the run save
            child.terminate()
            child.wait()
            raise
        finally:
            if storage and number is not None:
                for run in task:
                    store(storage, sweep, run["id"], ended=child.poll() in (0, 1))
        reader.join(5)
        text = " / ".join(line.strip() for line in said[-3:]).removeprefix("error: ")
        code = child.returncode
        if code == LATE or code < 0:  # a negative number is that of a signal
            how = "was interrupted" if code == LATE else f"was ended by signal {-code}"
            return LATE, f"the run {how} on node {node}" + (f": {text}" if text else "")
        if code in (126, 127):  # of a shell that cannot start the program
            return NOT_HERE, f"node {node} cannot start `{program[0]}`: {text}"
        return code, text
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def watch(child, task, sweep, storage, settings, board, node):
    """Waits for a child; reports its steps and puts new checkpoints into the storage."""
    synced, told = {}, None
    due = time.monotonic() + settings["sync"]
    while True:
        try:
            child.wait(timeout=1)
            return
        except subprocess.TimeoutExpired:
            pass
        now = {run["id"]: (node, steps_of(sweep, run["id"])) for run in task}
        if board is not None and now != told:
            board.tell.remote(now)
            told = now
        if storage and time.monotonic() >= due:
            for run in task:
                try:
                    synced[run["id"]] = save(storage, sweep, run["id"], after=synced.get(run["id"], -1))
                except Exception as error:  # the run continues; the next attempt or the last one may succeed
                    if board is not None:
                        board.warn.remote(f"the storage takes no checkpoint of {run['id']}: {error}")
            due = time.monotonic() + settings["sync"]


def store(storage, sweep, run, ended):
    """Puts a run into the storage at the end of a task; tries three times."""
    for pause in (1, 5, None):
        try:
            return save(storage, sweep, run, ended=ended)
        except Exception as error:
            if pause is None:
                raise NotStored(f"the storage does not take the run: {error}") from None
            time.sleep(pause)


def save(storage, sweep, run, after=-1, ended=False):
    """Puts a run into the storage, if it has a newer checkpoint, and removes older archives. Returns its epoch."""
    packed = pack(sweep, run, ended=ended)
    if packed is None:
        return after
    epoch, data = packed
    if ended or epoch > after:
        storage.put(f"{run}/" + ("ended.tar" if ended else f"epoch-{epoch:08}.tar"), data)
        old = [name for name in storage.names(run) if name.startswith("epoch-")]
        for name in old if ended else old[:-2]:
            storage.remove(f"{run}/{name}")
    return epoch


def part_of(run, settings):
    """Returns the subfolder of a run in the folder of the sweep."""
    return hashlib.sha256(run.encode()).hexdigest()[:2] if settings["sharded"] else ""


def offer(storage, run, settings):
    """Puts a run that was begun in the folder of the sweep into the storage, unless the storage has as many epochs."""
    packed = pack(settings["dir"], run, part_of(run, settings))
    if packed is not None and f"epoch-{packed[0]:08}.tar" > max(storage.names(run), default=""):
        storage.put(f"{run}/epoch-{packed[0]:08}.tar", packed[1])


def arrive(storage, run, settings):
    """Takes a finished run out of the storage into the folder of the sweep. `done.json` goes last."""
    names = storage.names(run)
    if "ended.tar" not in names:
        return
    part = part_of(run, settings)
    work = tempfile.mkdtemp(prefix=".arriving-", dir=settings["dir"])
    try:
        unpack(storage.get(f"{run}/ended.tar"), work)
        for folder in glob.glob(os.path.join(glob.escape(work), "runs", "*", run)):
            kind = os.path.basename(os.path.dirname(folder))
            parent = os.path.join(settings["dir"], "runs", part, kind)
            os.makedirs(parent, exist_ok=True)
            shutil.rmtree(os.path.join(parent, run), ignore_errors=True)
            os.rename(folder, os.path.join(parent, run))
        journal = os.path.join(settings["dir"], "journal", part, run)
        os.makedirs(journal, exist_ok=True)
        came = os.path.join(work, "journal", run)
        files = os.listdir(came) if os.path.isdir(came) else []
        for name in sorted(files, key=lambda name: name in ("done.json", "failed.json")):
            os.replace(os.path.join(came, name), os.path.join(journal, name))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    storage.clear(run)


class Board:
    """An actor that collects what the tasks report."""

    def __init__(self):
        self.runs, self.warnings = {}, []

    def tell(self, runs):
        self.runs.update(runs)

    def warn(self, text):
        self.warnings.append(text)

    def take(self):
        runs, warnings, self.runs, self.warnings = self.runs, self.warnings, {}, []
        return runs, warnings


class Fail(Exception):
    """Ends the driver with a message."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def emit(event, **values):
    print(json.dumps({"event": event, **values}), flush=True)


def connect(settings):
    try:
        import ray
    except ImportError as error:
        raise Fail("unavailable", f"this Python has no Ray ({sys.executable}: {error}); pip install ray") from None
    address = settings["address"] or os.environ.get("RAY_ADDRESS") or "auto"
    found = re.fullmatch(r"(?:ray://)?(\[[^\]]+\]|[^:/]+):(\d+)/?", address)
    if found:  # Ray itself tries for a minute
        try:
            socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=5).close()
        except OSError as error:
            raise Fail("unavailable", f"no Ray cluster answers at {address} ({error}); check RAY_ADDRESS") from None
    try:
        ray.init(address=address, log_to_driver=False, runtime_env=settings["runtime_env"] or None, logging_level="error")
    except ConnectionError as error:
        hint = "set RAY_ADDRESS to its address, or start one with `ray start --head`"
        raise Fail("unavailable", f"no Ray cluster was found ({str(error).splitlines()[0]}); {hint}") from None
    except Exception as error:
        raise Fail("unavailable", f"the Ray cluster at {address} cannot be used: {error}") from None
    return ray


class Driver:
    """Gives the tasks of a folder to Ray and handles their results."""

    def __init__(self, folder):
        with open(os.path.join(folder, "ray.json")) as file:
            self.settings = json.load(file)
        self.tasks = []
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "tasks-*.jsonl"))):
            with open(path) as file:
                self.tasks += [json.loads(line) for line in file]
        self.stop = threading.Event()
        self.storage, self.stored = None, set()
        self.waiting, self.running = list(range(len(self.tasks)))[::-1], {}
        self.bad = {}  # nodes that cannot make the runs, each with the reason
        self.starts = collections.Counter()  # by task: how often it was given to a node
        self.turned_away = collections.Counter()  # by task: how often a node could not make its runs
        self.problem = None  # ends the sweep as soon as the running tasks have saved
        self.asked = None  # when the running tasks were asked to save

    def drive(self):
        if self.settings["storage"]:
            self.open_storage()
        self.ray = ray = connect(self.settings)
        # not earlier: Ray sets handlers that end the driver, and its tasks with it, before their runs are saved
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        emit("ready", nodes=len(nodes), cpus=sum(nodes))
        cpus = self.settings["cpus"]
        if any(nodes) and max(nodes) < cpus:
            raise Fail("refused", f"no node of the Ray cluster has {cpus} cores; the largest has {max(nodes):g} (--cpus)")
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self.board = ray.remote(Board).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        # tasks are started again by `again`, which counts all starts
        self.make = ray.remote(num_cpus=cpus, max_retries=0)(execute)
        if not self.check():
            return
        window = self.settings["at_once"] or 1000
        while self.running or (self.waiting and not self.halted()):
            while self.waiting and len(self.running) < window and not self.halted():
                self.submit(self.waiting.pop())
            if self.halted():
                self.cancel()
            if self.running:
                for ref in ray.wait(list(self.running), timeout=1)[0]:
                    self.handle(ref)
            self.report()
        if self.problem is not None:
            raise self.problem

    def halted(self):
        return self.stop.is_set() or self.problem is not None

    def open_storage(self):
        address = self.settings["storage"]
        try:
            self.storage = open_storage(address)
            self.storage.put(".write", bytes(1 << 20))  # a full storage takes an empty file
            self.storage.remove(".write")
            self.stored = self.storage.runs()
        except ImportError as error:
            raise Fail("unavailable", f"the storage {address} needs a Python package: {error}") from None
        except ValueError as error:  # fsspec does not know the protocol
            raise Fail("usage", f"the storage {address} cannot be opened: {error}") from None
        except Exception as error:
            raise Fail("io", f"the storage {address} cannot be written: {error}") from None

    def on_good_nodes(self, **options):
        """Returns the remote function, for nodes that are not known to be bad."""
        if self.bad:
            try:
                return self.make.options(label_selector={"ray.io/node-id": f"!in({','.join(self.bad)})"}, **options)
            except (TypeError, ValueError):  # an older Ray cannot select nodes; `turned_away` ends the attempts
                pass
        return self.make.options(**options)

    def exclude(self, node, why):
        """Notes a node that cannot make the runs. Returns whether another node may be able to."""
        if node not in self.bad:
            self.bad[node] = why
            emit("news", message=f"{why}; this command gives the node no further run")
        large = (node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= self.settings["cpus"])
        return any(node["NodeID"] not in self.bad for node in large)

    def check(self):
        """Asks a node whether it can make the runs, before a thousand tasks fail. Returns false if the user stops."""
        for _ in range(MOST_CHECKS):
            check = self.on_good_nodes(name="epo-check").remote(self.tasks[0], None, self.settings, None)
            while not self.ray.wait([check], timeout=1)[0]:
                if self.stop.is_set():
                    self.ray.cancel(check, force=True)
                    return False
            try:
                code, said, node = self.ray.get(check)
            except Exception as error:
                code, said = LATE if is_lost(error) else None, reason(error)
            if code == 0:
                return True
            if code != LATE and (code != NOT_HERE or not self.exclude(node, said)):
                break
        raise Fail("unavailable", f"the check of a node failed, so no run was started: {said}")

    def submit(self, number):
        """Gives a task to Ray."""
        name = self.tasks[number][0]["id"]
        try:
            for run in self.tasks[number] if self.storage else []:
                if run["id"] in self.stored:  # an earlier driver may have ended before it took the run out
                    arrive(self.storage, run["id"], self.settings)
                offer(self.storage, run["id"], self.settings)
        except Exception as error:
            self.problem = Fail("io", f"the storage does not take {name}: {error}")
            return
        ref = self.on_good_nodes(name=name).remote(self.tasks[number], number, self.settings, self.board)
        self.running[ref] = number
        self.starts[number] += 1

    def cancel(self):
        """Lets the running tasks save. A second call within two minutes would disturb that."""
        if self.asked is None or time.monotonic() > self.asked + 120:
            self.asked = time.monotonic()
            for ref in self.running:
                self.ray.cancel(ref)  # raises KeyboardInterrupt in the task

    def handle(self, ref):
        """Handles the result of a task that has ended."""
        number = self.running.pop(ref)
        name = self.tasks[number][0]["id"]
        try:
            code, said, node = self.ray.get(ref)
        except Exception as error:
            if is_lost(error):
                code, said = LATE, reason(error)
            else:  # also a task that was cancelled
                if not self.halted():
                    self.problem = Fail("unavailable", f"{name}: {reason(error)}")
                return
        if code == LATE:
            self.again(number, said)
            return
        if code == NOT_HERE:
            self.starts[number] -= 1
            self.turned_away[number] += 1
            if self.exclude(node, said) and self.turned_away[number] <= self.settings["retries"]:
                self.waiting.append(number)
            elif self.problem is None:
                self.problem = Fail("unavailable", f"{name}: {said}")
            return
        if self.storage:
            for run in self.tasks[number]:
                try:
                    arrive(self.storage, run["id"], self.settings)
                except Exception as error:
                    self.problem = Fail("io", f"{run['id']} cannot be taken out of the storage: {error}")
        if code not in (0, 1) and self.problem is None:  # not the outcome of a run, such as a full disk
            self.problem = Fail("io" if code == FULL else "failed", f"{name}: {said}")
        emit("ended", task=number)

    def again(self, number, why):
        """Starts a task again whose run was interrupted or lost, unless its retries are used up."""
        if self.halted():
            return
        if self.starts[number] <= self.settings["retries"]:
            self.waiting.append(number)
        else:
            emit("lost", task=number, message=why)

    def report(self):
        """Tells the progress of the running tasks."""
        try:
            runs, warnings = self.ray.get(self.board.take.remote(), timeout=5)
        except Exception:  # the actor is being started again on another node
            runs, warnings = {}, []
        emit("progress", runs=runs, running=[self.tasks[number][0]["id"] for number in self.running.values()])
        for warning in warnings:
            emit("warning", message=warning)


def is_lost(error):
    """Whether a task ended with its worker or its node."""
    return type(getattr(error, "cause", None) or error).__name__ in LOST


def reason(error):
    """Returns the message of the exception that a task raised."""
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


if __name__ == "__main__":
    try:
        Driver(sys.argv[1]).drive()
    except Fail as fail:
        emit("error", kind=fail.kind, message=str(fail))
        sys.exit(1)
    except Exception as error:
        emit("error", kind="failed", message=f"{type(error).__name__}: {error}")
        raise

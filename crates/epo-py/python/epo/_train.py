"""Training, resuming and evaluating runs."""

from __future__ import annotations

import ctypes
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from . import _epo
from ._adapter import Adapter, need_gymnasium
from ._env import seed_of, whole
from ._epo import ConfigError, EpoError
from ._policy import Policy
from ._workers import Pool, WorkerDied

if TYPE_CHECKING:  # type checkers have typing_extensions, programs may not
    from typing_extensions import Unpack

    from ._settings import Settings

__all__ = ["Run", "WorkerDied", "check_env", "evaluate", "resume", "sweep", "train"]

Callback = Callable[[dict], Any]


def train(
    task: Any = None,
    *,
    algo: str | None = None,
    steps: float | None = None,
    seed: int | None = None,
    limit: float | None = None,
    envs: int | None = None,
    threads: int | None = None,
    physics: str | None = None,
    config: Any = None,
    settings: dict[str, Any] | None = None,
    runs: Any = "runs",
    name: str | None = None,
    callback: Callback | Iterable[Callback] | None = None,
    progress: bool | None = None,
    cost_fn: Callable[..., float] | None = None,
    max_steps: int | None = None,
    workers: int | None = None,
    check: bool = True,
    id: str | None = None,
    **more: Unpack[Settings],
) -> Run:
    """Trains an algorithm and returns the run. The run folder has the same bytes and hash as with ``epo train``.

    Parameters
    ----------
    task
        Id of a published task, or a function without arguments that returns a Gymnasium environment.
        Default: ``SafetyPointGoal1-v0``.
    algo
        Name of the algorithm; :func:`epo.algos` lists all. Default: ``epo``.
    steps
        Number of environment steps, over all environments. Default: ten million.
    seed
        Root seed of all random streams. Default: 0.
    limit
        Limit on the mean episode cost. Default: 25.
    envs
        Number of environments that are stepped in parallel; it changes the results. Default: 32.
    threads
        Number of threads; it does not change the results. Default: one per core.
    physics
        ``"published"`` or ``"fast"``. Default: ``"published"``.
    config
        Path of a TOML file with settings.
    settings
        Further settings by their dotted keys, such as ``{"train.gamma": 0.995}``.
    runs, name
        Folder in which the run folder is made, and its name. Default: ``runs``, and a name from seed and time.
    callback
        Function, or list of functions, called with the row of ``progress.csv`` after each epoch, as a dictionary. A
        function that returns ``False`` stops the run; an exception stops the run and is raised. The run is saved first.
    progress
        Show the progress on stderr. Default: only in a terminal or in a notebook.
    cost_fn
        For environments of your own: ``cost_fn(obs, action, next_obs, info)`` returns the cost of a step. Default:
        ``info["cost"]``.
    max_steps
        For environments of your own: time limit of an episode. Default: that of the environment, otherwise 1000.
    workers
        For environments of your own: number of worker processes; 0 steps the environments in this process. Default:
        one per thread.
    check
        For environments of your own: first play a few episodes and reject an environment that breaks a rule of
        :func:`check_env`. Default: true.
    id
        For environments of your own: name of the environment in the run folder. Default: its Gymnasium id or class.
    more
        Every other setting by its name, such as ``gamma=0.995`` or ``hidden=[64, 64]``. ``epo train --print-config``
        lists all. ``lambda_`` is ``train.lambda``, because ``lambda`` is a Python keyword. A name that occurs in two
        tables, such as ``target_kl`` for CPO, must be passed in ``settings`` with its full name.

    Ctrl-C finishes the epoch, saves the run and raises ``KeyboardInterrupt``; :func:`resume` continues it. A second
    Ctrl-C does not wait for the epoch; the run is then saved up to its last checkpoint.

    >>> import epo, tempfile
    >>> small = dict(steps=200, envs=2, steps_per_epoch=100, passes=1, minibatch=50, hidden=[8], final_eval_episodes=0)
    >>> run = epo.train("SafetyPointGoal1-v0", runs=tempfile.mkdtemp(), progress=False, **small)
    >>> run.finished, len(run.progress["TotalEnvSteps"])
    (True, 2)
    """
    named = {
        "run.algo": algo,
        "run.steps": steps,
        "run.seed": seed,
        "run.limit": limit,
        "run.physics": physics,
        "train.envs": envs,
        "train.threads": threads,
    }
    chosen: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if settings is not None and not isinstance(settings, dict):
        raise ConfigError(f"`settings` takes a dictionary such as {{'train.gamma': 0.995}}, not {settings!r}")
    chosen.update(settings or {})
    chosen.update(more)
    file = None if config is None else Path(config).read_text(encoding="utf-8")
    job: dict[str, Any] = {"file": file, "runs": os.fspath(runs), "name": name}
    job.update(resume=None, steps=None, threads=None, accept_changes=False)
    own = None
    if callable(task):
        own = _Own(task, cost_fn, max_steps, id, workers, threads, check)
        chosen["run.task"] = own.id
    elif task is not None:
        if not isinstance(task, str):
            raise ConfigError(f"task is an id or a function that makes an environment, not {type(task).__name__}")
        chosen["run.task"] = task
    if own is None and (cost_fn is not None or max_steps is not None or workers is not None):
        raise ConfigError("cost_fn, max_steps and workers are for environments of your own: pass a function as task")
    job["settings"] = [(key, _text(key, value)) for key, value in chosen.items()]
    named_algo = chosen.get("run.algo", chosen.get("algo"))
    job["algo"] = None if named_algo is None else str(named_algo)
    return _run(job, own, callback, progress)


def resume(
    run: Any,
    *,
    steps: float | None = None,
    threads: int | None = None,
    accept_changes: bool = False,
    env: Callable[[], Any] | None = None,
    callback: Callback | Iterable[Callback] | None = None,
    progress: bool | None = None,
    cost_fn: Callable[..., float] | None = None,
    max_steps: int | None = None,
    workers: int | None = None,
) -> Run:
    """Continues a run (a :class:`Run` or its folder) from its last checkpoint to its end, and returns it.

    ``steps`` changes the length of the run. If the folder was changed since its checkpoint, an error
    names the files that differ. ``accept_changes=True`` continues the run with these changes, which ``changes.json``
    and the report list. A run on an environment of your own needs ``env``, the function that makes it, and the same
    ``cost_fn`` and ``max_steps`` as before.

    >>> import epo, tempfile
    >>> small = dict(steps=200, envs=2, steps_per_epoch=100, passes=1, minibatch=50, hidden=[8], final_eval_episodes=0)
    >>> run = epo.train("SafetyPointGoal1-v0", runs=tempfile.mkdtemp(), callback=lambda row: False, **small)
    >>> run.finished, epo.resume(run).finished
    (False, True)
    """
    folder = os.fspath(getattr(run, "dir", run))
    job: dict[str, Any] = {"file": None, "settings": [], "algo": None, "runs": "", "name": None, "resume": folder}
    job.update(threads=None if threads is None else whole("threads", threads), accept_changes=bool(accept_changes))
    job["steps"] = None if steps is None else whole("steps", steps)
    own = None
    if env is None:
        _refuse_missing_env(folder)
    else:
        own = _Own(env, cost_fn, max_steps, None, workers, threads, False)
    return _run(job, own, callback, progress)


def evaluate(
    run: Any,
    *,
    episodes: int = 100,
    seed: int = 0,
    stochastic: bool = False,
    physics: str = "published",
    threads: int = 0,
    env: Callable[[], Any] | None = None,
    cost_fn: Callable[..., float] | None = None,
    max_steps: int | None = None,
    workers: int | None = None,
) -> dict[str, Any]:
    """Plays episodes with the policy of a run, adds the result to its ``eval.json``, and returns the report.

    The report is that of ``epo eval --json``. Both the mean action and sampled actions are evaluated;
    ``stochastic=True`` puts the result with sampled actions at the top level.

    >>> import epo, tempfile
    >>> small = dict(steps=200, envs=2, steps_per_epoch=100, passes=1, minibatch=50, hidden=[8], final_eval_episodes=0)
    >>> run = epo.train("SafetyPointCircle1-v0", runs=tempfile.mkdtemp(), progress=False, **small)
    >>> report = epo.evaluate(run, episodes=1)
    >>> report["episodes"], sorted(report["cost"])[:1]
    (1, ['ci95'])
    """
    episodes, threads = whole("episodes", episodes, 1), whole("threads", threads)
    folder = os.fspath(getattr(run, "dir", run))
    if env is None:
        _refuse_missing_env(folder)
    own = None if env is None else _Own(env, cost_fn, max_steps, None, workers, threads or None, False)
    try:
        report = _epo.evaluate(
            folder,
            episodes=episodes,
            seed=seed_of(seed),
            stochastic=stochastic,
            physics=physics,
            threads=threads,
            make_env=None if own is None else own.make,
            kill=None if own is None else own.kill,
        )
    finally:
        if own is not None:
            own.close()
    return json.loads(report)


def check_env(
    env: Callable[[], Any], *, cost_fn: Callable[..., float] | None = None, max_steps: int | None = None
) -> list[str]:
    """Plays a few episodes of an environment of your own and returns one sentence per rule that it breaks.

    The rules: an episode depends only on its seed and its actions, every number is finite, no cost is negative, and a
    time limit truncates an episode instead of terminating it.

    >>> import epo, gymnasium
    >>> def make():
    ...     return gymnasium.make("CartPole-v1")
    >>> epo.check_env(make, cost_fn=lambda obs, action, next_obs, info: float(abs(next_obs[0]) > 0.5))
    []
    """
    own = _Own(env, cost_fn, max_steps, None, 0, None, False)
    return _epo.check(own.make, own.kill)


def _refuse_missing_env(folder: str) -> None:
    if os.path.exists(os.path.join(folder, "env.json")):
        raise ConfigError(
            f"the run {folder} is on an environment of your own: pass the function that makes it as env, "
            "with the same cost_fn and max_steps"
        )


def sweep(
    file: Any,
    *,
    out: Any = None,
    jobs: int | None = None,
    engine: str = "local",
    storage: str | None = None,
    cpus: int | None = None,
    retries: int | None = None,
    progress: bool | None = None,
    options: Iterable[str] = (),
) -> dict[str, Any]:
    """Runs all configurations of a sweep file, like the command ``epo sweep``, and returns the summary.

    Parameters
    ----------
    file
        Path of the sweep file.
    out
        Folder of the sweep. Default: ``runs/`` followed by the name of the file.
    jobs
        Maximum number of simultaneous runs. Default: one per core on this machine; no limit on a cluster.
    engine
        ``"local"``, ``"slurm"`` or ``"ray"``. Ray connects to ``RAY_ADDRESS``. Default: ``"local"``.
    storage
        With Ray: path or URL (anything that ``fsspec`` opens) through which run folders are transferred. Default:
        none; the nodes share the folder of the sweep.
    cpus
        On a cluster: number of cores per run. Default: 1.
    retries
        On a cluster: maximum number of times that a run is started again after a time limit, a preemption or the loss of
        its node. Default: 20.
    progress
        Show the progress on stderr. Default: only in a terminal or in a notebook.
    options
        Further arguments of the command, such as ``["--partition", "big"]``.

    The same call continues a sweep that was interrupted.

    >>> import epo, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "sweep.toml"
    >>> small = "run.steps = 200\\ntrain.envs = 2\\ntrain.steps_per_epoch = 100\\ntrain.minibatch = 50\\n"
    >>> small += "train.final_eval_episodes = 0\\n"
    >>> _ = file.write_text(f"[base]\\n{small}[grid]\\nrun.seed = [0, 1]\\n")
    >>> epo.sweep(file, out=file.parent / "sweep", progress=False)["done"]
    2
    """
    shown = _is_interactive() if progress is None else progress
    command = [sys.executable, "-m", "epo", "sweep", os.fspath(file), "--json", "--on", engine]
    command += [] if shown else ["--quiet"]
    given = {"--out": out, "--jobs": jobs, "--storage": storage, "--cpus": cpus, "--retries": retries}
    for option, value in given.items():
        command += [] if value is None else [option, os.fspath(value) if option == "--out" else str(value)]
    with tempfile.TemporaryFile("w+") as out_file:  # a pipe that nobody reads while stderr is read could get full
        with subprocess.Popen([*command, *options], stdout=out_file, stderr=subprocess.PIPE, text=True) as child:
            said = []
            for line in child.stderr or ():
                said.append(line)
                if shown:
                    print(line, end="", file=sys.stderr, flush=True)
        out_file.seek(0)
        summary = out_file.read()
    if not summary.strip():
        text = "".join(said)
        text = text[text.rfind("\nerror: ") + 1 :].strip().removeprefix("error: ")
        raise (ConfigError if child.returncode == 2 else EpoError)(text)
    return json.loads(summary)


class Run:
    """A run folder with its configuration, record and policy. Every attribute is read from the folder when it is used.

    >>> import epo, tempfile
    >>> small = dict(steps=1000, envs=2, steps_per_epoch=500, passes=1, minibatch=50, hidden=[8], final_eval_episodes=0)
    >>> run = epo.train("SafetyPointCircle1-v0", runs=tempfile.mkdtemp(), progress=False, **small)
    >>> run = epo.Run(run.dir)  # any run folder
    >>> run.task, run.limit, run.config["run"]["algo"], run.finished
    ('SafetyPointCircle1-v0', 25.0, 'epo', True)
    >>> [int(n) for n in run.progress["TotalEnvSteps"]], [int(n) for n in run.episodes["length"]]
    ([500, 1000], [500, 500])
    >>> run.evaluate(episodes=1)["episodes"], run.evaluation["episodes"]
    (1, 1)
    >>> run.policy().hash == run.hash
    True
    >>> run.export_onnx(run.dir / "policy.onnx")
    >>> run.plot().savefig(run.dir / "run.png")
    >>> run.resume(steps=2000).finished  # a longer run
    True
    """

    def __init__(self, dir: Any) -> None:
        self.dir = Path(dir)
        self.config  # raises an error if the folder is not a run

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """All settings, by table and name."""
        return json.loads(_epo.read_config(os.fspath(self.dir)))

    @property
    def task(self) -> str:
        """Id of the task."""
        return self.config["run"]["task"]

    @property
    def limit(self) -> float:
        """Limit on the mean episode cost."""
        return self.config["run"]["limit"]

    @property
    def hash(self) -> str:
        """Hash of the newest intact checkpoint. Equal runs have equal hashes."""
        return self.policy().hash

    @property
    def finished(self) -> bool:
        """Whether the run has completed all its steps."""
        steps: Any = _columns(self.dir / "progress.csv").get("TotalEnvSteps", [])
        return bool(len(steps) > 0 and steps[-1] >= self.config["run"]["steps"])

    @property
    def progress(self) -> Any:
        """``progress.csv``, one row per epoch: a data frame of pandas or polars if installed, otherwise arrays by name."""
        return _frame(self.dir / "progress.csv")

    @property
    def episodes(self) -> Any:
        """``episodes.csv``, one row per finished episode, in the same form as :attr:`progress`."""
        return _frame(self.dir / "episodes.csv")

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The report of the last evaluation, or ``None``."""
        path = self.dir / "eval.json"
        return json.loads(path.read_text()) if path.exists() else None

    def policy(self) -> Policy:
        """Returns the trained policy."""
        return Policy(self.dir)

    def evaluate(self, **kwargs: Any) -> dict[str, Any]:
        """Evaluates the policy; see :func:`epo.evaluate`."""
        return evaluate(self, **kwargs)

    def resume(self, **kwargs: Any) -> Run:
        """Continues the run; see :func:`epo.resume`."""
        return resume(self, **kwargs)

    def export_onnx(self, path: Any, *, deterministic: bool = True) -> None:
        """Writes the policy as an ONNX file; see :meth:`Policy.export_onnx`."""
        self.policy().export_onnx(path, deterministic=deterministic)

    def plot(self) -> Any:
        """Returns a matplotlib figure: episode return and episode cost over environment steps, with the limit.

        A notebook shows it. In a script, ``run.plot().savefig("run.png")`` writes it to a file.
        """
        try:
            from matplotlib import figure as matplotlib_figure
        except ImportError:
            raise EpoError("run.plot() needs matplotlib: pip install matplotlib") from None

        class Figure(matplotlib_figure.Figure):  # without pyplot, a figure does not show itself in a notebook
            def _repr_png_(self) -> bytes:
                picture = io.BytesIO()
                self.savefig(picture, format="png", dpi=80)
                return picture.getvalue()

        data = _columns(self.dir / "progress.csv")
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        for axes, key, label in ((left, "Metrics/EpRet", "episode return"), (right, "Metrics/EpCost", "episode cost")):
            axes.plot(data["TotalEnvSteps"], data[key])
            axes.set(xlabel="environment steps", ylabel=label)
        right.axhline(self.limit, color="black", linestyle="--", label="limit")
        right.legend()
        figure.suptitle(f"{self.config['run']['algo']} on {self.task}, seed {self.config['run']['seed']}")
        return figure

    def __fspath__(self) -> str:
        return os.fspath(self.dir)

    def __repr__(self) -> str:
        return f"<Run {self.dir}>"


class _Own:
    """The caller's environment, which runs in this process or in worker processes."""

    def __init__(
        self,
        make: Callable[[], Any],
        cost_fn: Any,
        max_steps: int | None,
        id: str | None,
        workers: int | None,
        threads: int | None,
        check: bool,
    ) -> None:
        need_gymnasium()
        if not callable(make):
            raise ConfigError(f"an environment is passed as a function that makes it, not as {type(make).__name__}")
        if max_steps is not None:
            max_steps = whole("max_steps", max_steps, 1)
        if threads is not None:
            threads = whole("threads", threads)
        if workers is None:
            workers = threads or os.cpu_count() or 1
            try:
                import cloudpickle  # noqa: F401
            except ImportError:
                workers = 0
        workers = whole("workers", workers)
        self._adapter = (make, cost_fn, max_steps, id)
        self._pool = None
        self._adapters: weakref.WeakSet[Adapter] = weakref.WeakSet()
        try:
            try:
                if workers > 0:
                    self._pool = Pool(self._adapter, workers)
                    self.id, self.form = self._pool.description[0], self._pool.form
                else:
                    first = Adapter(*self._adapter)
                    self.id, self.form = first.id, first.form
                    first.close()
            except (EpoError, ConfigError, KeyboardInterrupt):
                raise
            except BaseException as error:
                raise EpoError(f"the environment could not be made: {type(error).__name__}: {error}") from error
            if any(task["id"] == self.id for task in _epo.tasks()):
                raise ConfigError(f"the id {self.id!r} belongs to a published task: pass another one as id")
            problems = _epo.check(self.make, self.kill) if check else []
            if problems:
                lines = "\n".join(f"- {problem}" for problem in problems)
                raise ConfigError(f"the environment {self.id} cannot be trained on (check=False skips this):\n{lines}")
        except BaseException:
            self.close()
            raise

    def make(self) -> Any:
        """Returns a new environment."""
        if self._pool is not None:
            return self._pool.make()
        adapter = Adapter(*self._adapter)
        self._adapters.add(adapter)
        return adapter

    def kill(self) -> None:
        """Interrupts all environments: ends their worker processes, or the Python code that runs on their threads."""
        if self._pool is not None:
            self._pool.kill()
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        for adapter in list(self._adapters):
            adapter.killed = True
            if adapter.thread is not None:
                raise_in(ctypes.c_ulong(adapter.thread), ctypes.py_object(KeyboardInterrupt))

    def save_form(self, folder: str) -> None:
        """Adds the form of the actions to ``env.json``, so that a policy returns actions that the environment accepts."""
        path = Path(folder) / "env.json"
        saved = {**json.loads(path.read_text(encoding="utf-8")), **self.form}
        new = path.with_name("env.json.new")
        new.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")
        os.replace(new, path)

    def close(self) -> None:
        """Ends the worker processes."""
        if self._pool is not None:
            self._pool.close()


def _run(job: dict[str, Any], own: _Own | None, callback: Any, progress: bool | None) -> Run:
    several = isinstance(callback, Iterable) and not callable(callback)
    callbacks: list[Any] = [function for function in (callback if several else [callback]) if function is not None]
    for function in callbacks:
        if not callable(function):
            raise ConfigError(f"`callback` takes a function or a list of functions, not {function!r}")
    bar = _Progress(_is_interactive() if progress is None else progress)
    folder: list[str] = []

    def on_start(dir: str, done: int, total: int, notes: list[str]) -> None:
        folder.append(os.fspath(dir))
        if own is not None:
            own.save_form(folder[0])
        bar.start(dir, done, total, notes)

    def on_row(row: dict) -> bool:
        bar.row(row)
        answers = [function(row) for function in callbacks]
        return not any(isinstance(answer, (bool, np.bool_)) and not answer for answer in answers)

    try:
        make, kill = (None, None) if own is None else (own.make, own.kill)
        dir = _epo.train(**job, make_env=make, kill=kill, on_start=on_start, on_row=on_row)
    except KeyboardInterrupt as error:
        if not folder:
            raise
        if "second signal" in str(error):
            text = f"{error}; the run is saved up to its last checkpoint: a new process continues it with"
            raise KeyboardInterrupt(f"{text} epo.resume({folder[0]!r})") from None
        raise KeyboardInterrupt(f"the run is saved; continue with epo.resume({folder[0]!r})") from None
    except WorkerDied as error:
        if not folder:
            raise
        text = f"{error}; the run is saved up to its last checkpoint: epo.resume({folder[0]!r}) continues it"
        raise WorkerDied(text) from error.__cause__
    finally:
        bar.end()
        if own is not None:
            own.close()
    return Run(dir)


def _text(key: str, value: Any) -> str:
    """Returns a setting in the form that the command line accepts."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(json.dumps(x) if isinstance(x, str) else _text(key, x) for x in value) + "]"
    raise ConfigError(f"`{key}` takes a number, a text, true or false, or a list, not {type(value).__name__}")


def _columns(path: Path) -> dict[str, np.ndarray]:
    """Returns the columns of a CSV file of numbers; an empty cell is NaN."""
    header, *lines = path.read_text().splitlines()
    rows = [[float(cell) if cell else math.nan for cell in line.split(",")] for line in lines]
    table = np.array(rows, dtype=float).reshape(len(rows), -1 if rows else header.count(",") + 1)
    return {name: table[:, i] for i, name in enumerate(header.split(","))}


def _frame(path: Path) -> Any:
    try:
        import pandas

        return pandas.read_csv(path)
    except ImportError:
        pass
    try:
        import polars

        return polars.DataFrame(_columns(path))  # numbers in every column, also in one without values
    except ImportError:
        return _columns(path)


def _is_interactive() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class _Progress:
    """One line on stderr that is rewritten after each epoch."""

    def __init__(self, shown: bool) -> None:
        self.shown, self.total, self.done, self.begun, self.open = shown, 1, 0, time.monotonic(), False

    def start(self, dir: Any, done: int, total: int, notes: list[str]) -> None:
        self.total, self.done, self.begun = max(total, 1), done, time.monotonic()
        if self.shown:
            print(f"run {dir}", *(f"note: {note}" for note in notes), sep="\n", file=sys.stderr)

    def row(self, row: dict) -> None:
        if not self.shown:
            return
        steps = int(row["TotalEnvSteps"])
        rate = (steps - self.done) / max(time.monotonic() - self.begun, 1e-9)
        left = (self.total - steps) / max(rate, 1e-9)
        filled = 24 * steps // self.total
        ret, cost = ("–" if row[key] is None else f"{row[key]:.2f}" for key in ("Metrics/EpRet", "Metrics/EpCost"))
        line = (
            f"\r[{'█' * filled}{'·' * (24 - filled)}] {steps:,} of {self.total:,} steps  return {ret}  cost {cost}  "
            f"{rate:,.0f} steps/s  {left:.0f} s left   "
        )
        print(line, end="", file=sys.stderr, flush=True)
        self.open = True

    def end(self) -> None:
        if self.open:
            print(file=sys.stderr)

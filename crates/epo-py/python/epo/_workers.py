"""Worker processes for environments that are written in Python.

A worker is a fresh interpreter that runs ``epo._worker``. Requests and answers go through a socket, observations and
actions through shared memory. A worker ends when its socket is closed, so no process is left behind.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ._epo import ConfigError, EpoError

#: Rows of the shared memory of one worker, one per environment: its maximum number of environments. Unused pages take
#: no memory.
ROWS = 4096
REQUEST = struct.Struct("<cIQ")  # what, row, seed
ANSWER = struct.Struct("<cddBB")  # what, reward, cost, terminated, truncated


class WorkerDied(EpoError):
    """A worker process ended while it was needed."""


def dumps(value: Any) -> bytes:
    """Pickles a value, with functions by value if cloudpickle is installed."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(value)
    return cloudpickle.dumps(value)


class Worker:
    """One worker process."""

    def __init__(self, number: int, payload: bytes) -> None:
        self.number = number
        self.lock = threading.Lock()
        ours, theirs = socket.socketpair()
        self.memory_fd = os.memfd_create(f"epo-worker-{number}")
        command = [sys.executable, "-m", "epo._worker", str(theirs.fileno()), str(self.memory_fd)]
        # the worker imports this package from the same place as this process
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(), self.memory_fd),
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.free = list(range(ROWS - 1, -1, -1))
        self.obs: Any = None
        self.actions: Any = None
        self._send(payload)

    def map(self, obs_len: int, act_len: int) -> None:
        """Maps the shared memory, once the sizes are known."""
        size = ROWS * (obs_len + act_len) * 8
        os.ftruncate(self.memory_fd, size)
        self.obs, self.actions = views(self.memory_fd, obs_len, act_len)

    def _send(self, data: bytes) -> None:
        try:
            self.connection.send_bytes(data)
        except OSError:
            self._died()

    def _receive(self) -> bytes:
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError):
            self._died()
            raise

    def _died(self) -> None:
        try:
            code: Any = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            code = "unknown"
        how = f"signal {-code}" if isinstance(code, int) and code < 0 else f"exit code {code}"
        raise WorkerDied(f"worker process {self.number} (process id {self.process.pid}) ended with {how}")

    def call(self, what: bytes, row: int = 0, seed: int = 0) -> bytes:
        """Sends a request and returns the answer, or raises the exception of the environment."""
        self._send(REQUEST.pack(what, row, seed))
        answer = self._receive()
        if answer[:1] == b"e":
            error, trace = pickle.loads(answer[1:])
            error.__cause__ = RuntimeError(f"in worker process {self.number}:\n{trace}")
            raise error
        return answer

    def close(self) -> None:
        """Ends the worker."""
        self.connection.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.obs = self.actions = None
        os.close(self.memory_fd)


def views(fd: int, obs_len: int, act_len: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the shared observations and actions as arrays with one row per environment."""
    memory = mmap.mmap(fd, ROWS * (obs_len + act_len) * 8)
    numbers = np.frombuffer(memory, np.float64)
    split = ROWS * obs_len
    return numbers[:split].reshape(ROWS, obs_len), numbers[split:].reshape(ROWS, act_len)


class Pool:
    """A fixed number of worker processes and the environments in them."""

    def __init__(self, adapter: tuple, workers: int) -> None:
        try:
            functions = dumps(adapter)
        except Exception as error:
            raise ConfigError(
                f"the function that makes the environment cannot be sent to worker processes ({error}); "
                "workers=0 steps the environments in this process"
            ) from error
        payload = pickle.dumps((sys.path, functions))  # the path comes first: loading the functions needs it
        self.workers: list[Worker] = []
        try:
            self.workers = [Worker(i, payload) for i in range(workers)]
            self.description, self.form = pickle.loads(self.workers[0].call(b"d")[1:])
            _, obs_len, bounds, _, _ = self.description
            act_len = 1 if bounds is None else len(bounds[0])
            for worker in self.workers:
                worker.map(obs_len, act_len)
                worker.call(b"m", obs_len, act_len)
        except BaseException:
            self.close()
            raise

    def make(self) -> RemoteEnv:
        """Returns a new environment in the worker that has the fewest."""
        worker = max(self.workers, key=lambda w: len(w.free))
        return RemoteEnv(worker, self.description)

    def kill(self) -> None:
        """Kills all worker processes, so that no thread waits for an environment that hangs."""
        for worker in self.workers:
            worker.process.kill()

    def close(self) -> None:
        """Ends all workers."""
        for worker in self.workers:
            worker.close()
        self.workers = []


class RemoteEnv:
    """An environment in a worker process, with the interface of ``Adapter``."""

    def __init__(self, worker: Worker, description: tuple) -> None:
        self.worker, self.description = worker, description
        with worker.lock:
            self.row = worker.free.pop()
            worker.call(b"n", self.row)

    def describe(self) -> tuple:
        """Returns the sizes of the environment."""
        return self.description

    def reset(self, seed: int) -> np.ndarray:
        """Starts the episode with this seed."""
        with self.worker.lock:
            self.worker.call(b"r", self.row, seed)
            return self.worker.obs[self.row].copy()

    def step(self, action: np.ndarray) -> tuple:
        """Performs an action."""
        with self.worker.lock:
            self.worker.actions[self.row] = action
            answer = self.worker.call(b"s", self.row)
            _, reward, cost, terminated, truncated = ANSWER.unpack(answer)
            return self.worker.obs[self.row].copy(), reward, cost, bool(terminated), bool(truncated)

    def close(self) -> None:
        """Closes the environment and frees its row."""
        with self.worker.lock:
            if self.worker.obs is not None:
                self.worker.call(b"c", self.row)
                self.worker.free.append(self.row)

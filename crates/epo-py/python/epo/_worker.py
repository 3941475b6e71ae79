"""The program of a worker process; see ``epo._workers``."""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any


def portable(error: BaseException) -> BaseException:
    """Returns the exception if it can be pickled, otherwise one with its text."""
    from epo._epo import EpoError

    try:
        again = pickle.loads(pickle.dumps(error))
        return error if type(again) is type(error) else EpoError(f"{type(error).__name__}: {error}")
    except Exception:
        return EpoError(f"{type(error).__name__}: {error}")


def serve(connection: Connection, memory: int) -> None:
    """Answers requests until the connection is closed."""
    adapter: Any = ()
    failed: Any = None
    sys.path[:], functions = pickle.loads(connection.recv_bytes())
    try:
        adapter = pickle.loads(functions)
    except BaseException as error:  # the caller's functions cannot be loaded here
        failed = error
    from epo._adapter import Adapter
    from epo._workers import ANSWER, REQUEST, views

    envs: dict[int, Adapter] = {}
    spare: Adapter | None = None  # made to answer the request for the sizes; it becomes the first environment
    obs: Any = None
    actions: Any = None
    while True:
        try:
            what, row, seed = REQUEST.unpack(connection.recv_bytes())
        except EOFError:
            return
        try:
            if failed is not None:
                raise failed
            answer = b"o"
            if what == b"d":
                spare = Adapter(*adapter)
                answer += pickle.dumps((spare.describe(), spare.form))
            elif what == b"m":
                obs, actions = views(memory, row, seed)
            elif what == b"n":
                envs[row] = spare or Adapter(*adapter)
                spare = None
            elif what == b"r":
                obs[row] = envs[row].reset(seed)
            elif what == b"s":
                obs[row], *numbers = envs[row].step(actions[row].copy())
                answer = ANSWER.pack(b"o", *numbers)
            elif what == b"c":
                envs.pop(row).close()
        except BaseException as error:
            answer = b"e" + pickle.dumps((portable(error), traceback.format_exc()))
        connection.send_bytes(answer)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that trains
    try:
        serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
    except (BrokenPipeError, ConnectionResetError):
        pass

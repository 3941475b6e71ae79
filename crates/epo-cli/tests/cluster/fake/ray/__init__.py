"""Stands in for the package Ray in a test: tasks are threads of this process, two at a time, on the first of two nodes
that the task accepts.

FAKE_RAY_STOP=SECONDS sends SIGTERM to the first child process after that time, as a node that shuts down would.
"""

import os
import signal
import subprocess
import threading
import time
from types import SimpleNamespace

NODES = ["aaaaaaaa00", "bbbbbbbb00"]
_cores = threading.Semaphore(2)
_here = threading.local()


def init(**_):
    seconds = os.environ.get("FAKE_RAY_STOP")
    if seconds:
        threading.Thread(target=_stop_a_child, args=(float(seconds),), daemon=True).start()


def _stop_a_child(seconds):
    begun = {}
    while True:
        time.sleep(0.05)
        listed = subprocess.run(["sh", "-c", f"cat /proc/{os.getpid()}/task/*/children"], capture_output=True, text=True)
        for pid in map(int, listed.stdout.split()):
            try:
                line = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
            except OSError:
                continue
            if b"work" in line and b"check" not in line:
                begun.setdefault(pid, time.monotonic())
                if time.monotonic() - begun[pid] > seconds:
                    os.kill(pid, signal.SIGTERM)
                    return


def nodes():
    return [{"Alive": True, "NodeID": node, "Resources": {"CPU": 2.0}} for node in NODES]


def get_runtime_context():
    return SimpleNamespace(get_node_id=lambda: getattr(_here, "node", NODES[0]))


util = SimpleNamespace(scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *_, **__: None))


class _Ref:
    def __init__(self):
        self.done, self.value, self.error = threading.Event(), None, None


class _Remote:
    def __init__(self, what, options=()):
        self.what, self.settings = what, dict(options)

    def options(self, **more):
        chosen = _Remote(self.what, {**self.settings, **more})
        return SimpleNamespace(remote=chosen.remote)  # as in Ray, options cannot be chosen twice

    def remote(self, *args):
        if isinstance(self.what, type):
            return _Actor(self.what())
        ref = _Ref()
        threading.Thread(target=self._run, args=(ref, args), daemon=True).start()
        return ref

    def _run(self, ref, args):
        excluded = self.settings.get("label_selector", {}).get("ray.io/node-id", "")
        _here.node = next(node for node in NODES if node not in excluded)
        for left in range(self.settings.get("max_retries", 0), -1, -1):
            try:
                with _cores:
                    ref.value = self.what(*args)
                break
            except Exception as error:
                if left == 0 or not isinstance(error, tuple(self.settings.get("retry_exceptions", ()))):
                    ref.error = error
                    break
        ref.done.set()


class _Actor:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        def call(*args):
            ref = _Ref()
            ref.value = getattr(self._inner, name)(*args)
            ref.done.set()
            return ref

        return SimpleNamespace(remote=call)


def remote(*what, **options):
    return _Remote(*what) if what else lambda what: _Remote(what, options)


def wait(refs, timeout=None):
    end = time.monotonic() + (timeout or 0)
    while not any(ref.done.is_set() for ref in refs) and time.monotonic() < end:
        time.sleep(0.02)
    done = [ref for ref in refs if ref.done.is_set()][:1]
    return done, [ref for ref in refs if ref not in done]


def get(ref, timeout=None):
    ref.done.wait(timeout)
    if ref.error is not None:
        raise ref.error
    return ref.value


def cancel(ref, force=False):
    pass

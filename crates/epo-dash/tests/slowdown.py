"""Measures how much an open dashboard slows a training: trains alternately without and with a page that watches.

    python3 crates/epo-dash/tests/slowdown.py target/release/epo [--rounds 3] [--steps 320000]

It prints the processor time of the training, which other programs on the machine disturb little, and that of the
dashboard and of the browser. Chromium runs on the same machine, without a graphics card, so its part is an upper bound.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import browser

TICKS = os.sysconf("SC_CLK_TCK")


def processor_time(pid):
    """Seconds of processor time of a process and its descendants."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    total = (int(fields[11]) + int(fields[12])) / TICKS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return total + sum(processor_time(child) for child in children)


def train(program, runs, steps, seed):
    """Trains and returns the seconds of processor time and of the clock."""
    command = [program, "train", "--physics", "fast", "--steps", str(steps), "--runs", runs, "--quiet"]
    command += ["--set", "train.final_eval_episodes=0", "--seed", str(seed), "--threads", "1"]
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, status
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=320_000)
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    times = {False: [], True: []}
    used = []
    with tempfile.TemporaryDirectory() as folder:
        for round in range(args.rounds):
            for watched in (False, True):
                if not watched:
                    times[watched].append(train(args.program, folder, args.steps, round))
                    continue
                with sync_playwright() as playwright:
                    server = browser.Server(f"{args.program} dash --port 0 --quiet", folder)
                    flags = ["--no-sandbox", "--no-first-run", "--disable-background-networking"]
                    chromium = playwright.chromium.launch(executable_path=browser.chromium(), args=flags)
                    page, watch = browser.open_page(chromium.new_context(), server.url)
                    pids = [int(p) for p in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]
                    pages = [pid for pid in pids if pid != server.process.pid]
                    before = processor_time(server.process.pid), sum(map(processor_time, pages))
                    times[watched].append(train(args.program, folder, args.steps, round))
                    after = processor_time(server.process.pid), sum(map(processor_time, pages))
                    used.append([b - a for a, b in zip(before, after)])
                    watch.check()
                    chromium.close()
                    server.stop()
    middle = {watched: [statistics.median(column) for column in zip(*rows)] for watched, rows in times.items()}
    for watched, text in ((False, "alone"), (True, "watched")):
        print(f"{text:8} processor {middle[watched][0]:.2f} s, clock {middle[watched][1]:.2f} s   {times[watched]}")
    print(f"slower by {middle[True][0] / middle[False][0] - 1:+.2%} of processor time")
    server_s, page_s = (statistics.median(column) for column in zip(*used))
    clock = middle[True][1]
    print(f"dashboard {server_s / clock:.2%} of one core, browser {page_s / clock:.2%} of one core")


if __name__ == "__main__":
    browser.enter_environment()
    try:
        main()
    finally:
        for server in browser.Server.all:
            server.stop()

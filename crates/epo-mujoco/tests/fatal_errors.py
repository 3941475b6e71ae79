"""Lists the fatal errors of a MuJoCo library that a simulation step can reach, from the machine code of the library.

    python3 crates/epo-mujoco/tests/fatal_errors.py LIBRARY [--all]

A fatal error is a call of `mju_error`, or the formatting of a message by MuJoCo's error macro. A function counts as
reachable if the functions that `epo` calls while it steps lead to it through direct calls, addresses in the code, or
tables of functions. docs/reliability.md has the numbers. Needs objdump and readelf.
"""

import bisect
import collections
import re
import subprocess
import sys

STEP = "mj_step mj_step2 mj_forward mj_rnePostConstraint mj_normalizeQuat mj_resetData mj_checkPos mj_checkVel mj_checkAcc"
STEP += " mj_objectVelocity mj_local2Global"
#: Groups of messages; a message belongs to the first that matches.
GROUPS = {
    "memory": r"stackAlloc|allocate memory|arena|requested size is too large|stack depth exceeded|buffer full",
    "not finite": r"SAP failed|xaxis of contact frame",
    "sleeping bodies": r"sleep|waking",
    "linear algebra": r"singular|diagonal|fill-in|row processing",
    "bookkeeping": r"miscount|mis-allocation|internal error|pre and post-count|not found|not contiguous|rows have different"
    r"|invalid node|should not occur|spans islands|outside island|self-incidence|is not an equality|invalid tree|called with",
    "model": r".",
}
#: Messages that are formatted in the same way, but are not errors.
NOTES = r"^t=%|^average time|^ at %s"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


class Library:
    """Functions of the library: what they refer to, and the messages of their errors."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        row = re.compile(r"\s*\[\s*\d+\]\s+(\.rodata\S*)\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)")
        found = map(row.match, output("readelf", "-SW", path))
        self.texts = [[int(m[i], 16) for i in (2, 3, 4)] for m in found if m]
        self.refers, self.errors, self.functions = collections.defaultdict(set), collections.defaultdict(list), {}
        self.disassemble(path)
        self.pointers = {}
        for line in output("readelf", "-rW", path):
            m = re.match(r"([0-9a-f]+)\s+\S+\s+R_X86_64_(?:RELATIVE|64|GLOB_DAT)\s+([0-9a-f]+)", line)
            if m:
                self.pointers[int(m[1], 16)] = int(m[2], 16)
        self.places = sorted(self.pointers)
        symbols = (line.split() for line in output("readelf", "-sW", path))
        self.objects = sorted((int(s[1], 16), int(s[2], 0)) for s in symbols if len(s) > 7 and s[3] == "OBJECT")

    def text(self, address):
        for begin, offset, size in self.texts:
            if begin <= address < begin + size:
                at = offset + address - begin
                return self.data[at : self.data.index(b"\0", at)].decode("latin1").split("\n")[0]
        return None

    def disassemble(self, path):
        function, loaded, buffer = None, {}, -100
        for number, line in enumerate(output("objdump", "-d", "--no-show-raw-insn", path)):
            m = re.match(r"([0-9a-f]+) <(.*)>:$", line)
            if m:
                function, loaded = m[2], {}
                self.functions[int(m[1], 16)] = function
                continue
            m = re.search(r"\((%rip)\),%(\w+)\s+# ([0-9a-f]+)", line)
            if m:
                self.refers[function].add(int(m[3], 16))
                loaded[m[2]] = self.text(int(m[3], 16))
            if "$0x400,%esi" in line:
                buffer = number  # the macro formats into 1024 bytes
            m = re.search(r"\t(?:call|j\w+)\s+[0-9a-f]+ <([^>+]+?)(?:@plt)?>$", line)
            if m:
                self.refers[function].add(m[1])
                if m[1].startswith("mju_error"):
                    self.errors[function].append(loaded.get("rdi") or "(a message of its caller)")
                elif m[1] == "__snprintf_chk" and number - buffer < 60:
                    self.errors[function].append(loaded.get("r8") or "(unknown)")

    def in_table(self, address):
        """Functions in the data object at an address."""
        i = bisect.bisect_right(self.objects, (address, 1 << 62)) - 1
        begin, size = self.objects[i] if i >= 0 else (0, 0)
        if not begin <= address < begin + size:
            begin, size = address, 8
        places = self.places[bisect.bisect_left(self.places, begin) : bisect.bisect_left(self.places, begin + size)]
        return [self.functions[self.pointers[p]] for p in places if self.pointers[p] in self.functions]

    def reachable(self, roots):
        seen, ahead = set(), list(roots)
        while ahead:
            function = ahead.pop()
            if function in seen:
                continue
            seen.add(function)
            for what in self.refers.get(function, ()):
                if isinstance(what, str):
                    ahead.append(what)
                else:
                    ahead += [self.functions[what]] if what in self.functions else self.in_table(what)
        return seen


def main():
    library = Library(sys.argv[1])
    assert set(STEP.split()) <= set(library.functions.values()), "this is not a MuJoCo library with symbols"
    reachable = library.reachable(STEP.split())
    errors = [(f, m) for f, messages in sorted(library.errors.items()) for m in messages if not re.search(NOTES, m)]
    sites = [(f, m) for f, m in errors if f in reachable]
    group_of = lambda message: next(name for name, pattern in GROUPS.items() if re.search(pattern, message))
    counts = collections.Counter(group_of(message) for _, message in sites)
    print(f"{len(errors)} errors in {len({f for f, _ in errors})} functions; {len(sites)} can be reached by stepping")
    for name in GROUPS:
        print(f"{counts[name]:4} {name}")
        messages = collections.Counter(message for _, message in sites if group_of(message) == name)
        for message, n in sorted(messages.items()) if "--all" in sys.argv else ():
            print(f"       {n:3} {message}")


if __name__ == "__main__":
    sys.exit(__doc__) if len(sys.argv) < 2 else main()

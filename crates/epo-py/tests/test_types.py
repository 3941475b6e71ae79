"""Claim: type checkers know every setting of ``epo.train``."""

import json
import os
from pathlib import Path

import epo
from conftest import REPOSITORY

HEAD = '''"""Types of the settings that ``epo.train`` takes as keywords. ``tests/test_types.py`` writes this file."""

from __future__ import annotations

from typing import Sequence, TypedDict


class Settings(TypedDict, total=False):
    """Settings of the tables ``train`` and ``algo``."""

'''


def written(values):
    """Returns the file for these settings, given by their names and defaults."""
    types = {bool: "bool", int: "float", float: "float", str: "str | float", list: "Sequence[float]"}
    lines = [f"    {'lambda_' if name == 'lambda' else name}: {types[type(value)]}\n" for name, value in sorted(values.items())]
    return HEAD + "".join(lines)


def test_the_types_of_the_settings_are_those_of_the_tables(cli):
    """This test fails if a setting is missing; run it with EPO_WRITE=1 to write the file anew."""
    values = {}
    for algo in epo.algos():
        values.update(algo["params"])
    printed = cli("train", "--print-config").stdout.split("[train]")[1].split("[algo]")[0]
    for line in printed.splitlines():
        if " = " in line and not line.startswith("#"):
            name, value = line.split(" = ", 1)
            values[name] = json.loads(value)
    for name in ("envs", "threads"):
        del values[name]  # parameters of epo.train
    path = REPOSITORY / "crates" / "epo-py" / "python" / "epo" / "_settings.py"
    if os.environ.get("EPO_WRITE"):
        path.write_text(written(values))
    assert path.read_text() == written(values)
    assert (Path(epo.__file__).parent / "_settings.py").exists(), "the wheel has it"

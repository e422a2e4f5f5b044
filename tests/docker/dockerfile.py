"""Reads a Dockerfile and performs its steps below a folder, without a container engine.

FROM, ARG, WORKDIR, COPY, RUN and CMD are known. Each stage has a root folder of its own: every
absolute path of the file that starts with one of ROOTS means a place below that root.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOTS = re.compile(r"(?<![\w./])/(?=(?:opt|src)\b)")
KNOWN = ("FROM", "ARG", "WORKDIR", "COPY", "RUN", "CMD")


@dataclass
class Stage:
    """One FROM and what follows it."""

    image: str
    name: str
    steps: list = field(default_factory=list)  # (instruction, argument)


def parse(text):
    """The stages of a Dockerfile; raises ValueError for an instruction that is not known."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stages = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        instruction, _, argument = line.strip().partition(" ")
        if instruction not in KNOWN:
            raise ValueError(f"instruction {instruction} is not one of {KNOWN}")
        if instruction == "FROM":
            image, _, name = argument.partition(" AS ")
            stages.append(Stage(image, name or str(len(stages))))
        else:
            stages[-1].steps.append((instruction, argument.strip()))
    return stages


class Builder:
    """Performs stages below `root`; `context` is the folder that COPY reads."""

    def __init__(self, root, context, ignored, after_run, environment, given):
        """`ignored`: names that COPY leaves out. `after_run(stage, command, root)` is called after
        every RUN that ended well. `environment` is all that the steps see, beside ARGs, whose
        values `given` may replace."""
        self.root = root
        self.context = context
        self.ignored = ignored
        self.after_run = after_run
        self.environment = environment
        self.given = given
        self.output = ""

    def place(self, stage, path, working):
        """Where a path of the Dockerfile lies."""
        absolute = Path(working) / path
        return self.root / stage.name / absolute.relative_to("/")

    def perform(self, stage):
        """Every step of a stage in order; gives its CMD as words. Raises where a RUN fails."""
        working, arguments, command = "/", {}, []
        (self.root / stage.name).mkdir(parents=True)
        for instruction, argument in stage.steps:
            if instruction == "ARG":
                name, _, value = argument.partition("=")
                arguments[name] = self.given.get(name, "".join(shlex.split(value)))
            elif instruction == "WORKDIR":
                working = argument
                self.place(stage, argument, "/").mkdir(parents=True, exist_ok=True)
            elif instruction == "COPY":
                self._copy(stage, argument, working)
            elif instruction == "RUN":
                self.run(stage, argument, working, arguments)
                self.after_run(stage, argument, self.root / stage.name)
            else:
                command = json.loads(argument)
        return command

    def run(self, stage, command, working="/", arguments=None):
        """One command line in a stage."""
        root = self.root / stage.name
        done = subprocess.run(
            ["/bin/sh", "-c", ROOTS.sub(f"{root}/", command)],
            cwd=root / Path(working).relative_to("/"),
            env={**self.environment, **(arguments or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        self.output = done.stdout
        if done.returncode:
            said = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            raise RuntimeError(f"{command}: status {done.returncode}\n{said}")

    def _copy(self, stage, argument, working):
        words = argument.split()
        origin = self.context
        if words[0].startswith("--from="):
            origin = self.root / words.pop(0).removeprefix("--from=")
        *sources, to = words
        for source in sources:
            found = origin / source.lstrip("/")
            target = self.place(stage, to, working)
            if found.is_dir():
                leave_out = shutil.ignore_patterns(*self.ignored)
                shutil.copytree(found, target, ignore=leave_out, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, os.fspath(target))

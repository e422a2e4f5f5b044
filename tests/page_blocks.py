"""Code blocks of the documentation: read from its pages, run in order, their output compared.

A block of a page is run unless a comment stands on the line before it:

    <!-- needs: a GPU -->
    ```sh
    aotc verify bundle/ --device cuda
    ```

Such a block is checked instead: its `aotc` commands and options exist, its Python compiles, what it
imports from aotc is there. A block with a title, `python title="model.py"`, is a file. A block
`text` behind one of `sh` is its output on stdout: numbers may be others, and a line `…` stands for
any lines.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from aotc.aot.cli.program import program, run

FENCE = re.compile(
    r"(?:^ *<!-- needs: (?P<needs>.+?) -->\n)?^(?P<indent> *)```(?P<language>\w+)"
    r"(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
SHELL = ("sh", "bash")
ELLIPSIS = "…"
PORT = "8765"  # of every server on a page; a test takes a free one


@dataclass(frozen=True)
class Block:
    """One code block of a page; `line` counts from 1."""

    page: Path
    line: int
    language: str
    title: str
    needs: str
    text: str
    span: tuple[int, int]  # of the text in the page

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("text")),
            found["language"],
            found["title"] or "",
            found["needs"] or "",
            re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            found.span("text"),
        )
        for found in FENCE.finditer(text)
    ]


class Shell:
    """One bash that all blocks of a page share, in a folder of their own."""

    END = "--- end of block"

    def __init__(self, folder: Path, cache: Path) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = os.environ | {
            "PATH": path,
            "AOTC_CACHE_DIR": str(cache),
            "PYTHONWARNINGS": "ignore",
        }
        self.errors = (folder / "stderr").open("w+")
        self.bash = subprocess.Popen(
            ["bash"], cwd=folder, env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
        )  # fmt: skip

    def __call__(self, text: str) -> tuple[int, str]:
        """Exit code of the last command that failed, or 0, and what was printed on stdout."""
        self.bash.stdin.write(f"code=0; trap 'code=$?' ERR\n{text}\necho; echo {self.END} $code\n")
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            if line.startswith(self.END):
                return int(line.removeprefix(self.END)), "".join(lines)
            lines.append(line)
        raise AssertionError(f"bash ended:\n{''.join(lines)}")

    def close(self) -> None:
        self.bash.stdin.close()
        self.bash.stdout.close()
        self.bash.wait(30)
        self.errors.close()

    def error_text(self) -> str:
        """What was printed on stderr so far."""
        self.errors.seek(0)
        return self.errors.read()


class Page:
    """A page whose blocks are run one after the other.

    in_process: plain `aotc` commands run in this process, which has imported torch already.
    """

    def __init__(self, path: Path, folder: Path, cache: Path, in_process: bool) -> None:
        self.path, self.folder, self.in_process = path, folder, in_process
        self.shell = Shell(folder, cache)
        self.names: dict[str, object] = {"__name__": "page"}
        self.port = free_port()

    def run(self, is_blessing: bool = False) -> None:
        """Run all; raises AssertionError where one fails or prints something else."""
        found, outputs = blocks(self.path), {}
        try:
            for block, after in zip(found, [*found[1:], None], strict=True):
                output = self._run(block)
                is_output = after is not None and after.language == "text" and not after.title
                is_run = not block.needs or is_there(block.needs)
                if block.language in SHELL and is_run and is_output:
                    if is_blessing and not matches(after.text, output):
                        outputs[after] = output
                    else:
                        assert matches(after.text, output), (
                            f"{after.where} shows other output than was printed:\n{output}"
                        )
        finally:
            self.shell.close()
        self._bless(outputs)

    def _run(self, block: Block) -> str:
        if block.needs and not is_there(block.needs):
            check(block)
        elif block.title:
            target = self.folder / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text.replace(PORT, self.port))
        elif block.language in SHELL:
            return self._commands(block)
        elif block.language == "python":
            with contextlib.chdir(self.folder):
                exec(compile(block.text, block.where, "exec"), self.names)
        return ""

    def _commands(self, block: Block) -> str:
        text = block.text.replace(PORT, self.port)
        commands = list(logical_lines(text))
        if any(each.startswith("export ") for each in commands):
            self.in_process = False  # later commands are to see it
        if self.in_process and all(is_plain(each) for each in commands):
            return "".join(self._in_process(block, each) for each in commands)
        code, output = self.shell(text)
        assert code == 0, f"{block.where} ended with {code}:\n{output}{self.shell.error_text()}"
        return output.replace(f"{self.folder}/", "")

    def _in_process(self, block: Block, command: str) -> str:
        printed, errors = io.StringIO(), io.StringIO()
        arguments = shlex.split(command)[1:]
        streams = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors)
        with contextlib.chdir(self.folder), streams[0], streams[1]:
            code = run(arguments)
        assert code == 0, f"{block.where}: `{command}` ended with {code}:\n{errors.getvalue()}"
        return printed.getvalue().replace(f"{self.folder}/", "")

    def _bless(self, outputs: dict[Block, str]) -> None:
        text = self.path.read_text()
        for block in sorted(outputs, key=lambda each: -each.span[0]):
            start, end = block.span
            text = f"{text[:start]}{outputs[block].strip(chr(10))}\n{text[end:]}"
        if outputs:
            self.path.write_text(text)


def is_there(needs: str) -> bool:
    """Whether this machine has what a block needs."""
    if needs == "a C++ compiler":
        return all(shutil.which(each) for each in ("c++", "make"))
    if needs == "transformers":
        return importlib.util.find_spec("transformers") is not None
    return False


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def logical_lines(text: str) -> Iterator[str]:
    """Commands without comments and empty lines, continued lines joined."""
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s)#.*$", "", line).strip()
        if command:
            yield command


def is_plain(command: str) -> bool:
    """Whether it is an `aotc` command without anything of the shell."""
    return command.startswith("aotc ") and not re.search(r"[|&;<>$*`(]", command)


def normal(line: str) -> str:
    """A line without what differs between runs and machines: numbers, digests, units, spaces."""
    line = re.sub(r"\bcpu-x86-64-[\w-]+", "cpu-x86-64-#", line)
    line = re.sub(r"\b[0-9a-f]{12,}\b", "#", line)
    line = re.sub(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?", "#", line)
    line = re.sub(r"# ?(?:[kMG]?i?B|[mnµ]?s)\b", "#", line)
    return " ".join(line.split())


def matches(expected: str, output: str) -> bool:
    """Whether an output is what a page shows."""
    parts = [re.escape(normal(line)) for line in expected.strip().splitlines()]
    pattern = "\n".join(parts).replace(f"{re.escape(ELLIPSIS)}\n", r"(?:.*\n)*?")
    pattern = pattern.replace(f"\n{re.escape(ELLIPSIS)}", r"(?:\n.*)*?")
    found = "\n".join(normal(line) for line in output.strip().splitlines())
    return re.fullmatch(pattern, found) is not None


def check(block: Block) -> None:
    """What a block that is not run names exists."""
    if block.language == "python":
        check_python(block)
    text = block.text
    if block.language == "console":  # commands behind a prompt, with their output
        text = "\n".join(re.findall(r"^\$ (.*)$", text, re.MULTILINE))
    if block.language in (*SHELL, "dockerfile", "console", "yaml"):
        for command in logical_lines(text):
            for found in re.findall(r"(?:^|(?<!from)[\s/])aotc ([^|&;<>)]*)", command):
                check_command(block, shlex.split(found))


def check_python(block: Block) -> None:
    """It compiles, and names that it imports from aotc are there."""
    for node in ast.walk(ast.parse(block.text, block.where)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aotc":
            module = importlib.import_module(node.module)
            for each in node.names:
                assert hasattr(module, each.name), f"{block.where}: no {each.name}"


def check_command(block: Block, words: list[str]) -> None:
    """The command and each of its options exist."""
    command: click.Command | None = program
    context = click.Context(program)
    at = 0
    while isinstance(command, click.Group) and at < len(words):
        if words[at].startswith("-"):
            return  # `aotc --help`
        command = command.get_command(context, words[at])
        assert command is not None, f"{block.where}: there is no command `aotc {words[at]}`"
        at += 1
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    given = {word.partition("=")[0] for word in words[at:] if re.match(r"--?[a-z]", word)}
    unknown = given - known - {"--help", "-h"}
    assert not unknown, f"{block.where}: `aotc {' '.join(words[:at])}` has no {sorted(unknown)}"

"""The table of settings and its one reader; nothing else in aotc reads the environment.

Order of precedence: a command-line flag, the variable, `[tool.aotc]` of pyproject.toml, the
default. The runtime has no flags and no project file: it reads `read("AOTC_THREADS")`. The command
line passes both to the same function, so that `aotc doctor` can print each value with its origin.
"""

from __future__ import annotations

import _thread
import os

from .errors import SettingInvalid, SettingUnknown
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAX_THREADS = 1024


class ArgumentInvalid(SettingInvalid):
    """An argument of a call or command that no setting stands for has a value outside its type."""

    template = "`{name}` is {found!r}, expected {expected}"
    hint = "{remedy}"


def path_text(name: str, value: Any) -> str:
    """An argument that is a path, as text; raises `ArgumentInvalid` for what none can be."""
    try:
        text = os.fsdecode(value)
    except TypeError:
        text, value = "\0", type(value).__name__
    if "\0" in text:
        remedy = "give text or a `pathlib.Path`"
        raise ArgumentInvalid(name=name, found=value, expected="a path", remedy=remedy)
    return text


def wait_s(name: str, value: Any, longest_s: float = _thread.TIMEOUT_MAX) -> float:
    """An argument that is a time to wait, as locks take it: -1 for None, which has no limit, and no
    wait for a time that has passed. Raises `ArgumentInvalid`."""
    if value is None:
        return -1.0
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or value != value:
        remedy = "give None to wait without limit"
        expected = "a number of seconds"
        raise ArgumentInvalid(name=name, found=value, expected=expected, remedy=remedy)
    return float(min(max(value, 0), longest_s))


class Setting(Record):
    """One row: the variable, how its text is read, its default and its meaning."""

    name: str
    kind: str  # key of READERS
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name in `[tool.aotc]`: `AOTC_CACHE_DIR` is `cache-dir`."""
        return self.name.removeprefix("AOTC_").lower().replace("_", "-")

    @property
    def expected(self) -> str:
        """What a valid value looks like, for messages."""
        return ", ".join(f"`{choice}`" for choice in self.choices) or EXPECTED[self.kind]


class Reading(Record):
    """A setting's value and where it came from: `flag`, `environment`, `pyproject`, `default`."""

    name: str
    value: Any
    origin: str


SETTINGS: dict[str, Setting] = {
    row.name: row
    for row in (
        Setting(
            "AOTC_THREADS",
            "threads",
            0,
            "worker threads of the process; 0 takes what affinity and cgroup limits allow",
        ),
        Setting(
            "AOTC_LOAD_VERIFY",
            "choice",
            "full",
            "what `load` digests: everything, or all but the weights",
            ("full", "code"),
        ),
        Setting(
            "AOTC_REQUIRE_SIGNATURE",
            "flag",
            False,
            "bundles without a signature by a trusted key are refused",
        ),
        Setting(
            "AOTC_TRUSTED_KEYS",
            "files",
            (),
            "public keys (PEM) of which one must have signed a bundle",
        ),
        Setting("AOTC_REVOKED", "path", None, "file of the digests of bundles that are refused"),
        Setting("AOTC_WEIGHTS", "path", None, "weights in the place of the bundle's"),
        Setting(
            "AOTC_STATS", "flag", False, "programs count calls and latencies for `Program.stats`"
        ),
        Setting(
            "AOTC_SEPARATE_BUFFERS",
            "flag",
            False,
            "one allocation for each buffer and weight on a device, so that a memory checker sees "
            "overruns",
        ),
        Setting(
            "AOTC_PROGRAMMATIC_LAUNCH",
            "flag",
            True,
            "programmatic dependent launch: kernels may start while the ones before them run",
        ),
        Setting(
            "AOTC_TRITON_CPU",
            "flag",
            False,
            "Triton's kernels run on CPU tensors where Triton finds no GPU",
        ),
        Setting(
            "AOTC_BACKEND_PATH",
            "folders",
            (),
            "folders of native back ends, searched in this order before installed packages",
        ),
        Setting(
            "AOTC_DYNAMIC_ARENA",
            "choice",
            "auto",
            "memory of a session with dynamic sizes on a device: `maximum` for the largest sizes "
            "at once, `grow` as sizes come, `auto` the former if half of the free memory holds it",
            ("auto", "maximum", "grow"),
        ),
        Setting("AOTC_CACHE_DIR", "path", None, "folder of the artifact cache"),
        Setting(
            "AOTC_CACHE_LOWER",
            "search path",
            (),
            "read-only cache folders, asked in this order on a miss",
        ),
        Setting(
            "AOTC_REMOTE_CACHE", "text", "", "address of a remote cache, asked after all folders"
        ),
        Setting("AOTC_REMOTE_CACHE_KEY", "secret", "", "key that authenticates its records"),
        Setting("AOTC_REMOTE_CACHE_KEY_FILE", "path", None, "file that holds the key"),
        Setting(
            "AOTC_REMOTE_CACHE_TOKEN",
            "secret",
            "",
            "token sent with each request; without one nothing is written",
        ),
        Setting("AOTC_REMOTE_CACHE_TOKEN_FILE", "path", None, "file that holds the token"),
        Setting(
            "AOTC_REMOTE_CACHE_AUTHENTICATION",
            "choice",
            "required",
            "whether its records have to be authenticated by the key",
            ("required", "none"),
        ),
        Setting(
            "AOTC_REMOTE_CACHE_WRITE",
            "flag",
            True,
            "send it the entries that it lacks, if there is a token",
        ),
        Setting("AOTC_REMOTE_CACHE_TIMEOUT", "seconds", 20, "seconds that a request may take"),
        Setting(
            "AOTC_CACHE_MAX_SIZE",
            "size",
            10 << 30,
            "bytes that a build leaves in the artifact cache; `none` has no limit",
        ),
        Setting("AOTC_DUMP", "path", None, "folder for the text of each stage"),
        Setting(
            "AOTC_SKIP",
            "names",
            (),
            "stages, rule sets, rules or the `shipped-record` to skip, for bisecting",
        ),
        Setting(
            "AOTC_TUNE",
            "choice",
            "off",
            "the cost model's choice, a small space, or all candidates",
            ("off", "quick", "full"),
        ),
        Setting(
            "AOTC_FROZEN",
            "flag",
            False,
            "measure nothing, and fail if a kernel is neither in cache nor record",
        ),
        Setting("AOTC_JOBS", "count", 0, "compiler processes; 0 takes one for each CPU"),
        Setting("NO_COLOR", "presence", False, "no colour on the terminal"),
        Setting("CI", "presence", False, "plain lines in place of progress bars"),
        Setting("TERM", "text", "", "the terminal; `dumb` has no progress bars"),
        Setting("XDG_CACHE_HOME", "path", None, "base of the default cache folder"),
        Setting("HOME", "path", None, "the user's folder"),
        Setting("DOCKER_CONFIG", "path", None, "folder of the `config.json` of registries"),
    )
}

FLAGS = {"0": False, "false": False, "1": True, "true": True}
EXPECTED = {
    "threads": f"a whole number from 0 to {MAX_THREADS}",
    "count": "a whole number from 0 to 4096",
    "seconds": "a whole number from 1 to 4096",
    "path": "a path",
    "folders": "absolute paths with `:` between them",
    "files": "absolute paths with `:` between them",
    "size": "a number of bytes such as `500MB`, `10GiB` or `0`, or `none`",
    "search path": "paths with `:` between them",
    "names": "names with commas between them",
    "flag": "`0` or `1`",
    "presence": "anything",
    "text": "text",
    "secret": "text, from a variable only",
}


def read(name: str, flag: Any = None, project: Mapping[str, Any] | None = None) -> Reading:
    """The value of the setting `name` and its origin.

    `flag` is the command line's value or None; `project` is the `[tool.aotc]` table or None.
    Raises `SettingUnknown` for a name outside the table, `SettingInvalid` for a bad value.
    """
    setting = SETTINGS.get(name)
    if setting is None:
        raise SettingUnknown(name=name, origin="the caller", known=", ".join(SETTINGS))
    if flag is not None:
        return Reading(name, parse(setting, flag, "flag"), "flag")
    text = os.environ.get(name)
    if text:  # an empty variable is an unset one, as NO_COLOR's convention has it
        return Reading(name, parse(setting, text, "environment"), "environment")
    if project is not None and setting.key in project:
        value = parse(setting, project[setting.key], "pyproject")
        return Reading(name, value, "pyproject")
    return Reading(name, setting.default, "default")


def check_project(project: Mapping[str, Any]) -> None:
    """Raise `SettingUnknown` for a key of `[tool.aotc]` that no setting has."""
    rows = [row for row in SETTINGS.values() if row.name.startswith("AOTC_")]
    known = [row.key for row in rows if row.kind != "secret"]  # the file is for everybody to read
    for key in project:
        if key not in known:
            raise SettingUnknown(name=key, origin="pyproject", known=", ".join(known))


def cache_dir(flag: str | None = None, project: Mapping[str, Any] | None = None) -> Reading:
    """Folder of the artifact cache: `AOTC_CACHE_DIR`, `$XDG_CACHE_HOME/aotc`, `~/.cache/aotc`;
    for a user without a home, as in containers, `aotc-cache-UID` in the temporary folder."""
    own = read("AOTC_CACHE_DIR", flag, project)
    if own.value is not None:
        return own
    base = read("XDG_CACHE_HOME").value
    if base is not None:
        return Reading("AOTC_CACHE_DIR", os.path.join(base, "aotc"), "XDG_CACHE_HOME")
    home = os.path.expanduser("~")
    if not os.path.isabs(home):  # no HOME, and no line in the system's table of users
        folder = os.path.join(temporary_folder(), f"aotc-cache-{os.geteuid()}")
        return Reading("AOTC_CACHE_DIR", folder, "default")
    return Reading("AOTC_CACHE_DIR", os.path.join(home, ".cache", "aotc"), "default")


def temporary_folder() -> str:
    """The folder of temporary files that the environment asks for."""
    return os.path.abspath(os.environ.get("TMPDIR") or "/tmp")


def environment_without(prefix: str) -> dict[str, str]:
    """This process's variables for a child, less those of another tool that would change it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}


def parse(setting: Setting, given: Any, origin: str) -> Any:
    """`given` (text, or a TOML value) as the setting's type; raises `SettingInvalid`."""
    try:
        return _parse(setting, given)
    except (KeyError, TypeError, ValueError):
        raise SettingInvalid(
            name=setting.name, found=given, origin=origin, expected=setting.expected
        ) from None


def _parse(setting: Setting, given: Any) -> Any:
    kind = setting.kind
    if kind == "presence":
        return given is not False
    if kind in ("threads", "count"):
        limit = MAX_THREADS if kind == "threads" else 4096
        return _whole_number(given, limit)
    if kind == "seconds":
        return _whole_number(given, 4096, low=1)
    if kind == "flag":
        return FLAGS[str(given).lower()]
    if kind == "names":
        names = given.split(",") if isinstance(given, str) else list(given)
        return tuple(str(name).strip() for name in names if str(name).strip())
    if kind in ("folders", "files"):
        return _absolute_paths(given)
    if kind == "size":
        return _size_bytes(given)
    if kind == "search path":
        return _paths(given)
    text = str(given)
    if setting.choices and text not in setting.choices:
        raise ValueError(text)
    return text


def _absolute_paths(given: Any) -> tuple[str, ...]:
    """The entries of a search path; never the current folder, which an empty entry would mean."""
    paths = _paths(given)
    if not all(os.path.isabs(each) for each in paths):
        raise ValueError(given)
    return paths


def _paths(given: Any) -> tuple[str, ...]:
    entries = given.split(os.pathsep) if isinstance(given, str) else [str(each) for each in given]
    return tuple(each for each in entries if each)


def _size_bytes(given: Any) -> int | None:
    """`500MB`, `1.5 GiB`, `10G`, `4096` in bytes; None for `none`."""
    if isinstance(given, bool):
        raise ValueError(given)
    text = str(given).strip()
    if text.lower() == "none":
        return None
    number = text.rstrip("BKMGTbkmgti ")
    unit = text[len(number) :].strip().lower().removesuffix("b")
    scale = 1024 if unit.endswith("i") else 1000
    letter = unit.removesuffix("i")
    if (unit and letter not in ("k", "m", "g", "t")) or not set(number) <= set("0123456789."):
        raise ValueError(given)
    return int(float(number) * (scale ** ("kmgt".index(letter) + 1) if letter else 1))


def _whole_number(given: Any, limit: int, low: int = 0) -> int:
    if isinstance(given, (bool, float)):
        raise ValueError(given)
    number = int(given)
    if not low <= number <= limit:
        raise ValueError(given)
    return number

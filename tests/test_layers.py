"""The layers: imports point down only, and heavy libraries stay in their packages.

Read from the sources with `ast`; nothing is imported.
"""

import ast
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("aot", "cache", "kernels", "runtime")

# Package → the packages it may import, each with the packages inside it; a package is the longest
# prefix in this table. `aot.errors`, `aot.traits` and `aot.stages` are the compiler's words, beside
# every stage, RUNTIME_WORDS the runtime's; its other modules at the top stand above its packages.
WORDS = {
    "aot.errors",
    "aot.traits",
    "aot.extensions",
    "aot.folders",
    "aot.printable",
    "aot.spec_form",
    "aot.version",
    "runtime",
}
RUNTIME_WORDS = {
    "runtime.record",
    "runtime.settings",
    "runtime.errors",
    "runtime.extensions",
}
READ = {*RUNTIME_WORDS, "runtime.arrays", "runtime.bundle"}
STAGE_FREE = {"aot.ir", *WORDS}
MAY_IMPORT: dict[str, set[str]] = {
    "runtime": {"runtime"},
    **dict.fromkeys(RUNTIME_WORDS, RUNTIME_WORDS),
    "runtime.arrays": RUNTIME_WORDS,
    "runtime.bundle": {*RUNTIME_WORDS, "runtime.arrays"},
    "runtime.trust": {*RUNTIME_WORDS, "runtime.bundle"},
    "runtime.drivers": READ,
    "runtime.backends": {*READ, "runtime.drivers"},
    "runtime.programs": {*READ, "runtime.drivers"},
    "runtime.serving": {"runtime"},
    "cache": {"cache.timed"},
    "cache.timed": set(),
    "kernels.templates": set(),
    "aot": {"aot.extensions"},
    "aot.host_array": WORDS,
    "aot.call_sizes": {*WORDS, "aot.host_array"},
    "aot.contents": {
        *STAGE_FREE,
        "aot.capture",
        "aot.facts",
        "aot.schedule",
        "aot.lower",
        "aot.targets",
        "aot.tune",
        "aot.plan",
        "aot.pack",
        "aot.sources",
    },
    "aot.sources": {*STAGE_FREE, "aot.lower", "aot.plan"},
    "aot.options": {*WORDS, "aot.rewrites", "aot.tasks", "aot.tune", "cache"},
    "aot.project": {*WORDS, "aot.measure", "aot.options", "cache"},
    "aot.build_extra": WORDS,
    "aot.building": {
        "aot.build_extra",
        "aot.capture",
        "aot.entry_points",
        "aot.pipeline",
        "aot.project",
        "aot.rewrites",
    },
    "aot.calls": {
        *STAGE_FREE,
        "aot.lower",
        "aot.measure",
        "aot.plan",
        "aot.sources",
        "aot.tune",
    },
    "aot.compile": {
        *STAGE_FREE,
        "aot.calls",
        "aot.entries",
        "aot.options",
        "aot.contents",
        "aot.schedule",
        "aot.lower",
        "aot.targets",
        "aot.tasks",
        "aot.tune",
        "aot.plan",
        "aot.sources",
        "aot.stages",
        "cache",
    },
    "aot.refit": {
        *STAGE_FREE,
        "aot.capture",
        "aot.contents",
        "aot.pack",
        "aot.validation",
        "aot.options",
        "aot.compile",
        "aot.lower",
        "aot.rewrites",
        "aot.sharding",
        "aot.targets",
        "aot.tune",
        "aot.stages",
        "kernels.templates",
    },
    "aot.capture_cache": {"aot.capture", "aot.ir", "cache", "runtime"},
    "aot.entries": {*STAGE_FREE, "aot.capture", "aot.plan"},
    "aot.entry_points": set(),
    "aot.front_end": {
        *STAGE_FREE,
        "aot.capture_cache",
        "aot.entries",
        "aot.host_kernels",
        "aot.options",
        "aot.capture",
        "aot.rewrites",
        "aot.sharding",
        "aot.targets",
        "aot.tasks",
        "aot.tune",
        "aot.stages",
        "cache",
    },
    "aot.warm": {
        "aot.options",
        "aot.front_end",
        "aot.compile",
        "aot.refit",
        "aot.targets",
        "aot.tasks",
        "aot.tune",
        "aot.stages",
        "cache",
    },
    "aot.retune": {
        *STAGE_FREE,
        "aot.validation",
        "aot.options",
        "aot.compile",
        "aot.sources",
        "aot.targets",
        "aot.tasks",
        "aot.tune",
        "aot.pack",
        "aot.stages",
        "cache",
    },
    "aot.validation": {*STAGE_FREE, "aot.capture", "aot.contents", "aot.signature", "aot.targets"},
    "aot.host_kernels": {"aot.capture", "aot.rewrites", "kernels"},
    "aot.signature": {*STAGE_FREE, "aot.plan"},
    "aot.errors": {"runtime"},
    "aot.spec_form": {"aot.errors", "runtime"},
    "aot.folders": {"runtime"},
    "aot.traits": {"runtime"},
    "aot.extensions": {"runtime"},
    "aot.printable": set(),
    "aot.version": set(),
    "aot.stages": WORDS,
    "aot.ir": WORDS,
    "aot.capture": {
        *STAGE_FREE,
        "aot.capture.custom_ops",
        "aot.capture.distinct_values",
        "aot.entry_points",
    },
    "aot.capture.custom_ops": WORDS,
    "aot.capture.distinct_values": WORDS,
    "aot.rewrites": {*STAGE_FREE, "aot.schedule"},  # costs
    "aot.sharding": {*STAGE_FREE, "aot.rewrites"},
    "aot.schedule": STAGE_FREE,
    "aot.lower": {*STAGE_FREE, "aot.schedule", "kernels.templates"},
    "aot.tasks": WORDS,
    "aot.measure": {*STAGE_FREE, "aot.tasks"},
    "aot.targets": {*STAGE_FREE, "aot.measure", "aot.tasks"},
    "aot.tune": {
        *STAGE_FREE,
        "aot.lower",
        "aot.measure",
        "aot.targets",
        "aot.tasks",
        "cache",
        "aot.stages",
    },
    "aot.plan": {*STAGE_FREE, "aot.schedule", "aot.lower", "aot.targets"},
    "aot.pack": {*STAGE_FREE, "aot.plan", "aot.tune", "aot.targets"},
    "aot.native": {
        *STAGE_FREE,
        "aot.capture",
        "aot.schedule",
        "aot.lower",
        "aot.measure",
        "aot.targets",
    },
    "aot.profile": {*WORDS, "aot.call_sizes", "aot.charts"},
    "aot.facts": WORDS,
    "aot.diff": {*WORDS, "aot.facts"},
    "aot.charts": {"aot.printable"},
    "aot.report": {*WORDS, "aot.charts", "aot.facts"},
    "aot.distribution": {*WORDS, "aot.pack", "aot.stages", "cache.timed"},
    "aot.init": {*WORDS, "aot.capture"},
    "aot.huggingface": {*WORDS, "aot.capture.distinct_values", "aot.init"},
    "aot.reduce": {
        *WORDS,
        "aot.pipeline",
        "aot.capture",
        "aot.host_kernels",
        "aot.options",
        "aot.targets",
        "aot.tasks",
    },
    "aot.dynamo": {
        *STAGE_FREE,
        "aot.capture",
        "aot.compile",
        "aot.contents",
        "aot.host_kernels",
        "aot.options",
        "aot.pack",
        "aot.plan",
        "aot.rewrites",
        "aot.schedule",
        "aot.signature",
        "aot.stages",
        "aot.targets",
        "aot.tasks",
        "aot.tune",
        "cache",
        "kernels.templates",
    },
    "aot.cli": {"aot", "cache", "kernels", "runtime"},
    "kernels": {
        *STAGE_FREE,
        "aot.capture.custom_ops",
        "aot.targets",
        "aot.tasks",
        "aot.tune",
        "aot.measure",
        "aot.lower",
        "kernels.templates",
        "cache",
    },
}
# What stands beside the compiler and the runtime, and who may know it besides itself: its command.
BESIDE = {
    "aot.dynamo": (),
    "aot.huggingface": (),
    "aot.native": (),
    "aot.profile": ("aot.cli.profile",),
    "aot.reduce": ("aot.cli.reduce",),
    "runtime.backends": ("aot.native", "aot.cli.backends"),
}
BUILD = "aot.pipeline"  # the one module that knows every stage

# Library → where it may be imported.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "torch": (
        "aot/capture",
        "aot/dynamo",
        "aot/huggingface",
        "aot/init",
        "aot/native",
        "aot/reduce",
        "kernels",
        "aot/cli",
        "runtime/programs/fallback.py",
    ),
    "triton": ("aot/targets", "aot/capture/triton_source.py", "kernels"),
    "numpy": ("aot", "runtime/arrays/exchange.py", "kernels"),
    "click": ("aot/cli",),
    "cryptography": ("runtime/trust/keys.py", "aot/distribution/signing.py"),
    "filelock": ("cache",),
    "matplotlib": ("aot/charts/png.py", "aot/cli/output.py"),
    "ray": ("aot/tasks/cluster.py",),
    "transformers": ("aot/huggingface", "kernels/library/registered_attention"),
    "safetensors": (),
}
STANDARD = set(sys.stdlib_module_names)


@cache
def modules():
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def package_of(module):
    if module == BUILD or module.startswith(BUILD + "."):
        return BUILD
    packages = [
        package for package in MAY_IMPORT if module == package or module.startswith(package + ".")
    ]
    return max(packages, key=len)


def is_for_types_only(node):
    test = node.test
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


@dataclass(frozen=True)
class Facts:
    """What the tests ask of a module's tree. Each is parsed once, and no tree is kept: searches for
    garbage would walk millions of nodes in all tests that follow."""

    lines: int
    is_described: bool
    functions: tuple[tuple[str, int], ...]  # and their lines
    classes: tuple[tuple[str, bool], ...]  # and whether they are protocols
    names: frozenset[str | None]  # of attributes, variables, modules, arguments, imports
    environment: tuple[int, ...]  # lines that read it
    imports: tuple[str, ...]
    imports_with_types: tuple[str, ...]


@cache
def facts(path):
    text = path.read_text()
    tree = ast.parse(text)
    functions, classes, names, environment = [], [], set(), []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append((node.name, node.end_lineno - node.lineno + 1))
        elif isinstance(node, ast.ClassDef):
            is_protocol = any(getattr(base, "id", "") == "Protocol" for base in node.bases)
            classes.append((node.name, is_protocol))
        elif isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
            environment.append(node.lineno)
        names |= {getattr(node, name, None) for name in ("attr", "id", "module", "arg")}
        names |= {
            alias.name for alias in getattr(node, "names", ()) if isinstance(alias, ast.alias)
        }
    return Facts(
        len(text.splitlines()),
        bool(ast.get_docstring(tree)),
        tuple(functions),
        tuple(classes),
        frozenset(names),
        tuple(environment),
        tuple(imported_by(tree, path, with_types=False)),
        tuple(imported_by(tree, path, with_types=True)),
    )


def imports(path, with_types=False):
    return facts(path).imports_with_types if with_types else facts(path).imports


def imported_by(tree, path, with_types):
    """Full names of everything a module imports, at any depth, if asked also what it imports for
    type checking only; what it imports relatively begins at ROOT: `runtime.errors`, not
    `aotc.runtime.errors`."""
    found = []
    package = path.relative_to(ROOT).parent.parts

    def visit(node):
        if isinstance(node, ast.If) and is_for_types_only(node) and not with_types:
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1]
            inside = ".".join(filter(None, (*above, node.module)))
            found.extend(f"{inside}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def target_package(imported):
    module = imported.removeprefix("aotc.")
    return package_of(module) if module.partition(".")[0] in PACKAGES else None


def may_import(package, target):
    return any(target == each or target.startswith(each + ".") for each in MAY_IMPORT[package])


def test_there_are_modules_to_look_at():
    assert len(modules()) > 20


def test_imports_point_down():
    wrong = [
        f"{name_of(path)} stands on {package} and may not import {imported}"
        for path in modules()
        if (package := package_of(name_of(path))) != BUILD
        for imported in imports(path)
        if (target := target_package(imported)) is not None
        and target != package
        and not may_import(package, target)
    ]
    wrong += [
        f"{name_of(path)} may not import {imported}"
        for path in modules()
        if package_of(name_of(path)) == BUILD
        for imported in imports(path)
        if imported.startswith("aotc.aot.cli")
    ]
    assert not wrong, "\n".join(wrong)


def test_what_stands_beside_is_imported_by_nothing_else():
    """Neither for types: `aot/extensions.py` and `runtime/extensions.py` find it by name."""
    wrong = []
    for path in modules():
        name = name_of(path)
        found = {each.removeprefix("aotc.") for each in imports(path, with_types=name != "runtime")}
        wrong += [
            f"{name} imports {each}, which may be left out"
            for beside, commands in BESIDE.items()
            if not name.startswith((beside, *commands))
            for each in found
            if f"{each}.".startswith(f"{beside}.")
        ]
    assert not wrong, "\n".join(wrong)


def test_no_file_reaches_itself():
    """Also not by what it imports for its types: what verbs share is a noun below them."""
    names = {name_of(path) for path in modules()}
    below = {}
    for path in modules():
        name, found = name_of(path), imports(path, with_types=True)
        reached = {each.removeprefix("aotc.") for each in found}
        reached = {each if each in names else each.rpartition(".")[0] for each in reached}
        reached -= {name}  # `aotc.runtime`, as a checkout's `runtime` imports it
        below[name] = reached & names
    while lowest := [name for name, reached in below.items() if not reached & below.keys()]:
        for name in lowest:
            del below[name]
    assert not below, f"these reach each other or a circle: {sorted(below)}"


def test_programs_sessions_and_executables_are_few():
    """A feature is a part of a plan, not one more class: there is one of programs, one of sessions
    on the host and on a device, and one of the code and of the sessions of each driver; the session
    of several devices is made of those of each."""
    found = [
        f"{name_of(path)}.{name}"
        for path in modules()
        if name_of(path).startswith(("runtime.programs", "runtime.drivers"))
        for name, is_protocol in facts(path).classes
        if name.endswith(("Program", "Session", "Executable")) and not is_protocol
    ]
    assert 0 < len(found) <= 8, found


def test_libraries_stay_in_their_packages():
    wrong = []
    for path in modules():
        place = path.relative_to(ROOT).as_posix()
        for imported in imports(path):
            library = imported.partition(".")[0]
            if library in ("aotc", *PACKAGES) or library in STANDARD:
                continue
            is_template = place.startswith("kernels/templates") and library == "triton"
            if library not in LIBRARIES:
                wrong.append(f"{place} imports {library}, which is in no row of LIBRARIES")
            elif not is_template and not place.startswith(LIBRARIES[library]):
                wrong.append(f"{place} imports {library}")
    assert not wrong, "\n".join(wrong)


def test_the_runtime_imports_itself_relatively():
    absolute = {
        name_of(path): found
        for path in modules()
        if name_of(path).startswith("runtime")
        and (found := [name for name in imports(path) if name.startswith("aotc")])
    }
    assert absolute == {"runtime": ["aotc.runtime"]}  # the alias


def test_every_folder_of_modules_is_packaged():
    packages = ROOT / "aotc"
    links = {path.name: str(path.readlink()) for path in packages.iterdir() if path.is_symlink()}
    assert links == {name: f"../{name}" for name in sorted(PACKAGES)}
    plain = {path.parent for path in modules()} - {
        path.parent for path in modules() if path.name == "__init__.py"
    }
    assert not plain, "setuptools finds folders with an __init__.py only"


def test_only_settings_reads_the_environment():
    wrong = []
    for path in modules():
        if path.relative_to(ROOT).as_posix() == "runtime/settings.py":
            continue
        wrong += [f"{path.relative_to(ROOT)}:{line}" for line in facts(path).environment]
    assert not wrong


def test_files_and_functions_stay_small():
    long = [
        f"{name_of(path)}: {facts(path).lines} lines"
        for path in modules()
        if facts(path).lines > 700
    ]
    long += [
        f"{name_of(path)}.{name}: {lines} lines"
        for path in modules()
        for name, lines in facts(path).functions
        if lines > 60
    ]
    assert not long


def test_every_module_says_what_it_is():
    assert not [name_of(path) for path in modules() if not facts(path).is_described]


def test_no_folder_of_leftovers():
    banned = {"utils", "util", "common", "helpers", "core", "base", "manager", "misc"}
    assert not [path for path in modules() if path.stem in banned or path.parent.name in banned]


FORKS = {"fork", "forkpty", "multiprocessing", "ProcessPoolExecutor", "preexec_fn"}


def test_no_process_is_forked():
    """A fork has one thread of a process that has torch's, and may wait for the others without
    end. Processes are started as programs, by `subprocess`, and run nothing in between."""
    found = {name_of(path): facts(path).names & FORKS for path in modules()}
    wrong = {name: forks for name, forks in found.items() if forks}
    assert not wrong

"""LLVM IR that the CPU target makes of Triton IR: the checked lines of each file in `code`."""

from __future__ import annotations

import re

import pytest
from code_files import FOLDER, blessed, compare, is_filtered, main, runs_of
from file_check import Mismatch

from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import KNOWN, ROOT_OPS

FILES = {path.stem: path for path in sorted(FOLDER.glob("*.ttir"))}
REFUSED = {  # tests/targets_cpu/test_lowering_refusals.py
    "tt.assert",
    "tt.elementwise_inline_asm",
    "tt.print",
}

OF_OTHERS = {"aotc.scaled"}  # what operations are written as; of `tt.dot_scaled`


@pytest.mark.parametrize("name", FILES)
def test_code(name, is_blessing, expect_text):
    path = FILES[name]
    file = path.read_text()
    try:
        compare(file)
    except Mismatch as mismatch:
        if is_blessing and is_filtered(file):
            expect_text(path, blessed(file))
            return
        how = "`--bless` writes its directives anew" if is_filtered(file) else "written by hand"
        where = path.relative_to(FOLDER.parents[2])
        pytest.fail(f"{where}, {mismatch}\nthe directives: {how}", False)


def test_every_operation_of_triton_is_in_a_file():
    """A table's row that no file shows could change unseen."""
    texts = "\n".join(path.read_text() for path in FILES.values())
    names = set(re.findall(r'"((?:arith|math|tt|scf|cf|llvm\.intr|gpu|ttg|ub)\.\w+)"\(', texts))
    missing = {*KNOWN, *ROOT_OPS} - REFUSED - OF_OTHERS - names
    assert not missing


def test_every_instruction_set_runs():
    assert {run.isa for path in FILES.values() for run in runs_of(path.read_text())} == {*ISAS}


def test_whole_texts_are_written_to_a_folder(tmp_path):
    main([str(tmp_path)])
    runs = [(name, run) for name, path in FILES.items() for run in runs_of(path.read_text())]
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{run.prefix}.ll" for name, run in runs
    }
    name, run = runs[0]
    assert (tmp_path / f"{name}.{run.prefix}.ll").read_text() == run.text(FILES[name].read_text())

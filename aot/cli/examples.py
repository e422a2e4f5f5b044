"""Examples of each command, the last part of its `--help` and of its reference page.

Command, with its subcommand where it has any → (command line, what it does). A test parses every
line with the options of its command.
"""

from __future__ import annotations

import click

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "build": (
        ("aotc build model.py -o bundle/", "for the CPU of this machine"),
        ("aotc build model.py -o bundle/ --target cpu-x86-64-v3 --target cuda:sm_90", "for both"),
        ("aotc build shop.models:ranker -o bundle/", "the name `ranker` of an installed module"),
        (
            "aotc build model.py -o bundle/ --force --tune quick --record tune.db",
            "measure, replace",
        ),
        ("aotc build model.py -o bundle/ --frozen --record tune.db --json", "in CI"),
    ),
    "init": (
        ("aotc init model.py", "a file with a class of torch.nn.Module; writes spec.py"),
        ("aotc init shop.models:Ranker -o ranker.py --argument width=64", "a class of a package"),
        ("aotc init model.py:Net --input x=f32[8,3,224,224]", "with your own inputs"),
        ("aotc init downloads/bert-base/", "a folder with config.json"),
    ),
    "inspect": (
        ("aotc inspect bundle/", "inputs, outputs, kernels, memory"),
        ("aotc inspect bundle/ --kernels", "every launch"),
        ("aotc inspect bundle/ --json | jq .digest", "for scripts"),
    ),
    "report": (
        ("aotc report bundle/ -o report.html", "runs nothing of the bundle"),
        ("aotc report bundle/ -o report.html --measure", "with times and errors of this machine"),
        ("aotc report bundle/ -o report.html --profile profile.json", "with times of another one"),
    ),
    "diff": (
        ("aotc diff before/ after/", "exit 1: they differ"),
        ("aotc diff before/ after/ --ignore times --ignore files --json", "for scripts"),
    ),
    "stubs": (
        ("aotc stubs bundle/ -o ranker.py", "a typed module with a function `load`"),
        ("aotc stubs bundle/ -o ranker.pyi", "types only"),
    ),
    "tune": (
        ("aotc tune bundle/ -o tuned/ --record tune.db", "on the device of this machine"),
        ("aotc tune bundle/ -o tuned/ --tune full --tune-budget 300", "at most five minutes"),
        ("aotc tune bundle/ --tasks-to tasks/", "to be measured elsewhere by `aotc measure`"),
    ),
    "measure": (
        ("aotc measure tasks/ -o results/", "every task of a folder"),
        ("aotc measure - < tasks/1.task > 1.result", "one task, from stdin to stdout"),
    ),
    "run": (
        ("aotc run bundle/", "on its golden input"),
        ("aotc run bundle/ --seed 7 --output y=@y.npy", "on random inputs"),
        ("aotc run bundle/ --seed 7 --size batch=32", "on more of them"),
        ("aotc run bundle/ --input x=@x.npy --expect y=@y.npy --tolerance 1e-4", "exit 1: differs"),
    ),
    "verify": (
        ("aotc verify bundle/", "all that applies"),
        ("aotc verify bundle/ --key release.pub.pem", "signed by this key"),
        ("aotc verify bundle/ --integrity --json", "digests only, for scripts"),
    ),
    "sign": (("aotc sign bundle/ --key release.pem", "into the bundle"),),
    "push": (
        ("aotc push bundle/ registry.example.com/team/model:v1", "to a registry"),
        ("aotc push bundle/ oci-layout:images:v1", "into the image layout in `images`"),
    ),
    "pull": (
        ("aotc pull registry.example.com/team/model:v1 -o bundle/", "by a tag"),
        ("aotc pull oci-layout:images:v1 -o bundle/ --key release.pub.pem", "signed, from disk"),
    ),
    "sbom": (("aotc sbom bundle/ -o bundle.spdx.json", "as a file"),),
    "keygen": (("aotc keygen release", "release.pem and release.pub.pem"),),
    "bench": (
        ("aotc bench bundle/", "percentiles of a call"),
        ("aotc bench bundle/ model.py --against eager --against compile", "beside torch"),
        ("aotc bench bundle/ --size batch=32 --size tokens=512", "at sizes of your own"),
        ("aotc bench bundle/ --plot times.svg", "distribution of the calls"),
        ("aotc bench bundle/ model.py --against eager --fail-if-slower 5 --json", "in CI"),
    ),
    "profile": (
        ("aotc profile bundle/", "time of every kernel"),
        ("aotc profile bundle/ --size tokens=512", "at a size of your own"),
        ("aotc profile bundle/ --launches --trace trace.json", "for ui.perfetto.dev"),
        ("aotc profile bundle/ --plot kernels.svg", "times by kernel, roofline"),
    ),
    "warm": (
        ("aotc warm model.py --target cuda:sm_90 --cache-dir cache/ --shared", "in an image"),
    ),
    "reduce": (("aotc reduce model.py -o smallest.py", "then `aotc build smallest.py -o out/`"),),
    "backends check": (("aotc backends check libmine.so", "exit 1: something is wrong"),),
    "backends include-dir": (("aotc backends include-dir", "for `g++ -I`"),),
    "backends ls": (("aotc backends ls --json", "all that are found"),),
    "backends new": (("aotc backends new mine", "a C++ source and a Makefile in `mine/`"),),
    "doctor": (("aotc doctor", ""), ("aotc doctor --json", "for a report of a problem")),
    "cache clear": (("aotc cache clear --kind tuning", "measurements only"),),
    "cache dir": (("aotc cache dir", ""),),
    "cache explain": (("aotc cache explain", "why the last build compiled anew"),),
    "cache export": (("aotc cache export cache.tar", "for another machine"),),
    "cache gc": (("aotc cache gc --max-size 5GiB", ""),),
    "cache import": (("aotc cache import cache.tar", "what another machine exported"),),
    "cache ls": (("aotc cache ls --kind binaries", ""),),
    "cache prune": (("aotc cache prune --older-than 30d --dry-run", "what would be deleted"),),
    "cache size": (("aotc cache size --json", ""),),
    "cache verify": (("aotc cache verify", "exit 6: an entry is damaged"),),
    "explain": (("aotc explain", "all codes"), ("aotc explain frozen-miss", "one of them")),
    "completion": (
        ("aotc completion bash > ~/.local/share/bash-completion/completions/aotc", "bash"),
        ('aotc completion zsh > "${fpath[1]}/_aotc"', "zsh"),
        ("aotc completion fish > ~/.config/fish/completions/aotc.fish", "fish"),
    ),
}


def add_examples(command: click.Command, path: str) -> None:
    """Put the examples of the command that is called `aotc PATH` at the end of its help, and those
    of its subcommands at theirs."""
    rows = EXAMPLES.get(path, ())
    if rows and not command.epilog:
        blocks = [f"  {line}" + (f"\n      {text}" if text else "") for line, text in rows]
        command.epilog = "\b\nExamples:\n" + "\n".join(blocks)
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            add_examples(each, f"{path} {name}")

"""`confine`: a process gives up the network and nearly all writing, before it runs others' code.

Two of Linux's means, each of which a process may use on itself without privileges, and which its
threads and children inherit and cannot undo:

- seccomp: `socket` and `io_uring_setup` fail with EACCES, as do the calls that reach into other
  processes, those that change mode, owner and attributes of files, of which Landlock says nothing,
  and typing into a terminal; so does every call of another instruction set, which would be numbered
  otherwise.
- Landlock (Linux 5.13 and later): files are made, changed and removed below the given folders only;
  from Linux 6.12 on signals reach the process and its children only.

Reading stays what the user may read. Sources: seccomp(2), landlock(7).
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
AUDIT_ARCH_X86_64 = 0xC000003E
X32_CALLS = 0x40000000  # numbers of the x32 interface begin here
REFUSED_CALLS = {
    "socket": 41, "ptrace": 101, "perf_event_open": 298, "process_vm_readv": 310,
    "process_vm_writev": 311, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
    "pidfd_getfd": 438, "process_madvise": 440,
    # Files anywhere: who may use them, and what is noted of them.
    "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452,
    "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260,
    "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "setxattrat": 463,
    "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "removexattrat": 466,
    "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280, "open_by_handle_at": 304,
    # Memory, queues and keys of the user's other processes.
    "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65, "semctl": 66,
    "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71,
    "mq_open": 240, "mq_unlink": 241, "add_key": 248, "request_key": 249, "keyctl": 250,
}  # fmt: skip
IOCTL, TYPING = 16, (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
PRLIMIT = 302  # of this process alone
EACCES_RESULT, ALLOW_RESULT = 0x00050000 | 13, 0x7FFF0000  # SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW
LOAD_WORD, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # classic BPF
ARGUMENTS, REFUSE = 16, -1  # where a call's arguments begin, low word first; see `_filter`

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # Landlock's system calls
GET_VERSION, PATH_BENEATH = 1, 1
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
# remove_dir to make_sym; refer and truncate came with versions 2 and 3.
CHANGES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))
LATER_CHANGES = ((2, 1 << 13), (3, TRUNCATE))
SCOPES = (6, 0b11)  # from this version on: abstract sockets and signals stay inside
OF_FILES = WRITE_FILE | TRUNCATE


def confine(writable: Iterable[str]) -> tuple[str, ...]:
    """Give up the network, and all writing but below the `writable` paths; what holds from now on.

    "network" and "writes", or fewer where the kernel has no such means: nothing is raised then.
    Called before the process has other threads.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if os.uname().machine != "x86_64" or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return ()
    writes = ("writes",) if _restrict_writes(libc, writable) else ()
    network = ("network",) if _refuse_calls(libc) else ()
    return (*network, *writes)


def _refuse_calls(libc: Any) -> bool:
    """Install the filter of system calls."""
    text = _filter()
    code = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("<HxxxxxxQ", len(text) // 8, ctypes.addressof(code))
    return not libc.prctl(PR_SET_SECCOMP, FILTER, program, 0, 0)


def _filter() -> bytes:
    """The filter's instructions: (operation, lines to skip where it holds, where not, operand);
    a skip of REFUSE is to the last line."""
    lines = [
        (LOAD_WORD, 0, 0, 4),  # the instruction set
        (JUMP_EQUAL, 0, REFUSE, AUDIT_ARCH_X86_64),
        (LOAD_WORD, 0, 0, 0),  # the call's number
        (JUMP_AT_LEAST, REFUSE, 0, X32_CALLS),
        *((JUMP_EQUAL, REFUSE, 0, number) for number in sorted(REFUSED_CALLS.values())),
        (JUMP_EQUAL, 0, len(TYPING) + 2, IOCTL),
        (LOAD_WORD, 0, 0, ARGUMENTS + 8),  # what is asked of the file
        *((JUMP_EQUAL, REFUSE, 0, request) for request in TYPING),
        (RETURN, 0, 0, ALLOW_RESULT),
        (JUMP_EQUAL, 0, 2, PRLIMIT),
        (LOAD_WORD, 0, 0, ARGUMENTS),  # the process
        (JUMP_EQUAL, 0, REFUSE, 0),
        (RETURN, 0, 0, ALLOW_RESULT),
        (RETURN, 0, 0, EACCES_RESULT),
    ]
    last = len(lines) - 1
    rows = (
        (code, *(last - at - 1 if skip == REFUSE else skip for skip in skips), operand)
        for at, (code, *skips, operand) in enumerate(lines)
    )
    return b"".join(struct.pack("<HBBI", *row) for row in rows)


def _restrict_writes(libc: Any, writable: Iterable[str]) -> bool:
    """Enter a Landlock domain in which only what is below the paths can be changed."""
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), GET_VERSION)
    if version < 1:
        return False
    changes = CHANGES | sum(change for first, change in LATER_CHANGES if version >= first)
    asked = struct.pack("<Q", changes)
    if version >= SCOPES[0]:
        asked = struct.pack("<QQQ", changes, 0, SCOPES[1])  # of the network nothing: seccomp's part
    rules = libc.syscall(CREATE_RULESET, asked, ctypes.c_size_t(len(asked)), 0)
    if rules < 0:
        return False
    try:
        for path in writable:
            _allow(libc, rules, path, changes)
        return not libc.syscall(RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(libc: Any, rules: int, path: str, changes: int) -> None:
    """Allow changes at and below a path; of one that is not there, nothing."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = changes if Path(path).is_dir() else changes & OF_FILES
        rule = struct.pack("<Qi", allowed, descriptor)
        libc.syscall(ADD_RULE, rules, PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)

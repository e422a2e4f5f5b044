"""Verifies bundles on the device: python sanitized.py BUNDLE…, under a memory checker.

Run with `AOTC_SEPARATE_BUFFERS=1`, since an arena hides overruns. The process has no torch, whose
own allocator would hide them too.
"""

import sys

from aotc.runtime.verify import verify

for path in sys.argv[1:]:
    findings = verify(path, device="cuda")
    wrong = [each for each in findings if each.status == "failed"]
    assert not wrong, wrong
    assert any(each.layer == "golden" and each.status == "ok" for each in findings), findings
    print("right", path)

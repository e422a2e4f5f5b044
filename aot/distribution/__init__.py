"""Bundles that travel: signatures, bills of materials, OCI layouts and registries.

Nothing of the compiler is needed: a bundle is signed, pushed and pulled where neither torch nor
triton is installed.
"""

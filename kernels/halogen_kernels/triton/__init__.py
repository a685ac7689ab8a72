"""The operators in Triton, for NVIDIA and AMD devices, and for the interpreter that tests run them in.

Owns the kernels, how they are launched, tuned, compiled ahead and found in a cache. One name goes with an
operator: its module here, `reference`'s function, `tuning/NAME.json`, `tests/kernels/test_triton_NAME.py`
and `bench/NAME.py`.

    targets    the architectures there is code for         shapes   what the variants of a kernel differ in
    tuning     block sizes by target and shape class       launching   the only way a kernel is launched
    ahead      compiles all variants for a target, here or elsewhere, into a cache

Nothing imports this package unless the backend "triton" is asked for: importing it imports Triton.
Must never know a model's architecture, a checkpoint, a scheduler or a request, and never tunes while serving.
"""

"""Triton's interpreter, mended: bfloat16 rounded and multiplied as a GPU does, and NumPy 2.4."""

from __future__ import annotations

from typing import Any

import torch


def mend() -> None:
    """Replace what Triton 3.6's interpreter gets wrong.

    It takes bfloat16 for its bits when it multiplies matrices and cuts it off instead of rounding;
    and it turns arrays of one element into numbers, which NumPy no longer allows.
    """
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    old_cast, old_dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot
    old_patch = interpreter._patch_lang_tensor

    def cast(self: Any, handle: Any, dtype: Any) -> Any:
        source, target = handle.dtype.scalar, dtype.scalar
        if (source, target) == (tl.bfloat16, tl.float32):
            bits = torch.from_numpy(handle.data.copy()).view(torch.bfloat16)
            return TensorHandle(bits.float().numpy(), target)
        if (source, target) == (tl.float32, tl.bfloat16):
            rounded = torch.from_numpy(handle.data.copy()).bfloat16()
            return TensorHandle(rounded.view(torch.uint16).numpy(), target)
        return old_cast(self, handle, dtype)

    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        wide = [cast(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b)]
        return old_dot(self, *wide, *rest)

    def patch(tensor: Any, scope: Any) -> None:
        old_patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    for name in ("cast_impl", "create_fp_trunc", "create_fp_ext"):
        setattr(InterpreterBuilder, name, cast)
    InterpreterBuilder.create_dot = dot
    interpreter._patch_lang_tensor = patch

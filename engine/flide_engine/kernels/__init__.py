"""One folder an operation: `entry` validates nothing and picks, `reference` is plain PyTorch.

The reference runs on any CPU, in float64 too, and is the truth the other backends are held to.
"""

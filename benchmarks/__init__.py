"""What the engine costs beside transformers: `python -m benchmarks.cpu --help`."""

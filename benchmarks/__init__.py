"""What wrapper tensors cost: this library beside torch and beside code written by hand. Run `python -m benchmarks`."""

"""What gpumon costs beside its peers. `python -m benchmarks --help`; README.md says what counts."""

"""gpumon as its users run it: another process, real files, the emulated driver."""

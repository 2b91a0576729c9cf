"""The screen of `gpumon jobs`."""

"""The screen of recorded runs: of `gpumon runs`, and over the dashboard."""

"""An emulated NVIDIA driver for tests: `emulator` is its Python side, README.md its manual."""

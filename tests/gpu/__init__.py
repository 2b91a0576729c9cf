"""gpumon on a real NVIDIA GPU, beside other monitors; see README.md."""

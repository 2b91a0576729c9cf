"""Whether memory that is used on a device is memory that is needed.

Frameworks reserve ahead: TensorFlow nearly all, JAX three quarters, vLLM what is left for its
cache. What NVML calls used is then no need, and no finding may rest on it. Told by the shape of
each process's memory first, by its libraries, and last by its environment.
"""

from gpumon.analysis.memory.classify import ProcessMemory, classify
from gpumon.analysis.memory.shape import Shape, shape_of
from gpumon.analysis.memory.truth import Truth, mem_truth_of

__all__ = ["ProcessMemory", "Shape", "Truth", "classify", "mem_truth_of", "shape_of"]

"""XLA flags for tests: compiling dominates their time, and results are the same to rounding."""

import jaxlib

XLA_FLAGS = "--xla_backend_optimization_level=0"
if jaxlib.version.__version_info__ < (0, 11):
    # Halves the time; unknown to later versions, which end the process for it.
    XLA_FLAGS += " --xla_cpu_use_fusion_emitters=false"

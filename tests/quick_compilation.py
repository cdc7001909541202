"""XLA flags for tests: compiling dominates their time, and results are the same to rounding."""

import jaxlib

# Programs of this size gain nothing from being translated in several parts at once: in one part
# compiling takes a fifth less time.
XLA_FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if jaxlib.version.__version_info__ < (0, 11):
    # Halves the time; unknown to later versions, which end the process for it.
    XLA_FLAGS += " --xla_cpu_use_fusion_emitters=false"

"""Compiled calls take arrays that are on their devices, and nothing else."""

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from lra import sharding


@pytest.mark.parametrize("argument", [np.ones(3, np.float32), 2.0], ids=["array", "number"])
def test_what_is_not_on_the_devices_is_refused(argument):
    program = jax.jit(lambda x: x + x)
    placed = sharding.put(np.asarray(argument, np.float32), SingleDeviceSharding(jax.devices()[0]))
    with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
        sharding.call(program, argument)
    np.testing.assert_array_equal(sharding.call(program, placed), 2 * np.asarray(argument))

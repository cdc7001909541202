"""Meshes fit the devices, seeds and batches; compiled calls take only what is on their devices."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, SingleDeviceSharding

from lra import sharding
from lra.errors import UserError


@pytest.mark.parametrize("argument", [np.ones(3, np.float32), 2.0], ids=["array", "number"])
def test_what_is_not_on_the_devices_is_refused(argument):
    program = jax.jit(lambda x: x + x)
    placed = sharding.put(np.asarray(argument, np.float32), SingleDeviceSharding(jax.devices()[0]))
    with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
        sharding.call(program, argument)
    np.testing.assert_array_equal(sharding.call(program, placed), 2 * np.asarray(argument))


@pytest.mark.parametrize(
    ("seed", "data", "num_seeds", "wrong", "fitting"),
    [
        (2, 4, 3, "seed", "1"),
        (2, 0, 3, "seed", "1, 3"),
        (0, 5, 3, "data", "1, 2, 4, 8"),
        (2, 3, 2, "data", "1, 2, 4"),
    ],
)
def test_the_sizes_said_to_fit_do(seed, data, num_seeds, wrong, fitting):
    def make(**sizes):
        return sharding.make_shardings(**sizes, num_seeds=num_seeds, batch_sizes=(24, 32))

    sizes = {"seed": seed, "data": data}
    with pytest.raises(UserError, match=f"mesh.{wrong}={sizes[wrong]}; fitting: {fitting}$"):
        make(**sizes)
    for size in map(int, fitting.split(", ")):
        assert make(**(sizes | {wrong: size})).mesh.shape[wrong] == size


@pytest.mark.parametrize(
    ("devices", "hosts", "num_seeds", "batch", "mesh"),
    [
        (1, 1, 3, 32, (1, 1)),
        (8, 1, 1, 32, (1, 8)),
        (8, 1, 2, 32, (2, 4)),
        (8, 1, 3, 32, (1, 8)),
        (3, 1, 1, 32, (1, 2)),
        (5, 1, 1, 32, (1, 4)),
        (6, 1, 1, 32, (1, 4)),
        (6, 1, 3, 32, (3, 2)),
        (7, 1, 3, 32, (3, 2)),
        (6, 2, 1, 32, (1, 4)),
        (6, 2, 3, 2, (3, 2)),
        (5, 2, 5, 2, (1, 2)),
    ],
)
def test_most_devices_take_part(monkeypatch, devices, hosts, num_seeds, batch, mesh):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    monkeypatch.setattr(jax, "process_count", lambda: hosts)
    sizes = {"num_seeds": num_seeds, "batch_sizes": (batch, 2 * batch)}
    assert sharding.mesh_sizes(0, 0, **sizes) == mesh
    # Each of the two, once given, leaves the other as it is.
    assert sharding.mesh_sizes(mesh[0], 0, **sizes) == mesh
    assert sharding.mesh_sizes(0, mesh[1], **sizes) == mesh


@pytest.mark.parametrize(
    ("num_seeds", "batch", "fitting"),
    [
        (1, 7, "none, unless 2 divides seeds x batch"),
        (3, 4, "1 x 2, 1 x 4, 3 x 2"),
        (2, 7, "2 x 1"),
    ],
)
def test_a_mesh_has_as_many_devices_of_every_host(monkeypatch, num_seeds, batch, fitting):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(UserError, match=rf"among 2 hosts; fitting \(.*\): {fitting}$"):
        sharding.make_shardings(1, 1, num_seeds=num_seeds, batch_sizes=(batch,))


def test_a_mesh_of_some_devices_takes_the_first(monkeypatch):
    """`jax.make_mesh` refuses parts of a TPU that have holes."""

    def refuse(*_, **__):
        raise AssertionError("holes")

    monkeypatch.setattr(jax, "make_mesh", refuse)
    mesh = sharding.make_shardings(3, 1, num_seeds=3, batch_sizes=(8,)).mesh
    assert list(mesh.devices.flat) == jax.devices()[:3]
    assert dict(mesh.shape) == {"seed": 3, "data": 1}
    assert set(mesh.axis_types) == {AxisType.Auto}
    with pytest.raises(AssertionError, match="holes"):  # all of them are placed by JAX
        sharding.make_shardings(1, 8, num_seeds=3, batch_sizes=(8,))

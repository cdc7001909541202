"""Where arrays live: a mesh of devices with the axes `seed` and `data`, and nothing else.

Seeds need no communication; along `data` a step adds up its gradients. One device is the 1 x 1
mesh.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lra.errors import UserError


class Shardings(NamedTuple):
    """Placements on a mesh.

    Attributes:
        mesh: of the devices.
        per_seed: arrays whose first axis is the seed.
        replicated: the same on every device.
        shares: of one seed, [share of the batch, ...].
        indices: [seed, step, batch].
        table: [step, batch], shared by the seeds.
        logits: [seed, step, batch, class].
    """

    mesh: Mesh
    per_seed: NamedSharding
    replicated: NamedSharding
    shares: NamedSharding
    indices: NamedSharding
    table: NamedSharding
    logits: NamedSharding


def make_shardings(
    seed: int, data: int, *, num_seeds: int, batch_sizes: tuple[int, ...]
) -> Shardings:
    """The placements for a mesh of `seed` x `data` devices; 0 stands for what fits.

    Raises:
        UserError: more devices asked for than there are, seeds that the seed axis or a batch that
            the data axis does not divide; it names the sizes that would fit.
    """
    available = jax.device_count()
    asked = max(seed, 1) * max(data, 1)
    if asked > available:
        raise UserError(
            f"mesh.seed={seed or 1}, mesh.data={data or 1} needs {asked} devices, there are "
            f"{available}"
        )
    # By default the seeds take as many devices as divide them, the batch as many as remain.
    seed = seed or math.gcd(available // (data or 1), num_seeds)
    data = data or math.gcd(available // seed, *batch_sizes)
    if num_seeds % seed:
        raise UserError(
            f"{num_seeds} seeds do not divide among mesh.seed={seed}; fitting: "
            f"{_divisors(num_seeds, available)}"
        )
    for batch in batch_sizes:
        if batch % data:
            raise UserError(
                f"a batch of {batch} does not divide among mesh.data={data}; fitting: "
                f"{_divisors(batch, available)}"
            )
    devices = _devices(seed * data)
    # With explicit axes, JAX's default, the gathers of this project are errors.
    mesh = jax.make_mesh(
        (seed, data), ("seed", "data"), axis_types=(AxisType.Auto,) * 2, devices=devices
    )

    def place(*axes: str | None) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*axes))

    return Shardings(
        mesh=mesh,
        per_seed=place("seed"),
        replicated=place(),
        shares=place("data"),
        indices=place("seed", None, "data"),
        table=place(None, "data"),
        logits=place("seed", None, "data"),
    )


def _devices(number: int) -> list[jax.Device]:
    """That many devices, of every host equally many."""
    hosts = jax.process_count()
    if number % hosts:
        raise UserError(
            f"a mesh of {number} devices does not divide among {hosts} hosts; choose mesh.seed "
            f"and mesh.data so that {hosts} divides their product, up to {jax.device_count()}"
        )
    share = number // hosts
    return [
        device
        for host in range(hosts)
        for device in [d for d in jax.devices() if d.process_index == host][:share]
    ]


def put(array: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
    """The array on the devices; each host, having all of it, fills its own."""
    with jax.transfer_guard_host_to_device("allow"):  # asked for here, though JAX does not say so
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def put_number(number: int, sharding: jax.sharding.Sharding) -> jax.Array:
    """The number of a step or a count on the devices, int32."""
    return put(np.asarray(number, np.int32), sharding)


def call(program: Callable, *arguments: Any) -> Any:
    """Calls a compiled program; an argument that is not on its devices is an error, not copied."""
    # When JAX looks for a NaN it repeats the call operation by operation, which places constants.
    guard = "allow" if jax.config.jax_debug_nans else "disallow"
    with (
        jax.transfer_guard_host_to_device(guard),
        jax.transfer_guard_device_to_device(guard),
    ):
        return program(*arguments)


def _divisors(number: int, limit: int) -> str:
    fitting = [n for n in range(1, min(number, limit) + 1) if number % n == 0]
    return ", ".join(map(str, fitting))

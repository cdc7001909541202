"""Placement of arrays on a mesh of devices with the axes `seed` and `data`.

Along `data`, a step sums its gradients; along `seed`, only the results of an evaluation are
gathered. A single device is the 1 x 1 mesh.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lra.errors import UserError


class Shardings(NamedTuple):
    """Shardings on a mesh, by the arrays they are for.

    Attributes:
        mesh: Mesh of the devices.
        per_seed: Arrays whose first axis is the seed.
        replicated: Arrays that every device holds entirely.
        shares: Arrays of one seed, [share of the batch, ...].
        indices: Indices of training examples, [seed, step, batch].
        table: Indices of evaluation examples, [batches, batch], the same for all seeds.
        logits: Logits of an evaluation, [seed, batches, batch, class].
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
    """Make the shardings for a mesh of `seed` x `data` devices; `mesh_sizes` chooses those of 0."""
    sizes = mesh_sizes(seed, data, num_seeds=num_seeds, batch_sizes=batch_sizes)
    return shardings_on(make_mesh(_devices(math.prod(sizes)), *sizes))


def shardings_on(mesh: Mesh) -> Shardings:
    """Make the shardings for a mesh of `make_mesh`."""

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


def copy_on_every_host() -> NamedSharding:
    """Sharding of arrays that one device of every host holds entirely."""
    first = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(list(first.values()), ("host",), axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec())


def connect_groups(shardings: Shardings) -> None:
    """Let the devices of each group that communicates on the mesh connect; call it on all hosts.

    On CPUs, devices of several hosts connect when a group of them first communicates, and wait for
    each other for no more than 30 s. Then, hosts would have compiled for minutes, some of them
    longer than others; here, they are together.
    """
    if shardings.mesh.is_multi_process:
        for axes in (("data",), ("seed",), ("seed", "data")):
            program, ones = sum_over(shardings.mesh, axes)
            jax.block_until_ready(program(ones))


def sum_over(mesh: Mesh, axes: tuple[str, ...]) -> tuple[Callable, jax.Array]:
    """Return a program that sums over these axes of a mesh, and its argument."""
    size = math.prod(mesh.shape[axis] for axis in axes)
    ones = put(np.ones(size, np.int32), NamedSharding(mesh, PartitionSpec(axes)))
    return jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec())), ones


def mesh_sizes(
    seed: int, data: int, *, num_seeds: int, batch_sizes: tuple[int, ...]
) -> tuple[int, int]:
    """Return the sizes of the mesh along the seeds and along the batch.

    Sizes that are 0 are chosen so that as many devices as possible take part, preferably along the
    seeds, which need no communication.

    Raises:
        UserError: If there are fewer devices, the axis `seed` does not divide the seeds or `data` a
            batch, or several hosts cannot have equally many of the devices; the message names the
            sizes that would fit.
    """
    available = jax.device_count()
    requested = max(seed, 1) * max(data, 1)
    if requested > available:
        raise UserError(
            f"mesh.seed={seed or 1}, mesh.data={data or 1} needs {requested} devices, there are "
            f"{available}"
        )
    if seed and num_seeds % seed:
        raise UserError(
            f"{num_seeds} seeds do not divide among mesh.seed={seed}; fitting: "
            f"{_list_of_divisors(num_seeds, available // (data or 1))}"
        )
    fitting = [
        (s, d)
        for s in ([seed] if seed else _divisors(num_seeds, available // (data or 1)))
        for d in ([data] if data else _divisors(math.gcd(*batch_sizes), available // s))
    ]
    seed, data = max(fitting, key=lambda mesh: (_has_all_hosts(mesh), math.prod(mesh), mesh))
    for batch in batch_sizes:
        if batch % data:
            raise UserError(
                f"a batch of {batch} does not divide among mesh.data={data}; fitting: "
                f"{_list_of_divisors(math.gcd(*batch_sizes), available // seed)}"
            )
    if not _has_all_hosts((seed, data)):
        meshes = _meshes_of_all_hosts(num_seeds, math.gcd(*batch_sizes))
        raise UserError(
            f"a mesh of {seed} x {data} devices does not divide among {jax.process_count()} hosts; "
            f"fitting (mesh.seed x mesh.data): {meshes}"
        )
    return seed, data


def _has_all_hosts(mesh: tuple[int, int]) -> bool:
    """Whether a mesh of this size can have equally many devices of every host."""
    return math.prod(mesh) % jax.process_count() == 0


def _meshes_of_all_hosts(num_seeds: int, batch: int) -> str:
    """List the meshes that have equally many devices of every host."""
    available = jax.device_count()
    meshes = [
        f"{seed} x {data}"
        for seed in _divisors(num_seeds, available)
        for data in _divisors(batch, available // seed)
        if _has_all_hosts((seed, data))
    ]
    return ", ".join(meshes) or f"none, unless {jax.process_count()} divides seeds x batch"


def make_mesh(devices: list[jax.Device], seed: int, data: int) -> Mesh:
    """Make a mesh of `seed` x `data` devices."""
    axes = ("seed", "data")
    # With explicit axes, JAX's default, the gathers of this project would be errors.
    types = (AxisType.Auto,) * len(axes)
    if set(devices) == set(jax.devices()):
        return jax.make_mesh((seed, data), axes, axis_types=types, devices=devices)
    # Neighbours in a TPU's network matter less here than that `make_mesh` refuses some parts of it.
    return Mesh(np.reshape(devices, (seed, data)), axes, axis_types=types)


def _devices(number: int) -> list[jax.Device]:
    """The first `number` devices, the same number from every host."""
    hosts = jax.process_count()
    share = number // hosts
    return [
        device
        for host in range(hosts)
        for device in [d for d in jax.devices() if d.process_index == host][:share]
    ]


def put(array: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
    """Put an array on the devices; each host has all of it and fills its own devices."""
    with jax.transfer_guard_host_to_device("allow"):  # JAX takes it for an implicit transfer
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def put_number(number: int, sharding: jax.sharding.Sharding) -> jax.Array:
    """Put a step or a count on the devices, as int32."""
    return put(np.asarray(number, np.int32), sharding)


def call(program: Callable, *arguments: Any) -> Any:
    """Call a compiled program; an argument that is not on its devices raises, and is not copied."""
    # To locate a NaN, JAX repeats the call operation by operation, which transfers constants.
    guard = "allow" if jax.config.jax_debug_nans else "disallow"
    with (
        jax.transfer_guard_host_to_device(guard),
        jax.transfer_guard_device_to_device(guard),
    ):
        return program(*arguments)


def _divisors(number: int, limit: int) -> list[int]:
    return [n for n in range(1, min(number, limit) + 1) if number % n == 0]


def _list_of_divisors(number: int, limit: int) -> str:
    return ", ".join(map(str, _divisors(number, limit)))

"""Reformer written as slowly and independently as possible."""

import jax
import jax.numpy as jnp
import numpy as np


def dense_shared_qk(q, v, mask):
    """Attention of q to itself, everything in one [length, length] array."""
    k = q * jax.lax.rsqrt(jnp.mean(q * q, -1, keepdims=True) + 1e-6) / jnp.sqrt(q.shape[-1])
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k)
    scores = jnp.where(np.eye(q.shape[1], dtype=bool)[None, None], -1e5, scores)
    scores = jnp.where(mask[:, None, None, :], scores, -1e9)
    return jnp.einsum("bhlm,bmhd->blhd", jax.nn.softmax(scores), v)


def slow_reformer(q, v, mask, rotations, chunk_length):
    """Loop over sequences, heads, rounds and queries of float64 numpy arrays."""
    batch, length, heads, _ = q.shape
    out = np.zeros_like(q)
    padded = -(-length // chunk_length) * chunk_length
    for b, h in np.ndindex(batch, heads):
        places = []  # (round, bucket, position) in the order of attention
        for r in range(rotations.shape[2]):
            for i in range(padded):
                bucket = rotations.shape[3] * 2
                if i < length and mask[b, i]:
                    turned = q[b, i, h] @ rotations[h, :, r]
                    bucket = int(np.argmax(np.concatenate([turned, -turned])))
                places.append((r, bucket, i))
        places.sort()
        chunks = [places[s : s + chunk_length] for s in range(0, len(places), chunk_length)]
        found = {}
        for c, chunk in enumerate(chunks):
            near = [i for _, _, i in chunks[c - 1] + chunk if i < length and mask[b, i]]
            for r, _, i in chunk:
                if i < length and mask[b, i]:
                    found[i, r] = slow_query(q[b, :, h], v[b, :, h], i, near)
        for i in np.flatnonzero(mask[b]):
            outs, totals = zip(*(found[i, r] for r in range(rotations.shape[2])), strict=True)
            shares = np.exp(totals - np.logaddexp.reduce(totals))
            out[b, i, h] = shares @ np.array(outs)
    return out


def slow_query(q, v, i, near):
    scores = []
    for j in near:
        key = q[j] / np.sqrt(np.mean(q[j] ** 2) + 1e-6) / np.sqrt(q.shape[1])
        scores.append(-1e5 if i == j else q[i] @ key)
    total = np.logaddexp.reduce(scores)
    return np.exp(scores - total) @ v[near], total

"""The Llama architecture in plain numpy, as far as recording one sequence needs it.

Everything is float64, so that the summation order of a BLAS cannot be seen in the fp16 results;
except that post-RoPE q and k, and v, are rounded to fp16 before attention reads them. Hence the
recorded tensors are exactly the operands of the attention. RoPE rotates the adjacent pair
(2i, 2i + 1), which is the layout to which GGUF files of this architecture permute q and k.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Half = NDArray[np.float16]


@dataclass(frozen=True)
class ModelConfig:
    """Facts of a model that its tensors do not show."""

    name: str
    num_layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    rms_epsilon: float

    @property
    def softmax_scale(self) -> float:
        return self.head_dim**-0.5


@dataclass(frozen=True)
class LayerWeights:
    """Matrices are [out][in], as stored."""

    attn_norm: Array
    q: Array
    k: Array
    v: Array
    attn_output: Array
    ffn_norm: Array
    ffn_gate: Array
    ffn_up: Array
    ffn_down: Array


@dataclass(frozen=True)
class ModelWeights:
    """The output matrix is the embedding (tied)."""

    embedding: Array
    layers: list[LayerWeights]
    output_norm: Array


@dataclass
class LayerCache:
    """What the attention of one layer has read so far, [tokens][heads][head_dim]."""

    q: list[Half] = field(default_factory=list)
    k: list[Half] = field(default_factory=list)
    v: list[Half] = field(default_factory=list)


def to_half(values: Array) -> Half:
    """Rounds to fp16, to nearest even; refuses what does not fit."""
    half = values.astype("<f2")
    if not np.isfinite(half).all():
        raise OverflowError("a value does not fit fp16: the model cannot be recorded in fp16")
    return half


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """Scales every row to root mean square 1, then by weight."""
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + epsilon) * weight


def rope(x: Array, positions: NDArray[np.int64], theta: float) -> Array:
    """Rotates pair (2i, 2i + 1) by position * theta^(-2i / head_dim).

    x is [tokens][heads][head_dim], positions has one entry a token.
    """
    head_dim = x.shape[-1]
    frequency = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = positions[:, None, None] * frequency
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = np.empty_like(x)
    rotated[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
    rotated[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
    return rotated


def softmax(logits: Array) -> Array:
    """Over the last axis; -inf becomes 0."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention_weights(q: Half, k: Half, scale: float) -> Array:
    """Causal probabilities [query_heads][queries][keys]; the queries are the last of the keys.

    Query head h reads KV head h // (query_heads / kv_heads).
    """
    group = q.shape[1] // k.shape[1]
    keys = np.repeat(k.astype(np.float64), group, axis=1).transpose(1, 2, 0)
    logits = q.astype(np.float64).transpose(1, 0, 2) @ keys * scale
    first = k.shape[0] - q.shape[0]
    visible = np.arange(k.shape[0]) <= first + np.arange(q.shape[0])[:, None]
    return softmax(np.where(visible, logits, -np.inf))


def attention(q: Half, k: Half, v: Half, scale: float) -> Array:
    """Causal attention with grouped heads; [queries][query_heads][head_dim]."""
    group = q.shape[1] // k.shape[1]
    values = np.repeat(v.astype(np.float64), group, axis=1).transpose(1, 0, 2)
    return (attention_weights(q, k, scale) @ values).transpose(1, 0, 2)


def swiglu(x: Array, layer: LayerWeights) -> Array:
    gate = x @ layer.ffn_gate.T
    return (gate / (1 + np.exp(-gate)) * (x @ layer.ffn_up.T)) @ layer.ffn_down.T


class LlamaSession:
    """One sequence: `forward` takes the next tokens and returns their logits; caches accumulate."""

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self._config = config
        self._weights = weights
        self._num_tokens = 0
        self.caches = [LayerCache() for _ in weights.layers]

    def forward(self, token_ids: list[int]) -> Array:
        """Logits [tokens][vocabulary] of the given tokens, which follow all earlier ones."""
        positions = np.arange(self._num_tokens, self._num_tokens + len(token_ids))
        self._num_tokens += len(token_ids)
        epsilon = self._config.rms_epsilon
        x = self._weights.embedding[token_ids]
        for layer, cache in zip(self._weights.layers, self.caches, strict=True):
            x = x + self._attend(rms_norm(x, layer.attn_norm, epsilon), positions, layer, cache)
            x = x + swiglu(rms_norm(x, layer.ffn_norm, epsilon), layer)
        return rms_norm(x, self._weights.output_norm, epsilon) @ self._weights.embedding.T

    def recorded(self, layer: int) -> tuple[Half, Half, Half]:
        """q, k, v of every token so far, as the attention of the layer has read them."""
        cache = self.caches[layer]
        return np.concatenate(cache.q), np.concatenate(cache.k), np.concatenate(cache.v)

    def _attend(
        self, x: Array, positions: NDArray[np.int64], layer: LayerWeights, cache: LayerCache
    ) -> Array:
        config = self._config

        def heads(matrix: Array) -> Array:
            return (x @ matrix.T).reshape(len(x), -1, config.head_dim)

        cache.q.append(to_half(rope(heads(layer.q), positions, config.rope_theta)))
        cache.k.append(to_half(rope(heads(layer.k), positions, config.rope_theta)))
        cache.v.append(to_half(heads(layer.v)))
        keys, values = np.concatenate(cache.k), np.concatenate(cache.v)
        out = attention(cache.q[-1], keys, values, config.softmax_scale)
        return out.reshape(len(x), -1) @ layer.attn_output.T


def greedy_continuation(
    session: LlamaSession,
    prompt_ids: list[int],
    num_generated: int,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[list[int], Array]:
    """Prefills the prompt, then appends the most likely token num_generated times.

    Returns all token ids, and the logits of every position: the last generated token is fed too,
    so that every token has its q, k and v. An end-of-text token does not end the sequence.
    """
    token_ids = list(prompt_ids)
    logits = [session.forward(token_ids)]
    for index in range(num_generated):
        token_ids.append(int(np.argmax(logits[-1][-1])))
        logits.append(session.forward(token_ids[-1:]))
        progress(index + 1)
    return token_ids, np.concatenate(logits)

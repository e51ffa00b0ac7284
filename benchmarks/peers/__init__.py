"""The peers, by name. A peer that is not installed is left out and said to be."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.peer import Peer

PEERS = {
    "tenferro": "tenferro_peer.TenferroPeer",
    "numpy": "numpy_peer.NumpyPeer",
    "jax": "jax_peer.JaxPeer",
    "numba": "numba_peer.NumbaPeer",
    "numexpr": "numexpr_peer.NumexprPeer",
    "torch": "torch_peer.TorchPeer",
}

CUDA_PEERS = {"tenferro": "tenferro_peer.TenferroCudaPeer", "cupy": "cupy_peer.CupyPeer"}
"""Those with arrays that stay on a GPU."""


def peers_on(engine: str) -> dict[str, str]:
    """The peers that run on ``cpu`` or ``cuda``."""
    return CUDA_PEERS if engine == "cuda" else PEERS


def load(name: str, threads: int, engine: str = "cpu") -> Peer:
    """Make a peer. Raises ImportError where its library is not installed."""
    module, _, cls = peers_on(engine)[name].partition(".")
    peer: Peer = getattr(import_module(f"benchmarks.peers.{module}"), cls)(threads)
    return peer

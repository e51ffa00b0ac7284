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


def load(name: str, threads: int) -> Peer:
    """Make a peer. Raises ImportError where its library is not installed."""
    module, _, cls = PEERS[name].partition(".")
    peer: Peer = getattr(import_module(f"benchmarks.peers.{module}"), cls)(threads)
    return peer

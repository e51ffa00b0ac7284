"""Small pieces of machine learning: logistic regression, softmax cross-entropy, a two-layer network, normalisation."""

import numpy as np


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def logistic_step(w, b, x, y):
    p = sigmoid(x @ w + b)
    error = p - y
    grad_w = x.T @ error / y.size
    grad_b = error.mean()
    loss = -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))
    return w - 0.1 * grad_w, b - 0.1 * grad_b, loss


def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -log_p[np.arange(len(labels)), labels].mean()


def network(x, w1, b1, w2, b2):
    hidden = np.maximum(0, x @ w1 + b1)
    out = np.tanh(hidden @ w2 + b2)
    return out, (out**2).sum() / out.size


def standardise(x):
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-8)


def layer_norm(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return gain * (x - mean) / np.sqrt(variance + 1e-5) + bias

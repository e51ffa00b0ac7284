"""Images: blur, equalisation through a table, vignette, edges."""

import numpy as np


def box_blur(image):
    height, width = image.shape
    padded = np.pad(image, 1)
    total = np.zeros((height, width))
    for dy in range(3):
        for dx in range(3):
            total += padded[dy : dy + height, dx : dx + width]
    return total / 9


def equalise(image):
    counts = (image.reshape(-1, 1) == np.arange(64)).sum(axis=0)
    cdf = counts.cumsum()
    table = (cdf - cdf.min()) * 63 // (cdf.max() - cdf.min())
    return table.astype(np.uint8)[image]


def vignette(image):
    h, w = image.shape[:2]
    y = (np.arange(h) - h / 2) / h
    x = (np.arange(w) - w / 2) / w
    fade = np.exp(-2 * (y[:, None] ** 2 + x[None, :] ** 2))
    return (image * fade[:, :, None]).astype(np.uint8)


def sobel(image):
    gx = np.zeros_like(image)
    gy = np.zeros_like(image)
    gx[1:-1, 1:-1] = (
        image[:-2, 2:] + 2 * image[1:-1, 2:] + image[2:, 2:] - image[:-2, :-2] - 2 * image[1:-1, :-2] - image[2:, :-2]
    )
    gy[1:-1, 1:-1] = (
        image[2:, :-2] + 2 * image[2:, 1:-1] + image[2:, 2:] - image[:-2, :-2] - 2 * image[:-2, 1:-1] - image[:-2, 2:]
    )
    return np.sqrt(gx**2 + gy**2)


def grey(image):
    weights = np.array([0.299, 0.587, 0.114])
    return (image[..., :3] * weights).sum(axis=-1)

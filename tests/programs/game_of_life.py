"""Conway's Game of Life on a board with dead borders."""

import numpy as np


def step(board):
    neighbours = (
        board[:-2, :-2] + board[:-2, 1:-1] + board[:-2, 2:]
        + board[1:-1, :-2] + board[1:-1, 2:]
        + board[2:, :-2] + board[2:, 1:-1] + board[2:, 2:]
    )  # fmt: skip
    alive = board[1:-1, 1:-1] == 1
    new = np.zeros_like(board)
    new[1:-1, 1:-1] = (neighbours == 3) | (alive & (neighbours == 2))
    return new


def generations(board):
    board = board.copy()
    for _ in range(4):
        n = np.zeros(board.shape, dtype=int)
        n[1:-1, 1:-1] += board[:-2, :-2] + board[:-2, 1:-1] + board[:-2, 2:]
        n[1:-1, 1:-1] += board[1:-1, :-2] + board[1:-1, 2:]
        n[1:-1, 1:-1] += board[2:, :-2] + board[2:, 1:-1] + board[2:, 2:]
        board[(n < 2) | (n > 3)] = 0
        board[n == 3] = 1
    return board

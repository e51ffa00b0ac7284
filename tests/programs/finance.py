"""Option prices after Black and Scholes (1973); the normal distribution by Abramowitz and Stegun, 26.2.17."""

import numpy as np


def normal_cdf(x):
    k = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    poly = k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    tail = np.exp(-x * x / 2.0) * 0.3989422804014327 * poly
    return np.where(x >= 0, 1.0 - tail, tail)


def black_scholes(spot, strike, years, rate, volatility):
    root = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / root
    d2 = d1 - root
    discounted = strike * np.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    return call, call - spot + discounted


def drawdown(prices):
    returns = np.log(prices[1:] / prices[:-1])
    wealth = np.concatenate([np.zeros(1), np.cumsum(returns)])
    return returns, wealth.max() - wealth[-1], returns.std() * np.sqrt(252)

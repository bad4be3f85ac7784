"""Prints scikit-image's numbers that qna/tasks/image_metrics_test.cc compares with.

    pip install scikit-image && python3 tests/golden/make_metrics.py
"""

import numpy as np
import skimage
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio, structural_similarity


def wave(height, width, phase):
    y = np.arange(height, dtype=float).reshape(-1, 1, 1)
    x = np.arange(width, dtype=float).reshape(1, -1, 1)
    c = np.arange(3, dtype=float).reshape(1, 1, -1)
    return 0.5 + 0.25 * np.sin(0.7 * y + phase + c) + 0.25 * np.cos(0.3 * x * (1 + 0.1 * y) - c)


a, b = wave(24, 31, 0), wave(24, 31, 0.4)
print("scikit-image", skimage.__version__)
print("MSE", repr(float(mean_squared_error(a, b))))
print("PSNR", repr(float(peak_signal_noise_ratio(a, b, data_range=1))))
print("SSIM", repr(float(structural_similarity(a, b, data_range=1, channel_axis=2))))

"""The layers in plain loops, one softmax per window: what the words of the documentation say, and nothing else."""

import torch

NEGATIVE_INFINITY = float("-inf")


def taps(row, column, sizes, mask, kernel_size, stride, padding, dilation):
    """(tap, y, x) of the taps of a window that take part; mask [H, W] or None."""
    for tap in range(kernel_size[0] * kernel_size[1]):
        tap_y, tap_x = divmod(tap, kernel_size[1])
        y = row * stride[0] - padding[0] + tap_y * dilation[0]
        x = column * stride[1] - padding[2] + tap_x * dilation[1]
        if 0 <= y < sizes[0] and 0 <= x < sizes[1] and (mask is None or mask[y, x]):
            yield tap, y, x


def windows(sizes, kernel_size, stride, padding, dilation):
    """Rows and columns of windows."""
    spans = [(kernel - 1) * step + 1 for kernel, step in zip(kernel_size, dilation)]
    return (
        (sizes[0] + padding[0] + padding[1] - spans[0]) // stride[0] + 1,
        (sizes[1] + padding[2] + padding[3] - spans[1]) // stride[1] + 1,
    )


def window_attention(scores, values, bias, tap_weights, mask, kernel_size, stride, padding, dilation, separate):
    batch, height, width, heads, dim = values.shape
    queries = scores.shape[3]
    rows, columns = windows((height, width), kernel_size, stride, padding, dilation)
    out = torch.zeros(batch, rows, columns, queries, heads, dim, dtype=torch.float64)
    for b in range(batch):
        for i in range(rows):
            for j in range(columns):
                image_mask = None if mask is None else mask[b]
                present = list(taps(i, j, (height, width), image_mask, kernel_size, stride, padding, dilation))
                for query in range(queries):
                    for head in range(heads):
                        logits = []
                        for tap, y, x in present:
                            logit = scores[b, y, x, query, head].double()
                            if bias is not None:
                                logit = logit + bias.flatten(0, 1)[tap, query, head]
                            logits.append(logit)
                        if not logits or max(logits) == NEGATIVE_INFINITY:
                            continue
                        weights = torch.stack(logits).softmax(0)
                        for weight, (tap, y, x) in zip(weights, present):
                            if tap_weights is not None:
                                weight = weight * tap_weights.flatten(0, 1)[tap, query, head]
                            out[b, i, j, query, head] += weight * values[b, y, x, head].double()
    return out if separate else out.sum(3)


def sasa(q, k, v, bias, mask, kernel_size, stride, padding, dilation):
    batch, height, width, heads, dim = k.shape
    out = torch.zeros(q.shape, dtype=torch.float64)
    for b in range(batch):
        for i in range(q.shape[1]):
            for j in range(q.shape[2]):
                image_mask = None if mask is None else mask[b]
                present = list(taps(i, j, (height, width), image_mask, kernel_size, stride, padding, dilation))
                for head in range(heads):
                    logits = [
                        q[b, i, j, head].double() @ k[b, y, x, head].double()
                        + (0 if bias is None else bias.flatten(0, 1)[tap, head])
                        for tap, y, x in present
                    ]
                    if not logits:
                        continue
                    weights = torch.stack(logits).softmax(0)
                    for weight, (_, y, x) in zip(weights, present):
                        out[b, i, j, head] += weight * v[b, y, x, head].double()
    return out

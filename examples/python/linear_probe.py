"""How much a linear classifier can read from a network's features: what they are worth for other tasks.

    qna features model.safetensors data/train -o train.safetensors
    qna features model.safetensors data/test -o test.safetensors
    python3 linear_probe.py train.safetensors test.safetensors

A picture's class is the folder it lies in. The classifier is logistic regression on standardised features; how much
its weights are held down is chosen by a fifth of the training pictures.
"""

import argparse
import json
import os

import torch
from safetensors import safe_open


def read(path, classes=None):
    """Features, labels and the names of the classes."""
    with safe_open(path, "pt") as file:
        features = file.get_tensor("features").float()
        folders = [os.path.basename(os.path.dirname(name)) for name in json.loads(file.metadata()["images"])]
    classes = classes or sorted(set(folders))
    return features, torch.tensor([classes.index(folder) for folder in folders]), classes


def fit(features, labels, classes, decay):
    """Weights [features + 1, classes] of least cross entropy + decay * |weights|^2."""
    weights = torch.zeros(features.shape[1] + 1, classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=300, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        logits = features @ weights[:-1] + weights[-1]
        value = torch.nn.functional.cross_entropy(logits, labels) + decay * weights[:-1].square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weights.detach()


def accuracy(features, labels, weights):
    return 100 * ((features @ weights[:-1] + weights[-1]).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="features of the training pictures")
    parser.add_argument("test", help="features of other pictures of the same classes")
    given = parser.parse_args()
    features, labels, classes = read(given.train)
    test, test_labels, _ = read(given.test, classes)
    mean, std = features.mean(0), features.std(0) + 1e-6
    features, test = (features - mean) / std, (test - mean) / std
    held_back = torch.arange(len(labels)) % 5 == 0
    scores = {}
    for decay in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        weights = fit(features[~held_back], labels[~held_back], len(classes), decay)
        scores[decay] = accuracy(features[held_back], labels[held_back], weights)
    best = max(scores, key=scores.get)
    weights = fit(features, labels, len(classes), best)
    print(f"{accuracy(test, test_labels, weights):.2f} % of {len(test_labels)} pictures, {len(classes)} classes, "
          f"{features.shape[1]} features of {len(labels)} training pictures (decay {best:g})")


if __name__ == "__main__":
    main()
